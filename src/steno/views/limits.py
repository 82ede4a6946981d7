"""The page of `steno limits`: gauges of the usage limits, their pace, and when they reset."""

from collections.abc import Sequence

from ..ledger.queries.limits import LimitStatus
from ..units import DAY_MS, HOUR_MS, MINUTE_MS
from .formatting import UNKNOWN, format_duration, gauge
from .runs import LocalTimeFormatter
from .table import Cell, Column, PageStyle, render_table

GAUGE_COLUMNS = 10
WINDOW_LABELS = {"five_hour": "5 hours", "seven_day": "7 days"}
SOURCE_LABELS = {"statusline": "status line", "event": "agent", "error": "failed run"}
HIGH_UTILIZATION = 0.8
CRITICAL_UTILIZATION = 0.95
COLUMNS = (
    Column("agent", drop_priority=3),
    Column("account", drop_priority=4, can_truncate=True),
    Column("limit", can_truncate=True),
    Column("used", align_right=True),
    Column("", drop_priority=2),
    Column("resets in"),
    Column("pace", align_right=True, drop_priority=1),
    Column("at this pace"),
    Column("observed", drop_priority=5),
)


def limits_page(
    limits: Sequence[LimitStatus], now: int, style: PageStyle, when: LocalTimeFormatter
) -> list[str]:
    """One line per window of each agent and account."""
    return render_table(style, COLUMNS, [_row(limit, now, when) for limit in limits])


def _row(limit: LimitStatus, now: int, when: LocalTimeFormatter) -> list[Cell | str]:
    colour = utilization_colour(limit.utilization)
    used = UNKNOWN if limit.utilization is None else f"{limit.utilization * 100:.0f} %"
    bar = "" if limit.utilization is None else gauge(limit.utilization, GAUGE_COLUMNS)
    age = format_span(now - limit.observed_at)
    return [
        limit.agent,
        limit.account or "",
        window_label(limit.window),
        Cell(used, colour),
        Cell(bar, colour),
        _reset_text(limit, now, when),
        "" if limit.rate_per_hour is None else f"{limit.rate_per_hour * 100:.1f} %/h",
        _forecast(limit, now),
        f"{age} ago ({SOURCE_LABELS.get(limit.source, limit.source)})",
    ]


def window_label(window: str) -> str:
    """The name of a window: 5 hours, 7 days, or words of the agent."""
    for name, label in WINDOW_LABELS.items():
        if window.startswith(name):
            return label + window.removeprefix(name).replace("_", " ")
    return window.replace("_", " ")


def utilization_colour(utilization: float | None) -> str:
    if utilization is None:
        return "dim"
    if utilization >= CRITICAL_UTILIZATION:
        return "red"
    return "yellow" if utilization >= HIGH_UTILIZATION else "green"


def _reset_text(limit: LimitStatus, now: int, when: LocalTimeFormatter) -> str:
    if limit.resets_at is None:
        return UNKNOWN
    if limit.has_reset(now):
        return f"reset {when(limit.resets_at)[5:]}"
    left = limit.resets_at - now
    at = when(limit.resets_at)
    return f"{format_span(left)} ({at[-5:] if left < DAY_MS else at[5:]})"


def _forecast(limit: LimitStatus, now: int) -> Cell | str:
    if limit.utilization is None:
        return ""
    if limit.utilization >= 1:
        return Cell("used up", "red")
    if limit.used_up_at is not None:
        return Cell(f"used up in {format_span(max(0, limit.used_up_at - now))}", "yellow")
    return "lasts" if limit.rate_per_hour is not None else ""


def format_span(milliseconds: int) -> str:
    """A duration: 40 s, 29 min, 2 h 10 min, 3 d 4 h."""
    if milliseconds < HOUR_MS:
        minutes = milliseconds // MINUTE_MS
        return f"{minutes} min" if minutes else f"{milliseconds // 1000} s"
    if milliseconds < 2 * DAY_MS:
        return format_duration(milliseconds)
    return f"{milliseconds // DAY_MS} d {milliseconds % DAY_MS // HOUR_MS} h"
