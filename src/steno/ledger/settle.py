"""Write what follows from the rows of a session: the run of each request, and the adjustments.

Called in the transaction that changed the rows. Everything is derived anew from all that the ledger
knows of the session, so the order in which files were imported does not matter.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec
from msgspec import Struct

from ..agents import AGENTS
from ..analysis.usage import (
    EARLIER_RUNS_BOUNDS,
    EARLIER_RUNS_UPPER_BOUND,
    OVER_SESSION,
    base_model_name,
)
from ..codec.redact import redact
from ..report import Context, Cost, ModelSummary, Tokens
from ..units import NANO_PER_USD
from .join import join
from .protocol import Store, chunks, placeholders, query_column
from .queries.runs import SessionFigures
from .rows import (
    MAX_INT64,
    REQUEST_COLUMNS,
    ParsedRequest,
    RequestRow,
    pruned_id,
    request_from_row,
    stable_id,
)
from .totals import SpendDeltas, add_requests, replace_on_conflict, upsert_spend
from .witnesses import (
    COUNTERS,
    RUN_SLACK_MS,
    TOKEN_COLUMNS,
    UNTIMED_MS,
    Checkpoint,
    Joined,
    RunTotal,
    Share,
    Witnesses,
    add_shares,
)

# Cost and cache saving of a request, in nano-dollars.
RequestPricer = Callable[[ParsedRequest], tuple[int | None, int]]
KNOWN_TOTAL_SOURCES = ("reported", "local")  # the agent's total; a local server, which is free
MAX_STRANGERS = 2_000
# Whether a run has more than its own output shows.
HAS_GAP = (
    "SELECT 1 FROM runs r WHERE r.id = ? AND coalesce(r.input, 0) + coalesce(r.cache_write, 0) + "
    "coalesce(r.cache_read, 0) > (SELECT coalesce(sum(q.input + q.cache_write + q.cache_read), 0) "
    "FROM requests q WHERE q.run = r.id AND q.shown = r.id)"
)
UNCERTAIN = "tokens are uncertain"  # in the warning of a report that may count twice
LOWER_BOUND = "lower bound"  # in the warning of a report whose figures leave something out
_SELECT_REQUESTS = f"SELECT {', '.join(f'r.{name}' for name in REQUEST_COLUMNS)} FROM requests r"
_counters = attrgetter(*COUNTERS)


def settle(
    store: Store, sessions: Iterable[str], pricer: RequestPricer, runs: Mapping[str, str]
) -> None:
    """Derive the rows of some sessions again, and of those that depend on them.

    `runs`: the changed run of a session. If all of the session is known from its runs alone, no
    other one is affected.
    """
    waiting = set(sessions)
    has_copies = bool(store.query("SELECT 1 FROM inherited LIMIT 1"))
    settled: set[str] = set()
    while waiting:
        session = min(waiting)
        waiting.discard(session)
        settled.add(session)
        run = runs.get(session)
        is_alone = run is not None and _stands_alone(store, session, run)
        _settle_session(store, session, pricer, run if is_alone else None)
        if has_copies:
            waiting |= set(_forks_of(store, session)) - settled


def _stands_alone(store: Store, session: str, run: str) -> bool:
    """Whether nothing but its own output says what a run used."""
    for sql, *values in (
        (
            "SELECT 1 FROM requests WHERE session = ? AND kind = 'request' "
            "AND (shown IS NULL OR run IS NULL) LIMIT 1",
            session,
        ),
        ("SELECT 1 FROM session_totals WHERE session = ? LIMIT 1", session),
        ("SELECT 1 FROM inherited WHERE session = ? LIMIT 1", session),
        ("SELECT 1 FROM runs WHERE session = ? AND over_session = 1 LIMIT 1", session),
        (
            "SELECT 1 FROM runs a JOIN runs b ON b.session = a.session AND b.id <> a.id "
            "AND (b.identity = a.identity OR b.first_request = a.first_request) "
            "WHERE a.id = ? LIMIT 1",
            run,
        ),
    ):
        if store.query(sql, values):
            return False
    return True


def sessions_to_settle(store: Store, sessions: Iterable[str]) -> set[str]:
    """Those with runs, running totals or copied requests: the rows of others stand for themselves.

    And those whose runs may have made some of these requests.
    """
    found: set[str] = set()
    names = list(sessions)
    for part in chunks(names):
        ids = placeholders(len(part))
        for table in ("runs", "session_totals", "inherited"):
            sql = f"SELECT DISTINCT session FROM {table} WHERE session IN ({ids})"
            found.update(query_column(store, sql, part))
    for session in names:
        found.update(_sessions_with_run_at(store, session))
    return found


# -- one session -----------------------------------------------------------------------------------


def _settle_session(store: Store, session: str, pricer: RequestPricer, only: str | None) -> None:
    """`only`: the run whose rows may change; None: any row."""
    stored, known = _load(store, session, pricer, only)
    agent = known.requests[0].agent if known.requests else ""
    known.has_own_ids = agent in AGENTS and AGENTS[agent].transcripts.has_own_request_ids
    joined = join(known)
    if joined.copies:
        _merge_copies(store, stored, joined.copies, pricer)
        _settle_session(store, session, pricer, only)
        return
    sources = {run.run: run.cost_source for run in known.runs}
    changed = [
        row
        for priced in (*known.requests, *known.strangers)
        if not _is_lent(priced, joined, sources)
        and (row := _settled(priced, joined, sources)) != stored.get(priced.id)
    ]
    agents = {row.agent for row in known.requests} or {"unknown"}
    agent = _agent_of(store, session) or min(agents)
    _keep_pruned(store, session, joined)
    rests = {row.id: row for row in _rest_rows(joined, session, agent, sources, pricer)}
    old_rests = {
        row.id: row for row in _stored_rests(store, session) if only is None or row.run == only
    }
    new_rests = [row for row in rests.values() if old_rests.get(row.id) != row]
    gone = [row for id_, row in old_rests.items() if id_ not in rests]
    replaced = [stored[row.id] for row in changed if row.id in stored]
    replaced += [old_rests[row.id] for row in new_rests if row.id in old_rests]
    _write(store, [*replaced, *gone], [*changed, *new_rests], gone)
    _set_context_limit(store, session, known.runs)


def _merge_copies(
    store: Store, stored: dict[int, RequestRow], copies: dict[int, int], pricer: RequestPricer
) -> None:
    """Keep the request that a run shows, with the time of the session file's."""
    old = [stored[id_] for pair in copies.items() for id_ in pair]
    new = []
    for copy, kept in copies.items():
        row, other = stored[kept], stored[copy]
        new.append(
            row._replace(
                at=min(row.at, other.at),
                output=max(row.output, other.output),
                reasoning=max(row.reasoning, other.reasoning),
                final=max(row.final, other.final),
            )
        )
    _write(store, old, new, [stored[id_] for id_ in copies])


