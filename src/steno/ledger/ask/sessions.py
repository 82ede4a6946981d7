"""Sessions: lists of them with what their requests come to, and the files that they came from. It never changes one."""

from ...answer.lists import Session
from ...answer.sums import Sums
from ..store import Store
from .runs import shortened
from .sums import WHOLE
from .where import TOGETHER, Filters, Where

COLUMNS = ", ".join(Session.__struct_fields__[:-2])
# What sessions can be ranked by.
_SUM = "(SELECT sum({}) FROM spend WHERE spend.session = sessions.id)"
TOP = {
    "cost": _SUM.format("reported_nano + computed_nano"),
    "tokens": _SUM.format("input + cache_write + cache_read + output"),
    "time": "last_at - first_at",
    "context": "context_peak",
}
NOTHING = Sums()


def conditions(filters: Filters) -> Where:
    """The sessions that were at work in the span."""
    where = Where().among("project", filters.projects).among("model", filters.models).among("agent", filters.agents)
    if filters.span.since is not None:
        where.add("last_at >= ?", filters.span.since)
    if filters.span.until is not None:
        where.add("first_at < ?", filters.span.until)
    return where


def sessions(store: Store, where: Where, most: int | None = None, top: str | None = None) -> list[Session]:
    """The sessions, each with its sums: the newest first, or those with the most of something; the unknown comes last."""
    limit = f" LIMIT {most}" if most is not None else ""
    first = f"coalesce({TOP[top]}, -1) DESC, " if top is not None else ""
    sql = f"SELECT {COLUMNS} FROM sessions{where.sql} ORDER BY {first}coalesce(last_at, 0) DESC, id{limit}"  # noqa: S608
    found = [Session(*row) for row in store.rows(sql, where.values)]
    shorts = shortened(store, "sessions", [one.id for one in found])
    sums = spent(store, [one.id for one in found])
    for session in found:
        session.short, session.sums = shorts[session.id], sums.get(session.id) or Sums()
    _untold(store, [session for session in found if session.sums == NOTHING])
    return found


def _untold(store: Store, found: list[Session]) -> None:
    """Of sessions without a request: what their runs used is unknown where a run says nothing of it."""
    by_id = {session.id: session for session in found}
    ids = list(by_id)
    for start in range(0, len(ids), TOGETHER):
        where = Where().among("session", ids[start : start + TOGETHER]).add("output IS NULL")
        for id_, many in store.rows(f"SELECT session, count(*) FROM runs{where.sql} GROUP BY session", where.values):  # noqa: S608
            by_id[id_].sums = Sums(unpriced=int(many))


def spent(store: Store, ids: list[str]) -> dict[str, Sums]:
    """What each of these sessions spent."""
    found: dict[str, Sums] = {}
    for start in range(0, len(ids), TOGETHER):
        where = Where().among("session", ids[start : start + TOGETHER])
        sql = f"SELECT session, {WHOLE} FROM spend{where.sql} GROUP BY session"  # noqa: S608
        found |= {row[0]: Sums(*map(int, row[1:])) for row in store.rows(sql, where.values)}
    return found


def total(store: Store, where: Where) -> tuple[int, Sums]:
    """How many there are, and what all of them spent together."""
    many = int(store.rows(f"SELECT count(*) FROM sessions{where.sql}", where.values)[0][0])  # noqa: S608
    chosen = f" WHERE session IN (SELECT id FROM sessions{where.sql})" if where.parts else ""  # noqa: S608
    figures = store.rows(f"SELECT {WHOLE} FROM spend{chosen}", where.values)[0]  # noqa: S608
    return many, Sums(*(int(figure or 0) for figure in figures))


def one(store: Store, id_: str) -> Session:
    """The session of this id."""
    return sessions(store, Where().add("id = ?", id_), 1)[0]


def newest(store: Store) -> str | None:
    """The session that was at work last, of those whose context is known."""
    known = "SELECT id FROM sessions WHERE context_used IS NOT NULL"
    rows = store.rows(f"{known} ORDER BY coalesce(last_at, 0) DESC, id LIMIT 1")
    return str(rows[0][0]) if rows else None


def transcripts(store: Store, id_: str) -> list[str]:
    """The files that carry the session's id in their name, the plainest name first."""
    rows = store.rows("SELECT path FROM sources WHERE kind = 'transcript' AND path LIKE ?", (f"%{id_}%",))
    return sorted((row[0] for row in rows), key=lambda path: (not path.endswith(f"/{id_}.jsonl"), len(path), path))
