"""`steno trend`: success rate and medians over time, as sparklines and as a table."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..checks.across import RunStatistics
from .formatting import UNKNOWN, format_count, gauge, single_line, sparkline
from .repeat import FIGURES, UNCHANGED, change_cell, format_interval, rate_colour
from .table import LABEL_COLUMNS, Cell, Column, PageStyle, render_table

MAX_SPARK_COLUMNS = 40
VALUE_COLUMNS = 40  # beside a sparkline
GAUGE_COLUMNS = 10
SERIES_COLUMNS = (Column(""), Column(""), Column(""), Column("", align_right=True))


class TrendRow(NamedTuple):
    """The runs of one day, week, month, repetition or baseline."""

    key: str
    statistics: RunStatistics


class TrendSeries(NamedTuple):
    """A figure over time. `top` is the value of a full block; None: the highest value."""

    label: str
    values: list[float | None]
    form: Callable[[float | None], str]
    top: float | None = None


def trend_page(
    title: str,
    by: str,
    rows: Sequence[TrendRow],
    total: RunStatistics,
    style: PageStyle,
    interrupted: int = 0,
) -> list[str]:
    """Each figure from the first row to the last, then all rows; `interrupted` runs are in none."""
    span = rows[0].key if len(rows) == 1 else f"{rows[0].key} to {rows[-1].key}"
    count = format_count(total.runs, "run")
    if interrupted:
        count += f" ({interrupted_text(interrupted)})"
    facts = f" · {count} · {single_line(span)} · medians"
    head = style.paint(single_line(title), "bold") + style.paint(facts, "dim")
    lines = [head, ""]
    if len(rows) > 1:
        lines += [*_series_lines(_series(rows), style), ""]
    foot = [_table_row("all", total)] if by != "baseline" and len(rows) > 1 else []
    return [*lines, *render_table(style, _columns(by), [_table_row(*row) for row in rows], foot)]


def interrupted_text(count: int) -> str:
    return f"{format_count(count, 'interrupted run')} left out"


def _series(rows: Sequence[TrendRow]) -> list[TrendSeries]:
    rates: list[float | None] = [row.statistics.success_rate for row in rows]
    series = [TrendSeries("success", rates, format_rate, 1.0)]
    for name, (label, form, _) in FIGURES.items():
        medians = [getattr(row.statistics, name).median for row in rows]
        series.append(TrendSeries(label, medians, form))
    return series


def format_rate(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{rate * 100:.0f} %"


def _series_lines(all_series: Sequence[TrendSeries], style: PageStyle) -> list[str]:
    columns = max(8, min(MAX_SPARK_COLUMNS, style.columns - LABEL_COLUMNS - VALUE_COLUMNS))
    cells: list[list[Cell | str]] = []
    for series in all_series:
        known = [value for value in series.values if value is not None]
        label = Cell(series.label.ljust(LABEL_COLUMNS - 2), "dim")
        if not known:
            cells.append([label, "", UNKNOWN, ""])
            continue
        line = Cell(sparkline(known, columns, series.top), "cyan")
        text = f"{series.form(known[0])} → {series.form(known[-1])}"
        cells.append([label, line, text, _change(series, known[0], known[-1])])
    return render_table(style, SERIES_COLUMNS, cells, header=False)


def _change(series: TrendSeries, first: float, last: float) -> Cell:
    if series.top is None:
        return change_cell(first, last)
    points = round((last - first) * 100)
    return Cell(f"{points:+} points", "green" if points > 0 else "red") if points else UNCHANGED


def _columns(by: str) -> list[Column]:
    return [
        Column(by, can_truncate=True, min_columns=10),
        Column("runs", align_right=True),
        Column("success", align_right=True),
        Column("", drop_priority=2),
        Column("95 % confidence", align_right=True, drop_priority=4),
        Column("cost", align_right=True),
        Column("tokens", align_right=True, drop_priority=3),
        Column("turns", align_right=True, drop_priority=1),
        Column("duration", align_right=True, drop_priority=1),
    ]


def _table_row(key: str, statistics: RunStatistics) -> list[Cell | str]:
    rate = statistics.success_rate
    colour = rate_colour(rate)
    return [
        single_line(key),
        str(statistics.runs),
        Cell(format_rate(rate), colour),
        Cell(gauge(rate or 0.0, GAUGE_COLUMNS), colour),
        Cell(format_interval(statistics), "dim"),
        *(form(getattr(statistics, name).median) for name, (_, form, _) in FIGURES.items()),
    ]
