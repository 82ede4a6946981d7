"""Two runs or sessions side by side: the figures, the difference, the ratio. All text is cleaned; it never prints."""

from collections.abc import Callable, Sequence
from typing import Any

from ..answer.finds import Figure
from .grid import Cell, Column, grid
from .look import Look
from .words import UNKNOWN, money, number, percent, span

_WRITTEN: dict[str, Callable[[Any], str]] = {"text": str, "number": number, "money": money, "span": span, "percent": percent}
LESS_IS_BETTER = ("cost_usd", "tokens_total", "duration_ms", "tool_errors", "denials", "context_peak")


def sides(figures: Sequence[Figure], one: str, two: str, look: Look) -> list[str]:
    """One line for each figure."""
    columns = (
        Column("", text=True),
        Column(one, True, text=True),
        Column(two, True, text=True),
        Column("difference", True, 2),
        Column("ratio", True, 3),
    )
    return grid(look, columns, [_line(figure) for figure in figures])


def _line(figure: Figure) -> list[Cell | str]:
    ratio = figure.ratio
    return [
        figure.name.removesuffix("_usd").removesuffix("_ms").replace("_", " "),
        _written(figure.one, figure.kind),
        _written(figure.two, figure.kind),
        Cell(_difference(figure), _style(figure)),
        "" if ratio is None else f"{ratio:.2f} ×",
    ]


def _written(value: Any, kind: str) -> str:
    return UNKNOWN if value is None else _WRITTEN[kind](value)


def _difference(figure: Figure) -> str:
    difference = figure.difference
    if difference is None:
        return ""
    if not difference:
        return "="
    if figure.kind == "percent":
        return f"{difference * 100:+.1f} points"
    return ("+" if difference > 0 else "-") + _WRITTEN[figure.kind](abs(difference))


def _style(figure: Figure) -> str:
    if figure.name not in LESS_IS_BETTER or not figure.difference:
        return ""
    return "green" if figure.difference < 0 else "red"
