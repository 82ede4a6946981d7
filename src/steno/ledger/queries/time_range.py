"""Time zones: the offset at an instant, the instant of a local time, the days that hours fall into. It never asks a clock."""

import os
import re
import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct

from ...errors import StenoError

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000  # milliseconds
OFFSET_SCAN_STEP_MS = (
    7 * DAY_MS
)  # between two looks for a change of the offset: no zone has changed it twice in so short a time
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
        ahead = (
            datetime.fromtimestamp(at // 1000, timezone.utc).astimezone(self._zone_info).utcoffset()
        )
        return int(ahead.total_seconds()) // 60 if ahead is not None else 0

    def to_local(self, at: int) -> datetime:
        """An instant as a local time, without its zone."""
        return EPOCH + timedelta(milliseconds=at + self.offset_minutes(at) * MINUTE_MS)

    def to_instant(self, local: datetime) -> int:
        """The instant of a local time: the first of two where clocks go back, the change itself where they skip it."""
        bare = (local - EPOCH) // timedelta(milliseconds=1)
        before, after = (self.offset_minutes(max(0, bare + step)) for step in (-DAY_MS, DAY_MS))
        found = [bare - ahead * MINUTE_MS for ahead in (before, after)]
        return next(
            (
                at
                for at, ahead in zip(found, (before, after), strict=True)
                if self.offset_minutes(max(0, at)) == ahead
            ),
            found[0],
        )

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
        raise StenoError(
            f"no time zone is called {name!r}; expected a name such as Europe/Berlin or UTC"
        ) from None


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


UNIT_HELP = "h hours, d days, w weeks, m months, y years"
EXPECTED_TIME = "expected a day (2026-11-01), a time (2026-11-01T10:00), today, yesterday, or how long ago (3d, 12h)"
_DURATION = re.compile(r"(\d{1,5})\s*(h|d|w|m|y)[a-z]*", re.I)


class TimeRange(Struct, frozen=True):
    """From `since` up to but not including `until`, in milliseconds since 1970; None: without end on that side."""

    since: int | None = None
    until: int | None = None


def parse_time_range(
    zone: TimeZone,
    now: int,
    since: str | None = None,
    until: str | None = None,
    last: str | None = None,
) -> TimeRange:
    """What the options mean, in this zone and at this time. StenoError says which of them cannot be read."""
    if last is not None and since is not None:
        raise StenoError("--last and --since both say where to begin; give one of them")
    begin = time_before(zone, now, last, "--last") if last is not None else None
    if since is not None:
        begin = parse_time(zone, now, since, "--since")[0]
    end = parse_time(zone, now, until, "--until")[1] if until is not None else None
    if begin is not None and end is not None and begin >= end:
        raise StenoError("--until lies before --since: nothing is in between")
    return TimeRange(begin, end)


def time_before(zone: TimeZone, now: int, length: str, option: str = "--last") -> int:
    """The instant so long before now: hours are hours; days, weeks and months go by the calendar."""
    found = _DURATION.fullmatch(length.strip())
    if found is None:
        raise StenoError(
            f"{option} {length}: expected a number and a unit, such as 7d ({UNIT_HELP})"
        )
    many, unit = int(found[1]), found[2].lower()
    if unit == "h":
        return max(0, now - many * HOUR_MS)
    local = zone.to_local(now)
    if unit in "dw":
        days = many * (7 if unit == "w" else 1)
        return zone.to_instant(local - timedelta(days=days)) if days * DAY_MS < now else 0
    return _months_before(zone, local, many * (12 if unit == "y" else 1))


def _months_before(zone: TimeZone, local: datetime, many: int) -> int:
    year, month = divmod(local.year * 12 + local.month - 1 - many, 12)
    if year < EPOCH.year:
        return 0
    following = date(year + month // 11, (month + 1) % 12 + 1, 1)
    last_day = (following - timedelta(days=1)).day
    return zone.to_instant(local.replace(year=year, month=month + 1, day=min(local.day, last_day)))


def parse_time(zone: TimeZone, now: int, text: str, option: str) -> tuple[int, int]:
    """The instants at which what the text names begins and ends: a whole day has both, a time is one."""
    word = text.strip().lower()
    today = zone.to_local(now).date()
    named = {"today": 0, "yesterday": 1, "now": None}
    if word in named:
        back = named[word]
        return (now, now) if back is None else _day_bounds(zone, today - timedelta(days=back))
    if _DURATION.fullmatch(word):
        at = time_before(zone, now, word, option)
        return at, at
    return _parse_timestamp(zone, text.strip(), option)


def _day_bounds(zone: TimeZone, day: date) -> tuple[int, int]:
    if day == date.max:  # it has no day after it
        return zone.start_of_day(day), zone.to_instant(datetime.max.replace(microsecond=999_000))
    return zone.start_of_day(day), zone.start_of_day(day + timedelta(days=1))


def _parse_timestamp(zone: TimeZone, text: str, option: str) -> tuple[int, int]:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return _day_bounds(zone, date.fromisoformat(text))
        given = datetime.fromisoformat(text)
        if given.tzinfo is not None:
            at = round(given.timestamp() * 1000)
        elif re.match(r"\d{4}-?\d{2}-?\d{2}[T ]\d", text):
            at = zone.to_instant(given)
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise StenoError(f"{option} {text}: {EXPECTED_TIME}") from None
    if at < 0:
        raise StenoError(f"{option} {text}: nothing is kept from before 1970")
    return at, at


# -- days, weeks, months ------------------------------------------------------------------------------------------


def current_period(zone: TimeZone, now: int, unit: str) -> TimeRange:
    """The day, week (from Monday) or month that the present time lies in."""
    today = zone.to_local(now).date()
    if unit == "day":
        first, after = today, today + timedelta(days=1)
    elif unit == "week":
        first = today - timedelta(days=today.weekday())
        after = first + timedelta(days=7)
    else:
        first = today.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    return TimeRange(zone.start_of_day(first), zone.start_of_day(after))


def period_name(day: date | None, unit: str) -> str | None:
    """What a day's day, week (ISO 8601) or month is called; None where the day is not known."""
    if day is None:
        return None
    if unit == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat()[:7] if unit == "month" else day.isoformat()
