"""Filters of the queries: time zones, ranges and periods, projects, agents, verdicts."""

import os
import re
import time
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from ...analysis.usage import base_model_name
from ...errors import StenoError
from ...units import DAY_MS, HOUR_MS, MINUTE_MS
from ..protocol import Store, placeholders, query_column
from ..results import decode_tags

OFFSET_SCAN_STEP_MS = 7 * DAY_MS  # no zone has changed its offset twice in a week
LOCAL_EPOCH = datetime(1970, 1, 1)
LAST_DAY_MS = 253_402_214_400_000  # 9999-12-31, the last day that datetime supports


class TimeZone:
    """A time zone by IANA name, or the system's."""

    def __init__(self, name: str | None = None) -> None:
        self._zone_info = _zone_by_name(name) if name else None
        self.name = name or _system_zone_name()

    def offset_minutes(self, at: int) -> int:
        """Return the minutes by which local time is ahead of UTC at an instant."""
        seconds = min(at, LAST_DAY_MS) // 1000
        if self._zone_info is None:
            return time.localtime(seconds).tm_gmtoff // 60
        local = datetime.fromtimestamp(seconds, timezone.utc).astimezone(self._zone_info)
        offset = local.utcoffset()
        return int(offset.total_seconds()) // 60 if offset is not None else 0

    def to_local(self, at: int) -> datetime:
        """Convert an instant to a naive local time."""
        return LOCAL_EPOCH + timedelta(milliseconds=at + self.offset_minutes(at) * MINUTE_MS)

    def to_instant(self, local: datetime) -> int:
        """Convert a naive local time to an instant.

        A time that occurs twice (clocks set back) is the first one; a skipped time is the moment
        of the change.
        """
        as_utc = (local - LOCAL_EPOCH) // timedelta(milliseconds=1)
        offsets = [self.offset_minutes(max(0, as_utc + step)) for step in (-DAY_MS, DAY_MS)]
        candidates = [as_utc - offset * MINUTE_MS for offset in offsets]
        for at, offset in zip(candidates, offsets, strict=True):
            if self.offset_minutes(max(0, at)) == offset:
                return at
        return candidates[0]

    def start_of_day(self, day: date) -> int:
        return self.to_instant(datetime(day.year, day.month, day.day))

    def offset_segments(self, first: int, last: int) -> "list[OffsetSegment]":
        """Return the periods of constant offset from `first` to `last`, in order."""
        segments = [OffsetSegment(first, self.offset_minutes(first))]
        at = first
        while at < last:
            following = min(at + OFFSET_SCAN_STEP_MS, last)
            if self.offset_minutes(following) != segments[-1].offset_minutes:
                following = self._find_offset_change(at, following)
                segments.append(OffsetSegment(following, self.offset_minutes(following)))
            at = following
        return segments

    def _find_offset_change(self, low: int, high: int) -> int:
        """Return the minute between two instants at which the offset changes."""
        old_offset = self.offset_minutes(low)
        while high - low > MINUTE_MS:
            middle = (low + high) // 2 // MINUTE_MS * MINUTE_MS
            middle = middle if middle > low else low + MINUTE_MS
            if self.offset_minutes(middle) == old_offset:
                low = middle
            else:
                high = middle
        return high // MINUTE_MS * MINUTE_MS


class OffsetSegment(Struct, frozen=True):
    """A period of constant offset from UTC; it ends where the next one starts."""

    start_ms: int
    offset_minutes: int


