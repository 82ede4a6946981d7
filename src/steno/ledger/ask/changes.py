"""The files that a run or a session changed, each with the call that was running. It never changes a row."""

from datetime import datetime, timezone

from ...answer.changed import Change
from ..store import Store

LATE = 500  # milliseconds after a call in which what the file system showed is still taken for its work
QUIET = ("file_read", "search", "web", "todo")  # kinds of calls that change no file


def changes(store: Store, table: str, id_: str) -> list[Change]:
    """What a run (`runs`) or a session (`sessions`) changed, in order."""
    column = "run" if table == "runs" else "session"
    calls = store.rows(f"SELECT call, name, kind, at, duration_ms FROM calls WHERE {column} = ? ORDER BY at, seq", (id_,))  # noqa: S608
    names = {row[0]: row[1] for row in calls}
    able = [(row[0], row[3], row[3] + (row[4] or 0) + LATE) for row in calls if row[2] not in QUIET]
    sql = f"SELECT path, change, source, call, at, inside FROM changes WHERE {column} = ? ORDER BY at, seq"  # noqa: S608
    found = []
    for path, change, source, call, at, inside in store.rows(sql, (id_,)):
        whose = call or next((one for one, begun, ended in reversed(able) if begun <= at <= ended), None)
        when = datetime.fromtimestamp(at / 1000, timezone.utc)
        tool = names.get(whose or "")
        found.append(Change(path=path, change=change, source=source, call=whose, tool=tool, at=when, inside=bool(inside)))
    return found


def newest(store: Store) -> str | None:
    """The run that was begun last."""
    rows = store.rows("SELECT id FROM runs ORDER BY coalesce(started_at, 0) DESC, id DESC LIMIT 1")
    return str(rows[0][0]) if rows else None


def project(store: Store, table: str, id_: str) -> str | None:
    """The folder that a run or a session worked in."""
    rows = store.rows(f"SELECT project FROM {table} WHERE id = ?", (id_,))  # noqa: S608  # a name of our own
    return rows[0][0] if rows else None
