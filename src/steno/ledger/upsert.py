"""Rows into the ledger: merged with what is there, priced, and added to the sums, all in the caller's transaction.

Booking the same rows twice changes nothing. It never opens a file and never decides what an event means.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..pricing import Rates, cache_saving, cost_of, price, rates
from .reconcile import (
    KNOWN_TOTAL_SOURCES,
    RunIntervals,
    add_request_row,
    reconcile,
    request_row,
    upsert_spend,
)
from .rollups import (
    CALL_COLUMNS,
    HOUR_MS,
    REQUEST_COLUMNS,
    TOOL_USE_KEY_COLUMNS,
    TOOL_USE_SUM_COLUMNS,
    SumDeltas,
    add_on_conflict,
    replace_on_conflict,
    tool_use_delta,
)
from .rows import UNKNOWN_CONTEXT, ParsedRequest, ParsedSession, RowBatch
from .store import Row, Store

DAY_MS = 24 * HOUR_MS
MAX_COST_NANO = 10**18  # nano-dollars: a billion dollars, and what a column holds
ON_CONFLICT_IGNORE = "ON CONFLICT DO NOTHING"
SESSION_COLUMNS = ("id", "agent", *ParsedSession.__struct_fields__)
CHANGE_COLUMNS = ("id", "session", "run", "call", "path", "inside", "change", "source", "at")
DENIAL_COLUMNS = ("id", "session", "run", "call", "tool", "reason", "rule", "at")
TEXT_COLUMNS = ("id", "session", "run", "parent", "role", "at", "text")

CostAndSaving = tuple[int | None, int]  # cost and what the cache saved, in nano-dollars


class Pricer:
    """Prices of single requests. A model has one price on a day, so that few need a question to the table."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, int], Rates | None] = {}

    def __call__(self, request: ParsedRequest) -> CostAndSaving:
        day = (request.model, request.at // DAY_MS)
        if day not in self._rates:
            self._rates[day] = rates(request.model, _request_time(request))
        known = self._rates[day]
        if known is None:
            return None, 0
        cost = cost_of(known, request)
        if cost is None:  # so large that other prices hold
            cost = price(request.model, request, _request_time(request))
        saved = cache_saving(known, request.cache_read)
        if (cost is not None and cost > MAX_COST_NANO) or saved > MAX_COST_NANO:
            return None, 0  # of counters that no request has
        return cost, saved


def _request_time(request: ParsedRequest) -> datetime:
    return datetime.fromtimestamp(request.at / 1000, timezone.utc)


class UpsertCounts(Struct):
    """What was new."""

    requests: int = 0
    calls: int = 0


def upsert_batches(
    store: Store,
    batches: Sequence[RowBatch],
    priced: Callable[[ParsedRequest], CostAndSaving],
    *,
    cost_source: str | None = None,
) -> UpsertCounts:
    """Book what some files tell. `account`: the whole cost of the run that these rows belong to is known, and from where."""
    done = UpsertCounts()
    for agent in dict.fromkeys(batch.agent for batch in batches):
        own = [batch for batch in batches if batch.agent == agent]
        projects = _upsert_sessions(store, agent, own)
        done.requests += _upsert_requests(store, agent, own, projects, priced, cost_source)
        done.calls += _upsert_calls(store, own, projects)
        store.upsert(
            "changes",
            CHANGE_COLUMNS,
            _unique_by_id(batch.changes for batch in own),
            ON_CONFLICT_IGNORE,
        )
        store.upsert(
            "denials",
            DENIAL_COLUMNS,
            _unique_by_id(batch.denials for batch in own),
            ON_CONFLICT_IGNORE,
        )
        store.upsert(
            "texts", TEXT_COLUMNS, _unique_by_id(batch.texts for batch in own), ON_CONFLICT_IGNORE
        )
    return done


def _unique_by_id(lists: Iterable[list[Row]]) -> list[Row]:
    """Rows of several files, each number once."""
    return list({row[0]: row for rows in lists for row in rows}.values())


# -- sessions ----------------------------------------------------------------------------------------------------


def _upsert_sessions(store: Store, agent: str, batches: Sequence[RowBatch]) -> dict[str, str]:
    """Merge what is told of the sessions; returns the project of each."""
    told: dict[str, ParsedSession] = {}
    for batch in batches:
        for name, session in batch.sessions.items():
            told[name] = (
                merge_sessions(told[name], session, batch.is_from_start)
                if name in told
                else session
            )
        for request in batch.requests:
            if request.session not in told:
                told[request.session] = ParsedSession(first_at=request.at, last_at=request.at)
        for row in batch.calls:  # a call may come after all that is told of its session
            known, at = told.get(row[3]), row[10]
            if known is None:
                told[row[3]] = ParsedSession(first_at=at, last_at=at)
            elif (
                known.first_at is None
                or known.last_at is None
                or not known.first_at <= at <= known.last_at
            ):
                known.first_at, known.last_at = (
                    _min_known(known.first_at, at),
                    _max_known(known.last_at, at),
                )
    before = store.fetch_by_id("sessions", SESSION_COLUMNS, told)
    whole = {name for batch in batches if batch.is_from_start for name in batch.sessions}
    rows = []
    for name, session in told.items():
        old = before.get(name)
        if old is not None:
            earlier = ParsedSession(*old[2:])
            session = merge_sessions(earlier, session, name in whole)
            if earlier.project is None and session.project is not None:
                store.execute(
                    "UPDATE spend SET project = ? WHERE session = ? AND project = ''",
                    (session.project, name),
                )
        if session.context_used == UNKNOWN_CONTEXT:
            session = replace(session, context_used=None)
        rows.append(
            (name, agent, *(getattr(session, field) for field in ParsedSession.__struct_fields__))
        )
    store.upsert("sessions", SESSION_COLUMNS, rows, replace_on_conflict(SESSION_COLUMNS))
    return {row[0]: row[3] or "" for row in rows}


def merge_sessions(old: ParsedSession, new: ParsedSession, whole: bool) -> ParsedSession:
    """One session, told by two readings: the later one says how it stands, the earlier one where it began.

    `whole`: the new reading began at the beginning, so that what it counts was perhaps counted before.
    """
    plus = max if whole else _sum
    if (new.last_at or 0) < (old.last_at or 0):
        late, early = old, new
    else:
        late, early = new, old
    return ParsedSession(
        agent_version=late.agent_version or early.agent_version,
        project=old.project or new.project,
        model=late.model or early.model,
        title=old.title or new.title,
        first_at=_min_known(old.first_at, new.first_at),
        last_at=_max_known(old.last_at, new.last_at),
        prompts=plus(old.prompts, new.prompts),
        turns=old.turns if new.turns is None else new.turns,
        context_used=early.context_used if late.context_used is None else late.context_used,
        context_limit=late.context_limit or early.context_limit,
        context_peak=_max_known(old.context_peak, new.context_peak),
        compactions=plus(old.compactions, new.compactions),
        reported_nano=_max_known(old.reported_nano, new.reported_nano),
        stop=late.stop or early.stop,
    )


def _sum(one: int, other: int) -> int:
    return one + other


def _min_known(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _max_known(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


# -- requests ----------------------------------------------------------------------------------------------------


def _upsert_requests(
    store: Store,
    agent: str,
    batches: Sequence[RowBatch],
    projects: dict[str, str],
    priced: Callable[[ParsedRequest], CostAndSaving],
    account: str | None,
) -> int:
    told: dict[int, ParsedRequest] = {}
    for batch in batches:
        for request in batch.requests:
            first = told.setdefault(request.id, request)
            if first is not request:
                told[request.id] = merge_requests(first, request)
    told = _without_pruned(store, told)
    runs = _assign_runs(store, told.values())
    fresh = [
        _priced_request_row(agent, request, priced, account or runs.get(request.run or ""))
        for request in told.values()
    ]
    added = store.try_insert("requests", REQUEST_COLUMNS, fresh)
    before = {} if added else store.fetch_by_id("requests", REQUEST_COLUMNS, told)
    sums, changed = SumDeltas(), []
    if not before:
        sums.add_new_requests(fresh)
        changed = fresh
    for row in fresh if before else ():
        old = before.get(row[0])
        if old is not None:
            request = told[row[0]]
            known = next(
                (source for source in (old[17], row[17]) if source in KNOWN_TOTAL_SOURCES), None
            )
            if old[17] == "reported" or not _changes_row(
                old, request, known is not None and known != old[17]
            ):
                continue
            row = _priced_request_row(
                agent, merge_requests(_request_from_row(old), request), priced, known
            )
            add_request_row(sums, old, projects, -1)
        add_request_row(sums, row, projects)
        changed.append(row)
    if not added:
        store.upsert("requests", REQUEST_COLUMNS, changed, replace_on_conflict(REQUEST_COLUMNS))
    for request in told.values():
        projects.setdefault(request.session, "")
    upsert_spend(store, sums, agent, projects)
    reconcile(store, sorted(runs))
    return len(told) - len(before)


def _without_pruned(store: Store, told: dict[int, Any]) -> dict[int, Any]:
    """Without what was counted once, and then pruned."""
    if not store.query("SELECT 1 FROM pruned LIMIT 1"):
        return told
    gone = store.fetch_by_id("pruned", ("id",), told)
    return {id_: row for id_, row in told.items() if id_ not in gone}


def _assign_runs(store: Store, requests: Iterable[ParsedRequest]) -> dict[str, str]:
    """Give requests that no run told of to the run that they were made in; returns those runs, and whose account each has."""
    free = [request for request in requests if request.run is None]
    running, runs = RunIntervals(store, {request.session for request in free}), dict[str, str]()
    for request in free if running else ():
        request.run = running.run_at(request.session, request.at)
        if request.run is not None:
            runs[request.run] = running.cost_sources[request.run]
    return runs


def _priced_request_row(
    agent: str,
    request: ParsedRequest,
    priced: Callable[[ParsedRequest], CostAndSaving],
    account: str | None,
) -> Row:
    if account == "local":
        return request_row(agent, request, 0, 0, "local")
    cost, saved = priced(request)
    if account is not None:
        return request_row(agent, request, cost or 0, saved, account)
    return request_row(agent, request, cost, saved, "unknown" if cost is None else "computed")


def merge_requests(known: ParsedRequest, told: ParsedRequest) -> ParsedRequest:
    """One request, told by two files: a counter only ever grows, and the first file that told of it is its place."""
    return ParsedRequest(
        known.id,
        known.session,
        known.run or told.run,
        known.message,
        known.parent,
        known.model if known.model != "unknown" else told.model,
        known.at,
        max(known.input, told.input),
        max(known.cache_write, told.cache_write),
        max(known.cache_read, told.cache_read),
        max(known.output, told.output),
        max(known.reasoning, told.reasoning),
        max(known.cache_write_1h, told.cache_write_1h),
    )


def _changes_row(old: Row, request: ParsedRequest, reported: bool) -> bool:
    """Whether a request that is there already is told anew in a way that changes its row."""
    figures = (
        request.input,
        request.cache_write,
        request.cache_read,
        request.output,
        request.reasoning,
        request.cache_write_1h,
    )
    grown = any(new > was for new, was in zip(figures, old[9:15], strict=True))
    return grown or reported or (old[3] is None and request.run is not None)


def _request_from_row(row: Row) -> ParsedRequest:
    return ParsedRequest(row[0], row[2], row[3], row[5], row[6], row[7], row[8], *row[9:15])


# -- calls -------------------------------------------------------------------------------------------------------


def _upsert_calls(store: Store, batches: Sequence[RowBatch], projects: dict[str, str]) -> int:
    told: dict[int, Row] = {}
    for batch in batches:
        for row in batch.calls:
            told[row[0]] = _merge_calls(told[row[0]], row) if row[0] in told else row
    told = _without_pruned(store, told)
    added = store.try_insert("calls", CALL_COLUMNS, list(told.values()))
    before = {} if added else store.fetch_by_id("calls", CALL_COLUMNS, told)
    sums, changed = SumDeltas(), []
    for id_, row in told.items() if before else ():
        old = before.get(id_)
        if old is not None:
            row = _merge_calls(old, row)
            if row == old:
                continue
            sums.add(_tool_use_key(old, projects), tool_use_delta(old), -1)
        changed.append(row)
    rows = changed if before else list(told.values())
    slowest = _add_calls(sums, rows, projects)
    if not added:
        store.upsert("calls", CALL_COLUMNS, rows, replace_on_conflict(CALL_COLUMNS))
    use = [(*key, *figures, slowest.get(key, 0)) for key, figures in sorted(sums.by_key.items())]
    store.upsert(
        "tool_use",
        (*TOOL_USE_KEY_COLUMNS, *TOOL_USE_SUM_COLUMNS, "slowest_ms"),
        use,
        add_on_conflict("tool_use", TOOL_USE_KEY_COLUMNS, TOOL_USE_SUM_COLUMNS, ("slowest_ms",)),
    )
    return len(told) - len(before)


def _add_calls(sums: SumDeltas, rows: Iterable[Row], projects: dict[str, str]) -> dict[Row, int]:
    """Add calls to the sums; returns the longest of each key."""
    slowest: dict[Row, int] = {}
    for row in rows:
        key = _tool_use_key(row, projects)
        sums.add(key, tool_use_delta(row))
        if row[11] is not None and row[11] > slowest.get(key, 0):
            slowest[key] = row[11]
    return slowest


def _tool_use_key(row: Row, projects: dict[str, str]) -> Row:
    return (row[10] // HOUR_MS, row[2], projects.get(row[3], ""), row[7])


def _merge_calls(old: Row, new: Row) -> Row:
    """A call that is there already, with what the new row knows more: its run, its answer, its refusal.

    A copy may have lost the times between a call and its answer, never won some: of two durations the longer one is true.
    """
    took = max((row[11] for row in (old, new) if row[11] is not None), default=None)
    answer = (took, new[12] if old[12] is None else old[12])
    return (
        *old[:4],
        old[4] or new[4],
        *old[5:11],
        *answer,
        int(old[13] or new[13]),
        old[14] or new[14],
    )