def _keep_pruned(store: Store, session: str, joined: Joined) -> None:
    """Remove adjustments for requests that were pruned: the sums still have them."""
    marks: dict[int, str | None] = {
        pruned_id("requests", part.run): part.run for part in joined.adjustments if part.run
    }
    marks[pruned_id("sessions", session)] = None
    runs = {marks[mark] for mark in store.fetch_by_id("pruned", ("id",), marks)}
    if runs:
        joined.adjustments = [part for part in joined.adjustments if part.run not in runs]


def _set_context_limit(store: Store, session: str, runs: Sequence[RunTotal]) -> None:
    """A window that the agent reports comes before the one that is known of the model."""
    reported = [run for run in runs if run.context_limit is not None]
    if reported:
        latest = max(reported, key=lambda run: (run.ended_at, run.run))
        sql = (
            "UPDATE sessions SET context_limit = ?, context_limit_source = 'reported' "
            "WHERE id = ? AND (context_limit <> ? OR context_limit_source IS NULL)"
        )
        store.execute(sql, (latest.context_limit, session, latest.context_limit))


def _write(
    store: Store, old: Sequence[RequestRow], new: Sequence[RequestRow], gone: Sequence[RequestRow]
) -> None:
    """Replace rows, and what they add to the sums."""
    if not (old or new):
        return
    for part in chunks([row.id for row in gone]):
        store.execute(f"DELETE FROM requests WHERE id IN ({placeholders(len(part))})", part)
    store.upsert("requests", REQUEST_COLUMNS, new, replace_on_conflict(REQUEST_COLUMNS))
    sessions = {row.session for row in (*old, *new)}
    rows = store.fetch_by_id("sessions", ("id", "project"), sessions)
    projects = {id_: project or "" for id_, project in rows.values()}
    for agent in {row.agent for row in (*old, *new)}:
        deltas: SpendDeltas = {}
        add_requests(deltas, (row for row in old if row.agent == agent), -1)
        add_requests(deltas, (row for row in new if row.agent == agent))
        upsert_spend(store, deltas, agent, projects)


