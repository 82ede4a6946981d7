"""Usage and cost by day, project, model and so on, and by tool.

Reports add up sums and don't scan the requests: those by day for whole days (UTC), those by hour
for the rest. Only hours that are cut by the time range, or by midnight in a zone such as
Asia/Kolkata, are looked up in `requests`, through the sessions active in them. If those requests
are pruned, the whole hour is counted. Reports by host, branch or tag, or with such a filter, look
up all requests: they depend on the run.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...units import DAY_MS, HOUR_MS, MINUTE_MS
from ..protocol import Row, Store, chunks, query_value
from ..results import decode_tags
from ..totals import (
    BLOCK_HOURS,
    ORIGIN_COLUMNS,
    TIME_GROUPINGS,
    TOOL_COUNT_FIELDS,
    ContextPeak,
    DeniedRule,
    ToolCallStats,
    UsageBlock,
    UsageReport,
    UsageRow,
    UsageTotals,
    WastedCost,
    sum_totals,
)
from .filters import (
    Filters,
    OffsetSegment,
    TimeRange,
    TimeZone,
    WhereClause,
    date_from_day_number,
    period_name,
)
from .runs import repaired_runs, run_sum_tables, runs_where

NO_SPEND = UsageTotals()
MIN_HISTORY_STEPS = 4
MAX_INT = 1 << 62
MINUTES_PER_DAY = DAY_MS // MINUTE_MS
HOURS_PER_DAY = DAY_MS // HOUR_MS
HISTORY_DAYS_PER_STEP = 4  # from here on, the history of the cost has steps of whole days
SPEND_COLUMNS_SQL = ", ".join(UsageTotals.__struct_fields__)
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
# A request belongs to its run's host, branch and so on; one without a run to its session's.
_JOIN_RUNS_SQL = "LEFT JOIN runs u ON u.id = r.run LEFT JOIN sessions e ON e.id = s.session"
_ORIGIN_SQL = "coalesce(u.{0}, e.{0}, '')"


SESSION_ORDERS = {
    None: "cost_nano DESC, requests DESC, session",
    "cost": "cost_nano DESC, requests DESC, session",
    "tokens": "tokens DESC, session",
    "requests": "requests DESC, cost_nano DESC, session",
    "saved": "saved_nano DESC, cost_nano DESC, session",
    "name": "session",
}


def usage_report(
    store: Store,
    by: str,
    zone: TimeZone,
    filters: Filters,
    *,
    limit: int | None = None,
    order: str | None = None,
) -> UsageReport:
    """Return the report with its rows ordered by time, or by cost in descending order.

    `limit` and `order` (a key of SESSION_ORDERS) are for sessions, which may be very many.
    """
    left_off = 0
    if by == "session" and not (filters.needs_runs or filters.is_partial):
        rows, left_off = _rank_sessions(store, filters, SESSION_ORDERS[order], limit)
    else:
        rows = group_spend(store, by, zone, filters)
    # A run with two tags is in two rows, but once in the total; not all sessions have a row.
    shares = group_spend(store, "agent", zone, filters) if by in ("tag", "session") else rows
    total = sum_totals(row.totals for row in shares)
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
        left_off=left_off,
    )


def _rank_sessions(
    store: Store, filters: Filters, order: str, limit: int | None
) -> tuple[list[UsageRow], int]:
    """The first sessions by an order, and the number of the others."""
    where = WhereClause()
    sessions = WhereClause().add_in("project", filters.projects).add_in("agent", filters.agents)
    if sessions.conditions:
        where.add(f"session IN (SELECT id FROM sessions{sessions.sql})", *sessions.values)
    order += f" LIMIT {limit}" if limit is not None else ""
    sql = f"SELECT session, {SPEND_COLUMNS_SQL} FROM session_spend{where.sql} ORDER BY {order}"
    rows = [
        UsageRow(session or None, totals)
        for session, *figures in store.query(sql, where.values)
        if (totals := UsageTotals(*figures)) != NO_SPEND
    ]
    _add_models(store, rows)
    count = count_sessions(store, sessions) if len(rows) == limit else len(rows)
    return rows, max(0, count - len(rows))


def _add_models(store: Store, rows: list[UsageRow]) -> None:
    """Add the rows of its models to each session."""
    parts: dict[str, dict[str, UsageTotals]] = {}
    for part in chunks([row.key or "" for row in rows]):
        where = WhereClause().add_in("session", part)
        sql = f"SELECT session, model, {SPEND_SUMS_SQL} FROM spend{where.sql} GROUP BY 1, 2"
        for session, model, *figures in store.query(sql, where.values):
            parts.setdefault(session, {})[model] = UsageTotals(*map(int, figures))
    for row in rows:
        models = parts.get(row.key or "", {}).items()
        row.models = _model_rows({model: sums for model, sums in models if sums != NO_SPEND})


def group_spend(store: Store, by: str, zone: TimeZone, filters: Filters) -> list[UsageRow]:
    """Return one row for each day, project, model ... with usage, and the rows of its models."""
    parts_by_key: dict[str | None, dict[str, UsageTotals]] = {}
    for key, model, *figures in _query_groups(store, by, zone, filters):
        totals = UsageTotals(*map(int, figures))
        if totals == NO_SPEND:
            continue  # its requests were reassigned later
        for name in _group_names(by, key):
            parts = parts_by_key.setdefault(name, {})
            known = parts.get(model)
            parts[model] = totals if known is None else known.plus(totals)
    rows = [
        UsageRow(
            name, sum_totals(parts.values()), models=_model_rows(parts) if by != "model" else []
        )
        for name, parts in parts_by_key.items()
    ]
    if by in TIME_GROUPINGS:
        return sorted(rows, key=lambda row: row.key or "")
    return sorted(rows, key=_by_cost)


def _model_rows(parts: dict[str, UsageTotals]) -> list[UsageRow]:
    return sorted(
        (UsageRow(model or None, totals) for model, totals in parts.items()), key=_by_cost
    )


def _by_cost(row: UsageRow) -> tuple[int, int, str]:
    return -(row.totals.cost_nano or 0), -row.totals.requests, row.key or ""


def _group_names(by: str, key: Any) -> Sequence[str | None]:
    """The groups of a key: one, or each of its tags."""
    if by in TIME_GROUPINGS:
        return [period_name(date_from_day_number(int(key)), by)]
    if by == "tag":
        return [f"{name}={value}" for name, value in decode_tags(key).items()] or [None]
    return [str(key) if key else None]


def _query_groups(store: Store, by: str, zone: TimeZone, filters: Filters) -> Iterable[Row]:
    """Rows of key, model and sums."""
    split = HourSplit(store, by, zone, filters.time_range)
    if by in ORIGIN_COLUMNS or by == "tag" or filters.needs_runs:
        yield from _query_groups_by_run(store, split.split_key, filters)
        return
    for table, where in _sum_tables(split, by, filters):
        sql = f"SELECT {split.key}, model, {SPEND_SUMS_SQL} FROM {table}{where.sql} GROUP BY 1, 2"
        if table == "daily_spend":
            sql = sql.replace("hour", f"(day * {HOURS_PER_DAY})")
        yield from store.query(sql, where.values)
    if split.split_conditions:
        where = (
            WhereClause()
            .add_names(filters, "s.")
            .add(f"({' OR '.join(split.split_conditions)})")
            .add_time_range(_REQUEST_TIME_SQL, filters.time_range)
        )
        sql = (
            f"SELECT {split.split_key}, s.model, {SPLIT_HOUR_SUMS_SQL} "
            f"{_FROM_REQUESTS_SQL}{where.sql} GROUP BY 1, 2"
        )
        yield from store.query(sql, where.values)


def _sum_tables(split: "HourSplit", by: str, filters: Filters) -> Iterator[tuple[str, WhereClause]]:
    """The tables with the sums of the whole hours, and what to select of each."""
    names = WhereClause().add_names(filters)
    for condition in split.whole_conditions:
        names.add(condition)
    first, end = split.hours
    if by in ("session", "hour") or not split.has_whole_days:
        is_by_hour = by != "session" and filters.projects is None and filters.agents is None
        table = "hourly_spend" if is_by_hour else "spend"
        yield table, names.add_range("hour", first, end)
        return
    first_day = None if first is None else -(-first // HOURS_PER_DAY)
    end_day = None if end is None else end // HOURS_PER_DAY
    if first_day is not None and end_day is not None and first_day >= end_day:
        yield "spend", names.add_range("hour", first, end)
        return
    yield "daily_spend", names.copy().add_range("day", first_day, end_day)
    if first_day is not None and first != first_day * HOURS_PER_DAY:
        yield "spend", names.copy().add_range("hour", first, first_day * HOURS_PER_DAY)
    if end_day is not None and end != end_day * HOURS_PER_DAY:
        yield "spend", names.copy().add_range("hour", end_day * HOURS_PER_DAY, end)


def _query_groups_by_run(store: Store, key: str, filters: Filters) -> list[Row]:
    where = (
        WhereClause()
        .add_names(filters, "s.")
        .add_origin(filters, _ORIGIN_SQL)
        .add_tags(filters, "u.tags")
        .add_time_range(_REQUEST_TIME_SQL, filters.time_range)
    )
    sql = (
        f"SELECT {key}, s.model, {SPLIT_HOUR_SUMS_SQL} "
        f"{_FROM_REQUESTS_SQL} {_JOIN_RUNS_SQL}{where.sql} GROUP BY 1, 2"
    )
    return store.query(sql, where.values)


def usage_blocks(store: Store, zone: TimeZone, filters: Filters, now: int) -> list[UsageBlock]:
    """Return the blocks that overlap the time range, oldest first.

    A block starts with the first request after the block before; it consists of whole hours, so
    that the sums by hour are exact.
    """
    everything = msgspec.structs.replace(filters, time_range=TimeRange())
    hours = {int(row.key): row for row in group_spend(store, "hour", zone, everything) if row.key}
    blocks: list[list[int]] = []
    for hour in sorted(hours):
        if not blocks or hour >= blocks[-1][0] + BLOCK_HOURS:
            blocks.append([])
        blocks[-1].append(hour)
    found = [
        UsageBlock(block[0] * HOUR_MS, _merge_rows([hours[hour] for hour in block]), now)
        for block in blocks
    ]
    span = filters.time_range
    found = [
        block
        for block in found
        if block.end > (span.since or 0) and block.start < (span.until or MAX_INT)
    ]
    for block in found[-1:]:
        if block.is_active:
            block.first_at = _first_request(store, filters, block.start)
    return found


def _merge_rows(rows: Sequence[UsageRow]) -> UsageRow:
    parts: dict[str, UsageTotals] = {}
    for model in (model for row in rows for model in row.models):
        known = parts.get(model.key or "")
        parts[model.key or ""] = model.totals if known is None else known.plus(model.totals)
    return UsageRow(None, sum_totals(parts.values()), models=_model_rows(parts))


def _first_request(store: Store, filters: Filters, since: int) -> int | None:
    where = WhereClause().add_names(filters, "s.").add("s.hour = ?", since // HOUR_MS)
    at = query_value(store, f"SELECT min(r.at) {_FROM_REQUESTS_SQL}{where.sql}", where.values)
    return None if at is None else int(at)


def spend_history(
    store: Store, by: str, filters: Filters, steps: int
) -> dict[str | None, list[int]]:
    """Return the cost of each project, model or agent in equal steps over the time range.

    Empty with a filter about runs.
    """
    if filters.needs_runs:
        return {}
    time_range = filters.time_range
    hours = (
        None if time_range.since is None else time_range.since // HOUR_MS,
        None if time_range.until is None else _ceil_hour(time_range.until),
    )
    days = (
        None if hours[0] is None else hours[0] // HOURS_PER_DAY,
        None if hours[1] is None else -(-hours[1] // HOURS_PER_DAY),
    )
    table, column, bounds = "daily_spend", "day", days
    first, last = _first_and_last(store, table, column, filters, bounds)
    if first is None:
        return {}
    if last - first < steps * HISTORY_DAYS_PER_STEP:
        table, column, bounds = "spend", "hour", hours
        first, last = _first_and_last(store, table, column, filters, bounds)
    steps = 0 if first is None else min(steps, last - first + 1)
    if steps < MIN_HISTORY_STEPS:
        return {}
    where = WhereClause().add_names(filters).add_range(column, *bounds)
    step = f"({column} - {first}) * {steps} / {last - first + 1}"
    sql = (
        f"SELECT {by}, {step}, sum(reported_nano + computed_nano) "
        f"FROM {table}{where.sql} GROUP BY 1, 2"
    )
    history: dict[str | None, list[int]] = {}
    for key, index, cost_nano in store.query(sql, where.values):
        history.setdefault(key or None, [0] * steps)[int(index)] = int(cost_nano)
    return history


def _first_and_last(
    store: Store, table: str, column: str, filters: Filters, bounds: tuple[int | None, int | None]
) -> tuple[Any, Any]:
    """The first and last hour or day with any usage."""
    where = WhereClause().add_names(filters).add_range(column, *bounds)
    # Two subqueries: each reads one end of the table's key.
    first = f"SELECT min({column}) FROM {table}{where.sql}"
    last = f"SELECT max({column}) FROM {table}{where.sql}"
    (ends,) = store.query(f"SELECT ({first}), ({last})", [*where.values, *where.values])
    return ends[0], ends[1]


def _ceil_hour(at: int) -> int:
    """Return the first hour that starts at or after an instant."""
    return -(-at // HOUR_MS)


class HourSplit:
    """Which hours a report sums as a whole, which it splits by request, and the key of each.

    All SQL consists of our own names and integers.
    """

    def __init__(self, store: Store, by: str, zone: TimeZone, time_range: TimeRange) -> None:
        # Not the bare column: SQLite would use an index and look up every row, which is slower.
        self.key = by if by == "hour" else f"coalesce({by}, '')"
        self.split_key = f"s.{by}"
        if by in ORIGIN_COLUMNS:
            self.split_key = _ORIGIN_SQL.format(ORIGIN_COLUMNS[by])
        elif by == "tag":
            self.split_key = "coalesce(u.tags, '')"
        self.whole_conditions: list[str] = []
        self.split_conditions: list[str] = []
        self.has_whole_days = True  # no group begins within a day (UTC)
        since = time_range.since
        until = time_range.until
        self.hours = (  # first and end of the whole hours
            None if since is None else _ceil_hour(since),
            None if until is None else until // HOUR_MS,
        )
        self._split_at_range_ends(time_range)
        if by in TIME_GROUPINGS:
            self._group_by_local_day(_offset_segments(store, zone, time_range))

    def _split_at_range_ends(self, time_range: TimeRange) -> None:
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
        self.has_whole_days = not any(segment.offset_minutes for segment in segments)
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


def first_hour_ms(store: Store) -> int | None:
    """Return the start of the first hour with usage; None if there is none."""
    hour = query_value(store, "SELECT min(hour) FROM spend WHERE hour > 0")
    return None if hour is None else int(hour) * HOUR_MS


def _offset_segments(store: Store, zone: TimeZone, time_range: TimeRange) -> list[OffsetSegment]:
    # Two subqueries: each reads one end of the table's key.
    ((first_hour, last_hour),) = store.query(
        "SELECT (SELECT min(hour) FROM hourly_spend), (SELECT max(hour) FROM hourly_spend)"
    )
    first = int(first_hour or 0) * HOUR_MS
    end = int(last_hour or 0) * HOUR_MS + HOUR_MS
    start = max(first, time_range.since or 0)
    return zone.offset_segments(start, max(start, min(end, time_range.until or end)))


FAILED_SUMS_SQL = "count(*), sum(cost_nano), count(*) - count(cost_nano)"

# -- runs and sessions ---------------------------------------------------------------------------


def failed_run_cost(store: Store, filters: Filters) -> WastedCost:
    """Return the cost of failed runs."""
    where = runs_where(filters, [], failed=False, session=None)
    totals = [0, 0, 0]
    for table, part in run_sum_tables(where):
        sums = FAILED_SUMS_SQL
        part = part.copy().add("verdict <> 'success' AND verdict <> ''")
        if table == "daily_runs":
            sums = "sum(runs), sum(cost_nano), sum(runs - priced)"
        (figures,) = store.query(f"SELECT {sums} FROM {table}{part.sql}", part.values)
        totals = [total + int(figure or 0) for total, figure in zip(totals, figures, strict=True)]
    repaired = repaired_runs(where)
    sql = f"SELECT {FAILED_SUMS_SQL} FROM runs{repaired.sql}"
    (figures,) = store.query(sql, repaired.values)
    return WastedCost(
        *(total - int(figure or 0) for total, figure in zip(totals, figures, strict=True))
    )


def count_runs_without_usage(store: Store, filters: Filters) -> int:
    where = filters.runs_where()
    where.add("output IS NULL AND verdict IS NOT NULL")
    return int(query_value(store, f"SELECT count(*) FROM runs{where.sql}", where.values))


def count_sessions(store: Store, where: WhereClause) -> int:
    """Return the number of matching sessions."""
    sql = f"SELECT count(*) FROM sessions{where.sql}"
    if not where.conditions:
        sql = "SELECT sum(total) FROM row_counts WHERE name = 'sessions'"
    return int(query_value(store, sql, where.values) or 0)


def context_peak(store: Store, filters: Filters) -> ContextPeak | None:
    """Return the largest context among the sessions active in the time range."""
    where = WhereClause().add("context_peak IS NOT NULL").add_names(filters)
    where.add_active_in(filters.time_range).add_origin(filters)
    where.add_tags_of_session(filters, "id")
    sql = (
        f"SELECT context_peak, context_limit, id FROM sessions{where.sql} "
        "ORDER BY context_peak DESC NULLS LAST, id LIMIT 1"
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
    if filters.time_range == TimeRange():
        return _query_tool_totals(store, where)
    since = filters.time_range.since
    until = filters.time_range.until
    where.add_range(
        "hour",
        None if since is None else _ceil_hour(since),
        None if until is None else until // HOUR_MS,
    )
    sql = f"SELECT name, {TOOL_USE_SUMS_SQL} FROM tool_use{where.sql} GROUP BY name"
    return store.query(sql, where.values)


def _query_tool_totals(store: Store, where: WhereClause) -> list[Row]:
    """The same of all hours; the slowest call is the first of a tool in its index."""
    sums = ", ".join(f"sum({name})" for name in TOOL_COUNT_FIELDS)
    sql = f"SELECT name, {sums} FROM tool_totals{where.sql} GROUP BY name HAVING sum(calls) > 0"
    rows = []
    for name, *counts in store.query(sql, where.values):
        slowest = where.copy().add("name = ? AND timed > 0", name)
        sql = f"SELECT slowest_ms FROM tool_use{slowest.sql} ORDER BY slowest_ms DESC LIMIT 1"
        rows.append((name, *counts, query_value(store, sql, slowest.values)))
    return rows


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


def denied_rules(store: Store, filters: Filters, limit: int) -> list[DeniedRule]:
    """Return the rules that would have allowed denied calls, most frequent first."""
    where = (
        WhereClause()
        .add_time_range("d.at", filters.time_range)
        .add_in("s.project", filters.projects)
        .add_in("s.agent", filters.agents)
    )
    sql = (
        "SELECT d.tool, d.rule, count(*), count(DISTINCT d.session), max(d.at), max(d.reason) "
        f"FROM denials d LEFT JOIN sessions s ON s.id = d.session{where.sql} "
        "GROUP BY d.tool, d.rule ORDER BY 3 DESC, 1, 2 LIMIT ?"
    )
    return [DeniedRule(*row) for row in store.query(sql, (*where.values, limit))]
