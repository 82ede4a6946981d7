"""Budgets as a table: spent, left, where it leads, and a bar. All text is cleaned; it never prints."""

from collections.abc import Sequence

from ..analysis.usage import nano_to_usd
from ..ledger.results import BudgetStatus
from .formatting import format_money, format_number, format_percent, gauge
from .layout import PageStyle
from .table import Cell, Column, render_table

GAUGE_COLUMNS = 20
COLUMNS = (
    Column("period"),
    Column("project", can_truncate=True, keep_end=True),
    Column("spent", True),
    Column("limit", True),
    Column("left", True, 3),
    Column("forecast", True, 1),
    Column("unpriced", True, 4),
    Column("", drop_priority=2),
)


def budgets_table(found: Sequence[BudgetStatus], look: PageStyle) -> list[str]:
    """One line for each budget."""
    return render_table(look, COLUMNS, [_row(one) for one in found])


def _row(one: BudgetStatus) -> list[Cell | str]:
    fraction = one.spent_nano / one.limit_nano
    ahead = one.forecast_nano > one.limit_nano
    style = "red" if one.exceeded else "yellow" if ahead else "green"
    left = one.limit_nano - one.spent_nano
    return [
        one.period,
        one.project or "all",
        Cell(format_money(nano_to_usd(one.spent_nano)), style),
        format_money(nano_to_usd(one.limit_nano)),
        format_money(nano_to_usd(left)) if left >= 0 else f"-{format_money(nano_to_usd(-left))}",
        Cell(format_money(nano_to_usd(one.forecast_nano)), "yellow" if ahead else ""),
        Cell(f"+{format_number(one.unpriced)}" if one.unpriced else "", "yellow"),
        Cell(f"{gauge(min(1.0, fraction), GAUGE_COLUMNS)} {format_percent(fraction)}", style),
    ]
