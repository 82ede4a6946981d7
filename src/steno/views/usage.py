"""The pages of `steno usage` and `steno tools`: totals per group, with bars."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..analysis.usage import nano_to_usd
from ..ledger.totals import (
    BLOCK_MS,
    ORIGIN_COLUMNS,
    ContextPeak,
    ToolCallStats,
    UsageBlock,
    UsageReport,
    UsageRow,
    UsageTotals,
    WastedCost,
)
from .formatting import (
    UNKNOWN,
    at_least,
    bar,
    format_compact,
    format_count,
    format_duration,
    format_hit_rate,
    format_money,
    format_number,
    format_percent,
    gauge,
    sparkline,
    unknown_runs,
)
from .table import Cell, Column, PageStyle, render_table

CostTrends = dict[str | None, list[int]]
NO_SHORT_IDS: Mapping[str, str] = {}
TREND_STEPS = 16
GAUGE_COLUMNS = 20
MIN_BAR_COLUMNS = 6
MAX_BAR_COLUMNS = 24
WIDE_COLUMNS = 140  # from here on tokens are written in full
MIN_KEY_COLUMNS = 24  # enough to tell models apart
TEXT_GROUPINGS = ("project", "model", "agent", "session", *ORIGIN_COLUMNS, "tag")
BREAKDOWN_MARK = "  └ "
_MODEL_DATE = re.compile(r"-20\d{6}$")
WARN_ERROR_RATE = 0.05
HIGH_ERROR_RATE = 0.2


def usage_page(
    usage: UsageReport,
    style: PageStyle,
    hidden: int = 0,
    trends: CostTrends | None = None,
    breakdown: bool = False,
    short_ids: Mapping[str, str] = NO_SHORT_IDS,
) -> list[str]:
    """One line per group, the total, and footnotes; `hidden` groups are only in the total.

    `breakdown` adds a line for each model of a group. `short_ids`: unique prefixes of sessions.
    """
    highest_cost = max((row.totals.cost_nano or 0 for row in usage.rows), default=0)
    rows: list[list[Cell | str]] = []
    for row in usage.rows:
        cells = _usage_row(_label(usage.by, row, short_ids), row, style, breakdown)
        rows.append(
            [
                *cells,
                bar(row.totals.cost_nano or 0, highest_cost, _bar_columns(style)),
                sparkline(trends[row.key]) if trends and row.key in trends else "",
            ]
        )
        if breakdown:
            rows += [[*_model_row(model, style), "", ""] for model in row.models]
    foot = [[*_usage_row("total", UsageRow("total", usage.total), style), "", ""]]
    lines = render_table(style, _usage_columns(usage.by), rows, foot)
    lines += _hidden_rows_hint(hidden, style)
    notes = (line for text in _footnotes(usage, short_ids) for line in style.wrap(text))
    return [*lines, "", *notes]


def _bar_columns(style: PageStyle) -> int:
    return max(MIN_BAR_COLUMNS, min(MAX_BAR_COLUMNS, style.columns // 8))


def _hidden_rows_hint(hidden: int, style: PageStyle) -> list[str]:
    return [style.paint(f"{hidden:,} more (included in the total)", "dim")] if hidden else []


def _usage_columns(by: str) -> list[Column]:
    return [
        Column(
            by,
            can_truncate=by in TEXT_GROUPINGS,
            keep_end=by in ("project", "repository"),
            min_columns=MIN_KEY_COLUMNS,
        ),
        Column("models", drop_priority=6, can_truncate=True, min_columns=MIN_KEY_COLUMNS),
        Column("input", align_right=True, drop_priority=3),
        Column("output", align_right=True, drop_priority=3),
        Column("cache write", align_right=True, drop_priority=4),
        Column("cache read", align_right=True, drop_priority=4),
        Column("total", align_right=True, drop_priority=1),
        Column("cost", align_right=True),
        Column("unpriced", align_right=True, drop_priority=2),
        Column("requests", align_right=True, drop_priority=8),
        Column("cache hit", align_right=True, drop_priority=9),
        Column("saved", align_right=True, drop_priority=10),
        Column("", drop_priority=5),
        Column("trend", drop_priority=7),
    ]


def _usage_row(
    label: str | Cell, row: UsageRow, style: PageStyle, breakdown: bool = False
) -> list[Cell | str]:
    totals = row.totals
    tokens = totals.tokens
    format_tokens = format_number if style.columns >= WIDE_COLUMNS else format_compact
    parts = (tokens.input, tokens.output, tokens.cache_write, tokens.cache_read)
    is_priced = totals.cost_nano is not None
    return [
        label,
        "" if breakdown else ", ".join(short_model_name(model.key) for model in row.models),
        *map(format_tokens, parts),
        at_least(format_tokens(tokens.total), totals.is_lower_bound),
        at_least(format_money(nano_to_usd(totals.cost_nano)), totals.is_lower_bound),
        Cell(f"+{format_number(totals.unpriced)}" if totals.unpriced else "", "yellow"),
        format_number(totals.known_requests),
        format_percent(totals.cache_hit_rate) if totals.cache_hit_rate is not None else "-",
        format_money(nano_to_usd(totals.saved_nano) if is_priced else None),
    ]


def _model_row(row: UsageRow, style: PageStyle) -> list[Cell | str]:
    label = BREAKDOWN_MARK + short_model_name(row.key)
    cells = _usage_row(label, row, style)
    return [Cell(cell, "dim") if isinstance(cell, str) else cell for cell in cells]


def short_model_name(name: str | None) -> str:
    """A model's name without its vendor and date, for lists."""
    return _MODEL_DATE.sub("", name.removeprefix("claude-")) if name else UNKNOWN


