"""Charts as SVG inside HTML: stacked bars, the context of a run, its tool calls, meters.

The drawing is stretched to the width of the page; labels are HTML beside it, so that they keep
their size on a phone. Colours come from the style sheet by class: `s0` to `s5` are series, `ok`,
`warn` and `bad` have a meaning. Texts are escaped; only numbers get into attributes.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from markupsafe import Markup
from msgspec import Struct

MAX_SERIES = 6  # classes s0 to s5; the last one is the sum of the others
MAX_POINTS = 300  # of a line; more requests are drawn in groups
MAX_SPANS = 300  # of a timeline: the longest
MAX_ROWS = 12
GRID_LINES = 3
AXIS_STEPS = (1.2, 1.5, 3, 4.5, 6, 7.5, 9, 12)  # times a power of ten
SVG = Markup(
    '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
)

ValueFormatter = Callable[[float], str]


class Series(Struct):
    """One colour of a stacked chart: a value for each bar."""

    name: str
    values: list[float]


class Span(Struct):
    """A bar of a timeline, in milliseconds since the start."""

    row: str
    start: float
    end: float
    title: str
    kind: str = ""  # "", bad, warn or wait
    link: str = ""


class Sample(Struct):
    """One request of a context chart: the used part of the window."""

    fraction: float
    is_compacted: bool = False


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def nice_top(value: float) -> float:
    """The end of an axis: the value rounded up, so that a third of it is a round number."""
    if value <= 0:
        return 1.0
    unit = 10 ** math.floor(math.log10(value))
    return float(next(step * unit for step in AXIS_STEPS if step * unit >= value))


def _figure(
    kind: str, plot: Markup, y_labels: Iterable[str], x_labels: Iterable[str], legend: Markup
) -> Markup:
    spans = Markup("<span>{}</span>")
    return Markup(
        '<figure class="chart {}"><div class="chart-y" aria-hidden="true">{}</div>'
        '<div class="chart-plot">{}</div>'
        '<div class="chart-x" aria-hidden="true">{}</div>{}</figure>'
    ).format(
        kind,
        Markup().join(map(spans.format, y_labels)),
        plot,
        Markup().join(map(spans.format, x_labels)),
        legend,
    )


def _grid(width: float, height: float) -> Markup:
    lines = (
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            _number(width), _number(y), _number(y)
        )
        for y in (height * index / GRID_LINES for index in range(GRID_LINES))
    )
    return Markup().join(lines)


def _legend(names: Sequence[str]) -> Markup:
    items = (
        Markup('<li><i class="s{}"></i>{}</li>').format(index, name)
        for index, name in enumerate(names)
    )
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(items))


# -- stacked bars ----------------------------------------------------------------------------------


def limit_series(series: Sequence[Series]) -> list[Series]:
    """The largest series, largest first, and the sum of the others."""
    ranked = sorted((one for one in series if any(one.values)), key=lambda one: -sum(one.values))
    if len(ranked) <= MAX_SERIES:
        return ranked
    kept = ranked[: MAX_SERIES - 1]
    others = [one.values for one in ranked[MAX_SERIES - 1 :]]
    rest = [sum(values) for values in zip(*others, strict=True)]
    return [*kept, Series("others", rest)]


def stacked_bars(
    labels: Sequence[str], series: Sequence[Series], format_value: ValueFormatter, title: str
) -> Markup:
    """One bar per label, made of the series; the value of each part is its tooltip."""
    shown = limit_series(series)
    count = max(1, len(labels))
    totals = [sum(one.values[index] for one in shown) for index in range(len(labels))]
    top = nice_top(max(totals, default=0))
    bars = []
    for index, label in enumerate(labels):
        bottom = 100.0
        rects = []
        for number, one in enumerate(shown):
            height = one.values[index] / top * 100
            bottom -= height
            if height > 0:
                rects.append(
                    Markup('<rect class="s{}" x="{}" y="{}" width="0.8" height="{}"/>').format(
                        number, _number(index + 0.1), _number(bottom), _number(height)
                    )
                )
        parts = [
            f"{one.name} {format_value(one.values[index])}" for one in shown if one.values[index]
        ]
        tooltip = "\n".join([f"{label}: {format_value(totals[index])}", *parts])
        bars.append(
            Markup(
                '<g><rect class="hit" x="{}" y="0" width="1" height="100"/>{}<title>{}</title></g>'
            ).format(index, Markup().join(rects), tooltip)
        )
    drawing = SVG.format(count, 100, title, _grid(count, 100) + Markup().join(bars))
    axis = [format_value(top * (GRID_LINES - line) / GRID_LINES) for line in range(GRID_LINES)]
    legend = _legend([one.name for one in shown])
    return _figure("bars", drawing, [*_even(axis), "0"], _axis_labels(labels), legend)


def _even(texts: Sequence[str]) -> list[str]:
    """Figures with the same number of decimals; none if all are whole."""
    whole = [re.sub(r"\.0+(?=\D*$)", "", text) for text in texts]
    return list(texts) if any("." in text for text in whole) else whole


def _axis_labels(labels: Sequence[str]) -> list[str]:
    """The first, the middle and the last label."""
    if len(labels) < 3:
        return list(labels)
    return [labels[0], labels[len(labels) // 2], labels[-1]]


# -- context ---------------------------------------------------------------------------------------


def context_chart(
    samples: Sequence[Sample], levels: Sequence[tuple[str, float]], describe: Callable[[int], str]
) -> Markup:
    """The used part of the window per request, the levels, and the compactions.

    The axis ends at the whole window, or lower if little of it was used. `describe` returns the
    tooltip of the sample with an index.
    """
    groups = _group_indexes(len(samples), MAX_POINTS)
    width = len(groups)
    peaks = [max(group, key=lambda index: samples[index].fraction) for group in groups]
    top = min(1.0, nice_top(max(sample.fraction for sample in samples) * 1.1))
    points = " ".join(
        f"{x},{_number(100 - min(1.0, samples[peak].fraction / top) * 100)}"
        for index, peak in enumerate(peaks)
        for x in (index, index + 1)
    )
    marks = [
        Markup('<line class="level {}" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            "bad" if name == "critical" else "warn", width, *[_number(100 - at / top * 100)] * 2
        )
        for name, at in levels
        if at <= top
    ]
    marks += [
        Markup('<line class="compaction" x1="{}" x2="{}" y1="0" y2="100"/>').format(index, index)
        for index, group in enumerate(groups)
        if any(samples[one].is_compacted for one in group)
    ]
    hits = [
        Markup(
            '<rect class="hit" x="{}" y="0" width="1" height="100"><title>{}</title></rect>'
        ).format(index, describe(peak))
        for index, peak in enumerate(peaks)
    ]
    area = Markup('<polygon class="area" points="0,100 {} {},100"/>').format(points, width)
    line = Markup('<polyline class="line" points="{}"/>').format(points)
    drawing = SVG.format(
        width, 100, "context used per request", area + line + Markup().join([*marks, *hits])
    )
    ends = ["request 1", str(len(samples))] if len(samples) > 1 else ["request 1"]
    return _figure(
        "context",
        drawing,
        [f"{top:.2%}".replace(".00", ""), f"{top / 2:.2%}".replace(".00", ""), "0"],
        ends,
        Markup(),
    )


def _group_indexes(length: int, count: int) -> list[range]:
    count = min(count, length)
    edges = [index * length // count for index in range(count + 1)]
    return [range(low, high) for low, high in pairwise(edges)]


# -- timeline --------------------------------------------------------------------------------------


def timeline(
    spans: Sequence[Span], total_ms: float, format_value: ValueFormatter, title: str
) -> Markup:
    """One line per row name, with a bar for each span; only the longest spans of very many."""
    total = max([total_ms, 1.0, *(span.end for span in spans)])
    longest = sorted(spans, key=lambda span: span.start - span.end)[:MAX_SPANS]
    rows: dict[str, list[Span]] = {span.row: [] for span in spans}
    for span in sorted(longest, key=lambda span: span.start):
        rows[span.row].append(span)
    lines = [_timeline_row(name, row, total, title) for name, row in [*rows.items()][:MAX_ROWS]]
    axis = Markup("<span>0</span><span>{}</span><span>{}</span>").format(
        format_value(total / 2), format_value(total)
    )
    return Markup(
        '<figure class="chart timeline">{}<div class="chart-x" aria-hidden="true">{}</div></figure>'
    ).format(Markup().join(lines), axis)


def _timeline_row(name: str, spans: Sequence[Span], total: float, title: str) -> Markup:
    lanes: list[float] = []  # the end of the last span in each lane: parallel calls are stacked
    rects = []
    for span in spans:
        lane = next((index for index, end in enumerate(lanes) if end <= span.start), len(lanes))
        lanes[lane : lane + 1] = [span.end]
        rect = Markup(
            '<rect class="span {}" x="{}" y="{}" width="{}" height="0.8"><title>{}</title></rect>'
        ).format(
            span.kind,
            _number(span.start / total * 1000),
            lane,
            _number(max(1.5, (span.end - span.start) / total * 1000)),
            span.title,
        )
        rects.append(Markup('<a href="{}">{}</a>').format(span.link, rect) if span.link else rect)
    drawing = SVG.format(1000, max(1, len(lanes)), f"{title}: {name}", Markup().join(rects))
    return Markup('<div class="row"><span class="name">{}</span>{}</div>').format(name, drawing)


# -- meters ----------------------------------------------------------------------------------------


def meter(fraction: float, label: str, kind: str = "", mark: float | None = None) -> Markup:
    """A bar for a part of a whole; `mark` is a second position, such as a forecast."""
    width = _number(min(1.0, max(0.0, fraction)) * 100)
    line = ""
    if mark is not None:
        line = Markup('<line class="mark" x1="{0}" x2="{0}" y1="0" y2="1"/>').format(
            _number(min(1.0, max(0.0, mark)) * 100)
        )
    bar = Markup('<rect class="track" width="100" height="1"/><rect class="fill {}" ').format(kind)
    bar += Markup('width="{}" height="1"/>{}').format(width, line)
    return Markup('<span class="meter">{}</span>').format(SVG.format(100, 1, label, bar))
