"""How tools fared: calls, failures, refusals, times. It adds up `tool_use`; only a cut hour is looked up in `calls`."""

from ...answer.sums import COUNTS, ToolSums
from ..store import Row, Store
from .where import Filters, Where
from .zones import HOUR

WHOLE = ", ".join(f"sum({name})" for name in COUNTS) + ", max(CASE WHEN timed > 0 THEN slowest_ms END)"
COUNTED = (
    "count(*), sum(CASE WHEN c.ok = 0 AND c.denied = 0 THEN 1 ELSE 0 END), sum(c.denied), "
    "sum(CASE WHEN c.ok IS NULL AND c.denied = 0 THEN 1 ELSE 0 END), count(c.duration_ms), coalesce(sum(c.duration_ms), 0)"
)


def tool_sums(store: Store, filters: Filters) -> tuple[list[ToolSums], ToolSums]:
    """One line for each tool, the most used first, and all together."""
    found: dict[str, ToolSums] = {}
    for name, *figures in [*_whole(store, filters), *_cut(store, filters)]:
        counts = dict(zip(COUNTS, map(int, figures), strict=False))
        sums = ToolSums(**counts, slowest_ms=figures[-1], name=name)
        found[name] = found[name].plus(sums) if name in found else sums
    total = ToolSums()
    for sums in found.values():
        total = total.plus(sums)
    return sorted(found.values(), key=lambda sums: (-sums.calls, sums.name or "")), total


def _whole(store: Store, filters: Filters) -> list[Row]:
    where = Where().among("project", filters.projects).among("agent", filters.agents)
    since, until = filters.span.since, filters.span.until
    if since is not None:
        where.add("hour >= ?", -(-since // HOUR))
    if until is not None:
        where.add("hour < ?", until // HOUR)
    return store.rows(f"SELECT name, {WHOLE} FROM tool_use{where.sql} GROUP BY name", where.values)  # noqa: S608


def _cut(store: Store, filters: Filters) -> list[Row]:
    """The calls in the hours that the span begins or ends in the middle of."""
    since, until = filters.span.since, filters.span.until
    hours = {end // HOUR for end in (since, until) if end is not None and end % HOUR}
    found: list[Row] = []
    for hour in hours:
        first, last = max(hour * HOUR, since or 0), min(hour * HOUR + HOUR, until or (1 << 62))
        where = Where().add("s.last_at >= ?", first).add("s.first_at < ?", last)
        where.add("c.at >= ?", first).add("c.at < ?", last)
        where.among("s.project", filters.projects).among("c.agent", filters.agents)
        calls = f"sessions s JOIN calls c ON c.session = s.id{where.sql}"
        sql = f"SELECT c.name, {COUNTED}, max(c.duration_ms) FROM {calls} GROUP BY c.name"  # noqa: S608
        found += store.rows(sql, where.values)
    return found
