"""Table of budgets: spent, left, forecast and a gauge."""

from collections.abc import Sequence

from ..analysis.usage import nano_to_usd
from ..ledger.results import BudgetStatus
from .formatting import format_money, format_number, format_percent, gauge
from .table import Cell, Column, PageStyle, render_table

GAUGE_COLUMNS = 20
COLUMNS = (
    Column("period"),
    Column("project", can_truncate=True, keep_end=True),
    Column("spent", align_right=True),
    Column("limit", align_right=True),
    Column("left", align_right=True, drop_priority=3),
    Column("forecast", align_right=True, drop_priority=1),
    Column("unpriced", align_right=True, drop_priority=4),
    Column("", drop_priority=2),
)


def budgets_table(budgets: Sequence[BudgetStatus], style: PageStyle) -> list[str]:
    """One line per budget."""
    return render_table(style, COLUMNS, [_row(budget) for budget in budgets])


def _row(budget: BudgetStatus) -> list[Cell | str]:
    fraction = budget.spent_nano / budget.limit_nano
    is_forecast_over = budget.forecast_nano > budget.limit_nano
    colour = _colour(budget.exceeded, is_forecast_over)
    return [
        budget.period,
        budget.project or "all",
        Cell(_format_nano(budget.spent_nano), colour),
        _format_nano(budget.limit_nano),
        _format_nano(budget.limit_nano - budget.spent_nano),
        Cell(_format_nano(budget.forecast_nano), "yellow" if is_forecast_over else ""),
        Cell(f"+{format_number(budget.unpriced)}" if budget.unpriced else "", "yellow"),
        Cell(f"{gauge(min(1.0, fraction), GAUGE_COLUMNS)} {format_percent(fraction)}", colour),
    ]


def _colour(exceeded: bool, is_forecast_over: bool) -> str:
    if exceeded:
        return "red"
    return "yellow" if is_forecast_over else "green"


def _format_nano(nano: int) -> str:
    sign = "-" if nano < 0 else ""
    return sign + format_money(nano_to_usd(abs(nano)))
