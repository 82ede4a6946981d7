"""Rows into the ledger: merged with what is there, priced, and added to the sums, all in the caller's transaction.

Booking the same rows twice changes nothing. It never opens a file and never decides what an event means.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..prices import Rates, cost_of, price, rates, saving
from .settle import ACCOUNTS, Running, enter, put_spend, request_row, settle
from .store import Row, Store
from .sums import CALL, HOUR, REQUEST, USE_KEY, USED, Sums, adding, replacing, used
from .values import UNKNOWN, Batch, Request, Session

DAY = 24 * HOUR
BEYOND = 10**18  # nano-dollars: a billion dollars, and what a column holds
IGNORE = "ON CONFLICT DO NOTHING"
SESSION = ("id", "agent", *Session.__struct_fields__)
CHANGE = ("id", "session", "run", "call", "path", "inside", "change", "source", "at")
DENIAL = ("id", "session", "run", "call", "tool", "reason", "rule", "at")
TEXT = ("id", "session", "run", "parent", "role", "at", "text")

Priced = tuple[int | None, int]  # cost and what the cache saved, in nano-dollars


class Pricer:
    """Prices of single requests. A model has one price on a day, so that few need a question to the table."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, int], Rates | None] = {}

    def __call__(self, request: Request) -> Priced:
        day = (request.model, request.at // DAY)
        if day not in self._rates:
            self._rates[day] = rates(request.model, _time(request))
        known = self._rates[day]
        if known is None:
            return None, 0
        cost = cost_of(known, request)
        if cost is None:  # so large that other prices hold
            cost = price(request.model, request, _time(request))
        saved = saving(known, request.cache_read)
        if (cost is not None and cost > BEYOND) or saved > BEYOND:
            return None, 0  # of counters that no request has
        return cost, saved


def _time(request: Request) -> datetime:
    return datetime.fromtimestamp(request.at / 1000, timezone.utc)


class Booked(Struct):
    """What was new."""

    requests: int = 0
    calls: int = 0


def book(store: Store, batches: Sequence[Batch], priced: Callable[[Request], Priced], *, account: str | None = None) -> Booked:
    """Book what some files tell. `account`: the whole cost of the run that these rows belong to is known, and from where."""
    done = Booked()
    for agent in dict.fromkeys(batch.agent for batch in batches):
        own = [batch for batch in batches if batch.agent == agent]
        projects = _book_sessions(store, agent, own)
        done.requests += _book_requests(store, agent, own, projects, priced, account)
        done.calls += _book_calls(store, own, projects)
        store.put("changes", CHANGE, _once(batch.changes for batch in own), IGNORE)
        store.put("denials", DENIAL, _once(batch.denials for batch in own), IGNORE)
        store.put("texts", TEXT, _once(batch.texts for batch in own), IGNORE)
    return done


def _once(lists: Iterable[list[Row]]) -> list[Row]:
    """Rows of several files, each number once."""
    return list({row[0]: row for rows in lists for row in rows}.values())


# -- sessions ----------------------------------------------------------------------------------------------------


def _book_sessions(store: Store, agent: str, batches: Sequence[Batch]) -> dict[str, str]:
    """Merge what is told of the sessions; returns the project of each."""
    told: dict[str, Session] = {}
    for batch in batches:
        for name, session in batch.sessions.items():
            told[name] = merged_session(told[name], session, batch.whole) if name in told else session
        for request in batch.requests:
            if request.session not in told:
                told[request.session] = Session(first_at=request.at, last_at=request.at)
        for row in batch.calls:  # a call may come after all that is told of its session
            known, at = told.get(row[3]), row[10]
            if known is None:
                told[row[3]] = Session(first_at=at, last_at=at)
            elif known.first_at is None or known.last_at is None or not known.first_at <= at <= known.last_at:
                known.first_at, known.last_at = _smallest(known.first_at, at), _largest(known.last_at, at)
    before = store.known("sessions", SESSION, told)
    whole = {name for batch in batches if batch.whole for name in batch.sessions}
    rows = []
    for name, session in told.items():
        old = before.get(name)
        if old is not None:
            earlier = Session(*old[2:])
            session = merged_session(earlier, session, name in whole)
            if earlier.project is None and session.project is not None:
                store.change("UPDATE spend SET project = ? WHERE session = ? AND project = ''", (session.project, name))
        if session.context_used == UNKNOWN:
            session = replace(session, context_used=None)
        rows.append((name, agent, *(getattr(session, field) for field in Session.__struct_fields__)))
    store.put("sessions", SESSION, rows, replacing(SESSION))
    return {row[0]: row[3] or "" for row in rows}


def merged_session(old: Session, new: Session, whole: bool) -> Session:
    """One session, told by two readings: the later one says how it stands, the earlier one where it began.

    `whole`: the new reading began at the beginning, so that what it counts was perhaps counted before.
    """
    plus = max if whole else _sum
    if (new.last_at or 0) < (old.last_at or 0):
        late, early = old, new
    else:
        late, early = new, old
    return Session(
        agent_version=late.agent_version or early.agent_version,
        project=old.project or new.project,
        model=late.model or early.model,
        title=old.title or new.title,
        first_at=_smallest(old.first_at, new.first_at),
        last_at=_largest(old.last_at, new.last_at),
        prompts=plus(old.prompts, new.prompts),
        turns=old.turns if new.turns is None else new.turns,
        context_used=early.context_used if late.context_used is None else late.context_used,
        context_limit=late.context_limit or early.context_limit,
        context_peak=_largest(old.context_peak, new.context_peak),
        compactions=plus(old.compactions, new.compactions),
        reported_nano=_largest(old.reported_nano, new.reported_nano),
        stop=late.stop or early.stop,
    )


def _sum(one: int, other: int) -> int:
    return one + other


def _smallest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


# -- requests ----------------------------------------------------------------------------------------------------


def _book_requests(
    store: Store,
    agent: str,
    batches: Sequence[Batch],
    projects: dict[str, str],
    priced: Callable[[Request], Priced],
    account: str | None,
) -> int:
    told: dict[int, Request] = {}
    for batch in batches:
        for request in batch.requests:
            first = told.setdefault(request.id, request)
            if first is not request:
                told[request.id] = larger(first, request)
    told = _unpruned(store, told)
    runs = _placed(store, told.values())
    fresh = [_priced_row(agent, request, priced, account or runs.get(request.run or "")) for request in told.values()]
    added = store.add("requests", REQUEST, fresh)
    before = {} if added else store.known("requests", REQUEST, told)
    sums, changed = Sums(), []
    if not before:
        sums.tally(fresh)
        changed = fresh
    for row in fresh if before else ():
        old = before.get(row[0])
        if old is not None:
            request = told[row[0]]
            known = next((source for source in (old[17], row[17]) if source in ACCOUNTS), None)
            if old[17] == "reported" or not _adds(old, request, known is not None and known != old[17]):
                continue
            row = _priced_row(agent, larger(_request(old), request), priced, known)
            enter(sums, old, projects, -1)
        enter(sums, row, projects)
        changed.append(row)
    if not added:
        store.put("requests", REQUEST, changed, replacing(REQUEST))
    for request in told.values():
        projects.setdefault(request.session, "")
    put_spend(store, sums, agent, projects)
    settle(store, sorted(runs))
    return len(told) - len(before)


def _unpruned(store: Store, told: dict[int, Any]) -> dict[int, Any]:
    """Without what was counted once, and then pruned."""
    if not store.rows("SELECT 1 FROM pruned LIMIT 1"):
        return told
    gone = store.known("pruned", ("id",), told)
    return {id_: row for id_, row in told.items() if id_ not in gone}


def _placed(store: Store, requests: Iterable[Request]) -> dict[str, str]:
    """Give requests that no run told of to the run that they were made in; returns those runs, and whose account each has."""
    free = [request for request in requests if request.run is None]
    running, runs = Running(store, {request.session for request in free}), dict[str, str]()
    for request in free if running else ():
        request.run = running.at(request.session, request.at)
        if request.run is not None:
            runs[request.run] = running.accounts[request.run]
    return runs


def _priced_row(agent: str, request: Request, priced: Callable[[Request], Priced], account: str | None) -> Row:
    if account == "local":
        return request_row(agent, request, 0, 0, "local")
    cost, saved = priced(request)
    if account is not None:
        return request_row(agent, request, cost or 0, saved, account)
    return request_row(agent, request, cost, saved, "unknown" if cost is None else "computed")


def larger(known: Request, told: Request) -> Request:
    """One request, told by two files: a counter only ever grows, and the first file that told of it is its place."""
    return Request(
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


def _adds(old: Row, request: Request, reported: bool) -> bool:
    """Whether a request that is there already is told anew in a way that changes its row."""
    figures = (request.input, request.cache_write, request.cache_read, request.output, request.reasoning, request.cache_write_1h)
    grown = any(new > was for new, was in zip(figures, old[9:15], strict=True))
    return grown or reported or (old[3] is None and request.run is not None)


def _request(row: Row) -> Request:
    return Request(row[0], row[2], row[3], row[5], row[6], row[7], row[8], *row[9:15])


# -- calls -------------------------------------------------------------------------------------------------------


def _book_calls(store: Store, batches: Sequence[Batch], projects: dict[str, str]) -> int:
    told: dict[int, Row] = {}
    for batch in batches:
        for row in batch.calls:
            told[row[0]] = _answered(told[row[0]], row) if row[0] in told else row
    told = _unpruned(store, told)
    added = store.add("calls", CALL, list(told.values()))
    before = {} if added else store.known("calls", CALL, told)
    sums, changed = Sums(), []
    for id_, row in told.items() if before else ():
        old = before.get(id_)
        if old is not None:
            row = _answered(old, row)
            if row == old:
                continue
            sums.add(_use_key(old, projects), used(old), -1)
        changed.append(row)
    rows = changed if before else list(told.values())
    slowest = _count(sums, rows, projects)
    if not added:
        store.put("calls", CALL, rows, replacing(CALL))
    use = [(*key, *figures, slowest.get(key, 0)) for key, figures in sorted(sums.by_key.items())]
    store.put("tool_use", (*USE_KEY, *USED, "slowest_ms"), use, adding("tool_use", USE_KEY, USED, ("slowest_ms",)))
    return len(told) - len(before)


def _count(sums: Sums, rows: Iterable[Row], projects: dict[str, str]) -> dict[Row, int]:
    """Add calls to the sums; returns the longest of each key."""
    slowest: dict[Row, int] = {}
    for row in rows:
        key = _use_key(row, projects)
        sums.add(key, used(row))
        if row[11] is not None and row[11] > slowest.get(key, 0):
            slowest[key] = row[11]
    return slowest


def _use_key(row: Row, projects: dict[str, str]) -> Row:
    return (row[10] // HOUR, row[2], projects.get(row[3], ""), row[7])


def _answered(old: Row, new: Row) -> Row:
    """A call that is there already, with what the new row knows more: its run, its answer, its refusal.

    A copy may have lost the times between a call and its answer, never won some: of two durations the longer one is true.
    """
    took = max((row[11] for row in (old, new) if row[11] is not None), default=None)
    answer = (took, new[12] if old[12] is None else old[12])
    return (*old[:4], old[4] or new[4], *old[5:11], *answer, int(old[13] or new[13]), old[14] or new[14])
