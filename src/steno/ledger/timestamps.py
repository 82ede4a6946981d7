"""Times in milliseconds since 1970 (UTC), as every table stores them."""

import time
from datetime import datetime, timedelta, timezone

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# The year 9999, the last one that datetime supports; later times are damaged data.
MAX_TIME_MS = 253_370_764_800_000
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_valid_time(at: int) -> bool:
    """False for times before 1970 or after 9999, which only damaged data contains."""
    return 0 <= at < MAX_TIME_MS


def from_datetime(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def utc_datetime(at: int | None) -> datetime | None:
    """None if unknown or out of range: agents may report any time."""
    try:
        return None if at is None else UNIX_EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        return None


def utc_iso(at: int | None) -> str | None:
    time = utc_datetime(at)
    if time is None:
        return None
    return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds")
