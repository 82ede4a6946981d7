"""The page of `steno report`: sums by day, project, model and so on, with a bar for the cost. It never prints."""

from collections.abc import Iterator, Sequence

from ..analysis.usage import nano_to_usd
from ..event import NANO_PER_USD
from ..ledger.totals import ToolCallStats, UsageReport, UsageRow, UsageTotals
from .formatting import (
    UNKNOWN,
    bar,
    format_compact,
    format_count,
    format_duration,
    format_money,
    format_number,
    format_percent,
    sparkline,
)
from .layout import PageStyle
from .sanitize import wrap
from .table import Cell, Column, render_table

CostTrends = dict[str | None, list[int]]
TREND_STEPS = 16  # letters of a course
MAX_BAR_COLUMNS = 24  # columns of the longest bar on a wide page
WIDE_COLUMNS = 150  # columns from which every counter has a column of its own


def usage_page(
    answer: UsageReport, look: PageStyle, left_off: int = 0, courses: CostTrends | None = None
) -> list[str]:
    """The whole page: a line for each key, the total, and what there is to say below it. `courses`: its cost over the time."""
    wide = look.columns >= WIDE_COLUMNS
    dearest = max((line.totals.cost_nano or 0 for line in answer.rows), default=0)
    room = MAX_BAR_COLUMNS if wide else max(6, min(MAX_BAR_COLUMNS, look.columns // 6))
    rows = [
        [
            *_usage_row(_label(answer.by, line), line.totals, wide),
            bar(line.totals.cost_nano or 0, dearest, room),
            sparkline(courses[line.key]) if courses and line.key in courses else "",
        ]
        for line in answer.rows
    ]
    foot = [[*_usage_row("total", answer.total, wide), "", ""]]
    lines = render_table(look, _usage_columns(answer.by, wide), rows, foot)
    if left_off:
        lines += [
            look.paint(line, "dim")
            for line in wrap(
                f"and {format_count(left_off, 'more line')}, in the total", look.columns
            )
        ]
    return [*lines, "", *(line for text in _footnotes(answer) for line in wrap(text, look.columns))]


def _usage_columns(by: str, wide: bool) -> list[Column]:
    text = by in ("project", "model", "agent", "session")
    counters = (
        [Column(name, True, 6) for name in ("input", "cache write", "cache read", "output")]
        if wide
        else []
    )
    return [
        Column(by, can_truncate=text, keep_end=by == "project"),
        Column("requests", True, 3),
        *counters,
        Column("tokens", True, 1),
        Column("cost", True),
        Column("unpriced", True, 2),
        *([Column("reported", True, 7), Column("computed", True, 7)] if wide else []),
        Column("cache hit", True, 4),
        Column("saved", True, 5),
        Column("", drop_priority=8),
        Column("over the time", drop_priority=9),
    ]


def _usage_row(label: str, sums: UsageTotals, wide: bool) -> list[Cell | str]:
    tokens, figure = sums.tokens, format_number if wide else format_compact
    counters = (
        [
            figure(one)
            for one in (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)
        ]
        if wide
        else []
    )
    parts = (
        [
            format_money(nano_to_usd(sums.reported_nano)),
            format_money(nano_to_usd(sums.computed_nano)),
        ]
        if wide
        else []
    )
    return [
        label,
        format_number(sums.requests),
        *counters,
        figure(tokens.total),
        format_money(nano_to_usd(sums.cost_nano)),
        Cell(f"+{format_number(sums.unpriced)}" if sums.unpriced else "", "yellow"),
        *parts,
        format_percent(sums.cache_hit_rate) if sums.cache_hit_rate is not None else "-",
        format_money(nano_to_usd(sums.saved_nano)),
    ]


def _label(by: str, line: UsageRow) -> str:
    if line.key is None:
        return UNKNOWN
    if by == "session":
        return " ".join(filter(None, (line.key[:8], line.title or line.project)))
    return line.key


def _footnotes(answer: UsageReport) -> Iterator[str]:
    """What the table cannot say: where the cost comes from, what has no price, what was wasted, the peak."""
    total = answer.total
    parts = (
        [f"{format_money(total.reported_nano / NANO_PER_USD)} reported by the agents"]
        if total.reported_nano
        else []
    )
    parts += (
        [f"{format_money(total.computed_nano / NANO_PER_USD)} computed from the price table"]
        if total.computed_nano
        else []
    )
    parts += [f"+{format_number(total.unpriced)} unpriced"] if total.unpriced else []
    if parts:
        yield "cost: " + ", ".join(parts)
    if total.saved_nano:
        yield f"cache: {format_percent(total.cache_hit_rate)} of the input was read from it, which saved {format_money(total.saved_nano / NANO_PER_USD)}"
    for line in answer.unpriced:
        sums = line.totals
        known = sums.as_json()["cost"]["unpriced_tokens"]
        count = f"{format_count(sums.unpriced, 'request')}, {'tokens unknown' if known is None else format_count(known, 'token')}"
        yield f"unpriced: {line.key or 'a model without a name'} ({count})"
    if answer.runs_without_usage:
        yield f"unknown: what {format_count(answer.runs_without_usage, 'run')} used, which say nothing of it"
    waste = answer.wasted
    if waste.runs:
        known = waste.as_json()["usd"]
        more = (
            f" and {format_count(waste.unpriced, 'run')} of unknown cost"
            if waste.unpriced and known is not None
            else ""
        )
        yield f"wasted: {format_money(known)}{more} on {format_count(waste.runs, 'run')} that did not succeed"
    if answer.peak_context is not None:
        limit = (
            f" of {format_compact(answer.peak_context.limit)}" if answer.peak_context.limit else ""
        )
        yield f"peak context: {format_compact(answer.peak_context.used)}{limit} tokens, in session {answer.peak_context.session[:8]}"


# -- tools -----------------------------------------------------------------------------------------------------------

TOOL_COLUMNS = (
    Column("tool", can_truncate=True),
    Column("calls", True),
    Column("failed", True, 1),
    Column("rate", True),
    Column("refused", True, 3),
    Column("open", True, 4),
    Column("mean", True, 2),
    Column("slowest", True, 5),
    Column("", drop_priority=6),
)


def tools_page(
    lines: Sequence[ToolCallStats], total: ToolCallStats, look: PageStyle, left_off: int = 0
) -> list[str]:
    """Calls, failures and times of each tool, with a bar for the calls."""
    most = max((line.calls for line in lines), default=0)
    room = max(6, min(MAX_BAR_COLUMNS, look.columns // 6))
    rows = [[*_tool_row(line.name or UNKNOWN, line), bar(line.calls, most, room)] for line in lines]
    found = render_table(look, TOOL_COLUMNS, rows, [[*_tool_row("total", total), ""]])
    return found + (
        [look.paint(f"and {format_count(left_off, 'more tool')}, in the total", "dim")]
        if left_off
        else []
    )


def _tool_row(name: str, sums: ToolCallStats) -> list[Cell | str]:
    rate = sums.error_rate
    worry = "" if not rate else "red" if rate >= 0.2 else "yellow" if rate >= 0.05 else ""
    return [
        name,
        format_number(sums.calls),
        format_number(sums.errors),
        Cell("-" if rate is None else format_percent(rate), worry),
        format_number(sums.denied),
        format_number(sums.open),
        "-" if sums.mean_ms is None else format_duration(sums.mean_ms),
        "-" if sums.slowest_ms is None else format_duration(sums.slowest_ms),
    ]
