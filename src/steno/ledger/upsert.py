"""Write parsed rows to the ledger: merge with existing rows, price, update the sums.

Everything happens in the caller's transaction. Writing the same rows twice changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from operator import add
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from ..pricing import Rates, cache_saving, cost_of, price, rates
from .protocol import Row, Store
from .reconcile import KNOWN_TOTAL_SOURCES, RunIntervals, reconcile
from .rows import (
    CALL_COLUMNS,
    CHANGE_COLUMNS,
    DAY_MS,
    DENIAL_COLUMNS,
    REQUEST_COLUMNS,
    SESSION_COLUMNS,
    TEXT_COLUMNS,
    UNKNOWN_CONTEXT,
    DenialRow,
    FileChangeRow,
    ParsedRequest,
    ParsedSession,
    ParsedToolCall,
    RequestRow,
    RowBatch,
    TextRow,
    call_from_row,
    call_row,
    request_from_row,
    request_row,
)
from .totals import (
    SpendSums,
    SumDeltas,
    ToolUseSums,
    add_new_requests,
    add_request,
    replace_on_conflict,
    tool_use_delta,
    tool_use_key,
    upsert_spend,
    upsert_tool_use,
)

MAX_COST_NANO = 10**18  # a billion dollars, and still within a 64-bit column
ON_CONFLICT_IGNORE = "ON CONFLICT DO NOTHING"

CostAndSaving = tuple[int | None, int]  # cost and cache saving of a request, in nano-dollars
RequestPricer = Callable[[ParsedRequest], CostAndSaving]
T = TypeVar("T")


class Pricer:
    """Price single requests, looking up each model once per day of requests."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, int], Rates | None] = {}

    def __call__(self, request: ParsedRequest) -> CostAndSaving:
        key = (request.model, request.at // DAY_MS)
        if key not in self._rates:
            self._rates[key] = rates(request.model, _request_time(request))
        known_rates = self._rates[key]
        if known_rates is None:
            return None, 0
        cost = cost_of(known_rates, request)
        if cost is None:  # above the tier that the rates cover
            cost = price(request.model, request, _request_time(request))
        saved = cache_saving(known_rates, request.cache_read)
        if (cost is not None and cost > MAX_COST_NANO) or saved > MAX_COST_NANO:
            return None, 0  # damaged counters
        return cost, saved


def _request_time(request: ParsedRequest) -> datetime:
    return datetime.fromtimestamp(request.at / 1000, timezone.utc)


class UpsertCounts(Struct):
    """Number of new rows."""

    requests: int = 0
    calls: int = 0


def upsert_batches(
    store: Store,
    batches: Sequence[RowBatch],
    pricer: RequestPricer,
    *,
    cost_source: str | None = None,
) -> UpsertCounts:
    """Write the rows of some files.

    `cost_source` is set if the rows belong to a run whose total cost is known (`reported` or
    `local`).
    """
    counts = UpsertCounts()
    for agent in dict.fromkeys(batch.agent for batch in batches):
        own = [batch for batch in batches if batch.agent == agent]
        projects = _upsert_sessions(store, agent, own)
        counts.requests += _upsert_requests(store, agent, own, projects, pricer, cost_source)
        counts.calls += _upsert_calls(store, agent, own, projects)
        for table, columns, rows in (
            ("changes", CHANGE_COLUMNS, _unique_rows(batch.changes for batch in own)),
            ("denials", DENIAL_COLUMNS, _unique_rows(batch.denials for batch in own)),
            ("texts", TEXT_COLUMNS, _unique_rows(batch.texts for batch in own)),
        ):
            store.upsert(table, columns, rows, ON_CONFLICT_IGNORE)
    return counts


def _unique_rows(
    lists: Iterable[list[FileChangeRow]] | Iterable[list[DenialRow]] | Iterable[list[TextRow]],
) -> list[Row]:
    by_id = {row.id: row for rows in lists for row in rows}
    return [astuple(row) for row in by_id.values()]


# -- sessions ------------------------------------------------------------------------------------


def _upsert_sessions(store: Store, agent: str, batches: Sequence[RowBatch]) -> dict[str, str]:
    """Merge the sessions into the ledger and return the project of each."""
    sessions = _merge_batch_sessions(batches)
    existing = store.fetch_by_id("sessions", SESSION_COLUMNS, sessions)
    from_start = {name for batch in batches if batch.is_from_start for name in batch.sessions}
    rows: list[Row] = []
    projects: dict[str, str] = {}
    for name, session in sessions.items():
        if name in existing:
            _id, _agent, *fields = existing[name]
            old = ParsedSession(*fields)
            session = merge_sessions(old, session, name in from_start)
            if old.project is None and session.project is not None:
                store.execute(
                    "UPDATE spend SET project = ? WHERE session = ? AND project = ''",
                    (session.project, name),
                )
        if session.context_used == UNKNOWN_CONTEXT:
            session = replace(session, context_used=None)
        rows.append((name, agent, *astuple(session)))
        projects[name] = session.project or ""
    store.upsert("sessions", SESSION_COLUMNS, rows, replace_on_conflict(SESSION_COLUMNS))
    return projects


def _merge_batch_sessions(batches: Sequence[RowBatch]) -> dict[str, ParsedSession]:
    sessions: dict[str, ParsedSession] = {}
    for batch in batches:
        for name, session in batch.sessions.items():
            if name in sessions:
                session = merge_sessions(sessions[name], session, batch.is_from_start)
            sessions[name] = session
        for request in batch.requests:
            if request.session not in sessions:
                sessions[request.session] = ParsedSession(first_at=request.at, last_at=request.at)
        for call in batch.calls:
            _extend_active_time(sessions, call)
    return sessions


def _extend_active_time(sessions: dict[str, ParsedSession], call: ParsedToolCall) -> None:
    """Include a call in the active time of its session: it may be the last thing known of it."""
    session = sessions.get(call.session)
    if session is None:
        sessions[call.session] = ParsedSession(first_at=call.at, last_at=call.at)
        return
    if session.first_at is None or call.at < session.first_at:
        session.first_at = call.at
    if session.last_at is None or call.at > session.last_at:
        session.last_at = call.at


def merge_sessions(old: ParsedSession, new: ParsedSession, is_from_start: bool) -> ParsedSession:
    """Merge two readings of a session: state from the later one, origin from the earlier one.

    `is_from_start`: the new reading covers the whole file, so its counts include the old ones.
    """
    combine = max if is_from_start else add
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
        prompts=combine(old.prompts, new.prompts),
        turns=old.turns if new.turns is None else new.turns,
        context_used=early.context_used if late.context_used is None else late.context_used,
        context_limit=late.context_limit or early.context_limit,
        context_peak=_max_known(old.context_peak, new.context_peak),
        compactions=combine(old.compactions, new.compactions),
        reported_nano=_max_known(old.reported_nano, new.reported_nano),
        stop=late.stop or early.stop,
    )


