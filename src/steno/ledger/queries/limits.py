"""Usage limits of an account: the latest observation of each window, its pace and its end.

Observations come from the status line of Claude Code, from rate-limit events in recordings and
transcripts, and from runs that a limit stopped.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from msgspec import Struct

from ...units import DAY_MS, HOUR_MS, MINUTE_MS
from ..protocol import Store
from ..results import TimeFormatter
from ..rows import LIMIT_COLUMNS, utc_iso

WINDOW_LENGTHS_MS = {"five_hour": 5 * HOUR_MS, "seven_day": 7 * DAY_MS}
MIN_RATE_SPAN_MS = 5 * MINUTE_MS  # between two observations, for a rate of their own
RECENT_PART = 5  # a fifth of the window: an hour of five, a day and a half of seven
SAME_RESET_MS = 10 * MINUTE_MS  # reset times of one window differ by less
MAX_RECENT_MS = 8 * DAY_MS  # older observations are about windows that have ended


class LimitObservation(NamedTuple):
    """A row of `limits`."""

    agent: str
    account: str
    window: str
    observed_at: int
    utilization: float | None
    resets_at: int | None
    status: str | None
    source: str


class LimitStatus(Struct):
    """Where an account stands in one window of its usage limit."""

    agent: str
    account: str | None
    window: str  # five_hour, seven_day, or the agent's name for it
    utilization: float | None  # used part; None: unknown, also after a reset
    status: str | None  # of the agent: allowed, allowed_warning, rejected
    resets_at: int | None
    observed_at: int
    source: str  # statusline, event or error
    rate_per_hour: float | None = None  # used part per hour
    used_up_at: int | None = None  # at this rate, before the reset

    def has_reset(self, now: int) -> bool:
        """Whether the window of the observation has ended."""
        return self.resets_at is not None and self.resets_at <= now

    def as_json(self, now: int, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """Return JSON values."""
        left_ms = None if self.resets_at is None else max(0, self.resets_at - now)
        return {
            "agent": self.agent,
            "account": self.account,
            "window": self.window,
            "utilization": self.utilization,
            "status": self.status,
            "resets_at": iso(self.resets_at),
            "resets_in_s": None if left_ms is None else left_ms / 1000,
            "rate_per_hour": self.rate_per_hour,
            "used_up_at": iso(self.used_up_at),
            "observed_at": iso(self.observed_at),
            "source": self.source,
        }


def list_limits(store: Store, now: int) -> list[LimitStatus]:
    """Return the latest state of each window, by agent and account; short windows first."""
    names = ", ".join(LIMIT_COLUMNS)
    rows = store.query(
        f"SELECT {names} FROM limits WHERE observed_at >= ? "
        "ORDER BY agent, account, window_kind, observed_at",
        (now - MAX_RECENT_MS,),
    )
    observations = [LimitObservation(*row) for row in rows]
    limits = [
        _status(list(group), now)
        for _, group in groupby(observations, key=lambda row: (row.agent, row.account, row.window))
    ]
    order = [*WINDOW_LENGTHS_MS]
    return sorted(
        limits,
        key=lambda limit: (
            limit.agent,
            limit.account or "",
            order.index(limit.window) if limit.window in order else len(order),
            limit.window,
        ),
    )


def _status(observations: list[LimitObservation], now: int) -> LimitStatus:
    last = observations[-1]
    status = LimitStatus(
        agent=last.agent,
        account=last.account or None,
        window=last.window,
        utilization=last.utilization,
        status=last.status,
        resets_at=last.resets_at,
        observed_at=last.observed_at,
        source=last.source,
    )
    if status.has_reset(now):
        status.utilization = None
        status.status = None
        return status
    status.rate_per_hour = _rate_per_hour(observations)
    if status.utilization is not None and status.rate_per_hour:
        hours_left = max(0.0, 1 - status.utilization) / status.rate_per_hour
        used_up_at = last.observed_at + round(hours_left * HOUR_MS)
        if status.resets_at is None or used_up_at < status.resets_at:
            status.used_up_at = used_up_at
    return status


def _rate_per_hour(observations: list[LimitObservation]) -> float | None:
    """The recent pace if two observations show it, else the mean since the window began."""
    last = observations[-1]
    length = WINDOW_LENGTHS_MS.get(last.window)
    if last.utilization is None or last.resets_at is None or length is None:
        return None
    first = _first_recent(observations, last.observed_at - length // RECENT_PART)
    if first is not None and first.utilization is not None:
        span = last.observed_at - first.observed_at
        if span >= MIN_RATE_SPAN_MS:
            return max(0.0, last.utilization - first.utilization) / span * HOUR_MS
    elapsed = last.observed_at - (last.resets_at - length)
    return last.utilization / elapsed * HOUR_MS if elapsed >= MIN_RATE_SPAN_MS else None


def _first_recent(observations: Iterable[LimitObservation], since: int) -> LimitObservation | None:
    """The first observation of the same window since a time."""
    *_, last = observations
    for row in observations:
        is_same = abs((row.resets_at or 0) - (last.resets_at or 0)) < SAME_RESET_MS
        if is_same and row.observed_at >= since and row.utilization is not None:
            return row
    return None
