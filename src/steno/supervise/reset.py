"""When a usage limit is over, as agents tell it (R7). Pure: the present time is given."""

import re
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

_EPOCH_PATTERN = re.compile(r"\|(\d{10})\b")
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_RESET_PATTERN = re.compile(
    rf"\breset(?:s(?:\s+at)?|\s+at)\s+(?:(?P<month>{_MONTHS})[a-z]*\s+(?P<day>\d{{1,2}})(?:,\s*(?P<year>\d{{4}}))?,?\s*(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?![\d-])(?::(?P<minute>\d{2})(?!\d))?\s*(?P<half>[ap]m\b)?(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.I,
)


def reset_time(text: str, now: float, reported: int | None = None) -> float | None:
    """Seconds since 1970 at which the limit is over: as the agent told it in a field, else as its words say; None: not said."""
    if reported is not None:
        return float(reported)
    epoch = _EPOCH_PATTERN.search(text)
    if epoch is not None:
        return float(epoch[1])
    found = _RESET_PATTERN.search(text)
    return None if found is None else _reset_timestamp(found, now)


def _reset_timestamp(found: "re.Match[str]", now: float) -> float | None:
    hour = int(found["hour"])
    if found["half"] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    try:
        here = datetime.fromtimestamp(now, _timezone_named(found["zone"]))
        at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"] is None:
            return (at if at > here else at + timedelta(days=1)).timestamp()
        month = _MONTHS.split("|").index(found["month"].lower()[:3]) + 1
        at = at.replace(year=int(found["year"] or here.year), month=month, day=int(found["day"]))
        if found["year"] is None and at < here - timedelta(days=1):
            at = at.replace(year=here.year + 1)
        return at.timestamp()
    except (ValueError, OverflowError):
        return None


def _timezone_named(name: str | None) -> tzinfo | None:
    """The zone of that name; None, the system's own, where the words name none or one that nobody knows."""
    if name is None:
        return None
    if name.upper() in ("UTC", "GMT", "Z"):
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