def _min_known(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _max_known(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


# -- requests ------------------------------------------------------------------------------------


def _upsert_requests(
    store: Store,
    agent: str,
    batches: Sequence[RowBatch],
    projects: dict[str, str],
    pricer: RequestPricer,
    cost_source: str | None,
) -> int:
    requests = _without_pruned(store, _merge_batch_requests(batches))
    run_sources = _assign_runs(store, requests.values())
    rows = [
        _priced_row(agent, request, pricer, cost_source or run_sources.get(request.run or ""))
        for request in requests.values()
    ]
    inserted = store.try_insert("requests", REQUEST_COLUMNS, rows)
    existing = {} if inserted else store.fetch_by_id("requests", REQUEST_COLUMNS, requests)
    sums = SumDeltas[SpendSums]()
    if existing:
        changed = _changed_rows(map(RequestRow._make, rows), requests, existing, pricer)
        for row in changed:
            if row.id in existing:
                add_request(sums, RequestRow._make(existing[row.id]), projects, -1)
            add_request(sums, row, projects)
        rows = list(changed)
    else:
        add_new_requests(sums, rows)
    if not inserted:
        store.upsert("requests", REQUEST_COLUMNS, rows, replace_on_conflict(REQUEST_COLUMNS))
    for request in requests.values():
        projects.setdefault(request.session, "")
    upsert_spend(store, sums, agent, projects)
    reconcile(store, sorted(run_sources))
    return len(requests) - len(existing)


def _merge_batch_requests(batches: Sequence[RowBatch]) -> dict[int, ParsedRequest]:
    requests: dict[int, ParsedRequest] = {}
    for batch in batches:
        for request in batch.requests:
            first = requests.setdefault(request.id, request)
            if first is not request:
                requests[request.id] = merge_requests(first, request)
    return requests


def _without_pruned(store: Store, rows: dict[int, T]) -> dict[int, T]:
    """Remove rows that were counted and pruned before."""
    if not store.query("SELECT 1 FROM pruned LIMIT 1"):
        return rows
    pruned = store.fetch_by_id("pruned", ("id",), rows)
    return {id_: row for id_, row in rows.items() if id_ not in pruned}


def _assign_runs(store: Store, requests: Iterable[ParsedRequest]) -> dict[str, str]:
    """Assign requests without a run to the run that was active at their time.

    Returns the cost source of each such run.
    """
    unassigned = [request for request in requests if request.run is None]
    intervals = RunIntervals(store, {request.session for request in unassigned})
    sources: dict[str, str] = {}
    if not intervals:
        return sources
    for request in unassigned:
        request.run = intervals.run_at(request.session, request.at)
        if request.run is not None:
            sources[request.run] = intervals.cost_sources[request.run]
    return sources


def _changed_rows(
    rows: Iterable[RequestRow],
    requests: dict[int, ParsedRequest],
    existing: dict[int, Row],
    pricer: RequestPricer,
) -> list[RequestRow]:
    """Return the new rows and those that change an existing one, merged with it."""
    changed = []
    for row in rows:
        if row.id in existing:
            old = RequestRow._make(existing[row.id])
            known = [name for name in (old.source, row.source) if name in KNOWN_TOTAL_SOURCES]
            cost_source = known[0] if known else None
            source_changed = cost_source is not None and cost_source != old.source
            request = requests[row.id]
            if old.source == "reported" or not (source_changed or _has_news(old, request)):
                continue
            merged = merge_requests(request_from_row(old), request)
            row = RequestRow._make(_priced_row(row.agent, merged, pricer, cost_source))
        changed.append(row)
    return changed


def _has_news(old: RequestRow, request: ParsedRequest) -> bool:
    """Whether a request has larger counters than its row, or a run that the row lacks."""
    return (
        request.input > old.input
        or request.cache_write > old.cache_write
        or request.cache_read > old.cache_read
        or request.output > old.output
        or request.reasoning > old.reasoning
        or request.cache_write_1h > old.cache_write_1h
        or (old.run is None and request.run is not None)
    )


def _priced_row(
    agent: str, request: ParsedRequest, pricer: RequestPricer, cost_source: str | None
) -> Row:
    if cost_source == "local":
        return request_row(agent, request, 0, 0, "local")
    cost, saved = pricer(request)
    if cost_source is not None:
        return request_row(agent, request, cost or 0, saved, cost_source)
    return request_row(agent, request, cost, saved, "unknown" if cost is None else "computed")


def merge_requests(first: ParsedRequest, second: ParsedRequest) -> ParsedRequest:
    """Merge two copies of a request: counters only grow; its place is that of the first copy."""
    return replace(
        first,
        run=first.run or second.run,
        model=first.model if first.model != "unknown" else second.model,
        input=max(first.input, second.input),
        cache_write=max(first.cache_write, second.cache_write),
        cache_read=max(first.cache_read, second.cache_read),
        output=max(first.output, second.output),
        reasoning=max(first.reasoning, second.reasoning),
        cache_write_1h=max(first.cache_write_1h, second.cache_write_1h),
    )


# -- tool calls ----------------------------------------------------------------------------------


def _upsert_calls(
    store: Store, agent: str, batches: Sequence[RowBatch], projects: dict[str, str]
) -> int:
    calls = _without_pruned(store, _merge_batch_calls(batches))
    rows = [call_row(agent, call) for call in calls.values()]
    inserted = store.try_insert("calls", CALL_COLUMNS, rows)
    existing = {} if inserted else store.fetch_by_id("calls", CALL_COLUMNS, calls)
    changed = list(calls.values())
    sums = SumDeltas[ToolUseSums]()
    if existing:
        changed = []
        for call in calls.values():
            if call.id in existing:
                old = call_from_row(existing[call.id])
                call = _merge_calls(old, call)
                if call == old:
                    continue
                sums.add(tool_use_key(agent, old, projects), tool_use_delta(old), -1)
            changed.append(call)
        rows = [call_row(agent, call) for call in changed]
    if not inserted:
        store.upsert("calls", CALL_COLUMNS, rows, replace_on_conflict(CALL_COLUMNS))
    upsert_tool_use(store, sums, _add_calls(sums, agent, changed, projects))
    return len(calls) - len(existing)


def _merge_batch_calls(batches: Sequence[RowBatch]) -> dict[int, ParsedToolCall]:
    calls: dict[int, ParsedToolCall] = {}
    for batch in batches:
        for call in batch.calls:
            first = calls.setdefault(call.id, call)
            if first is not call:
                calls[call.id] = _merge_calls(first, call)
    return calls


def _add_calls(
    sums: SumDeltas[ToolUseSums],
    agent: str,
    calls: Iterable[ParsedToolCall],
    projects: dict[str, str],
) -> dict[Row, int]:
    """Add calls to the pending sums and return the longest duration of each key."""
    slowest_ms: dict[Row, int] = {}
    for call in calls:
        key = tool_use_key(agent, call, projects)
        sums.add(key, tool_use_delta(call))
        if call.duration_ms is not None and call.duration_ms > slowest_ms.get(key, 0):
            slowest_ms[key] = call.duration_ms
    return slowest_ms


def _merge_calls(old: ParsedToolCall, new: ParsedToolCall) -> ParsedToolCall:
    """Add the run, result and denial of the new copy.

    Copies of a transcript can lose the time between call and result, so the longer duration wins.
    """
    return replace(
        old,
        run=old.run or new.run,
        duration_ms=_max_known(old.duration_ms, new.duration_ms),
        ok=new.ok if old.ok is None else old.ok,
        denied=bool(old.denied or new.denied),
        error=old.error or new.error,
    )
