"""Comparison of two runs or sessions: values, difference and ratio per figure."""

from collections.abc import Callable, Sequence
from typing import Any

from ..ledger.results import ComparedFigure
from .formatting import UNKNOWN, format_duration, format_money, format_number, format_percent
from .table import Cell, Column, PageStyle, render_table

_FORMATTERS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "number": format_number,
    "money": format_money,
    "span": format_duration,
    "percent": format_percent,
}
LESS_IS_BETTER = (
    "cost_usd",
    "tokens_total",
    "duration_ms",
    "tool_errors",
    "denials",
    "context_peak",
)


def comparison_table(
    figures: Sequence[ComparedFigure], first: str, second: str, style: PageStyle
) -> list[str]:
    """One line per figure; `first` and `second` are the column titles."""
    columns = (
        Column("", can_truncate=True),
        Column(first, align_right=True, can_truncate=True),
        Column(second, align_right=True, can_truncate=True),
        Column("difference", align_right=True, drop_priority=2),
        Column("ratio", align_right=True, drop_priority=3),
    )
    return render_table(style, columns, [_row(figure) for figure in figures])


def _row(figure: ComparedFigure) -> list[Cell | str]:
    ratio = figure.ratio
    return [
        figure.name.removesuffix("_usd").removesuffix("_ms").replace("_", " "),
        format_figure(figure.first, figure.kind),
        format_figure(figure.second, figure.kind),
        Cell(format_difference(figure), _difference_colour(figure)),
        "" if ratio is None else f"{ratio:.2f} ×",
    ]


def format_figure(value: Any, kind: str) -> str:
    """One value, in the unit of its kind."""
    return UNKNOWN if value is None else _FORMATTERS[kind](value)


def format_difference(figure: ComparedFigure) -> str:
    """The second value less the first, with its sign; empty unless both are numbers."""
    difference = figure.difference
    if difference is None:
        return ""
    if not difference:
        return "="
    if figure.kind == "percent":
        return f"{difference * 100:+.1f} points"
    return ("+" if difference > 0 else "-") + _FORMATTERS[figure.kind](abs(difference))


def _difference_colour(figure: ComparedFigure) -> str:
    if figure.name not in LESS_IS_BETTER or not figure.difference:
        return ""
    return "green" if figure.difference < 0 else "red"
