"""Sessions: lists of them with their usage, and the transcripts they came from."""

from collections.abc import Iterator

from ...report import Report
from ..protocol import Row, Store, chunks, query_column, query_value
from ..results import SessionSummary
from ..totals import UsageTotals
from .filters import Filters, WhereClause, has_rows, select_columns
from .runs import short_ids
from .usage import SPEND_COLUMNS_SQL, SPEND_SUMS_SQL, count_sessions

SESSION_SELECT_COLUMNS = select_columns(SessionSummary.__struct_fields__[:-2])  # only stored ones
SESSION_RANKINGS = {
    "cost": "cost_nano",
    "tokens": "tokens",
    "time": "last_at - first_at",
    "context": "context_peak",
}
SPEND_RANKINGS = ("cost", "tokens")  # by columns of `session_spend`
NEWEST_FIRST = "last_at DESC NULLS LAST, id"
NO_SPEND = UsageTotals()


def sessions_where(filters: Filters) -> WhereClause:
    """Select sessions that were active in the time range."""
    where = WhereClause().add_names(filters).add_active_in(filters.time_range)
    return where.add_origin(filters).add_tags_of_session(filters, "id")


def list_sessions(
    store: Store,
    where: WhereClause,
    limit: int | None = None,
    top: str | None = None,
    offset: int = 0,
) -> list[SessionSummary]:
    """Return sessions, last active first or ranked by `top`; unknown figures come last."""
    return list(iterate_sessions(store, where, limit, top, offset))


def iterate_sessions(
    store: Store,
    where: WhereClause,
    limit: int | None = None,
    top: str | None = None,
    offset: int = 0,
) -> Iterator[SessionSummary]:
    """Yield sessions, last active first or ranked by `top`; unknown figures come last.

    `offset` skips the first ones, for pages of `limit` sessions.
    """
    end = None if limit is None else offset + limit
    for batch in _select_sessions(store, where, end, top):
        rows = batch[offset:]
        offset = max(0, offset - len(batch))
        sessions = [SessionSummary(*row) for row in rows]
        _complete(store, sessions)
        yield from sessions


def _select_sessions(
    store: Store, where: WhereClause, limit: int | None, top: str | None
) -> Iterator[list[Row]]:
    if top in SPEND_RANKINGS:
        yield from _rank_by_spend(store, where, limit, SESSION_RANKINGS[top])
        return
    ranking = f"coalesce({SESSION_RANKINGS[top]}, -1) DESC, " if top is not None else ""
    yield from store.stream(_sessions_sql("sessions", where, ranking, limit), where.values)


def _rank_by_spend(
    store: Store, where: WhereClause, limit: int | None, column: str
) -> Iterator[list[Row]]:
    """Sessions with any spend by the column, whose index has this order, then the others."""
    ranked = f"(SELECT session, {column} AS figure FROM session_spend) AS ranked"
    # Without other conditions, SQLite must begin with the figures: CROSS JOIN keeps the order.
    join = "," if where.conditions else " CROSS JOIN"
    joined = where.copy().add("sessions.id = ranked.session")
    count = 0
    sql = _sessions_sql(f"{ranked}{join} sessions", joined, "figure DESC, ", limit)
    for rows in store.stream(sql, joined.values):
        count += len(rows)
        yield rows
    if limit is None or count < limit:
        others = where.copy().add(
            "NOT EXISTS (SELECT 1 FROM session_spend WHERE session_spend.session = sessions.id)"
        )
        rest = None if limit is None else limit - count
        yield from store.stream(_sessions_sql("sessions", others, "", rest), others.values)


def _sessions_sql(tables: str, where: WhereClause, ranking: str, limit: int | None) -> str:
    limit_sql = f" LIMIT {limit}" if limit is not None else ""
    order = f"{ranking}{NEWEST_FIRST}{limit_sql}"
    return f"SELECT {SESSION_SELECT_COLUMNS} FROM {tables}{where.sql} ORDER BY {order}"


def _complete(store: Store, sessions: list[SessionSummary]) -> None:
    """Add what is not in the table of sessions."""
    ids = [session.id for session in sessions]
    prefixes = short_ids(store, "sessions", ids)
    totals = sums_by_session(store, ids)
    for session in sessions:
        session.short_id = prefixes[session.id]
        session.totals = totals.get(session.id) or UsageTotals()
    _count_prompts_of_runs(store, sessions)
    _mark_unknown_usage(store, [session for session in sessions if session.totals == NO_SPEND])


