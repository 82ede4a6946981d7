"""The pages of `steno usage` and `steno tools`: totals per group, with bars."""

from collections.abc import Iterator, Sequence

from ..analysis.usage import nano_to_usd
from ..ledger.totals import (
    ContextPeak,
    ToolCallStats,
    UsageReport,
    UsageRow,
    UsageTotals,
    WastedCost,
)
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
    unknown_runs,
    wrap,
)
from .table import Cell, Column, PageStyle, render_table

CostTrends = dict[str | None, list[int]]
TREND_STEPS = 16
MIN_BAR_COLUMNS = 6
MAX_BAR_COLUMNS = 24
WIDE_COLUMNS = 150  # from here on every counter has its own column
MIN_KEY_COLUMNS = 24  # enough to tell models apart
TEXT_GROUPINGS = ("project", "model", "agent", "session")
WARN_ERROR_RATE = 0.05
HIGH_ERROR_RATE = 0.2


def usage_page(
    usage: UsageReport, style: PageStyle, hidden: int = 0, trends: CostTrends | None = None
) -> list[str]:
    """One line per group, the total, and footnotes; `hidden` groups are only in the total."""
    is_wide = style.columns >= WIDE_COLUMNS
    highest_cost = max((row.totals.cost_nano or 0 for row in usage.rows), default=0)
    bar_columns = MAX_BAR_COLUMNS if is_wide else _bar_columns(style)
    rows = [
        [
            *_usage_row(_label(usage.by, row), row.totals, is_wide),
            bar(row.totals.cost_nano or 0, highest_cost, bar_columns),
            sparkline(trends[row.key]) if trends and row.key in trends else "",
        ]
        for row in usage.rows
    ]
    foot = [[*_usage_row("total", usage.total, is_wide), "", ""]]
    lines = render_table(style, _usage_columns(usage.by, is_wide), rows, foot)
    lines += _hidden_rows_hint(hidden, style)
    notes = (line for text in _footnotes(usage) for line in wrap(text, style.columns))
    return [*lines, "", *notes]


def _bar_columns(style: PageStyle) -> int:
    return max(MIN_BAR_COLUMNS, min(MAX_BAR_COLUMNS, style.columns // 6))


def _hidden_rows_hint(hidden: int, style: PageStyle) -> list[str]:
    return [style.paint(f"{hidden:,} more (included in the total)", "dim")] if hidden else []


def _usage_columns(by: str, is_wide: bool) -> list[Column]:
    counters = ("input", "cache write", "cache read", "output") if is_wide else ()
    cost_parts = ("reported", "computed") if is_wide else ()
    return [
        Column(
            by,
            can_truncate=by in TEXT_GROUPINGS,
            keep_end=by == "project",
            min_columns=MIN_KEY_COLUMNS,
        ),
        Column("requests", align_right=True, drop_priority=3),
        *(Column(name, align_right=True, drop_priority=6) for name in counters),
        Column("tokens", align_right=True, drop_priority=1),
        Column("cost", align_right=True),
        Column("unpriced", align_right=True, drop_priority=2),
        *(Column(name, align_right=True, drop_priority=7) for name in cost_parts),
        Column("cache hit", align_right=True, drop_priority=4),
        Column("saved", align_right=True, drop_priority=5),
        Column("", drop_priority=8),
        Column("trend", drop_priority=9),
    ]


def _usage_row(label: str, totals: UsageTotals, is_wide: bool) -> list[Cell | str]:
    tokens = totals.tokens
    format_tokens = format_number if is_wide else format_compact
    counters: list[str] = []
    cost_parts: list[str] = []
    if is_wide:
        parts = (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)
        counters = [format_tokens(part) for part in parts]
        nano = (totals.reported_nano, totals.computed_nano)
        cost_parts = [format_money(nano_to_usd(part)) for part in nano]
    return [
        label,
        format_number(totals.known_requests),
        *counters,
        format_tokens(tokens.total),
        format_money(nano_to_usd(totals.cost_nano)),
        Cell(f"+{format_number(totals.unpriced)}" if totals.unpriced else "", "yellow"),
        *cost_parts,
        format_percent(totals.cache_hit_rate) if totals.cache_hit_rate is not None else "-",
        format_money(nano_to_usd(totals.saved_nano)),
    ]


def _label(by: str, row: UsageRow) -> str:
    if row.key is None:
        return UNKNOWN
    if by == "session":
        return " ".join(filter(None, (row.key[:8], row.title or row.project)))
    return row.key


def _footnotes(usage: UsageReport) -> Iterator[str]:
    """Cost by source, cache savings, unpriced models, failed runs, peak context."""
    total = usage.total
    if cost := ", ".join(_cost_sources(total)):
        yield f"cost: {cost}"
    if total.saved_nano:
        saved = format_money(nano_to_usd(total.saved_nano))
        yield f"cache: {format_percent(total.cache_hit_rate)} of input tokens, saved {saved}"
    for row in usage.unpriced:
        yield f"unpriced: {row.key or 'unnamed model'} ({_unpriced_counts(row.totals)})"
    if usage.runs_without_usage:
        yield f"no usage reported: {format_count(usage.runs_without_usage, 'run')}"
    if usage.wasted.runs:
        yield _wasted_text(usage.wasted)
    if usage.peak_context is not None:
        yield _peak_context_text(usage.peak_context)


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


def _peak_context_text(peak: ContextPeak) -> str:
    limit = f" of {format_compact(peak.limit)}" if peak.limit else ""
    return f"peak context: {format_compact(peak.used)}{limit} tokens (session {peak.session[:8]})"


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
