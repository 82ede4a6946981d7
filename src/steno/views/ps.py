"""Table of active runs, from the rows of `steno ps --json`; `steno top` shares its cells."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.context import hp_and_status
from .formatting import format_compact, format_money, gauge
from .live import STATE_STYLES, format_clock
from .table import HP_COLOURS, Cell, Column, PageStyle, render_table

GAUGE_COLUMNS = 3
COLUMNS = (
    Column("id"),
    Column("agent", drop_priority=7),
    Column("state"),
    Column("time", align_right=True),
    Column("turns", align_right=True, drop_priority=5),
    Column("tokens", align_right=True, drop_priority=4),
    Column("cost", align_right=True, drop_priority=3),
    Column("context", drop_priority=2),
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
        context_cell(row["context"]["fraction"]),
        activity(row),
        row["cwd"] or "",
        row["name"] or "",
        row["prompt"],
    ]


def context_cell(fraction: float | None) -> Cell | str:
    """The used part of the context window; empty if unknown."""
    if fraction is None:
        return ""
    _, status = hp_and_status(fraction)
    return Cell(f"{gauge(fraction, GAUGE_COLUMNS)} {fraction:.0%}", HP_COLOURS[status])


def activity(row: Mapping[str, Any]) -> str:
    """The current tool call, or the wait for the next attempt."""
    if row["waits_s"] is not None:
        return f"next attempt in {format_clock(row['waits_s'])}"
    return " ".join(filter(None, (row["tool"], row["target"])))