def _count_prompts_of_runs(store: Store, sessions: list[SessionSummary]) -> None:
    """Count the runs as prompts where the transcript wasn't imported yet."""
    counts = _count_runs(store, sessions, "(prompt IS NOT NULL OR turns > 0)")
    for session in sessions:
        session.prompts = max(session.prompts, counts.get(session.id, 0))


def _mark_unknown_usage(store: Store, sessions: list[SessionSummary]) -> None:
    """Mark the usage of sessions without requests as unknown if one of their runs has none."""
    counts = _count_runs(store, sessions, "output IS NULL")
    for session in sessions:
        if session.id in counts:
            session.totals = UsageTotals(unpriced=counts[session.id])


def _count_runs(store: Store, sessions: list[SessionSummary], condition: str) -> dict[str, int]:
    """The number of runs of each session that meet a condition; sessions without one are absent."""
    counts: dict[str, int] = {}
    for part in chunks([session.id for session in sessions]):
        where = WhereClause().add_in("session", part).add(condition)
        sql = f"SELECT session, count(*) FROM runs{where.sql} GROUP BY session"
        counts.update((session, int(count)) for session, count in store.query(sql, where.values))
    return counts


def sums_by_session(store: Store, ids: list[str]) -> dict[str, UsageTotals]:
    totals: dict[str, UsageTotals] = {}
    for part in chunks(ids):
        where = WhereClause().add_in("session", part)
        sql = f"SELECT session, {SPEND_COLUMNS_SQL} FROM session_spend{where.sql}"
        for session, *figures in store.query(sql, where.values):
            totals[session] = UsageTotals(*figures)
    return totals


def sum_sessions(store: Store, where: WhereClause) -> tuple[int, UsageTotals]:
    """Return the number of matching sessions and their total usage.

    The usage can include pruned sessions: see `sum_includes_pruned`.
    """
    table = "hourly_spend"
    if where.conditions:
        table = f"session_spend WHERE session IN (SELECT id FROM sessions{where.sql})"
    (figures,) = store.query(f"SELECT {SPEND_SUMS_SQL} FROM {table}", where.values)
    return count_sessions(store, where), UsageTotals(*(int(figure or 0) for figure in figures))


def sum_includes_pruned(store: Store, where: WhereClause) -> bool:
    """Whether the sum of all sessions has what is kept of pruned ones.

    It is read from the sums by hour: those by session would be a million rows.
    """
    return not where.conditions and has_rows(store, "pruned")


def get_session(store: Store, id_: str) -> SessionSummary:
    """Return the session with an id that is known to exist."""
    (session,) = list_sessions(store, WhereClause().add("id = ?", id_), 1)
    return session


def complete_report(report: Report, session: SessionSummary) -> Report:
    """Add to the report of a session's transcript what only the ledger knows."""
    if report.turns is None:
        report.turns = session.turns
    if report.duration_ms is None:
        report.duration_ms = session.duration_ms
    return report


def session_exists(store: Store, id_: str) -> bool:
    return bool(store.query("SELECT 1 FROM sessions WHERE id = ?", (id_,)))


def newest_session(store: Store) -> str | None:
    """Return the last active session whose context is known."""
    id_: str | None = query_value(
        store,
        "SELECT id FROM sessions WHERE context_used IS NOT NULL "
        "ORDER BY last_at DESC NULLS LAST, id LIMIT 1",
    )
    return id_


def transcript_paths(store: Store, id_: str) -> list[str]:
    """Return the transcripts with the session's id in their name, the plainest name first.

    Else the only one with the session's lines: Gemini's file names have a part of the id.
    """
    sql = "SELECT path FROM sources WHERE kind = 'transcript' AND "
    by_content = query_column(store, sql + "session = ?", (id_,))
    paths: list[str] = [path for path in by_content if id_ in path]
    # Rarely, a file has the name of one session and the lines of another.
    paths = paths or query_column(store, sql + "path LIKE ?", (f"%{id_}%",))
    if not paths:
        return by_content if len(by_content) == 1 else []
    return sorted(paths, key=lambda path: (not path.endswith(f"/{id_}.jsonl"), len(path), path))
