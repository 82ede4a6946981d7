"""Plot of a session's context size per request, with the thresholds."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec.structs import asdict

from ..analysis.context import CONTEXT_LEVELS, context_level
from ..ledger.results import ContextSample, SessionSummary
from .formatting import (
    SPARK_BLOCKS,
    format_count,
    format_number,
    format_overhead,
    single_line,
)
from .table import HP_COLOURS, PageStyle

PLOT_ROWS = 14
SCALE_TOPS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)  # of the window
SCALE_COLUMNS = 6
THRESHOLD_COLUMNS = 14  # " critical 95 %"
NARROW_THRESHOLD_COLUMNS = 5  # " 95 %"
MIN_WIDE_COLUMNS = 60  # narrower pages show thresholds without their names
MIN_PLOT_COLUMNS = 10
MAX_PLOT_COLUMNS = 100
MAX_REQUEST_COLUMNS = 8  # width of one request when there are few
LEVEL_COLOURS = {"critical": "red", "refresh": "yellow", "warn": "yellow"}


def context_page(
    session: SessionSummary,
    points: Sequence[ContextSample],
    overhead: int | None,
    style: PageStyle,
    when: Callable[[int | None], str],
) -> list[str]:
    """The session's title and times, the plot, and the figures."""
    title = " · ".join(
        filter(None, (f"session {session.short_id}", session.project, session.title))
    )
    times = f"{when(points[0].at)} to {when(points[-1].at)}"
    head = [line for text in (title, times) for line in style.wrap(single_line(text))]
    context = session.context
    colour = HP_COLOURS.get(context.status or "", "")
    facts = " · ".join(_facts(session, points, overhead))
    parts = [] if context.overhead is None else [format_overhead(asdict(context.overhead))]
    return [
        *head,
        "",
        *plot(points, style),
        "",
        *(style.paint(line, colour) for line in style.wrap(facts)),
        *(line for text in parts for line in style.wrap(text)),
    ]


def _facts(
    session: SessionSummary, points: Sequence[ContextSample], overhead: int | None
) -> list[str]:
    if session.context_source == "upper_bound":
        return [session.context.text, "upper bound: sum over several requests"]
    facts = [
        session.context.text,
        f"peak {format_number(max(point.used for point in points))}",
        format_count(len(points), "request"),
    ]
    drops = sum(point.compacted for point in points)
    if drops or session.compactions:
        compactions = format_count(max(drops, session.compactions), "compaction")
        facts.append(compactions + (" (▼)" if drops else ""))
    if overhead is None:
        facts.append("initial overhead unknown")
    else:
        facts.append(f"initial overhead about {format_number(overhead)}")
    return facts


def plot(points: Sequence[ContextSample], style: PageStyle, height: int = PLOT_ROWS) -> list[str]:
    """One column per request, or per group of requests; the top is just above what was used."""
    is_narrow = style.columns < MIN_WIDE_COLUMNS
    label_columns = NARROW_THRESHOLD_COLUMNS if is_narrow else THRESHOLD_COLUMNS
    room = style.columns - SCALE_COLUMNS - label_columns
    columns = min(MAX_PLOT_COLUMNS, max(MIN_PLOT_COLUMNS, room))
    groups = _groups(points, columns)
    request_columns = max(1, min(MAX_REQUEST_COLUMNS, columns // len(groups)))
    peaks = [max(group, key=lambda point: point.used).fraction for group in groups]
    top = next((part for part in SCALE_TOPS if max(peaks) <= part), 1.0)
    lines = [
        _plot_row(row, height, top, peaks, request_columns, style)
        for row in range(height - 1, -1, -1)
    ]
    drops = "".join(
        ("▼" if any(point.compacted for point in group) else " ").ljust(request_columns)
        for group in groups
    ).rstrip(" ")
    foot = [" " * SCALE_COLUMNS + style.paint(drops, "cyan")] if drops else []
    return [*lines, f"   0 └{'─' * (len(groups) * request_columns)}", *foot]


def _groups(points: Sequence[ContextSample], columns: int) -> list[Sequence[ContextSample]]:
    count = min(columns, len(points))
    edges = [at * len(points) // count for at in range(count + 1)]
    return [points[low:high] for low, high in pairwise(edges)]


def _plot_row(
    row: int, height: int, top: float, peaks: list[float], request_columns: int, style: PageStyle
) -> str:
    """One row, counted from the bottom; a dotted line marks a threshold."""
    low = row / height * top
    high = (row + 1) / height * top
    threshold = next(((name, at) for name, at in CONTEXT_LEVELS if low < at <= high), None)
    empty = "┄" if threshold else " "
    cells = []
    for fraction in peaks:
        eighths = round((min(fraction, top) - low) / top * height * 8)
        if eighths > 0:
            colour = LEVEL_COLOURS.get(context_level(fraction) or "", "green")
            cells.append((SPARK_BLOCKS[min(eighths, 8) - 1] * request_columns, colour))
        else:
            cells.append((empty * request_columns, "dim"))
    while cells and not cells[-1][0].strip():
        cells.pop()
    scale = (
        f"{high * 100:3.{0 if top > 0.05 else 1}f}%"
        if row in (height - 1, height // 2 - 1)
        else "    "
    )
    blocks = "".join(style.paint(text, colour) if text.strip() else text for text, colour in cells)
    return f"{scale} │{blocks}{style.paint(_threshold_label(threshold, style), 'dim')}"


def _threshold_label(threshold: tuple[str, float] | None, style: PageStyle) -> str:
    if threshold is None:
        return ""
    name, fraction = threshold
    label = f" {fraction * 100:.0f} %"
    return label if style.columns < MIN_WIDE_COLUMNS else f" {name}{label}"
