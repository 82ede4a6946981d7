"""`steno ledger sql`: runs a read-only SQL query."""

from typing import Any

from ..ledger.queries.sql import run_query
from ..ledger.store import open_ledger
from ..views.formatting import format_count
from ..views.table import Column, render_table
from .options import CommandParser
from .query_options import write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno ledger sql "SELECT verdict, count(*) FROM runs GROUP BY verdict"
  steno ledger sql "SELECT model, sum(output) AS output FROM spend GROUP BY model" --json
  steno ledger sql "SELECT path, count(*) FROM changes GROUP BY path ORDER BY 2 DESC LIMIT 10" --csv

Tables: runs, sessions, tasks, requests, calls, changes, denials, texts, notes, budgets, sources,
and the hourly totals spend and tool_use. Times are milliseconds since 1970, amounts are
nano-dollars, and unknown values are NULL.
"""


def run(args: list[str]) -> int:
    """Run `steno ledger sql` and return its exit code."""
    parser = CommandParser("ledger sql", "Run a read-only SQL query on the ledger.", EXAMPLES)
    parser.add_argument("sql", metavar="SQL", help="a single SELECT statement")
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    names, rows = run_query(open_ledger(options.ledger, read_only=True), options.sql)
    write_result(
        options.form,
        lambda: _render(names, rows),
        lambda: [dict(zip(names, row, strict=True)) for row in rows],
        leading_columns=names,
    )
    return 0


def _render(names: list[str], rows: list[list[Any]]) -> list[str]:
    columns = []
    for index, name in enumerate(names):
        is_numeric = bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        columns.append(Column(name, is_numeric, can_truncate=not is_numeric))
    cells = [[_format_value(value) for value in row] for row in rows]
    return [*render_table(detect_style(), columns, cells), "", format_count(len(rows), "row")]


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return f"({len(value):,} bytes)" if isinstance(value, bytes) else str(value)
