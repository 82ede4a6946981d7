"""Sessions: lists of them with their usage, and the transcripts they came from."""

from ...report import Report
from ..protocol import Store, chunks, query_column, query_value
from ..results import SessionSummary
from ..totals import UsageTotals
from .filters import Filters, WhereClause
from .runs import short_ids
from .usage import SPEND_SUMS_SQL

SESSION_SELECT_COLUMNS = ", ".join(SessionSummary.__struct_fields__[:-2])  # only stored columns
_SPEND_SUM_SQL = "(SELECT sum({}) FROM spend WHERE spend.session = sessions.id)"
SESSION_RANKINGS = {
    "cost": _SPEND_SUM_SQL.format("reported_nano + computed_nano"),
    "tokens": _SPEND_SUM_SQL.format("input + cache_write + cache_read + output"),
    "time": "last_at - first_at",
    "context": "context_peak",
}
NO_SPEND = UsageTotals()


def sessions_where(filters: Filters) -> WhereClause:
    """Select sessions that were active in the time range."""
    return WhereClause().add_names(filters).add_active_in(filters.time_range)


def list_sessions(
    store: Store, where: WhereClause, limit: int | None = None, top: str | None = None
) -> list[SessionSummary]:
    """Return sessions, last active first or ranked by `top`; unknown figures come last."""
    ranking = f"coalesce({SESSION_RANKINGS[top]}, -1) DESC, " if top is not None else ""
    limit_sql = f" LIMIT {limit}" if limit is not None else ""
    sql = (
        f"SELECT {SESSION_SELECT_COLUMNS} FROM sessions{where.sql} "
        f"ORDER BY {ranking}coalesce(last_at, 0) DESC, id{limit_sql}"
    )
    sessions = [SessionSummary(*row) for row in store.query(sql, where.values)]
    ids = [session.id for session in sessions]
    prefixes = short_ids(store, "sessions", ids)
    totals = sums_by_session(store, ids)
    for session in sessions:
        session.short_id = prefixes[session.id]
        session.totals = totals.get(session.id) or UsageTotals()
    _count_prompts_of_runs(store, sessions)
    _mark_unknown_usage(store, [session for session in sessions if session.totals == NO_SPEND])
    return sessions


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
        sql = f"SELECT session, {SPEND_SUMS_SQL} FROM spend{where.sql} GROUP BY session"
        for session, *figures in store.query(sql, where.values):
            totals[session] = UsageTotals(*map(int, figures))
    return totals


def sum_sessions(store: Store, where: WhereClause) -> tuple[int, UsageTotals]:
    """Return the number of matching sessions and their total usage."""
    count = query_value(store, f"SELECT count(*) FROM sessions{where.sql}", where.values)
    condition = (
        f" WHERE session IN (SELECT id FROM sessions{where.sql})" if where.conditions else ""
    )
    (figures,) = store.query(f"SELECT {SPEND_SUMS_SQL} FROM spend{condition}", where.values)
    return int(count), UsageTotals(*(int(figure or 0) for figure in figures))


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
        "ORDER BY coalesce(last_at, 0) DESC, id LIMIT 1",
    )
    return id_


def transcript_paths(store: Store, id_: str) -> list[str]:
    """Return the transcripts with the session's id in their name, the plainest name first.

    Else the only one with the session's lines: Gemini's file names have a part of the id.
    """
    sql = "SELECT path FROM sources WHERE kind = 'transcript' AND "
    paths: list[str] = query_column(store, sql + "path LIKE ?", (f"%{id_}%",))
    if not paths:
        by_content = query_column(store, sql + "session = ?", (id_,))
        return by_content if len(by_content) == 1 else []
    return sorted(paths, key=lambda path: (not path.endswith(f"/{id_}.jsonl"), len(path), path))
