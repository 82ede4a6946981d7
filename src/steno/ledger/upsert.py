"""Write parsed rows to the ledger: merge with existing rows, price, update the sums.

Everything happens in the caller's transaction. Writing the same rows twice changes nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from ..pricing import Rates, cache_saving, cost_of, price, rates
from ..units import DAY_MS
from .copies import MAX_CLOCK_SKEW_MS, with_session_ids, without_copies
from .protocol import Row, Store
from .rows import (
    CALL_COLUMNS,
    CHANGE_COLUMNS,
    DENIAL_COLUMNS,
    LIMIT_COLUMNS,
    REQUEST_COLUMNS,
    SESSION_COLUMNS,
    SESSION_TOTAL_COLUMNS,
    TEXT_COLUMNS,
    UNKNOWN_CONTEXT,
    ParsedRequest,
    ParsedSession,
    ParsedToolCall,
    RequestRow,
    RowBatch,
    TextRow,
    call_from_row,
    call_row,
    request_from_row,
    stable_id,
)
from .settle import RequestPricer, sessions_to_settle, settle
from .totals import (
    SpendDeltas,
    ToolUseDeltas,
    add_call,
    add_requests,
    replace_on_conflict,
    upsert_spend,
    upsert_tool_use,
)

MAX_COST_NANO = 10**18  # a billion dollars, and still within a 64-bit column
ON_CONFLICT_IGNORE = "ON CONFLICT DO NOTHING"
SESSION_INDEX = CALL_COLUMNS.index("session")

T = TypeVar("T", ParsedRequest, ParsedToolCall)


class Pricer(Struct):
    """Price single requests, looking up each model once per day of requests."""

    _rates: dict[tuple[str, int], Rates | None] = {}

    def __call__(self, request: ParsedRequest) -> tuple[int | None, int]:
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
    runs: int = 0


def upsert_batches(
    store: Store,
    batches: Sequence[RowBatch],
    pricer: RequestPricer,
    runs: Mapping[str, str] | None = None,
) -> UpsertCounts:
    """Write the rows of some files, and what follows. `runs`: the changed ones, by session."""
    counts = UpsertCounts()
    runs = runs or {}
    sessions = set(runs)
    batches = [with_session_ids(batch) for batch in batches]
    for agent in dict.fromkeys(batch.agent for batch in batches):
        own = [batch for batch in batches if batch.agent == agent]
        projects = _upsert_sessions(store, agent, own)
        own = [without_copies(store, batch, projects) for batch in own]
        new, touched = _upsert_requests(store, agent, own, projects, pricer)
        counts.requests += new
        sessions |= touched | projects.keys()
        counts.calls += _upsert_calls(store, agent, own, projects)
        for table, columns in (
            ("changes", CHANGE_COLUMNS),
            ("denials", DENIAL_COLUMNS),
        ):
            rows = {row.id: row for batch in own for row in getattr(batch, table)}
            store.upsert(table, columns, map(astuple, rows.values()), add_run(table))
        _upsert_texts(store, own)
        limits = (astuple(row) for batch in own for row in batch.limits)
        store.upsert("limits", LIMIT_COLUMNS, limits, ON_CONFLICT_IGNORE)
        totals = {row.id: astuple(row) for batch in own for row in batch.totals}
        store.upsert("session_totals", SESSION_TOTAL_COLUMNS, totals.values(), EARLIER_TOTAL)
    settle(store, sessions_to_settle(store, sessions), pricer, runs)
    return counts


EARLIER_TOTAL = (
    "ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE excluded.at < session_totals.at"
)


def add_run(table: str) -> str:
    """The clause that adds its run to a row that was read from a transcript before."""
    return (
        "ON CONFLICT (id) DO UPDATE SET run = excluded.run, session = excluded.session "
        f"WHERE {table}.run IS NULL AND excluded.run IS NOT NULL"
    )


def _merge_copies(
    store: Store, batches: Iterable[list[T]], merge: Callable[[T, T], T]
) -> dict[int, T]:
    """Return requests or calls by id, without those that were counted and pruned before."""
    rows: dict[int, T] = {}
    for batch in batches:
        for row in batch:
            first = rows.setdefault(row.id, row)
            if first is not row:
                rows[row.id] = merge(first, row)
    if not store.query("SELECT 1 FROM pruned LIMIT 1"):
        return rows
    pruned = store.fetch_by_id("pruned", ("id",), rows)
    return {id_: row for id_, row in rows.items() if id_ not in pruned}


# -- sessions ------------------------------------------------------------------------------------


def _upsert_sessions(store: Store, agent: str, batches: Sequence[RowBatch]) -> dict[str, str]:
    """Merge the sessions into the ledger and return the project of each."""
    sessions: dict[str, ParsedSession] = {}
    for batch in batches:
        for name, session in batch.sessions.items():
            if name in sessions:
                session = merge_sessions(sessions[name], session)
            sessions[name] = session
        for request in batch.requests:
            if request.session not in sessions:
                sessions[request.session] = ParsedSession(
                    first_at=request.at, last_at=request.at, untimed=1
                )
        for call in batch.calls:
            _extend_active_time(sessions, call)

    existing = store.fetch_by_id("sessions", SESSION_COLUMNS, sessions)
    rows: list[Row] = []
    projects: dict[str, str] = {}
    for name, session in sessions.items():
        if name in existing:
            _id, _agent, *fields = existing[name]
            old = ParsedSession(*fields)
            session = merge_sessions(old, session)
            if old.project is None and session.project is not None:
                store.execute(
                    "UPDATE spend SET project = ? WHERE session = ? AND project = ''",
                    (session.project, name),
                )
                _move_tool_use(store, name, session.project)
        if session.context_used == UNKNOWN_CONTEXT:
            session = replace(session, context_used=None)
        rows.append((name, agent, *astuple(session)))
        projects[name] = session.project or ""
    store.upsert("sessions", SESSION_COLUMNS, rows, replace_on_conflict(SESSION_COLUMNS))
    return projects


def _move_tool_use(store: Store, session: str, project: str) -> None:
    """Move the sums of a session's calls to its project, which was unknown."""
    sql = f"SELECT {', '.join(CALL_COLUMNS)} FROM calls WHERE session = ?"
    deltas: ToolUseDeltas = {}
    for row in store.query(sql, (session,)):
        *_, agent = row
        call = call_from_row(row)
        add_call(deltas, agent, call, {}, -1)
        add_call(deltas, agent, call, {session: project})
    upsert_tool_use(store, deltas)
    if deltas:
        store.execute("DELETE FROM tool_use WHERE project = '' AND calls = 0")


