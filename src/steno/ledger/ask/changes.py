"""The files that a run or a session changed, each with the call that was running. It never changes a row."""

from datetime import datetime, timezone
from typing import Any

from ...answer.changed import Change
from ...paths import placed
from ..store import Store
from ..values import LATE, NAMED, QUIET

OF = {"runs": "run = ?", "sessions": "session = ?", "tasks": "run IN (SELECT id FROM runs WHERE task = ?)"}
Span = tuple[str, int, int]  # a call, its beginning and its end


def changes(store: Store, table: str, id_: str) -> list[Change]:
    """What a run (`runs`), a session (`sessions`) or a task (`tasks`) changed, in order."""
    calls, root = _calls(store, table, id_), project(store, table, id_)
    names = {row[0]: row[1] for row in calls}
    able = [(row[0], row[3], row[3] + (row[4] or 0)) for row in calls if row[2] not in QUIET]
    sql = f"SELECT path, change, source, call, at, inside FROM changes WHERE {OF[table]} ORDER BY at, seq"  # noqa: S608
    found = []
    for path, change, source, call, at, inside in store.rows(sql, (id_,)):
        whose = call or _running(able, at)
        name, _, below = placed(path, root) if path[:1] == "/" else (path, "", bool(inside))
        when, tool = datetime.fromtimestamp(at / 1000, timezone.utc), names.get(whose or "")
        found.append(Change(path=name, change=change, source=source, call=whose, tool=tool, at=when, inside=below))
    return found


def only_call(store: Store, table: str, id_: str) -> tuple[str, str] | None:
    """The one call that can have changed files without telling which, with its tool; None where there are several, or none."""
    loose = [(row[0], row[1]) for row in _calls(store, table, id_) if row[2] not in (*QUIET, *NAMED)]
    return loose[0] if len(loose) == 1 else None


def _calls(store: Store, table: str, id_: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT call, name, kind, at, duration_ms FROM calls WHERE {OF[table]} ORDER BY at, seq"  # noqa: S608
    return store.rows(sql, (id_,))


def _running(able: list[Span], at: int) -> str | None:
    """The one call that ran then; where none did, the one that had just ended, or was told of a moment later."""
    then = [call for call, begun, ended in able if begun <= at <= ended]
    if then:
        return then[0] if len(then) == 1 else None
    just = [(ended, call) for call, _, ended in able if ended <= at <= ended + LATE]
    soon = [(begun, call) for call, begun, _ in able if begun - LATE <= at < begun]
    return max(just)[1] if just else min(soon)[1] if soon else None


def newest(store: Store) -> tuple[str, str] | None:
    """What was done last: a task of several runs (`tasks`), or a run (`runs`)."""
    rows = store.rows("SELECT id, task FROM runs ORDER BY coalesce(started_at, 0) DESC, id DESC LIMIT 1")
    if not rows:
        return None
    run, task = rows[0]
    return ("tasks", str(task)) if task is not None and len(runs_of(store, task)) > 1 else ("runs", str(run))


def runs_of(store: Store, task: str) -> list[tuple[str, str | None]]:
    """The runs of a task, the first one first, each with its recording."""
    return [(row[0], row[1]) for row in store.rows("SELECT id, source FROM runs WHERE task = ? ORDER BY attempt, id", (task,))]


def project(store: Store, table: str, id_: str) -> str | None:
    """The folder that a run, a session or a task worked in."""
    rows = store.rows(f"SELECT project FROM {table} WHERE id = ?", (id_,))  # noqa: S608  # a name of our own
    return rows[0][0] if rows else None
