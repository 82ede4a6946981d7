"""Sessions: lists of them with what their requests come to, and the files that they came from. It never changes one."""

from ..results import SessionSummary
from ..store import Store
from ..totals import UsageTotals
from .filters import MAX_VALUES_PER_QUERY, Filters, WhereClause
from .runs import short_ids
from .usage import SPEND_SUMS_SQL

SESSION_SELECT_COLUMNS = ", ".join(SessionSummary.__struct_fields__[:-2])
# What sessions can be ranked by.
_SPEND_SUM_SQL = "(SELECT sum({}) FROM spend WHERE spend.session = sessions.id)"
SESSION_RANKINGS = {
    "cost": _SPEND_SUM_SQL.format("reported_nano + computed_nano"),
    "tokens": _SPEND_SUM_SQL.format("input + cache_write + cache_read + output"),
    "time": "last_at - first_at",
    "context": "context_peak",
}
NO_SPEND = UsageTotals()


def sessions_where(filters: Filters) -> WhereClause:
    """The sessions that were at work in the span."""
    where = (
        WhereClause()
        .add_in("project", filters.projects)
        .add_in("model", filters.models)
        .add_in("agent", filters.agents)
    )
    if filters.time_range.since is not None:
        where.add("last_at >= ?", filters.time_range.since)
    if filters.time_range.until is not None:
        where.add("first_at < ?", filters.time_range.until)
    return where


def list_sessions(
    store: Store, where: WhereClause, most: int | None = None, top: str | None = None
) -> list[SessionSummary]:
    """The sessions, each with its sums: the newest first, or those with the most of something; the unknown comes last."""
    limit = f" LIMIT {most}" if most is not None else ""
    first = f"coalesce({SESSION_RANKINGS[top]}, -1) DESC, " if top is not None else ""
    sql = f"SELECT {SESSION_SELECT_COLUMNS} FROM sessions{where.sql} ORDER BY {first}coalesce(last_at, 0) DESC, id{limit}"
    found = [SessionSummary(*row) for row in store.query(sql, where.values)]
    shorts = short_ids(store, "sessions", [one.id for one in found])
    sums = sums_by_session(store, [one.id for one in found])
    for session in found:
        session.short_id, session.totals = shorts[session.id], sums.get(session.id) or UsageTotals()
    _mark_unknown_usage(store, [session for session in found if session.totals == NO_SPEND])
    return found


def _mark_unknown_usage(store: Store, found: list[SessionSummary]) -> None:
    """Of sessions without a request: what their runs used is unknown where a run says nothing of it."""
    by_id = {session.id: session for session in found}
    ids = list(by_id)
    for start in range(0, len(ids), MAX_VALUES_PER_QUERY):
        where = (
            WhereClause()
            .add_in("session", ids[start : start + MAX_VALUES_PER_QUERY])
            .add("output IS NULL")
        )
        for id_, many in store.query(
            f"SELECT session, count(*) FROM runs{where.sql} GROUP BY session", where.values
        ):
            by_id[id_].totals = UsageTotals(unpriced=int(many))


def sums_by_session(store: Store, ids: list[str]) -> dict[str, UsageTotals]:
    """What each of these sessions spent."""
    found: dict[str, UsageTotals] = {}
    for start in range(0, len(ids), MAX_VALUES_PER_QUERY):
        where = WhereClause().add_in("session", ids[start : start + MAX_VALUES_PER_QUERY])
        sql = f"SELECT session, {SPEND_SUMS_SQL} FROM spend{where.sql} GROUP BY session"
        found |= {row[0]: UsageTotals(*map(int, row[1:])) for row in store.query(sql, where.values)}
    return found


def sum_sessions(store: Store, where: WhereClause) -> tuple[int, UsageTotals]:
    """How many there are, and what all of them spent together."""
    many = int(store.query(f"SELECT count(*) FROM sessions{where.sql}", where.values)[0][0])
    chosen = f" WHERE session IN (SELECT id FROM sessions{where.sql})" if where.conditions else ""
    figures = store.query(f"SELECT {SPEND_SUMS_SQL} FROM spend{chosen}", where.values)[0]
    return many, UsageTotals(*(int(figure or 0) for figure in figures))


def get_session(store: Store, id_: str) -> SessionSummary:
    """The session of this id."""
    return list_sessions(store, WhereClause().add("id = ?", id_), 1)[0]


def newest_session(store: Store) -> str | None:
    """The session that was at work last, of those whose context is known."""
    known = "SELECT id FROM sessions WHERE context_used IS NOT NULL"
    rows = store.query(f"{known} ORDER BY coalesce(last_at, 0) DESC, id LIMIT 1")
    return str(rows[0][0]) if rows else None


def transcript_paths(store: Store, id_: str) -> list[str]:
    """The files that carry the session's id in their name, the plainest name first."""
    rows = store.query(
        "SELECT path FROM sources WHERE kind = 'transcript' AND path LIKE ?", (f"%{id_}%",)
    )
    return sorted(
        (row[0] for row in rows),
        key=lambda path: (not path.endswith(f"/{id_}.jsonl"), len(path), path),
    )