def _extend_active_time(sessions: dict[str, ParsedSession], call: ParsedToolCall) -> None:
    """Include a call in the active time of its session: it may be the last thing known of it."""
    session = sessions.get(call.session)
    if session is None:
        sessions[call.session] = ParsedSession(first_at=call.at, last_at=call.at, untimed=1)
        return
    if session.first_at is None or call.at < session.first_at:
        session.first_at = call.at
    if session.last_at is None or call.at > session.last_at:
        session.last_at = call.at


def merge_sessions(old: ParsedSession, new: ParsedSession) -> ParsedSession:
    """Merge two readings of a session: state from the later one, origin from the earlier one."""
    early, late = sorted((old, new), key=_lateness)
    context = late if _has_better_context(late, early) else early
    first, last = sorted((old, new), key=_started)
    timed = [session for session in (old, new) if session.untimed == min(old.untimed, new.untimed)]
    starts = [session.first_at for session in timed if session.first_at is not None]
    # A window that the agent reports comes before the one that is known of the model.
    windows = sorted((late, early), key=lambda part: part.context_limit_source is None)
    window = next((part for part in windows if part.context_limit), late)
    return ParsedSession(
        agent_version=late.agent_version or early.agent_version,
        project=old.project or new.project,
        model=late.model or early.model,
        title=first.title or last.title,
        first_at=min(starts, default=None),
        last_at=_max_known(*(session.last_at for session in timed)),
        prompts=max(old.prompts, new.prompts),
        turns=old.turns if new.turns is None else new.turns,
        context_used=context.context_used,
        context_limit=window.context_limit,
        context_peak=_max_known(old.context_peak, new.context_peak),
        compactions=max(old.compactions, new.compactions),
        reported_nano=_max_known(old.reported_nano, new.reported_nano),
        stop=late.stop or early.stop,
        context_source=context.context_source,
        host=old.host or new.host,
        user_name=old.user_name or new.user_name,
        repository=old.repository or new.repository,
        branch=old.branch or new.branch,
        overhead=late.overhead or early.overhead,
        context_limit_source=window.context_limit_source,
        untimed=min(old.untimed, new.untimed),
    )


