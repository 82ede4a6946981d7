"""Usage and cost by day, project, model and so on, and by tool.

Reports add up `spend`, the sums by hour, and don't scan the requests. Only hours that are cut by
the time range, or by midnight in a zone such as Asia/Kolkata, are looked up in `requests`, through
the sessions active in them. If those requests are pruned, the whole hour is counted.
"""

from collections.abc import Iterable
from typing import Any

from ..protocol import Row, Store, chunks, query_value
from ..rows import DAY_MS, HOUR_MS, MINUTE_MS
from ..totals import (
    TIME_GROUPINGS,
    TOOL_COUNT_FIELDS,
    ContextPeak,
    ToolCallStats,
    UsageReport,
    UsageRow,
    UsageTotals,
    WastedCost,
    sum_totals,
)
from .filters import (
    FAILED_RUN_SQL,
    Filters,
    OffsetSegment,
    TimeRange,
    TimeZone,
    WhereClause,
    date_from_day_number,
    period_name,
)

NO_SPEND = UsageTotals()
MIN_HISTORY_STEPS = 4
MAX_INT = 1 << 62
MINUTES_PER_DAY = DAY_MS // MINUTE_MS
HOURLY_SUMS_SQL = ", ".join(f"sum({name}) AS {name}" for name in UsageTotals.__struct_fields__)
SPEND_SUMS_SQL = ", ".join(f"sum({name})" for name in UsageTotals.__struct_fields__)

# The same sums per request; of an hour whose requests are pruned, its own sums.
_REQUEST_TOKENS_SQL = "r.input + r.cache_write + r.cache_read + r.output"
_REQUEST_SUM_SQL = {
    "requests": "r.requests",
    "reported_nano": "CASE WHEN r.source = 'reported' THEN coalesce(r.cost_nano, 0) ELSE 0 END",
    "computed_nano": "CASE WHEN r.source = 'computed' THEN coalesce(r.cost_nano, 0) ELSE 0 END",
    "unpriced": "CASE WHEN r.cost_nano IS NULL THEN r.requests ELSE 0 END",
    "unpriced_tokens": f"CASE WHEN r.cost_nano IS NULL THEN {_REQUEST_TOKENS_SQL} ELSE 0 END",
}
SPLIT_HOUR_SUMS_SQL = ", ".join(
    f"sum(CASE WHEN r.id IS NULL THEN s.{name} ELSE {_REQUEST_SUM_SQL.get(name, 'r.' + name)} END)"
    for name in UsageTotals.__struct_fields__
)
_FROM_REQUESTS_SQL = (
    "FROM spend s LEFT JOIN requests r ON r.session = s.session AND r.model = s.model "
    f"AND r.at >= s.hour * {HOUR_MS} AND r.at < s.hour * {HOUR_MS} + {HOUR_MS}"
)
_REQUEST_TIME_SQL = f"coalesce(r.at, s.hour * {HOUR_MS})"


def usage_report(store: Store, by: str, zone: TimeZone, filters: Filters) -> UsageReport:
    """Return the report with its rows ordered by time, or by cost in descending order."""
    rows = group_spend(store, by, zone, filters)
    total = sum_totals(row.totals for row in rows)
    unpriced = []
    if total.unpriced:
        by_model = group_spend(store, "model", zone, filters)
        unpriced = [row for row in by_model if row.totals.unpriced]
    return UsageReport(
        by=by,
        rows=rows,
        total=total,
        wasted=failed_run_cost(store, filters),
        peak_context=context_peak(store, filters),
        unpriced=unpriced,
        runs_without_usage=count_runs_without_usage(store, filters),
    )


def group_spend(store: Store, by: str, zone: TimeZone, filters: Filters) -> list[UsageRow]:
    """Return one row for each day, project, model ... with any usage."""
    totals_by_key: dict[Any, UsageTotals] = {}
    for key, *figures in _query_groups(store, by, zone, filters):
        totals = UsageTotals(*map(int, figures))
        if totals == NO_SPEND:
            continue  # its requests were reassigned later
        name = _group_name(by, key)
        known = totals_by_key.get(name)
        totals_by_key[name] = totals if known is None else known.plus(totals)
    rows = [UsageRow(name, totals) for name, totals in totals_by_key.items()]
    if by in TIME_GROUPINGS:
        return sorted(rows, key=lambda row: row.key or "")
    return sorted(
        rows, key=lambda row: (-(row.totals.cost_nano or 0), -row.totals.requests, row.key or "")
    )


def _group_name(by: str, key: Any) -> str | None:
    if by in TIME_GROUPINGS:
        return period_name(date_from_day_number(int(key)), by)
    return key or None


