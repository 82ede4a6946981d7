"""How tools fared: calls, failures, refusals, times. It adds up `tool_use`; only a cut hour is looked up in `calls`."""

from ...answer.sums import TOOL_COUNT_FIELDS, ToolCallStats
from ..store import Row, Store
from .where import Filters, WhereClause
from .zones import HOUR_MS

TOOL_USE_SUMS_SQL = ", ".join(f"sum({name})" for name in TOOL_COUNT_FIELDS) + ", max(CASE WHEN timed > 0 THEN slowest_ms END)"
CALL_SUMS_SQL = (
    "count(*), sum(CASE WHEN c.ok = 0 AND c.denied = 0 THEN 1 ELSE 0 END), sum(c.denied), "
    "sum(CASE WHEN c.ok IS NULL AND c.denied = 0 THEN 1 ELSE 0 END), count(c.duration_ms), coalesce(sum(c.duration_ms), 0)"
)


def tool_sums(store: Store, filters: Filters) -> tuple[list[ToolCallStats], ToolCallStats]:
    """One line for each tool, the most used first, and all together."""
    found: dict[str, ToolCallStats] = {}
    for name, *figures in [*_query_whole_hours(store, filters), *_query_split_hours(store, filters)]:
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
    return store.query(f"SELECT name, {TOOL_USE_SUMS_SQL} FROM tool_use{where.sql} GROUP BY name", where.values)  # noqa: S608


def _query_split_hours(store: Store, filters: Filters) -> list[Row]:
    """The calls in the hours that the span begins or ends in the middle of."""
    since, until = filters.time_range.since, filters.time_range.until
    hours = {end // HOUR_MS for end in (since, until) if end is not None and end % HOUR_MS}
    found: list[Row] = []
    for hour in hours:
        first, last = max(hour * HOUR_MS, since or 0), min(hour * HOUR_MS + HOUR_MS, until or (1 << 62))
        where = WhereClause().add("s.last_at >= ?", first).add("s.first_at < ?", last)
        where.add("c.at >= ?", first).add("c.at < ?", last)
        where.add_in("s.project", filters.projects).add_in("c.agent", filters.agents)
        calls = f"sessions s JOIN calls c ON c.session = s.id{where.sql}"
        sql = f"SELECT c.name, {CALL_SUMS_SQL}, max(c.duration_ms) FROM {calls} GROUP BY c.name"  # noqa: S608
        found += store.query(sql, where.values)
    return found
