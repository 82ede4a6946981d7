"""`steno sql`: a question in one's own SQL. It parses and prints; the ledger is opened for reading alone."""

from typing import Any

from ..ledger.ask.sql import ask
from ..ledger.store import open_ledger
from ..screen.grid import Column, grid
from ..screen.words import several
from .asked import write
from .options import Parser
from .terminal import look

EXAMPLES = """examples:
  steno sql "SELECT verdict, count(*) FROM runs GROUP BY verdict"
  steno sql "SELECT model, sum(output) AS output FROM spend GROUP BY model" --json
  steno sql "SELECT path, count(*) FROM changes GROUP BY path ORDER BY 2 DESC LIMIT 10" --csv

The tables: runs, sessions, tasks, requests, calls, changes, denials, texts, notes, budgets, sources, and the sums by
hour, spend and tool_use. Times are milliseconds since 1970, money is nano-dollars, and what is not known is NULL.
"""


def run(words: list[str]) -> int:
    """Carry out `steno sql` and return its exit code."""
    parser = Parser("sql", "Ask the ledger in SQL. It can only be read.", EXAMPLES)
    parser.add_argument("sql", metavar="SQL", help="one SELECT")
    parser.add_forms()
    parser.add_ledger(imports=False)
    options = parser.given(words)
    names, rows = ask(open_ledger(options.ledger, only_read=True), options.sql)
    write(
        options.form,
        lambda: _page(names, rows),
        lambda: [dict(zip(names, row, strict=True)) for row in rows],
        names=names,
    )
    return 0


def _page(names: list[str], rows: list[list[Any]]) -> list[str]:
    figures = [all(isinstance(row[at], int | float | None) for row in rows) and bool(rows) for at in range(len(names))]
    columns = [Column(name, right, text=not right) for name, right in zip(names, figures, strict=True)]
    return [*grid(look(), columns, [[_shown(value) for value in row] for row in rows]), "", several(len(rows), "row")]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"({len(value):,} bytes)" if isinstance(value, bytes) else str(value)
