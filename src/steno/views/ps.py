"""Table of active runs, from the rows of `steno ps --json`."""

from collections.abc import Mapping, Sequence
from typing import Any

from .formatting import format_compact, format_money
from .live import STATE_STYLES, format_clock
from .table import HP_COLOURS, Cell, Column, PageStyle, render_table

COLUMNS = (
    Column("id"),
    Column("agent", drop_priority=7),
    Column("state"),
    Column("time", align_right=True),
    Column("turns", align_right=True, drop_priority=5),
    Column("tokens", align_right=True, drop_priority=4),
    Column("cost", align_right=True, drop_priority=3),
    Column("context", align_right=True, drop_priority=2),
    Column("activity", drop_priority=6, can_truncate=True),
    Column("project", drop_priority=8, can_truncate=True, keep_end=True),
    Column("name", drop_priority=2, can_truncate=True),
    Column("prompt", drop_priority=1, can_truncate=True),
)


def active_runs_table(rows: Sequence[Mapping[str, Any]], style: PageStyle) -> list[str]:
    """One line per run."""
    return render_table(style, COLUMNS, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[Cell | str]:
    state = str(row["state"])
    return [
        row["short"],
        row["agent"],
        Cell(state, STATE_STYLES.get(state, "red")),
        format_clock(row["elapsed_s"]),
        str(row["turns"] or ""),
        format_compact(row["tokens"]) if row["tokens"] else "",
        format_money(row["cost_usd"]) if row["cost_usd"] is not None else "",
        _context_cell(row["context"]),
        " ".join(filter(None, (row["tool"], row["target"]))) or _wait_text(row["waits_s"]),
        row["cwd"] or "",
        row["name"] or "",
        row["prompt"],
    ]


def _context_cell(context: Mapping[str, Any]) -> Cell | str:
    if context["hp"] is None:
        return ""
    return Cell(f"{context['hp']:.0f}% HP", HP_COLOURS.get(context["status"], ""))


def _wait_text(seconds: float | None) -> str:
    return "" if seconds is None else f"next attempt in {format_clock(seconds)}"
