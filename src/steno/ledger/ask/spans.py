"""Spans of time as people give them: `--since`, `--until`, `--last`. Text, a zone and the present time in; instants out."""

import re
from datetime import date, datetime, timedelta

from msgspec import Struct

from ...report import StenoError
from .zones import DAY, HOUR, UNIX, Zone

UNITS = "h hours, d days, w weeks, m months, y years"
WANTED = "expected a day (2026-11-01), a time (2026-11-01T10:00), today, yesterday, or how long ago (3d, 12h)"
_LENGTH = re.compile(r"(\d{1,5})\s*(h|d|w|m|y)[a-z]*", re.I)


class Span(Struct, frozen=True):
    """From `since` up to but not including `until`, in milliseconds since 1970; None: without end on that side."""

    since: int | None = None
    until: int | None = None


def span(zone: Zone, now: int, since: str | None = None, until: str | None = None, last: str | None = None) -> Span:
    """What the options mean, in this zone and at this time. StenoError says which of them cannot be read."""
    if last is not None and since is not None:
        raise StenoError("--last and --since both say where to begin; give one of them")
    begin = before(zone, now, last, "--last") if last is not None else None
    if since is not None:
        begin = moment(zone, now, since, "--since")[0]
    end = moment(zone, now, until, "--until")[1] if until is not None else None
    if begin is not None and end is not None and begin >= end:
        raise StenoError("--until lies before --since: nothing is in between")
    return Span(begin, end)


def before(zone: Zone, now: int, length: str, option: str = "--last") -> int:
    """The instant so long before now: hours are hours; days, weeks and months go by the calendar."""
    found = _LENGTH.fullmatch(length.strip())
    if found is None:
        raise StenoError(f"{option} {length}: expected a number and a unit, such as 7d ({UNITS})")
    many, unit = int(found[1]), found[2].lower()
    if unit == "h":
        return max(0, now - many * HOUR)
    local = zone.local(now)
    if unit in "dw":
        days = many * (7 if unit == "w" else 1)
        return zone.instant(local - timedelta(days=days)) if days * DAY < now else 0
    return _months_before(zone, local, many * (12 if unit == "y" else 1))


def _months_before(zone: Zone, local: datetime, many: int) -> int:
    year, month = divmod(local.year * 12 + local.month - 1 - many, 12)
    if year < UNIX.year:
        return 0
    following = date(year + month // 11, (month + 1) % 12 + 1, 1)
    last_day = (following - timedelta(days=1)).day
    return zone.instant(local.replace(year=year, month=month + 1, day=min(local.day, last_day)))


def moment(zone: Zone, now: int, text: str, option: str) -> tuple[int, int]:
    """The instants at which what the text names begins and ends: a whole day has both, a time is one."""
    word = text.strip().lower()
    today = zone.local(now).date()
    named = {"today": 0, "yesterday": 1, "now": None}
    if word in named:
        back = named[word]
        return (now, now) if back is None else _day(zone, today - timedelta(days=back))
    if _LENGTH.fullmatch(word):
        at = before(zone, now, word, option)
        return at, at
    return _written(zone, text.strip(), option)


def _day(zone: Zone, day: date) -> tuple[int, int]:
    if day == date.max:  # it has no day after it
        return zone.midnight(day), zone.instant(datetime.max.replace(microsecond=999_000))
    return zone.midnight(day), zone.midnight(day + timedelta(days=1))


def _written(zone: Zone, text: str, option: str) -> tuple[int, int]:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return _day(zone, date.fromisoformat(text))
        given = datetime.fromisoformat(text)
        if given.tzinfo is not None:
            at = round(given.timestamp() * 1000)
        elif re.match(r"\d{4}-?\d{2}-?\d{2}[T ]\d", text):
            at = zone.instant(given)
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise StenoError(f"{option} {text}: {WANTED}") from None
    if at < 0:
        raise StenoError(f"{option} {text}: nothing is kept from before 1970")
    return at, at


# -- days, weeks, months ------------------------------------------------------------------------------------------


def period(zone: Zone, now: int, unit: str) -> Span:
    """The day, week (from Monday) or month that the present time lies in."""
    today = zone.local(now).date()
    if unit == "day":
        first, after = today, today + timedelta(days=1)
    elif unit == "week":
        first = today - timedelta(days=today.weekday())
        after = first + timedelta(days=7)
    else:
        first = today.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    return Span(zone.midnight(first), zone.midnight(after))


def name_of(day: date | None, unit: str) -> str | None:
    """What a day's day, week (ISO 8601) or month is called; None where the day is not known."""
    if day is None:
        return None
    if unit == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat()[:7] if unit == "month" else day.isoformat()
