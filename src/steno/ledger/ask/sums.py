"""What was spent, by day, project, model and so on. It adds up `spend`, the sums by hour, and never scans the requests.

Only an hour that the question cuts in two (by its first or last moment, or by a midnight in a zone such as Asia/Kolkata) is
looked up in `requests`, through the sessions that were at work in it. Where those are pruned, the hour counts as a whole.
"""

from collections.abc import Iterable
from typing import Any

from ...answer.sums import TIMES, Line, Peak, Sums, Usage, Waste, together
from ..store import Row, Store
from .spans import Span, name_of
from .where import TOGETHER, Filters, Where
from .zones import DAY, HOUR, MINUTE, Segment, Zone, day_of

NOTHING = Sums()
FEWEST = 4  # steps of a course: fewer hours are no course
DAY_MINUTES = DAY // MINUTE
HOURLY = ", ".join(f"sum({name}) AS {name}" for name in Sums.__struct_fields__)
WHOLE = ", ".join(f"sum({name})" for name in Sums.__struct_fields__)

# The same sums, request by request; of an hour without requests (they are pruned), its own sums.
_TOKENS = "r.input + r.cache_write + r.cache_read + r.output"
_PARTS = {
    "requests": "CASE WHEN r.kind = 'request' THEN 1 ELSE 0 END",
    "reported_nano": "CASE WHEN r.source = 'reported' THEN coalesce(r.cost_nano, 0) ELSE 0 END",
    "computed_nano": "CASE WHEN r.source = 'computed' THEN coalesce(r.cost_nano, 0) ELSE 0 END",
    "unpriced": "CASE WHEN r.cost_nano IS NULL AND r.kind = 'request' THEN 1 ELSE 0 END",
    "unpriced_tokens": f"CASE WHEN r.cost_nano IS NULL THEN {_TOKENS} ELSE 0 END",
}
PARTLY = ", ".join(
    f"sum(CASE WHEN r.id IS NULL THEN s.{name} ELSE {_PARTS.get(name, 'r.' + name)} END)" for name in Sums.__struct_fields__
)
_SINGLE = (
    "FROM spend s LEFT JOIN requests r ON r.session = s.session AND r.model = s.model "
    f"AND r.at >= s.hour * {HOUR} AND r.at < s.hour * {HOUR} + {HOUR}"
)
_AT = f"coalesce(r.at, s.hour * {HOUR})"


def usage(store: Store, by: str, zone: Zone, filters: Filters) -> Usage:
    """The whole answer to `report`, with its lines in their natural order: of time, else the dearest first."""
    lines = grouped(store, by, zone, filters)
    total = together([line.sums for line in lines])
    unpriced = [line for line in grouped(store, "model", zone, filters) if line.sums.unpriced] if total.unpriced else []
    return Usage(by, lines, total, wasted(store, filters), peak(store, filters), unpriced, untold(store, filters))


def grouped(store: Store, by: str, zone: Zone, filters: Filters) -> list[Line]:
    """One line for each day, project, model ... that has any spend."""
    found: dict[Any, Sums] = {}
    for key, *figures in _asked(store, by, zone, filters):
        sums = Sums(*map(int, figures))
        if sums == NOTHING:
            continue  # requests that were booked elsewhere later
        name = name_of(day_of(int(key)), by) if by in TIMES else key or None
        before = found.get(name)
        found[name] = sums if before is None else before.plus(sums)
    lines = [Line(name, sums) for name, sums in found.items()]
    if by in TIMES:
        return sorted(lines, key=lambda line: line.key or "")
    return sorted(lines, key=lambda line: (-(line.sums.nano or 0), -line.sums.requests, line.key or ""))


def _asked(store: Store, by: str, zone: Zone, filters: Filters) -> Iterable[Row]:
    cut = Cut(store, by, zone, filters.span)
    plain = _filtered("", filters)
    for condition in cut.whole:
        plain.add(condition)
    table = f"spend{plain.sql}"
    if by in TIMES:  # by hour first: that is the order of the table, and few rows are left to be sorted
        table = f"(SELECT hour, {HOURLY} FROM {table} GROUP BY hour) AS hourly"  # noqa: S608  # names and numbers of our own
    sql = f"SELECT {cut.key}, {WHOLE} FROM {table} GROUP BY 1"  # noqa: S608
    yield from store.rows(sql, plain.values)
    if cut.split:
        single = _filtered("s.", filters).add(f"({' OR '.join(cut.split)})").during(_AT, filters.span)
        sql = f"SELECT {cut.single_key}, {PARTLY} {_SINGLE}{single.sql} GROUP BY 1"
        yield from store.rows(sql, single.values)