def _query_groups(store: Store, by: str, zone: TimeZone, filters: Filters) -> Iterable[Row]:
    split = HourSplit(store, by, zone, filters.time_range)
    where = WhereClause().add_names(filters)
    for condition in split.whole_conditions:
        where.add(condition)
    table = f"spend{where.sql}"
    if by in TIME_GROUPINGS:
        # By hour first: the order of the table, and few rows are left to sort.
        table = f"(SELECT hour, {HOURLY_SUMS_SQL} FROM {table} GROUP BY hour) AS hourly"
    sql = f"SELECT {split.key}, {SPEND_SUMS_SQL} FROM {table} GROUP BY 1"
    yield from store.query(sql, where.values)
    if split.split_conditions:
        where = (
            WhereClause()
            .add_names(filters, "s.")
            .add(f"({' OR '.join(split.split_conditions)})")
            .add_time_range(_REQUEST_TIME_SQL, filters.time_range)
        )
        sql = (
            f"SELECT {split.split_key}, {SPLIT_HOUR_SUMS_SQL} {_FROM_REQUESTS_SQL}{where.sql} "
            "GROUP BY 1"
        )
        yield from store.query(sql, where.values)


def spend_history(
    store: Store, by: str, filters: Filters, steps: int
) -> dict[str | None, list[int]]:
    """Return the cost of each project, model or agent in equal steps over the time range."""
    where = WhereClause().add_names(filters)
    if filters.time_range.since is not None:
        where.add("hour >= ?", filters.time_range.since // HOUR_MS)
    if filters.time_range.until is not None:
        where.add("hour < ?", _ceil_hour(filters.time_range.until))
    ((first, last),) = store.query(
        f"SELECT min(hour), max(hour) FROM spend{where.sql}", where.values
    )
    steps = 0 if first is None else min(steps, last - first + 1)
    if steps < MIN_HISTORY_STEPS:
        return {}
    step = f"(hour - {first}) * {steps} / {last - first + 1}"
    sql = (
        f"SELECT {by}, {step}, sum(reported_nano + computed_nano) "
        f"FROM spend{where.sql} GROUP BY 1, 2"
    )
    history: dict[str | None, list[int]] = {}
    for key, index, cost_nano in store.query(sql, where.values):
        history.setdefault(key or None, [0] * steps)[int(index)] = int(cost_nano)
    return history


def _ceil_hour(at: int) -> int:
    """Return the first hour that starts at or after an instant."""
    return -(-at // HOUR_MS)


class HourSplit:
    """Which hours a report sums as a whole, which it splits by request, and the key of each.

    All SQL consists of our own names and integers.
    """

    def __init__(self, store: Store, by: str, zone: TimeZone, time_range: TimeRange) -> None:
        # Not the bare column: SQLite would use an index and look up every row, which is slower.
        self.key = f"coalesce({by}, '')"
        self.split_key = f"s.{by}"
        self.whole_conditions: list[str] = []
        self.split_conditions: list[str] = []
        self._split_at_range_ends(time_range)
        if by in TIME_GROUPINGS:
            self._group_by_local_day(_offset_segments(store, zone, time_range))

    def _split_at_range_ends(self, time_range: TimeRange) -> None:
        if time_range.since is not None:
            self.whole_conditions.append(f"hour >= {_ceil_hour(time_range.since)}")
        if time_range.until is not None:
            self.whole_conditions.append(f"hour < {time_range.until // HOUR_MS}")
        for end in (time_range.since, time_range.until):
            if end is not None and end % HOUR_MS:
                self.split_conditions.append(f"s.hour = {end // HOUR_MS}")

    def _group_by_local_day(self, segments: list[OffsetSegment]) -> None:
        """Group by local day; split hours that contain midnight (zones with :30 or :45)."""
        hour_offset = _case_sql(
            "hour",
            [(_ceil_hour(segment.start_ms), segment.offset_minutes) for segment in segments],
        )
        exact_offset = _case_sql(
            _REQUEST_TIME_SQL,
            [(segment.start_ms, segment.offset_minutes) for segment in segments],
        )
        local_minute = f"(hour * 60 + {hour_offset})"
        self.key = f"{local_minute} / {MINUTES_PER_DAY}"
        self.split_key = f"({_REQUEST_TIME_SQL} / {MINUTE_MS} + {exact_offset}) / {MINUTES_PER_DAY}"
        if any(segment.offset_minutes % 60 for segment in segments):
            contains_midnight = f"{local_minute} % {MINUTES_PER_DAY} > {MINUTES_PER_DAY - 60}"
            self.whole_conditions.append(f"NOT ({contains_midnight})")
            self.split_conditions.append(f"({contains_midnight.replace('hour', 's.hour')})")


def _case_sql(column: str, steps: list[tuple[int, int]]) -> str:
    """Return the SQL for the value of the last step whose start the column has reached."""
    (_, first_value), *later = steps
    if not later:
        return f"({first_value})"
    # The latest first: it is the most frequent.
    branches = [f"WHEN {column} >= {start} THEN {value}" for start, value in reversed(later)]
    return f"CASE {' '.join(branches)} ELSE {first_value} END"


def _offset_segments(store: Store, zone: TimeZone, time_range: TimeRange) -> list[OffsetSegment]:
    # Two subqueries: each reads one end of the table's key.
    ((first_hour, last_hour),) = store.query(
        "SELECT (SELECT min(hour) FROM spend), (SELECT max(hour) FROM spend)"
    )
    first = int(first_hour or 0) * HOUR_MS
    end = int(last_hour or 0) * HOUR_MS + HOUR_MS
    start = max(first, time_range.since or 0)
    return zone.offset_segments(start, max(start, min(end, time_range.until or end)))


# -- runs and sessions ---------------------------------------------------------------------------


def failed_run_cost(store: Store, filters: Filters) -> WastedCost:
    """Return the cost of failed runs."""
    where = WhereClause().add_time_range("started_at", filters.time_range).add_names(filters)
    where.add(FAILED_RUN_SQL)
    (figures,) = store.query(
        "SELECT count(*), coalesce(sum(cost_nano), 0), count(*) - count(cost_nano) "
        f"FROM runs{where.sql}",
        where.values,
    )
    return WastedCost(*map(int, figures))


def count_runs_without_usage(store: Store, filters: Filters) -> int:
    where = WhereClause().add_time_range("started_at", filters.time_range).add_names(filters)
    where.add("output IS NULL AND verdict IS NOT NULL")
    return int(query_value(store, f"SELECT count(*) FROM runs{where.sql}", where.values))


def context_peak(store: Store, filters: Filters) -> ContextPeak | None:
    """Return the largest context among the sessions active in the time range."""
    where = WhereClause().add("context_peak IS NOT NULL").add_names(filters)
    where.add_active_in(filters.time_range)
    sql = (
        f"SELECT context_peak, context_limit, id FROM sessions{where.sql} "
        "ORDER BY context_peak DESC, id LIMIT 1"
    )
    return next((ContextPeak(*row) for row in store.query(sql, where.values)), None)


def fill_session_details(store: Store, rows: list[UsageRow]) -> None:
    """Add project and title to rows grouped by session."""
    by_id = {row.key: row for row in rows if row.key is not None}
    for part in chunks(list(by_id)):
        where = WhereClause().add_in("id", part)
        for id_, project, title in store.query(
            f"SELECT id, project, title FROM sessions{where.sql}", where.values
        ):
            by_id[id_].project = project
            by_id[id_].title = title


# -- tools ---------------------------------------------------------------------------------------

TOOL_USE_SUMS_SQL = (
    ", ".join(f"sum({name})" for name in TOOL_COUNT_FIELDS)
    + ", max(CASE WHEN timed > 0 THEN slowest_ms END)"
)
CALL_SUMS_SQL = (
    "count(*), sum(CASE WHEN c.ok = 0 AND c.denied = 0 THEN 1 ELSE 0 END), sum(c.denied), "
    "sum(CASE WHEN c.ok IS NULL AND c.denied = 0 THEN 1 ELSE 0 END), count(c.duration_ms), "
    "coalesce(sum(c.duration_ms), 0)"
)


def tool_sums(store: Store, filters: Filters) -> tuple[list[ToolCallStats], ToolCallStats]:
    """Return one row for each tool, most used first, and the total."""
    stats_by_tool: dict[str, ToolCallStats] = {}
    total = ToolCallStats()
    for name, *counts, slowest_ms in [
        *_query_whole_hours(store, filters),
        *_query_split_hours(store, filters),
    ]:
        fields = dict(zip(TOOL_COUNT_FIELDS, map(int, counts), strict=True))
        stats = ToolCallStats(**fields, slowest_ms=slowest_ms, name=name)
        known = stats_by_tool.get(name)
        stats_by_tool[name] = stats if known is None else known.plus(stats)
        total = total.plus(stats)
    by_use = sorted(stats_by_tool.values(), key=lambda stats: (-stats.calls, stats.name or ""))
    return by_use, total


def _query_whole_hours(store: Store, filters: Filters) -> list[Row]:
    where = WhereClause().add_in("project", filters.projects).add_in("agent", filters.agents)
    if filters.time_range.since is not None:
        where.add("hour >= ?", _ceil_hour(filters.time_range.since))
    if filters.time_range.until is not None:
        where.add("hour < ?", filters.time_range.until // HOUR_MS)
    sql = f"SELECT name, {TOOL_USE_SUMS_SQL} FROM tool_use{where.sql} GROUP BY name"
    return store.query(sql, where.values)


def _query_split_hours(store: Store, filters: Filters) -> list[Row]:
    """Sum the calls in hours in which the time range starts or ends."""
    since = filters.time_range.since
    until = filters.time_range.until
    hours = {end // HOUR_MS for end in (since, until) if end is not None and end % HOUR_MS}
    rows: list[Row] = []
    for hour in hours:
        first = max(hour * HOUR_MS, since or 0)
        end = min(hour * HOUR_MS + HOUR_MS, until or MAX_INT)
        where = (
            WhereClause()
            .add("s.last_at >= ?", first)
            .add("s.first_at < ?", end)
            .add("c.at >= ?", first)
            .add("c.at < ?", end)
            .add_in("s.project", filters.projects)
            .add_in("c.agent", filters.agents)
        )
        sql = (
            f"SELECT c.name, {CALL_SUMS_SQL}, max(c.duration_ms) "
            f"FROM sessions s JOIN calls c ON c.session = s.id{where.sql} GROUP BY c.name"
        )
        rows += store.query(sql, where.values)
    return rows
