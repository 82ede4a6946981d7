"""Time zones: the offset at an instant, the instant of a local time, the days that hours fall into. It never asks a clock."""

import os
import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct

from ...report import StenoError

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000  # milliseconds
OFFSET_SCAN_STEP_MS = 7 * DAY_MS  # between two looks for a change of the offset: no zone has changed it twice in so short a time
EPOCH = datetime(1970, 1, 1)
LAST_DAY_MS = 253_402_214_400_000  # the last day of the year 9999: no calendar here goes on after it, so offsets stay as they are


class TimeZone:
    """A zone by its IANA name, or the system's own."""

    def __init__(self, name: str | None = None) -> None:
        self._zone_info = _zone_by_name(name) if name else None
        self.name = name or _system_zone_name()

    def offset_minutes(self, at: int) -> int:
        """Minutes that local time is ahead of UTC at an instant."""
        at = min(at, LAST_DAY_MS)
        if self._zone_info is None:
            return time.localtime(at // 1000).tm_gmtoff // 60
        ahead = datetime.fromtimestamp(at // 1000, timezone.utc).astimezone(self._zone_info).utcoffset()
        return int(ahead.total_seconds()) // 60 if ahead is not None else 0

    def to_local(self, at: int) -> datetime:
        """An instant as a local time, without its zone."""
        return EPOCH + timedelta(milliseconds=at + self.offset_minutes(at) * MINUTE_MS)

    def to_instant(self, local: datetime) -> int:
        """The instant of a local time: the first of two where clocks go back, the change itself where they skip it."""
        bare = (local - EPOCH) // timedelta(milliseconds=1)
        before, after = (self.offset_minutes(max(0, bare + step)) for step in (-DAY_MS, DAY_MS))
        found = [bare - ahead * MINUTE_MS for ahead in (before, after)]
        return next((at for at, ahead in zip(found, (before, after), strict=True) if self.offset_minutes(max(0, at)) == ahead), found[0])

    def start_of_day(self, day: date) -> int:
        """The instant at which a local day begins."""
        return self.to_instant(datetime(day.year, day.month, day.day))

    def offset_segments(self, first: int, last: int) -> "list[OffsetSegment]":
        """The stretches of constant offset from `first` to `last`, in their order; the first has no beginning."""
        found = [OffsetSegment(first, self.offset_minutes(first))]
        at = first
        while at < last:
            following = min(at + OFFSET_SCAN_STEP_MS, last)
            if self.offset_minutes(following) != found[-1].offset_minutes:
                change = self._find_offset_change(at, following)
                found.append(OffsetSegment(change, self.offset_minutes(change)))
                following = change
            at = following
        return found

    def _find_offset_change(self, low: int, high: int) -> int:
        """The first minute between two instants at which the offset is another one."""
        before = self.offset_minutes(low)
        while high - low > MINUTE_MS:
            middle = (low + high) // 2 // MINUTE_MS * MINUTE_MS
            middle = middle if middle > low else low + MINUTE_MS
            low, high = (middle, high) if self.offset_minutes(middle) == before else (low, middle)
        return high // MINUTE_MS * MINUTE_MS


class OffsetSegment(Struct, frozen=True):
    """From `start` (milliseconds) on, local time is `offset` minutes ahead of UTC."""

    start_ms: int
    offset_minutes: int


def _zone_by_name(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # a folder, a name that leads out, no such zone
        raise StenoError(f"no time zone is called {name!r}; expected a name such as Europe/Berlin or UTC") from None


def _system_zone_name() -> str:
    """What the system calls its zone."""
    given = os.environ.get("TZ")
    if given is not None:
        return given.removeprefix(":") or "UTC"
    _, mark, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if mark else time.tzname[0]


def date_from_day_number(number: int) -> date | None:
    """The day of a number of days since 1970; None for the first ones, which stand for a time that is not known."""
    return date.fromordinal(date(1970, 1, 1).toordinal() + number) if number > 0 else None