def courses(store: Store, by: str, filters: Filters, steps: int) -> dict[str | None, list[int]]:
    """For each project, model or agent, its cost in equal steps over the time that is asked for: a rough picture, by the hour."""
    where = _filtered("", filters)
    if filters.span.since is not None:
        where.add("hour >= ?", filters.span.since // HOUR)
    if filters.span.until is not None:
        where.add("hour < ?", -(-filters.span.until // HOUR))
    first, last = store.rows(f"SELECT min(hour), max(hour) FROM spend{where.sql}", where.values)[0]  # noqa: S608
    steps = 0 if first is None else min(steps, last - first + 1)
    if steps < FEWEST:
        return {}
    step = f"(hour - {first}) * {steps} / {last - first + 1}"
    sql = f"SELECT {by}, {step}, sum(reported_nano + computed_nano) FROM spend{where.sql} GROUP BY 1, 2"  # noqa: S608
    found: dict[str | None, list[int]] = {}
    for key, at, nano in store.rows(sql, where.values):
        found.setdefault(key or None, [0] * steps)[int(at)] = int(nano)
    return found


def _filtered(prefix: str, filters: Filters) -> Where:
    where = Where().among(f"{prefix}project", filters.projects).among(f"{prefix}model", filters.models)
    return where.among(f"{prefix}agent", filters.agents)


class Cut:
    """How a question divides the hours: those that are summed as a whole, those it splits, and the key of each.

    All of it is SQL made of our own names and whole numbers.
    """

    def __init__(self, store: Store, by: str, zone: Zone, span: Span) -> None:
        # Not the bare name: SQLite would go through an index and look up every row, which takes longer than sorting them.
        self.key, self.single_key = f"coalesce({by}, '')", f"s.{by}"
        self.whole: list[str] = []
        self.split: list[str] = []
        self._ends(span)
        if by in TIMES:
            self._days(_segments(store, zone, span))

    def _ends(self, span: Span) -> None:
        if span.since is not None:
            self.whole.append(f"hour >= {-(-span.since // HOUR)}")
            self.split += [f"s.hour = {span.since // HOUR}"] if span.since % HOUR else []
        if span.until is not None:
            self.whole.append(f"hour < {span.until // HOUR}")
            self.split += [f"s.hour = {span.until // HOUR}"] if span.until % HOUR else []

    def _days(self, segments: list[Segment]) -> None:
        """Group by the local day; in zones of half and quarter hours, split the hours that hold a midnight."""
        ahead = _case("hour", [(-(-one.start // HOUR), one.offset) for one in segments])
        exactly = _case(_AT, [(one.start, one.offset) for one in segments])
        self.key = f"(hour * 60 + {ahead}) / {DAY_MINUTES}"
        self.single_key = f"({_AT} / {MINUTE} + {exactly}) / {DAY_MINUTES}"
        if any(one.offset % 60 for one in segments):
            midnight = f"(hour * 60 + {ahead}) % {DAY_MINUTES} > {DAY_MINUTES - 60}"
            self.whole.append(f"NOT ({midnight})")
            self.split.append(f"({midnight.replace('hour', 's.hour')})")


def _case(column: str, steps: list[tuple[int, int]]) -> str:
    """The value of the last step that the column has reached; the latest is asked for first, it is the usual one."""
    later = [f"WHEN {column} >= {start} THEN {value}" for start, value in reversed(steps[1:])]
    return f"CASE {' '.join(later)} ELSE {steps[0][1]} END" if later else f"({steps[0][1]})"


def _segments(store: Store, zone: Zone, span: Span) -> list[Segment]:
    """The zone's offsets over all that is there and asked for."""
    ends = "SELECT (SELECT min(hour) FROM spend), (SELECT max(hour) FROM spend)"  # each from one end of the table
    first, last = (int(hour or 0) * HOUR for hour in store.rows(ends)[0])
    begin = max(first, span.since or 0)
    return zone.segments(begin, max(begin, min(last + HOUR, span.until or last + HOUR)))


# -- beside the sums -----------------------------------------------------------------------------------------------


def wasted(store: Store, filters: Filters) -> Waste:
    """What the runs cost that did not end in success."""
    where = Where().during("started_at", filters.span).add("verdict <> 'success'")
    where.among("project", filters.projects).among("model", filters.models).among("agent", filters.agents)
    sql = f"SELECT count(*), coalesce(sum(cost_nano), 0), count(*) - count(cost_nano) FROM runs{where.sql}"  # noqa: S608
    return Waste(*map(int, store.rows(sql, where.values)[0]))


def untold(store: Store, filters: Filters) -> int:
    """How many runs say nothing of what they used."""
    where = Where().during("started_at", filters.span).add("output IS NULL AND verdict IS NOT NULL")
    where.among("project", filters.projects).among("model", filters.models).among("agent", filters.agents)
    return int(store.rows(f"SELECT count(*) FROM runs{where.sql}", where.values)[0][0])  # noqa: S608


def peak(store: Store, filters: Filters) -> Peak | None:
    """The fullest context among the sessions that were at work in the span."""
    where = Where().add("context_peak IS NOT NULL").among("project", filters.projects).among("agent", filters.agents)
    where.among("model", filters.models)
    if filters.span.since is not None:
        where.add("last_at >= ?", filters.span.since)
    if filters.span.until is not None:
        where.add("first_at < ?", filters.span.until)
    sql = f"SELECT context_peak, context_limit, id FROM sessions{where.sql} ORDER BY context_peak DESC, id LIMIT 1"  # noqa: S608
    return next((Peak(*row) for row in store.rows(sql, where.values)), None)


def named(store: Store, lines: list[Line]) -> None:
    """Give the lines of sessions their projects and titles."""
    by_id = {line.key: line for line in lines if line.key is not None}
    ids = list(by_id)
    for start in range(0, len(ids), TOGETHER):
        where = Where().among("id", ids[start : start + TOGETHER])
        for key, project, title in store.rows(f"SELECT id, project, title FROM sessions{where.sql}", where.values):  # noqa: S608
            by_id[key].project, by_id[key].title = project, title