def _is_lent(row: RequestRow, joined: Joined, sources: dict[str, str]) -> bool:
    """Whether a request belongs to a run of another session, which decides about it."""
    return row.id not in joined.runs and row.run is not None and row.run not in sources


def _settled(row: RequestRow, joined: Joined, sources: dict[str, str]) -> RequestRow:
    """A request with its run, and its cost as that run's agent reports it."""
    run = joined.runs.get(row.id)
    source = sources.get(run or "")
    cost = row.cost_nano
    saved = row.saved_nano
    if source in KNOWN_TOTAL_SOURCES:
        cost = joined.costs.get(row.id, cost or 0)
        saved = 0 if source == "local" else saved
    else:
        source = "unknown" if cost is None else "computed"
    is_partial = not row.final and row.id not in joined.covered
    return row._replace(
        run=run, cost_nano=cost, saved_nano=saved, source=source, partial=int(is_partial)
    )


def _rest_rows(
    joined: Joined,
    session: str,
    agent: str,
    sources: dict[str, str],
    pricer: RequestPricer,
) -> Iterable[RequestRow]:
    for part in joined.adjustments:
        id_ = stable_id("rest", part.run or f"{session} {part.at}", part.model)
        counters = {name: getattr(part, name) for name in COUNTERS}
        computed, saved = pricer(
            ParsedRequest(id_, session, part.run, None, None, part.model, part.at, **counters)
        )
        cost = part.cost_nano
        source = sources.get(part.run or "", "computed" if cost is None else "reported")
        if cost is None and any(counters.values()):
            cost = computed
        if cost is None or source == "unknown":
            source = "unknown" if cost is None else "computed"
        if source in ("local", "unknown"):
            saved = 0
        yield RequestRow(
            id=id_,
            agent=agent,
            session=session,
            run=part.run,
            kind="rest",
            message=None,
            parent=None,
            model=part.model,
            at=part.at,
            **counters,
            cache_write_1h=0,
            cost_nano=cost,
            saved_nano=saved,
            source=source,
            requests=part.requests,
            partial=int(part.is_partial),
        )


# -- loading ---------------------------------------------------------------------------------------


def _load(
    store: Store, session: str, pricer: RequestPricer, only: str | None
) -> tuple[dict[int, RequestRow], Witnesses]:
    """The requests as they are stored, and all that is known of the session."""
    runs = load_run_totals(store, session, only)
    stored = {row.id: row for row in _stored_requests(store, session, runs, only)}
    known = Witnesses([_priced(row, pricer) for row in stored.values()], runs)
    strangers = {row.id: row for row in _strangers(store, session, runs) if row.id not in stored}
    known.strangers = [_priced(row, pricer) for row in strangers.values()]
    stored |= strangers
    if only is None:
        known.checkpoints = _load_checkpoints(store, session)
        known.inherited, known.base = _load_inherited(store, session, known.checkpoints)
    return stored, known


def _priced(row: RequestRow, pricer: RequestPricer) -> RequestRow:
    """The request as the price list has it, whatever its run reported before."""
    cost, saved = pricer(request_from_row(row))
    return row._replace(cost_nano=cost, saved_nano=saved)


def _stored_requests(
    store: Store, session: str, runs: Sequence[RunTotal], only: str | None
) -> list[RequestRow]:
    """The requests of a session, and those of others that its runs made."""
    rows: list[tuple[object, ...]] = []
    if only is None:
        sql = f"{_SELECT_REQUESTS} WHERE r.session = ? AND r.kind = 'request'"
        rows += store.query(sql, (session,))
    for part in chunks([run.run for run in runs]):
        sql = (
            f"{_SELECT_REQUESTS} WHERE r.run IN ({placeholders(len(part))}) AND r.kind = 'request'"
        )
        rows += store.query(sql, part)
    return [RequestRow._make(row) for row in rows]


def _stored_rests(store: Store, session: str) -> list[RequestRow]:
    sql = f"{_SELECT_REQUESTS} WHERE r.session = ? AND r.kind = 'rest'"
    return [RequestRow._make(row) for row in store.query(sql, (session,))]


