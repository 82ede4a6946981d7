"""`steno sql`: a question in one's own SQL. It parses and prints; the ledger is opened for reading alone."""

from typing import Any

from ..ledger.queries.sql import run_query
from ..ledger.store import open_ledger
from ..views.formatting import format_count
from ..views.table import Column, render_table
from .options import CommandParser
from .query_options import write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno sql "SELECT verdict, count(*) FROM runs GROUP BY verdict"
  steno sql "SELECT model, sum(output) AS output FROM spend GROUP BY model" --json
  steno sql "SELECT path, count(*) FROM changes GROUP BY path ORDER BY 2 DESC LIMIT 10" --csv

The tables: runs, sessions, tasks, requests, calls, changes, denials, texts, notes, budgets, sources, and the sums by
hour, spend and tool_use. Times are milliseconds since 1970, money is nano-dollars, and what is not known is NULL.
"""


def run(words: list[str]) -> int:
    """Carry out `steno sql` and return its exit code."""
    parser = CommandParser("sql", "Ask the ledger in SQL. It can only be read.", EXAMPLES)
    parser.add_argument("sql", metavar="SQL", help="one SELECT")
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(words)
    names, rows = run_query(open_ledger(options.ledger, read_only=True), options.sql)
    write_result(
        options.form,
        lambda: _render(names, rows),
        lambda: [dict(zip(names, row, strict=True)) for row in rows],
        leading_columns=names,
    )
    return 0


def _render(names: list[str], rows: list[list[Any]]) -> list[str]:
    figures = [
        all(isinstance(row[at], int | float | None) for row in rows) and bool(rows)
        for at in range(len(names))
    ]
    columns = [
        Column(name, right, can_truncate=not right)
        for name, right in zip(names, figures, strict=True)
    ]
    return [
        *render_table(
            detect_style(), columns, [[_format_value(value) for value in row] for row in rows]
        ),
        "",
        format_count(len(rows), "row"),
    ]


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return f"({len(value):,} bytes)" if isinstance(value, bytes) else str(value)
