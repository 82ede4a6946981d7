"""The course of a context as a picture: columns of blocks over the requests, with the thresholds. It never prints."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from ..analysis.context import CONTEXT_LEVELS, context_level
from ..ledger.results import ContextSample, SessionSummary
from .formatting import SPARK_BLOCKS as BLOCKS
from .formatting import format_count, format_number
from .layout import PageStyle
from .sanitize import single_line, wrap
from .summary import STATUS_COLOURS

PLOT_ROWS = 14  # rows of the picture: 7 % of the window each
SCALE_COLUMNS, THRESHOLD_NAME_COLUMNS, THRESHOLD_FIGURE_COLUMNS = (
    6,
    14,
    5,
)  # columns for the scale, and for the thresholds with or without their names
MIN_NAMED_COLUMNS = 60  # columns below which they have none
MAX_PLOT_COLUMNS = 100  # columns of the picture: more only draws each request wider
LEVEL_STYLES = {"critical": "red", "refresh": "yellow", "warn": "yellow"}


def context_page(
    session: SessionSummary,
    points: Sequence[ContextSample],
    overhead: int | None,
    look: PageStyle,
    when: Callable[[int | None], str],
) -> list[str]:
    """The whole page: whose context it is, the picture, and what it comes to."""
    title = " · ".join(
        filter(None, (f"session {session.short_id}", session.project, session.title))
    )
    facts = [
        session.context.text,
        f"peak {format_number(max(point.used for point in points))}",
        format_count(len(points), "request"),
    ]
    drops = sum(point.compacted for point in points)
    if drops or session.compactions:
        facts.append(
            format_count(max(drops, session.compactions), "compaction") + (" (▼)" if drops else "")
        )
    facts.append(
        "overhead unknown"
        if overhead is None
        else f"overhead about {format_number(overhead)} before any work"
    )
    times = f"{when(points[0].at)} to {when(points[-1].at)}"
    style = STATUS_COLOURS.get(session.context.status or "", "")
    head = [line for text in (title, times) for line in wrap(single_line(text), look.columns)]
    return [
        *head,
        "",
        *plot(points, look),
        "",
        *(look.paint(line, style) for line in wrap(" · ".join(facts), look.columns)),
    ]


def plot(points: Sequence[ContextSample], look: PageStyle, height: int = PLOT_ROWS) -> list[str]:
    """The picture: a column for each request, or for the fullest of several; its top is the whole window."""
    columns = min(
        MAX_PLOT_COLUMNS,
        max(
            10,
            look.columns
            - SCALE_COLUMNS
            - (
                THRESHOLD_FIGURE_COLUMNS
                if look.columns < MIN_NAMED_COLUMNS
                else THRESHOLD_NAME_COLUMNS
            ),
        ),
    )
    shares = _bucket_ranges(points, columns)
    wide = max(1, min(8, columns // len(shares)))  # few requests are drawn wider
    fullest = [max(points[low:high], key=lambda point: point.used).fraction for low, high in shares]
    lines = [_plot_row(row, height, fullest, wide, look) for row in range(height - 1, -1, -1)]
    drops = "".join(
        ("▼" if any(point.compacted for point in points[low:high]) else " ").ljust(wide)
        for low, high in shares
    )
    foot = [" " * SCALE_COLUMNS + look.paint(drops.rstrip(" "), "cyan")] if drops.strip() else []
    return [*lines, f"   0 └{'─' * (len(shares) * wide)}", *foot]


def _bucket_ranges(points: Sequence[ContextSample], columns: int) -> list[tuple[int, int]]:
    many = min(columns, len(points))
    edges = [at * len(points) // many for at in range(many + 1)]
    return list(pairwise(edges))


def _plot_row(row: int, height: int, fullest: list[float], wide: int, look: PageStyle) -> str:
    """One row, from the bottom counted: blocks where the context reaches, a dotted line where a threshold runs."""
    low, high = row / height, (row + 1) / height
    named = next(((name, at) for name, at in CONTEXT_LEVELS if low < at <= high), None)
    empty = "┄" if named else " "
    cells = []
    for fraction in fullest:
        eighths = round((min(fraction, 1.0) - low) * height * 8)
        style = LEVEL_STYLES.get(context_level(fraction) or "", "green") if eighths > 0 else "dim"
        cells.append(((empty if eighths <= 0 else BLOCKS[min(eighths, 8) - 1]) * wide, style))
    while cells and not cells[-1][0].strip():
        cells.pop()
    scale = f"{high * 100:3.0f}%" if row in (height - 1, height // 2 - 1) else "    "
    blocks = "".join(look.paint(text, style) if text.strip() else text for text, style in cells)
    return f"{scale} │{blocks}{look.paint(_threshold_label(named, look), 'dim')}"


def _threshold_label(threshold: tuple[str, float] | None, look: PageStyle) -> str:
    if threshold is None:
        return ""
    return (
        f" {threshold[1] * 100:.0f} %"
        if look.columns < MIN_NAMED_COLUMNS
        else f" {threshold[0]} {threshold[1] * 100:.0f} %"
    )
