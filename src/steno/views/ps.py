"""The runs that go on, as a table. It lays out the rows of `steno ps --json`; all text is cleaned; it never prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from .formatting import format_compact, format_money
from .layout import PageStyle
from .live import STATE_STYLES, format_clock
from .summary import STATUS_COLOURS
from .table import Cell, Column, render_table

COLUMNS = (
    Column("id"),
    Column("agent", drop_priority=7),
    Column("state"),
    Column("time", True),
    Column("turns", True, 5),
    Column("tokens", True, 4),
    Column("cost", True, 3),
    Column("context", True, 2),
    Column("doing", drop_priority=6, can_truncate=True),
    Column("project", drop_priority=8, can_truncate=True, keep_end=True),
    Column("prompt", drop_priority=1, can_truncate=True),
)


def active_runs_table(rows: Sequence[Mapping[str, Any]], look: PageStyle) -> list[str]:
    """One line for each run."""
    return render_table(look, COLUMNS, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[Cell | str]:
    state, context = str(row["state"]), row["context"]
    return [
        row["short"],
        row["agent"],
        Cell(state, STATE_STYLES.get(state, "red")),
        format_clock(row["elapsed_s"]),
        str(row["turns"] or ""),
        format_compact(row["tokens"]) if row["tokens"] else "",
        format_money(row["cost_usd"]) if row["cost_usd"] is not None else "",
        Cell(f"{context['hp']:.0f}% HP", STATUS_COLOURS.get(context["status"], ""))
        if context["hp"] is not None
        else "",
        " ".join(filter(None, (row["tool"], row["target"]))) or _wait_text(row),
        row["cwd"] or "",
        row["prompt"],
    ]


def _wait_text(row: Mapping[str, Any]) -> str:
    left = row["waits_s"]
    return "" if left is None else f"{format_clock(left)} until the next attempt"
