"""The runs that go on, as a table. It lays out the rows of `steno ps --json`; all text is cleaned; it never prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from .figures import COLOURS
from .grid import Cell, Column, grid
from .line import STATES, clock
from .look import Look
from .words import compact, money

COLUMNS = (
    Column("id"),
    Column("agent", spare=7),
    Column("state"),
    Column("time", True),
    Column("turns", True, 5),
    Column("tokens", True, 4),
    Column("cost", True, 3),
    Column("context", True, 2),
    Column("doing", spare=6, text=True),
    Column("project", spare=8, text=True, end=True),
    Column("prompt", spare=1, text=True),
)


def alive(rows: Sequence[Mapping[str, Any]], look: Look) -> list[str]:
    """One line for each run."""
    return grid(look, COLUMNS, [_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> list[Cell | str]:
    state, context = str(row["state"]), row["context"]
    return [
        row["short"],
        row["agent"],
        Cell(state, STATES.get(state, "red")),
        clock(row["elapsed_s"]),
        str(row["turns"] or ""),
        compact(row["tokens"]) if row["tokens"] else "",
        money(row["cost_usd"]) if row["cost_usd"] is not None else "",
        Cell(f"{context['hp']:.0f}% HP", COLOURS.get(context["status"], "")) if context["hp"] is not None else "",
        " ".join(filter(None, (row["tool"], row["target"]))) or _waits(row),
        row["cwd"] or "",
        row["prompt"],
    ]


def _waits(row: Mapping[str, Any]) -> str:
    left = row["waits_s"]
    return "" if left is None else f"{clock(left)} until the next attempt"
