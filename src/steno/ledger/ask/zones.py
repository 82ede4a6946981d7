"""Time zones: the offset at an instant, the instant of a local time, the days that hours fall into. It never asks a clock."""

import os
import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct

from ...report import StenoError

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000  # milliseconds
STEP = 7 * DAY  # between two looks for a change of the offset: no zone has changed it twice in so short a time
UNIX = datetime(1970, 1, 1)
LAST = 253_402_214_400_000  # the last day of the year 9999: no calendar here goes on after it, so offsets stay as they are


class Zone:
    """A zone by its IANA name, or the system's own."""

    def __init__(self, name: str | None = None) -> None:
        self._zone = _named(name) if name else None
        self.name = name or _own_name()

    def offset(self, at: int) -> int:
        """Minutes that local time is ahead of UTC at an instant."""
        at = min(at, LAST)
        if self._zone is None:
            return time.localtime(at // 1000).tm_gmtoff // 60
        ahead = datetime.fromtimestamp(at // 1000, timezone.utc).astimezone(self._zone).utcoffset()
        return int(ahead.total_seconds()) // 60 if ahead is not None else 0

    def local(self, at: int) -> datetime:
        """An instant as a local time, without its zone."""
        return UNIX + timedelta(milliseconds=at + self.offset(at) * MINUTE)

    def instant(self, local: datetime) -> int:
        """The instant of a local time: the first of two where clocks go back, the change itself where they skip it."""
        bare = (local - UNIX) // timedelta(milliseconds=1)
        before, after = (self.offset(max(0, bare + step)) for step in (-DAY, DAY))
        found = [bare - ahead * MINUTE for ahead in (before, after)]
        return next((at for at, ahead in zip(found, (before, after), strict=True) if self.offset(max(0, at)) == ahead), found[0])

    def midnight(self, day: date) -> int:
        """The instant at which a local day begins."""
        return self.instant(datetime(day.year, day.month, day.day))

    def segments(self, first: int, last: int) -> "list[Segment]":
        """The stretches of constant offset from `first` to `last`, in their order; the first has no beginning."""
        found = [Segment(first, self.offset(first))]
        at = first
        while at < last:
            following = min(at + STEP, last)
            if self.offset(following) != found[-1].offset:
                change = self._change(at, following)
                found.append(Segment(change, self.offset(change)))
                following = change
            at = following
        return found

    def _change(self, low: int, high: int) -> int:
        """The first minute between two instants at which the offset is another one."""
        before = self.offset(low)
        while high - low > MINUTE:
            middle = (low + high) // 2 // MINUTE * MINUTE
            middle = middle if middle > low else low + MINUTE
            low, high = (middle, high) if self.offset(middle) == before else (low, middle)
        return high // MINUTE * MINUTE


class Segment(Struct, frozen=True):
    """From `start` (milliseconds) on, local time is `offset` minutes ahead of UTC."""

    start: int
    offset: int


def _named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # a folder, a name that leads out, no such zone
        raise StenoError(f"no time zone is called {name!r}; expected a name such as Europe/Berlin or UTC") from None


def _own_name() -> str:
    """What the system calls its zone."""
    given = os.environ.get("TZ")
    if given is not None:
        return given.removeprefix(":") or "UTC"
    _, mark, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if mark else time.tzname[0]


def day_of(number: int) -> date | None:
    """The day of a number of days since 1970; None for the first ones, which stand for a time that is not known."""
    return date.fromordinal(date(1970, 1, 1).toordinal() + number) if number > 0 else None