def _agent_of(store: Store, session: str) -> str | None:
    for (agent,) in store.query("SELECT agent FROM sessions WHERE id = ?", (session,)):
        return str(agent)
    return None


class _StoredTotal(Struct):
    """The part of a stored report that the join needs."""

    started_at: str | None = None
    model: str | None = None
    requests: int | None = None
    tokens: Tokens = msgspec.field(default_factory=Tokens)
    models: dict[str, ModelSummary] = {}
    cost: Cost = msgspec.field(default_factory=Cost)
    warnings: list[str] = []
    context: Context = msgspec.field(default_factory=Context)
    session_figures: SessionFigures | None = None


_decode_total = msgspec.json.Decoder(_StoredTotal).decode


def load_run_totals(store: Store, session: str, only: str | None = None) -> list[RunTotal]:
    """The finished runs of a session, or one of them; each process once."""
    sql = (
        "SELECT id, identity, first_request, derived, started_at, ended_at, report FROM runs "
        "WHERE session = ? AND verdict IS NOT NULL AND report IS NOT NULL"
    )
    values = [session]
    if only is not None:
        sql += " AND id = ?"
        values.append(only)
    found: list[RunTotal] = []
    seen: set[object] = set()
    for run, *ids, derived, started_at, ended_at, data in store.query(f"{sql} ORDER BY id", values):
        if seen & (set(ids) - {None}):
            continue  # another recording of the same process
        seen.update(ids)
        try:
            report = _decode_total(zlib.decompress(data))
        except (zlib.error, msgspec.MsgspecError):
            continue
        total = _run_total(run, started_at or 0, ended_at or 0, report)
        total.is_own_recording = total.is_timed and not derived
        found.append(total)
    return found


def _run_total(run: str, started_at: int, ended_at: int, report: _StoredTotal) -> RunTotal:
    cost = usd_to_nano(report.cost.usd)
    shares: dict[str, Share] = {}
    costs = [usd_to_nano(model.cost_usd) for model in report.models.values()]
    is_split = None not in costs and sum(filter(None, costs)) == cost
    for (name, model), model_cost in zip(report.models.items(), costs, strict=True):
        plain = base_model_name(redact(name))
        share = Share(*(getattr(model, counter) for counter in TOKEN_COLUMNS))
        share.cost_nano = model_cost if is_split else None
        shares[plain] = add_shares(shares[plain], share) if plain in shares else share
    tokens = report.tokens
    is_session = any(text in OVER_SESSION for text in report.warnings)
    limit = report.context.limit if report.context.limit_source == "reported" else None
    is_unknown = report.session_figures is not None and report.tokens.total is None
    needs_session_total = is_unknown or bool({*EARLIER_RUNS_BOUNDS} & {*report.warnings})
    if is_unknown or EARLIER_RUNS_UPPER_BOUND in report.warnings:
        tokens = Tokens()  # its total is one of `session_totals`
        shares = {}
        cost = None
    return RunTotal(
        run=run,
        started_at=started_at,
        ended_at=ended_at,
        total=_share_of(tokens, cost),
        models=shares,
        main_model=report.model and base_model_name(redact(report.model)),
        cost_source=report.cost.source,
        requests=report.requests,
        is_session=is_session and not needs_session_total,
        needs_session_total=needs_session_total,
        is_timed=report.started_at is not None,
        context_limit=limit,
        is_uncertain=any(UNCERTAIN in text for text in report.warnings),
        is_partial=any(LOWER_BOUND in text for text in report.warnings),
    )


def _share_of(tokens: Tokens, cost_nano: int | None) -> Share:
    return Share(**{name: getattr(tokens, name) for name in COUNTERS}, cost_nano=cost_nano)


def usd_to_nano(usd: float | None) -> int | None:
    """Return nano-dollars; None if unknown or too large for a column."""
    if usd is None or abs(usd) * NANO_PER_USD >= MAX_INT64:
        return None
    return round(usd * NANO_PER_USD)


# -- running totals --------------------------------------------------------------------------------


def _load_checkpoints(store: Store, session: str) -> list[Checkpoint]:
    sql = (
        "SELECT at, cost_nano, models, run, requests FROM session_totals "
        "WHERE session = ? ORDER BY at, id"
    )
    return [_checkpoint(*row) for row in store.query(sql, (session,))]