def _zone_by_name(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # a folder, a path outside, an unknown zone
        raise StenoError(
            f"unknown time zone {name!r}; expected a name such as Europe/Berlin or UTC"
        ) from None


def _system_zone_name() -> str:
    variable = os.environ.get("TZ")
    if variable is not None:
        return variable.removeprefix(":") or "UTC"
    _, separator, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name if separator else time.tzname[0]


def date_from_day_number(number: int) -> date | None:
    """Return the date for days since 1970; None for day 0, which stands for an unknown time."""
    return date.fromordinal(date(1970, 1, 1).toordinal() + number) if number > 0 else None


# -- ranges --------------------------------------------------------------------------------------

UNIT_HELP = "h hours, d days, w weeks, m months, y years"
EXPECTED_TIME = (
    "expected a date (2026-11-01), a time (2026-11-01T10:00), today, yesterday, or an age (3d, 12h)"
)
_DURATION = re.compile(r"(\d{1,5})\s*(h|d|w|m|y)[a-z]*", re.I)


class TimeRange(Struct, frozen=True):
    """From `since` (inclusive) to `until` (exclusive); None: unbounded."""

    since: int | None = None
    until: int | None = None


def parse_time_range(
    zone: TimeZone,
    now: int,
    since: str | None = None,
    until: str | None = None,
    last: str | None = None,
) -> TimeRange:
    """Parse the values of --since, --until and --last. StenoError names an invalid one."""
    if last is not None and since is not None:
        raise StenoError("--last and --since both set the start of the range; use one of them")
    start = end = None
    if last is not None:
        start = time_before(zone, now, last, "--last")
    if since is not None:
        start, _ = parse_time(zone, now, since, "--since")
    if until is not None:
        _, end = parse_time(zone, now, until, "--until")
    if start is not None and end is not None and start >= end:
        raise StenoError("--until is before --since: empty time range")
    return TimeRange(start, end)


def is_time_span(text: str) -> bool:
    """Whether a text is a number and a unit, such as 7d."""
    return _DURATION.fullmatch(text.strip()) is not None


def time_before(zone: TimeZone, now: int, length: str, option: str = "--last") -> int:
    """Return the instant a duration before now; days, weeks and months are calendar ones."""
    match = _DURATION.fullmatch(length.strip())
    if match is None:
        raise StenoError(
            f"{option} {length}: expected a number and a unit, such as 7d ({UNIT_HELP})"
        )
    count = int(match[1])
    unit = match[2].lower()
    if unit == "h":
        return max(0, now - count * HOUR_MS)
    local = zone.to_local(now)
    if unit in "dw":
        days = count * (7 if unit == "w" else 1)
        return zone.to_instant(local - timedelta(days=days)) if days * DAY_MS < now else 0
    return _months_before(zone, local, count * (12 if unit == "y" else 1))


def _months_before(zone: TimeZone, local: datetime, months: int) -> int:
    year, month_index = divmod(local.year * 12 + local.month - 1 - months, 12)
    if year < LOCAL_EPOCH.year:
        return 0
    next_month = date(year + month_index // 11, (month_index + 1) % 12 + 1, 1)
    last_day = (next_month - timedelta(days=1)).day
    day = min(local.day, last_day)
    return zone.to_instant(local.replace(year=year, month=month_index + 1, day=day))


def parse_time(zone: TimeZone, now: int, text: str, option: str) -> tuple[int, int]:
    """Return the start and end of a time: those of a whole day, or the same instant twice."""
    word = text.strip().lower()
    if word == "now":
        return now, now
    days_ago = {"today": 0, "yesterday": 1}.get(word)
    if days_ago is not None:
        today = zone.to_local(now).date()
        return _day_bounds(zone, today - timedelta(days=days_ago))
    if _DURATION.fullmatch(word):
        at = time_before(zone, now, word, option)
        return at, at
    return _parse_timestamp(zone, text.strip(), option)


def _day_bounds(zone: TimeZone, day: date) -> tuple[int, int]:
    if day == date.max:  # the last day of the calendar
        return zone.start_of_day(day), zone.to_instant(datetime.max.replace(microsecond=999_000))
    return zone.start_of_day(day), zone.start_of_day(day + timedelta(days=1))


def _parse_timestamp(zone: TimeZone, text: str, option: str) -> tuple[int, int]:
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return _day_bounds(zone, date.fromisoformat(text))
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            at = round(time.timestamp() * 1000)
        elif re.match(r"\d{4}-?\d{2}-?\d{2}[T ]\d", text):
            at = zone.to_instant(time)
        else:
            raise ValueError
    except (ValueError, OverflowError):
        raise StenoError(f"{option} {text}: {EXPECTED_TIME}") from None
    if at < 0:
        raise StenoError(f"{option} {text}: expected a time after 1970")
    return at, at


# -- days, weeks, months -------------------------------------------------------------------------


def current_period(zone: TimeZone, now: int, unit: str) -> TimeRange:
    """Return the current day, week (from Monday) or month."""
    today = zone.to_local(now).date()
    if unit == "day":
        first = today
        following = today + timedelta(days=1)
    elif unit == "week":
        first = today - timedelta(days=today.weekday())
        following = first + timedelta(days=7)
    else:
        first = today.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
    return TimeRange(zone.start_of_day(first), zone.start_of_day(following))


def period_name(day: date | None, unit: str) -> str | None:
    """Return the name of a day's day, week (ISO 8601) or month; None for an unknown day."""
    if day is None:
        return None
    if unit == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"
    return day.isoformat()[:7] if unit == "month" else day.isoformat()


class Filters(Struct, frozen=True):
    """What to select, with names as stored in the ledger. None: no filter; (): no match."""

    time_range: TimeRange = TimeRange()
    projects: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    users: tuple[str, ...] | None = None
    repositories: tuple[str, ...] | None = None
    branches: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()  # as in the JSON of the column `tags`; all are required

    @property
    def needs_runs(self) -> bool:
        """Whether a filter is about runs, so that sums by hour are not enough."""
        origin = (self.hosts, self.users, self.repositories, self.branches)
        return bool(self.tags) or any(names is not None for names in origin)

    @property
    def is_partial(self) -> bool:
        """Whether only a part of a session may match: of its time or of its models."""
        return self.time_range != TimeRange() or self.models is not None

    def runs_where(self) -> "WhereClause":
        """Select the runs that match."""
        where = WhereClause().add_time_range("started_at", self.time_range).add_names(self)
        return where.add_origin(self).add_tags(self)


CHOICE_COLUMNS = ("agent", "model", "project", "host", "branch")

# Fields whose names are reserved words of SQL.
_COLUMN_BY_FIELD = {"user": "user_name", "commit": "commit_id", "tags_json": "tags"}


def select_columns(fields: Iterable[str]) -> str:
    """The columns of these fields, for a SELECT."""
    return ", ".join(_COLUMN_BY_FIELD.get(name, name) for name in fields)


def _prefix_of(folder: str) -> tuple[int, str]:
    """The length and the text of the start of all paths below a folder."""
    start = folder.rstrip("/") + "/"
    return len(start), start


class WhereClause:
    """SQL conditions joined by AND, with their values."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.values: list[Any] = []

    def copy(self) -> "WhereClause":
        return WhereClause().add_all(self)

    def add(self, condition: str, *values: Any) -> "WhereClause":
        """Add a condition with a `?` for each value."""
        self.conditions.append(condition)
        self.values += values
        return self

    def add_all(self, other: "WhereClause") -> "WhereClause":
        self.conditions += other.conditions
        self.values += other.values
        return self

    def add_in(self, column: str, choices: Sequence[str] | None) -> "WhereClause":
        """Require one of the choices; None: any value, empty: no match."""
        if choices is not None:
            condition = f"{column} IN ({placeholders(len(choices))})" if choices else "1 = 0"
            self.add(condition, *choices)
        return self

    def add_names(self, filters: Filters, prefix: str = "") -> "WhereClause":
        """Add the filters by project, model and agent."""
        return (
            self.add_in(f"{prefix}project", filters.projects)
            .add_in(f"{prefix}model", filters.models)
            .add_in(f"{prefix}agent", filters.agents)
        )

    def add_folders(self, folders: Sequence[str]) -> "WhereClause":
        """Require a run in or below a folder, or of a task that was started there."""
        in_folder = " OR ".join(["project = ? OR substr(project, 1, ?) = ?"] * len(folders))
        values = [value for folder in folders for value in (folder, *_prefix_of(folder))]
        tasks = f"SELECT id FROM tasks WHERE {in_folder}"
        return self.add(f"({in_folder} OR task IN ({tasks}))", *values, *values)

    def add_origin(self, filters: Filters, column: str = "{}") -> "WhereClause":
        """Add the filters by host, user, repository and branch; `column` is a template."""
        return (
            self.add_in(column.format("host"), filters.hosts)
            .add_in(column.format("user_name"), filters.users)
            .add_in(column.format("repository"), filters.repositories)
            .add_in(column.format("branch"), filters.branches)
        )

    def add_tags(self, filters: Filters, column: str = "tags") -> "WhereClause":
        for tag in filters.tags:
            # Case-sensitive in both databases, unlike LIKE. Runs with tags have their own index.
            self.add(f"{column} IS NOT NULL AND replace({column}, ?, '') <> {column}", tag)
        return self

    def add_tags_of_session(self, filters: Filters, column: str) -> "WhereClause":
        """Require a session with a run that has all tags."""
        if filters.tags:
            runs = WhereClause().add_tags(filters)
            self.add(f"{column} IN (SELECT session FROM runs{runs.sql})", *runs.values)
        return self

    def add_time_range(self, column: str, time_range: TimeRange) -> "WhereClause":
        return self.add_range(column, time_range.since, time_range.until)

    def add_range(self, column: str, first: int | None, end: int | None) -> "WhereClause":
        """Require a number from `first` (inclusive) to `end` (exclusive); None: unbounded."""
        if first is not None:
            self.add(f"{column} >= ?", first)
        if end is not None:
            self.add(f"{column} < ?", end)
        return self

    def add_active_in(self, time_range: TimeRange) -> "WhereClause":
        """Require a session that was active at some time in the range."""
        if time_range.since is not None:
            self.add("last_at >= ?", time_range.since)
        if time_range.until is not None:
            self.add("first_at < ?", time_range.until)
        return self

    @property
    def sql(self) -> str:
        """` WHERE ...`, or an empty string."""
        return f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""


# An attempt is not a failed run if another attempt completed its task.
RETRIED_TASKS_SQL = "SELECT id FROM tasks WHERE verdict = 'success' AND attempts > 1"
FAILED_RUN_SQL = f"verdict <> 'success' AND (task IS NULL OR task NOT IN ({RETRIED_TASKS_SQL}))"


# -- names as users type them --------------------------------------------------------------------


def resolve_filters(
    store: Store,
    time_range: TimeRange,
    *,
    project: str | None = None,
    model: str | None = None,
    agent: str | None = None,
    host: str | None = None,
    user: str | None = None,
    repository: str | None = None,
    branch: str | None = None,
    tag: Sequence[str] | None = None,
) -> Filters:
    """Resolve names to those in the ledger; a name without a match becomes an empty tuple."""
    return Filters(
        time_range=time_range,
        projects=resolve_projects(store, project),
        models=resolve_models(store, model),
        agents=resolve_agents(store, agent),
        hosts=_resolve_names(store, "host", host),
        users=_resolve_names(store, "user_name", user),
        repositories=_resolve_names(store, "repository", repository),
        branches=_resolve_names(store, "branch", branch),
        tags=tuple(map(encode_tag, tag or ())),
    )


def _resolve_names(store: Store, column: str, name: str | None) -> tuple[str, ...] | None:
    if name is None:
        return None
    return match_names(name, _distinct_names(store, column, "runs", "sessions"))


def encode_tag(tag: str) -> str:
    """A tag NAME=VALUE as it is written in the column `tags`, or a NAME with any value."""
    name, separator, value = tag.partition("=")
    pair = msgspec.json.encode({name: value}).decode()[1:-1]
    return pair if separator else pair.removesuffix('""')


def resolve_projects(store: Store, name: str | None) -> tuple[str, ...] | None:
    """Resolve a path, absolute or relative to the current folder, or the end of a path."""
    if name is None:
        return None
    known = _distinct_names(store, "project", "sessions", "daily_spend", "runs")
    candidates = {name, name.rstrip("/"), str(Path(name).absolute()), str(Path(name).resolve())}
    exact = tuple(project for project in known if project in candidates)
    suffix = "/" + name.strip("/")
    return exact or tuple(project for project in known if project.rstrip("/").endswith(suffix))


def resolve_models(store: Store, name: str | None) -> tuple[str, ...] | None:
    """Resolve a model's name, with or without its context window, or a part of names."""
    if name is None:
        return None
    known = _distinct_names(store, "model", "daily_spend", "runs", "sessions")
    base = base_model_name(name)
    exact = tuple(model for model in known if base_model_name(model) == base)
    return exact or match_names(name, known)


def resolve_agents(store: Store, name: str | None) -> tuple[str, ...] | None:
    if name is None:
        return None
    return match_names(name, _distinct_names(store, "agent", "sessions", "runs"))


def _distinct_names(store: Store, column: str, *tables: str) -> list[str]:
    # Several tables: a run that failed early has no session and no spend.
    names: set[str] = set()
    for table in tables:
        names.update(query_column(store, distinct_sql(column, table)))
    return sorted(name for name in names if name)


def distinct_sql(column: str, table: str) -> str:
    """Select the different values of a column, each by one look into its index."""
    if table == "daily_spend":  # small, and without such an index
        return f"SELECT DISTINCT {column} FROM {table}"
    if column == "tags":  # few runs have one; they have an index of their own
        return f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"
    return (
        "WITH RECURSIVE names (name) AS ("
        f"SELECT (SELECT min({column}) FROM {table} WHERE {column} IS NOT NULL) UNION ALL "
        f"SELECT (SELECT min({column}) FROM {table} WHERE {column} > names.name) "
        "FROM names WHERE names.name IS NOT NULL) "
        "SELECT name FROM names WHERE name IS NOT NULL"
    )


def filter_choices(store: Store) -> dict[str, list[str]]:
    """Return the names in the ledger by filter: agent, model, project, host, branch and tag."""
    tables = ("runs", "sessions")
    tags = {
        f"{name}={value}"
        for text in _distinct_names(store, "tags", "runs")
        for name, value in decode_tags(text).items()
    }
    names = {column: _distinct_names(store, column, *tables) for column in CHOICE_COLUMNS}
    return {**names, "tag": sorted(tags)}


def match_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The name itself if it is known, else the known names that contain it in any case."""
    names = list(known)
    if name in names:
        return (name,)
    return tuple(other for other in names if name.lower() in other.lower())


# -- empty results -------------------------------------------------------------------------------

EmptyReason = Literal["no_match", "sessions_only", "pruned", "pruned_totals_kept", "empty"]


def empty_reason(store: Store, table: str) -> EmptyReason:
    """Return why a query of a table has no rows.

    `no_match`: the filters match none; `sessions_only`: sessions, but no runs; `pruned`: details
    were pruned, with or without their totals; `empty`: nothing was imported yet.
    """
    if has_rows(store, table):
        return "no_match"
    if table == "runs" and has_rows(store, "sessions"):
        return "sessions_only"
    if has_rows(store, "pruned"):
        return "pruned_totals_kept" if has_rows(store, "spend") else "pruned"
    return "empty"


def has_rows(store: Store, table: str) -> bool:
    return bool(store.query(f"SELECT 1 FROM {table} LIMIT 1"))
