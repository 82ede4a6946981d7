"""Spans of time as people give them: `--since`, `--until`, `--last`. Text, a zone and the present time in; instants out."""

import re
from datetime import date, datetime, timedelta

from msgspec import Struct

from ...report import StenoError
from .zones import DAY_MS, EPOCH, HOUR_MS, TimeZone

UNIT_HELP = "h hours, d days, w weeks, m months, y years"
EXPECTED_TIME = "expected a day (2026-11-01), a time (2026-11-01T10:00), today, yesterday, or how long ago (3d, 12h)"
_DURATION = re.compile(r"(\d{1,5})\s*(h|d|w|m|y)[a-z]*", re.I)


class TimeRange(Struct, frozen=True):
    """From `since` up to but not including `until`, in milliseconds since 1970; None: without end on that side."""

    since: int | None = None
    until: int | None = None


def parse_time_range(zone: TimeZone, now: int, since: str | None = None, until: str | None = None, last: str | None = None) -> TimeRange:
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
        raise StenoError(f"{option} {length}: expected a number and a unit, such as 7d ({UNIT_HELP})")
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