def _label(by: str, row: UsageRow, short_ids: Mapping[str, str]) -> str:
    if row.key is None:
        return "no tag" if by == "tag" else UNKNOWN
    if by == "session":
        session = short_ids.get(row.key, row.key)
        return " ".join(filter(None, (session, row.title or row.project)))
    return row.key


def _footnotes(usage: UsageReport, short_ids: Mapping[str, str]) -> Iterator[str]:
    """Cost by source, cache savings, unpriced models, failed runs, peak context."""
    total = usage.total
    if usage.by == "tag":
        yield "a run with several tags is in several rows, and once in the total"
    if cost := ", ".join(_cost_sources(total)):
        yield f"cost: {cost}"
    if total.saved_nano:
        saved = format_money(nano_to_usd(total.saved_nano))
        rate = format_hit_rate(total.cache_hit_rate)
        yield f"cache: {rate} of input tokens, saved {saved}"
    if total.is_lower_bound:
        yield f"≥ at least: the figures of {format_count(total.partial, 'request')} are incomplete"
    for row in usage.unpriced:
        yield f"unpriced: {row.key or 'unnamed model'} ({_unpriced_counts(row.totals)})"
    if usage.runs_without_usage:
        yield f"no usage reported: {format_count(usage.runs_without_usage, 'run')}"
    if usage.wasted.runs:
        yield _wasted_text(usage.wasted)
    if usage.peak_context is not None:
        yield _peak_context_text(usage.peak_context, short_ids)


def _cost_sources(total: UsageTotals) -> Iterator[str]:
    if total.reported_nano:
        yield f"{format_money(nano_to_usd(total.reported_nano))} reported by the agents"
    if total.computed_nano:
        yield f"{format_money(nano_to_usd(total.computed_nano))} computed from the price table"
    if total.unpriced:
        yield f"{format_count(total.unpriced, 'request')} unpriced"


def _unpriced_counts(totals: UsageTotals) -> str:
    tokens = totals.as_json()["cost"]["unpriced_tokens"]
    token_text = "tokens unknown" if tokens is None else format_count(tokens, "token")
    return f"{format_count(totals.unpriced, 'request')}, {token_text}"


def _wasted_text(wasted: WastedCost) -> str:
    usd = wasted.as_json()["usd"]
    unpriced = unknown_runs(wasted.unpriced) if usd is not None else ""
    runs = format_count(wasted.runs, "run")
    return f"wasted: {format_money(usd)} on {runs} that did not succeed{unpriced}"


