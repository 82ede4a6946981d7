"""Budgets as a table: spent, left, where it leads, and a bar. All text is cleaned; it never prints."""

from collections.abc import Sequence

from ..answer.finds import Budget
from ..meter import dollars
from .bars import gauge
from .grid import Cell, Column, grid
from .look import Look
from .words import money, number, percent

BAR = 20
COLUMNS = (
    Column("period"),
    Column("project", text=True, end=True),
    Column("spent", True),
    Column("limit", True),
    Column("left", True, 3),
    Column("forecast", True, 1),
    Column("unpriced", True, 4),
    Column("", spare=2),
)


def budgets(found: Sequence[Budget], look: Look) -> list[str]:
    """One line for each budget."""
    return grid(look, COLUMNS, [_line(one) for one in found])


def _line(one: Budget) -> list[Cell | str]:
    fraction = one.spent_nano / one.limit_nano
    ahead = one.forecast_nano > one.limit_nano
    style = "red" if one.exceeded else "yellow" if ahead else "green"
    left = one.limit_nano - one.spent_nano
    return [
        one.period,
        one.project or "all",
        Cell(money(dollars(one.spent_nano)), style),
        money(dollars(one.limit_nano)),
        money(dollars(left)) if left >= 0 else f"-{money(dollars(-left))}",
        Cell(money(dollars(one.forecast_nano)), "yellow" if ahead else ""),
        Cell(f"+{number(one.unpriced)}" if one.unpriced else "", "yellow"),
        Cell(f"{gauge(min(1.0, fraction), BAR)} {percent(fraction)}", style),
    ]