def _lateness(session: ParsedSession) -> tuple[bool, int, int, str]:
    return (
        not session.untimed,
        session.last_at or 0,
        session.context_used or 0,
        session.model or "",
    )


def _started(session: ParsedSession) -> tuple[int, int, str]:
    return (session.untimed, session.first_at or 0, session.title or "")


def _has_better_context(late: ParsedSession, early: ParsedSession) -> bool:
    """Whether the later reading knows the context: measured, or the earlier one has none."""
    if late.context_used is None or early.context_used is None:
        return late.context_used is not None
    return late.context_source is None or early.context_source is not None


def _max_known(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


# -- requests ------------------------------------------------------------------------------------


def _upsert_requests(
    store: Store,
    agent: str,
    batches: Sequence[RowBatch],
    projects: dict[str, str],
    pricer: RequestPricer,
) -> tuple[int, set[str]]:
    """Return the number of new requests, and the sessions that lost some to another one."""
    requests = _merge_copies(store, (batch.requests for batch in batches), merge_requests)
    rows = [priced_row(agent, request, pricer) for request in requests.values()]
    inserted = store.try_insert("requests", REQUEST_COLUMNS, rows)
    existing = {} if inserted else store.fetch_by_id("requests", REQUEST_COLUMNS, requests)
    deltas: SpendDeltas = {}
    others: set[str] = set()
    if existing:
        rows = _changed_rows(rows, requests, existing, pricer)
        replaced = [existing[row[0]] for row in rows if row[0] in existing]  # by id
        add_requests(deltas, replaced, -1)
        others = {RequestRow._make(row).session for row in existing.values()} - projects.keys()
    add_requests(deltas, rows)
    if not inserted:
        store.upsert("requests", REQUEST_COLUMNS, rows, replace_on_conflict(REQUEST_COLUMNS))
    upsert_spend(store, deltas, agent, {**projects, **_load_projects(store, others)})
    _add_inherited(store, batches, existing)
    return len(requests) - len(existing), others


def _add_inherited(store: Store, batches: Sequence[RowBatch], existing: dict[int, Row]) -> None:
    """Remember the sessions that show a request which another session shows too."""
    sessions: dict[int, set[str]] = {}
    for batch in batches:
        for request in batch.requests:
            sessions.setdefault(request.id, set()).add(request.session)
    for id_, row in existing.items():
        sessions[id_].add(RequestRow._make(row).session)
    copies = [
        (session, id_) for id_, names in sessions.items() if len(names) > 1 for session in names
    ]
    store.upsert("inherited", ("session", "request"), sorted(copies), ON_CONFLICT_IGNORE)


def _changed_rows(
    rows: Iterable[Row],
    requests: dict[int, ParsedRequest],
    existing: dict[int, Row],
    pricer: RequestPricer,
) -> list[Row]:
    """Return the new rows and those that change an existing one, merged with it."""
    changed = []
    for row in rows:
        if row[0] in existing:
            old = RequestRow._make(existing[row[0]])
            known = request_from_row(old)
            merged = merge_requests(known, requests[old.id])
            if merged == known:
                continue
            row = priced_row(old.agent, merged, pricer)
        changed.append(row)
    return changed


def priced_row(agent: str, request: ParsedRequest, pricer: RequestPricer) -> Row:
    """Return the fields of a RequestRow as a plain tuple, which sqlite3 writes 25 % faster."""
    cost, saved = pricer(request)
    return (
        request.id,
        agent,
        request.session,
        request.run,
        "request",
        request.message,
        request.parent,
        request.model,
        request.at,
        request.input,
        request.cache_write,
        request.cache_read,
        request.output,
        request.reasoning,
        request.cache_write_1h,
        cost,
        saved,
        "unknown" if cost is None else "computed",
        1,
        request.run,
        int(request.final),
        int(not request.final),
    )


def merge_requests(first: ParsedRequest, second: ParsedRequest) -> ParsedRequest:
    """Merge two copies of a request, in either order: counters only grow.

    Its place is the one that a run shows, else that of the session with the smaller id.
    """
    place = min((first, second), key=_place)
    return replace(
        place,
        model=min(first.model, second.model, key=lambda name: (name == "unknown", name)),
        at=min(first.at, second.at),
        input=max(first.input, second.input),
        cache_write=max(first.cache_write, second.cache_write),
        cache_read=max(first.cache_read, second.cache_read),
        output=max(first.output, second.output),
        reasoning=max(first.reasoning, second.reasoning),
        cache_write_1h=max(first.cache_write_1h, second.cache_write_1h),
        final=first.final or second.final,
    )


def _place(request: ParsedRequest) -> tuple[bool, str, str, str]:
    return (request.run is None, request.session, request.run or "", request.parent or "")


# -- texts ---------------------------------------------------------------------------------------


def _upsert_texts(store: Store, batches: Sequence[RowBatch]) -> None:
    """Write prompts, answers and sent messages. The transcript may have the latter as prompts."""
    texts = {row.id: row for batch in batches for row in batch.texts}
    sent: dict[int, TextRow] = {}
    for batch in batches:
        for row in batch.sent:
            row.id = _sent_id(row)
            if not _has_prompt(store, row):
                sent.setdefault(row.id, row)
    prompts = {row.id: _sent_id(row) for row in texts.values() if row.role == "prompt"}
    times = {id_: row.at for id_, row in sent.items()}
    times.update(store.fetch_by_id("texts", ("id", "at"), prompts.values()).values())
    for id_, sent_id in prompts.items():
        if sent_id in times and texts[id_].at >= times[sent_id] - MAX_CLOCK_SKEW_MS:
            del texts[id_]
    rows = map(astuple, (*texts.values(), *sent.values()))
    store.upsert("texts", TEXT_COLUMNS, rows, ON_CONFLICT_IGNORE)


def _sent_id(row: TextRow) -> int:
    return stable_id("sent", row.session, row.text)


def _has_prompt(store: Store, sent: TextRow) -> bool:
    """Whether the transcript, with this message, was imported before the run."""
    return bool(
        store.query(
            "SELECT 1 FROM texts WHERE session = ? AND role = 'prompt' AND at >= ? AND text = ?",
            (sent.session, sent.at - MAX_CLOCK_SKEW_MS, sent.text),
        )
    )


# -- tool calls ----------------------------------------------------------------------------------


def _upsert_calls(
    store: Store, agent: str, batches: Sequence[RowBatch], projects: dict[str, str]
) -> int:
    calls = _merge_copies(store, (batch.calls for batch in batches), _merge_calls)
    if not calls:
        return 0
    rows = [call_row(agent, call) for call in calls.values()]
    inserted = store.try_insert("calls", CALL_COLUMNS, rows)
    existing = {} if inserted else store.fetch_by_id("calls", CALL_COLUMNS, calls)
    changed = list(calls.values())
    deltas: ToolUseDeltas = {}
    if existing:
        changed = []
        # A message that two sessions share belongs to the first, maybe none of this batch.
        others = {row[SESSION_INDEX] for row in existing.values()} - projects.keys()
        projects = {**projects, **_load_projects(store, others)}
        for call in calls.values():
            if call.id in existing:
                old = call_from_row(existing[call.id])
                call = _merge_calls(old, call)
                if call == old:
                    continue
                add_call(deltas, agent, old, projects, -1)
            changed.append(call)
        rows = [call_row(agent, call) for call in changed]
    if not inserted:
        store.upsert("calls", CALL_COLUMNS, rows, replace_on_conflict(CALL_COLUMNS))
    for call in changed:
        add_call(deltas, agent, call, projects)
    upsert_tool_use(store, deltas)
    return len(calls) - len(existing)


def _load_projects(store: Store, sessions: Iterable[str]) -> dict[str, str]:
    rows = store.fetch_by_id("sessions", ("id", "project"), sessions)
    return {name: project or "" for name, project in rows.values()}


def _merge_calls(old: ParsedToolCall, new: ParsedToolCall) -> ParsedToolCall:
    """Add the run, result and denial of the new copy.

    Copies of a transcript can lose the time between call and result, so the longer duration wins.
    """
    place = min((old, new), key=lambda call: (call.run is None, call.session, call.run or ""))
    return replace(
        place,
        at=min(old.at, new.at),
        duration_ms=_max_known(old.duration_ms, new.duration_ms),
        ok=new.ok if old.ok is None else old.ok,
        denied=bool(old.denied or new.denied),
        error=old.error or new.error,
    )