def _checkpoint(
    at: int, cost_nano: int | None, models: str, run: str | None, requests: int | None
) -> Checkpoint:
    shares = msgspec.json.decode(models, type=dict[str, Share])
    values = {
        name: sum(getattr(share, name) or 0 for share in shares.values()) for name in COUNTERS
    }
    return Checkpoint(at, Share(**values, cost_nano=cost_nano), shares, run, requests)


# -- other sessions --------------------------------------------------------------------------------


def _forks_of(store: Store, session: str) -> list[str]:
    sql = (
        "SELECT DISTINCT i.session FROM requests r JOIN inherited i ON i.request = r.id "
        "WHERE r.session = ? AND i.session <> ?"
    )
    return query_column(store, sql, (session, session))


def _load_inherited(
    store: Store, session: str, own: Sequence[Checkpoint]
) -> tuple[list[RequestRow], Checkpoint | None]:
    """The shared requests of other sessions, and the running total with which a fork began."""
    sql = f"{_SELECT_REQUESTS} JOIN inherited i ON i.request = r.id WHERE i.session = ?"
    shared = [RequestRow._make(row) for row in store.query(sql, (session,))]
    if not shared:
        return [], None
    others = [row for row in shared if row.session != session]
    last = max(shared, key=lambda row: (row.at, row.id))
    if any(point.run is None and point.at <= last.at for point in own):
        return others, None  # the others were forked from this one
    sql = "SELECT DISTINCT session FROM inherited WHERE request = ? AND session <> ? ORDER BY 1"
    for other in query_column(store, sql, (last.id, session)):
        base = _checkpoint_after(store, other, last.at)
        if base is not None:
            return [], base
        others += [row for row in _stored_rests(store, other) if row.at <= last.at]
    return others, None


def _checkpoint_after(store: Store, session: str, at: int) -> Checkpoint | None:
    """The running total of a session right after its request at a time."""
    following = (
        "SELECT min(at) FROM requests WHERE session = ? AND at > ? AND kind = 'request' "
        "AND parent IS NULL"
    )
    (end,) = query_column(store, following, (session, at))
    for point in _load_checkpoints(store, session):
        if point.run is None and point.at >= at and (end is None or point.at < end):
            return point
    return None


def _strangers(store: Store, session: str, runs: Sequence[RunTotal]) -> list[RequestRow]:
    """Requests that no run shows, of other sessions in the same folder at the time of these runs.

    Claude Code 2.0 warms up a resumed session under a session id that it then drops. And a fork may
    be the only file that has the requests of the session it was forked from.
    """
    found: dict[int, RequestRow] = {}
    sql = (
        f"{_SELECT_REQUESTS} JOIN sessions o ON o.id = r.session JOIN sessions s ON s.id = ? "
        "WHERE (o.project = s.project OR s.project IS NULL) AND o.agent = s.agent AND o.id <> s.id "
        "AND o.first_at <= ? AND o.last_at >= ? AND r.at >= ? AND r.at <= ? AND r.shown IS NULL "
        "AND r.kind = 'request' AND (r.run IS NULL OR r.run = ?) "
        f"ORDER BY r.at DESC, r.id LIMIT {MAX_STRANGERS}"
    )
    for run in runs:
        if run.is_session or run.total.input is None or not store.query(HAS_GAP, (run.run,)):
            continue
        start = run.started_at - (RUN_SLACK_MS if run.is_timed else UNTIMED_MS)
        end = run.ended_at + RUN_SLACK_MS
        for row in store.query(sql, (session, end, start, start, end, run.run)):
            found[row[0]] = RequestRow._make(row)
    return list(found.values())


def _sessions_with_run_at(store: Store, session: str) -> list[str]:
    """The sessions to whose runs requests of this one may belong: those that miss some."""
    sql = (
        "SELECT DISTINCT r.session FROM sessions o JOIN runs r ON {} "
        "WHERE o.id = ? AND r.session <> o.id AND r.agent = o.agent "
        "AND r.started_at <= o.last_at + ? AND r.started_at >= o.first_at - ? "
        "AND r.ended_at >= o.first_at - ? AND EXISTS ("
        "SELECT 1 FROM requests q WHERE q.run = r.id AND q.kind = 'rest' "
        "AND q.input + q.cache_write + q.cache_read > 0)"
    )
    values = (session, UNTIMED_MS, UNTIMED_MS, RUN_SLACK_MS)
    found: list[str] = []
    for condition in ("r.project = o.project", "r.project IS NULL"):
        found += query_column(store, sql.format(condition), values)
    return found