def _peak_context_text(peak: ContextPeak, short_ids: Mapping[str, str]) -> str:
    limit = f" of {format_compact(peak.limit)}" if peak.limit else ""
    session = short_ids.get(peak.session, peak.session)
    return f"peak context: {format_compact(peak.used)}{limit} tokens (session {session})"


# -- blocks -------------------------------------------------------------------------------------


def blocks_page(
    blocks: Sequence[UsageBlock],
    total: UsageTotals,
    style: PageStyle,
    when: Callable[[int | None], str],
    hidden: int = 0,
) -> list[str]:
    """One line per block of five hours, and the pace of the active one."""
    rows = [[*_usage_row(_block_label(block, when), block.row, style), "", ""] for block in blocks]
    foot = [[*_usage_row("total", UsageRow("total", total), style), "", ""]]
    lines = render_table(style, _usage_columns("block"), rows, foot)
    lines += _hidden_rows_hint(hidden, style)
    active = [block for block in blocks if block.is_active]
    notes = (text for block in active for text in _block_notes(block, style, when))
    return [*lines, "", *(line for text in notes for line in style.wrap(text))]


def _block_label(block: UsageBlock, when: Callable[[int | None], str]) -> Cell | str:
    label = when(block.start)
    return Cell(f"{label} active", "cyan") if block.is_active else label


def _block_notes(
    block: UsageBlock, style: PageStyle, when: Callable[[int | None], str]
) -> Iterator[str]:
    elapsed = block.now - block.start
    end = when(block.end)[-5:]
    yield (
        f"active block: {gauge(elapsed / BLOCK_MS, GAUGE_COLUMNS)} {format_duration(elapsed)} of "
        f"{format_duration(BLOCK_MS)}, ends {end}"
    )
    rate = block.burn_rate
    tokens = f"{format_compact(round(rate.tokens_per_minute))} tokens/min"
    yield f"burn rate: {format_money(rate.usd_per_hour)} per hour, {tokens}"
    projected = block.projection
    yield (
        f"projected: {format_money(projected.usd)} and {format_compact(projected.tokens)} tokens "
        f"by {end} at this rate"
    )


# -- tools --------------------------------------------------------------------------------------

TOOL_COLUMNS = (
    Column("tool", can_truncate=True),
    Column("calls", align_right=True),
    Column("failed", align_right=True, drop_priority=1),
    Column("rate", align_right=True),
    Column("denied", align_right=True, drop_priority=3),
    Column("open", align_right=True, drop_priority=4),
    Column("mean", align_right=True, drop_priority=2),
    Column("slowest", align_right=True, drop_priority=5),
    Column("", drop_priority=6),
)


def tools_page(
    rows: Sequence[ToolCallStats], total: ToolCallStats, style: PageStyle, hidden: int = 0
) -> list[str]:
    """Calls, failures and times per tool, with a bar for the number of calls."""
    most_calls = max((row.calls for row in rows), default=0)
    columns = _bar_columns(style)
    cells = [
        [*_tool_row(row.name or UNKNOWN, row), bar(row.calls, most_calls, columns)] for row in rows
    ]
    lines = render_table(style, TOOL_COLUMNS, cells, [[*_tool_row("total", total), ""]])
    return lines + _hidden_rows_hint(hidden, style)


def _tool_row(name: str, stats: ToolCallStats) -> list[Cell | str]:
    rate = stats.error_rate
    return [
        name,
        format_number(stats.calls),
        format_number(stats.errors),
        Cell("-" if rate is None else format_percent(rate), _error_rate_colour(rate)),
        format_number(stats.denied),
        format_number(stats.open),
        "-" if stats.mean_ms is None else format_duration(stats.mean_ms),
        "-" if stats.slowest_ms is None else format_duration(stats.slowest_ms),
    ]


def _error_rate_colour(rate: float | None) -> str:
    if rate is None or rate < WARN_ERROR_RATE:
        return ""
    return "red" if rate >= HIGH_ERROR_RATE else "yellow"
