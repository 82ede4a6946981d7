"""What was spent, by day, project, model and so on. It adds up `spend`, the sums by hour, and never scans the requests.

Only an hour that the question cuts in two (by its first or last moment, or by a midnight in a zone such as Asia/Kolkata) is
looked up in `requests`, through the sessions that were at work in it. Where those are pruned, the hour counts as a whole.
"""

from collections.abc import Iterable
from typing import Any

from ..store import Row, Store
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
from .filters import MAX_VALUES_PER_QUERY, Filters, WhereClause
from .time_range import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    OffsetSegment,
    TimeRange,
    TimeZone,
    date_from_day_number,
    period_name,
)

NO_SPEND = UsageTotals()
MIN_STEPS = 4  # steps of a course: fewer hours are no course
MINUTES_PER_DAY = DAY_MS // MINUTE_MS
HOURLY_SUMS_SQL = ", ".join(f"sum({name}) AS {name}" for name in UsageTotals.__struct_fields__)
SPEND_SUMS_SQL = ", ".join(f"sum({name})" for name in UsageTotals.__struct_fields__)

# The same sums, request by request; of an hour without requests (they are pruned), its own sums.
_REQUEST_TOKENS_SQL = "r.input + r.cache_write + r.cache_read + r.output"
_REQUEST_SUM_SQL = {
    "requests": "CASE WHEN r.kind = 'request' THEN 1 ELSE 0 END",
    "reported_nano": "CASE WHEN r.source = 'reported' THEN coalesce(r.cost_nano, 0) ELSE 0 END",
    "computed_nano": "CASE WHEN r.source = 'computed' THEN coalesce(r.cost_nano, 0) ELSE 0 END",
    "unpriced": "CASE WHEN r.cost_nano IS NULL AND r.kind = 'request' THEN 1 ELSE 0 END",
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
    """The whole answer to `report`, with its lines in their natural order: of time, else the dearest first."""
    lines = group_spend(store, by, zone, filters)
    total = sum_totals([line.totals for line in lines])
    unpriced = (
        [line for line in group_spend(store, "model", zone, filters) if line.totals.unpriced]
        if total.unpriced
        else []
    )
    return UsageReport(
        by,
        lines,
        total,
        failed_run_cost(store, filters),
        context_peak(store, filters),
        unpriced,
        count_runs_without_usage(store, filters),
    )


def group_spend(store: Store, by: str, zone: TimeZone, filters: Filters) -> list[UsageRow]:
    """One line for each day, project, model ... that has any spend."""
    found: dict[Any, UsageTotals] = {}
    for key, *figures in _query_groups(store, by, zone, filters):
        sums = UsageTotals(*map(int, figures))
        if sums == NO_SPEND:
            continue  # requests that were booked elsewhere later
        name = (
            period_name(date_from_day_number(int(key)), by) if by in TIME_GROUPINGS else key or None
        )
        before = found.get(name)
        found[name] = sums if before is None else before.plus(sums)
    lines = [UsageRow(name, sums) for name, sums in found.items()]
    if by in TIME_GROUPINGS:
        return sorted(lines, key=lambda line: line.key or "")
    return sorted(
        lines,
        key=lambda line: (-(line.totals.cost_nano or 0), -line.totals.requests, line.key or ""),
    )


def _query_groups(store: Store, by: str, zone: TimeZone, filters: Filters) -> Iterable[Row]:
    cut = HourSplit(store, by, zone, filters.time_range)
    plain = _filters_where("", filters)
    for condition in cut.whole_conditions:
        plain.add(condition)
    table = f"spend{plain.sql}"
    if (
        by in TIME_GROUPINGS
    ):  # by hour first: that is the order of the table, and few rows are left to be sorted
        table = f"(SELECT hour, {HOURLY_SUMS_SQL} FROM {table} GROUP BY hour) AS hourly"  # names and numbers of our own
    sql = f"SELECT {cut.key}, {SPEND_SUMS_SQL} FROM {table} GROUP BY 1"
    yield from store.query(sql, plain.values)
    if cut.split_conditions:
        single = (
            _filters_where("s.", filters)
            .add(f"({' OR '.join(cut.split_conditions)})")
            .add_time_range(_REQUEST_TIME_SQL, filters.time_range)
        )
        sql = f"SELECT {cut.split_key}, {SPLIT_HOUR_SUMS_SQL} {_FROM_REQUESTS_SQL}{single.sql} GROUP BY 1"
        yield from store.query(sql, single.values)


def spend_history(
    store: Store, by: str, filters: Filters, steps: int
) -> dict[str | None, list[int]]:
    """For each project, model or agent, its cost in equal steps over the time that is asked for: a rough picture, by the hour."""
    where = _filters_where("", filters)
    if filters.time_range.since is not None:
        where.add("hour >= ?", filters.time_range.since // HOUR_MS)
    if filters.time_range.until is not None:
        where.add("hour < ?", -(-filters.time_range.until // HOUR_MS))
    first, last = store.query(f"SELECT min(hour), max(hour) FROM spend{where.sql}", where.values)[0]
    steps = 0 if first is None else min(steps, last - first + 1)
    if steps < MIN_STEPS:
        return {}
    step = f"(hour - {first}) * {steps} / {last - first + 1}"
    sql = f"SELECT {by}, {step}, sum(reported_nano + computed_nano) FROM spend{where.sql} GROUP BY 1, 2"
    found: dict[str | None, list[int]] = {}
    for key, at, nano in store.query(sql, where.values):
        found.setdefault(key or None, [0] * steps)[int(at)] = int(nano)
    return found


def _filters_where(prefix: str, filters: Filters) -> WhereClause:
    where = (
        WhereClause()
        .add_in(f"{prefix}project", filters.projects)
        .add_in(f"{prefix}model", filters.models)
    )
    return where.add_in(f"{prefix}agent", filters.agents)


class HourSplit:
    """How a question divides the hours: those that are summed as a whole, those it splits, and the key of each.

    All of it is SQL made of our own names and whole numbers.
    """

    def __init__(self, store: Store, by: str, zone: TimeZone, span: TimeRange) -> None:
        # Not the bare name: SQLite would go through an index and look up every row, which takes longer than sorting them.
        self.key, self.split_key = f"coalesce({by}, '')", f"s.{by}"
        self.whole_conditions: list[str] = []
        self.split_conditions: list[str] = []
        self._split_at_range_ends(span)
        if by in TIME_GROUPINGS:
            self._group_by_local_day(_offset_segments(store, zone, span))

    def _split_at_range_ends(self, span: TimeRange) -> None:
        if span.since is not None:
            self.whole_conditions.append(f"hour >= {-(-span.since // HOUR_MS)}")
            self.split_conditions += (
                [f"s.hour = {span.since // HOUR_MS}"] if span.since % HOUR_MS else []
            )
        if span.until is not None:
            self.whole_conditions.append(f"hour < {span.until // HOUR_MS}")
            self.split_conditions += (
                [f"s.hour = {span.until // HOUR_MS}"] if span.until % HOUR_MS else []
            )

    def _group_by_local_day(self, segments: list[OffsetSegment]) -> None:
        """Group by the local day; in zones of half and quarter hours, split the hours that hold a midnight."""
        ahead = _case_sql(
            "hour", [(-(-one.start_ms // HOUR_MS), one.offset_minutes) for one in segments]
        )
        exactly = _case_sql(
            _REQUEST_TIME_SQL, [(one.start_ms, one.offset_minutes) for one in segments]
        )
        self.key = f"(hour * 60 + {ahead}) / {MINUTES_PER_DAY}"
        self.split_key = f"({_REQUEST_TIME_SQL} / {MINUTE_MS} + {exactly}) / {MINUTES_PER_DAY}"
        if any(one.offset_minutes % 60 for one in segments):
            midnight = f"(hour * 60 + {ahead}) % {MINUTES_PER_DAY} > {MINUTES_PER_DAY - 60}"
            self.whole_conditions.append(f"NOT ({midnight})")
            self.split_conditions.append(f"({midnight.replace('hour', 's.hour')})")


def _case_sql(column: str, steps: list[tuple[int, int]]) -> str:
    """The value of the last step that the column has reached; the latest is asked for first, it is the usual one."""
    later = [f"WHEN {column} >= {start} THEN {value}" for start, value in reversed(steps[1:])]
    return f"CASE {' '.join(later)} ELSE {steps[0][1]} END" if later else f"({steps[0][1]})"


def _offset_segments(store: Store, zone: TimeZone, span: TimeRange) -> list[OffsetSegment]:
    """The zone's offsets over all that is there and asked for."""
    ends = "SELECT (SELECT min(hour) FROM spend), (SELECT max(hour) FROM spend)"  # each from one end of the table
    first, last = (int(hour or 0) * HOUR_MS for hour in store.query(ends)[0])
    begin = max(first, span.since or 0)
    return zone.offset_segments(
        begin, max(begin, min(last + HOUR_MS, span.until or last + HOUR_MS))
    )


# -- beside the sums -----------------------------------------------------------------------------------------------


def failed_run_cost(store: Store, filters: Filters) -> WastedCost:
    """What the runs cost that did not end in success."""
    where = (
        WhereClause().add_time_range("started_at", filters.time_range).add("verdict <> 'success'")
    )
    where.add_in("project", filters.projects).add_in("model", filters.models).add_in(
        "agent", filters.agents
    )
    sql = f"SELECT count(*), coalesce(sum(cost_nano), 0), count(*) - count(cost_nano) FROM runs{where.sql}"
    return WastedCost(*map(int, store.query(sql, where.values)[0]))


def count_runs_without_usage(store: Store, filters: Filters) -> int:
    """How many runs say nothing of what they used."""
    where = (
        WhereClause()
        .add_time_range("started_at", filters.time_range)
        .add("output IS NULL AND verdict IS NOT NULL")
    )
    where.add_in("project", filters.projects).add_in("model", filters.models).add_in(
        "agent", filters.agents
    )
    return int(store.query(f"SELECT count(*) FROM runs{where.sql}", where.values)[0][0])


def context_peak(store: Store, filters: Filters) -> ContextPeak | None:
    """The fullest context among the sessions that were at work in the span."""
    where = (
        WhereClause()
        .add("context_peak IS NOT NULL")
        .add_in("project", filters.projects)
        .add_in("agent", filters.agents)
    )
    where.add_in("model", filters.models)
    if filters.time_range.since is not None:
        where.add("last_at >= ?", filters.time_range.since)
    if filters.time_range.until is not None:
        where.add("first_at < ?", filters.time_range.until)
    sql = f"SELECT context_peak, context_limit, id FROM sessions{where.sql} ORDER BY context_peak DESC, id LIMIT 1"
    return next((ContextPeak(*row) for row in store.query(sql, where.values)), None)


def fill_session_details(store: Store, lines: list[UsageRow]) -> None:
    """Give the lines of sessions their projects and titles."""
    by_id = {line.key: line for line in lines if line.key is not None}
    ids = list(by_id)
    for start in range(0, len(ids), MAX_VALUES_PER_QUERY):
        where = WhereClause().add_in("id", ids[start : start + MAX_VALUES_PER_QUERY])
        for key, project, title in store.query(
            f"SELECT id, project, title FROM sessions{where.sql}", where.values
        ):
            by_id[key].project, by_id[key].title = project, title


TOOL_USE_SUMS_SQL = (
    ", ".join(f"sum({name})" for name in TOOL_COUNT_FIELDS)
    + ", max(CASE WHEN timed > 0 THEN slowest_ms END)"
)
CALL_SUMS_SQL = (
    "count(*), sum(CASE WHEN c.ok = 0 AND c.denied = 0 THEN 1 ELSE 0 END), sum(c.denied), "
    "sum(CASE WHEN c.ok IS NULL AND c.denied = 0 THEN 1 ELSE 0 END), count(c.duration_ms), coalesce(sum(c.duration_ms), 0)"
)


def tool_sums(store: Store, filters: Filters) -> tuple[list[ToolCallStats], ToolCallStats]:
    """One line for each tool, the most used first, and all together."""
    found: dict[str, ToolCallStats] = {}
    for name, *figures in [
        *_query_whole_hours(store, filters),
        *_query_split_hours(store, filters),
    ]:
        counts = dict(zip(TOOL_COUNT_FIELDS, map(int, figures), strict=False))
        sums = ToolCallStats(**counts, slowest_ms=figures[-1], name=name)
        found[name] = found[name].plus(sums) if name in found else sums
    total = ToolCallStats()
    for sums in found.values():
        total = total.plus(sums)
    return sorted(found.values(), key=lambda sums: (-sums.calls, sums.name or "")), total


def _query_whole_hours(store: Store, filters: Filters) -> list[Row]:
    where = WhereClause().add_in("project", filters.projects).add_in("agent", filters.agents)
    since, until = filters.time_range.since, filters.time_range.until
    if since is not None:
        where.add("hour >= ?", -(-since // HOUR_MS))
    if until is not None:
        where.add("hour < ?", until // HOUR_MS)
    return store.query(
        f"SELECT name, {TOOL_USE_SUMS_SQL} FROM tool_use{where.sql} GROUP BY name", where.values
    )


def _query_split_hours(store: Store, filters: Filters) -> list[Row]:
    """The calls in the hours that the span begins or ends in the middle of."""
    since, until = filters.time_range.since, filters.time_range.until
    hours = {end // HOUR_MS for end in (since, until) if end is not None and end % HOUR_MS}
    found: list[Row] = []
    for hour in hours:
        first, last = (
            max(hour * HOUR_MS, since or 0),
            min(hour * HOUR_MS + HOUR_MS, until or (1 << 62)),
        )
        where = WhereClause().add("s.last_at >= ?", first).add("s.first_at < ?", last)
        where.add("c.at >= ?", first).add("c.at < ?", last)
        where.add_in("s.project", filters.projects).add_in("c.agent", filters.agents)
        calls = f"sessions s JOIN calls c ON c.session = s.id{where.sql}"
        sql = f"SELECT c.name, {CALL_SUMS_SQL}, max(c.duration_ms) FROM {calls} GROUP BY c.name"
        found += store.query(sql, where.values)
    return found
