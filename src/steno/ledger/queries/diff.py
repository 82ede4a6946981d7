"""The files that a run or a session changed, each with the call that was running. It never changes a row."""

from datetime import datetime, timezone
from typing import Any

from ...analysis.attribution import (
    CallSpan,
    call_running_at,
    file_changing_calls,
    only_possible_call,
)
from ...report import resolve_path
from ...workspace.changes import Change
from ..store import Store

OWNER_CONDITIONS = {
    "runs": "run = ?",
    "sessions": "session = ?",
    "tasks": "run IN (SELECT id FROM runs WHERE task = ?)",
}


def list_changes(store: Store, table: str, id_: str) -> list[Change]:
    """What a run (`runs`), a session (`sessions`) or a task (`tasks`) changed, in order."""
    calls, root = _list_calls(store, table, id_), project_folder(store, table, id_)
    names = {row[0]: row[1] for row in calls}
    spans = file_changing_calls(
        CallSpan(row[0], row[2], row[3], row[3] + (row[4] or 0)) for row in calls
    )
    sql = f"SELECT path, change, source, call, at, inside FROM changes WHERE {OWNER_CONDITIONS[table]} ORDER BY at, seq"
    found = []
    for path, change, source, call, at, inside in store.query(sql, (id_,)):
        whose = call or call_running_at(spans, at) if source != "git" else call
        name, _, below = resolve_path(path, root) if path[:1] == "/" else (path, "", bool(inside))
        when, tool = datetime.fromtimestamp(at / 1000, timezone.utc), names.get(whose or "")
        found.append(
            Change(
                path=name,
                change=change,
                source=source,
                call=whose,
                tool=tool,
                at=when,
                inside=below,
            )
        )
    return found


def find_sole_writer(store: Store, table: str, id_: str) -> tuple[str, str] | None:
    """The one call that can have changed files without telling which, with its tool; None where there are several, or none."""
    calls = {row[0]: row for row in _list_calls(store, table, id_)}
    call = only_possible_call((id_, row[2]) for id_, row in calls.items())
    return None if call is None else (call, calls[call][1])


def _list_calls(store: Store, table: str, id_: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT call, name, kind, at, duration_ms FROM calls WHERE {OWNER_CONDITIONS[table]} ORDER BY at, seq"
    return store.query(sql, (id_,))


def newest_run_or_task(store: Store) -> tuple[str, str] | None:
    """What was done last: a task of several runs (`tasks`), or a run (`runs`)."""
    rows = store.query(
        "SELECT id, task FROM runs ORDER BY coalesce(started_at, 0) DESC, id DESC LIMIT 1"
    )
    if not rows:
        return None
    run, task = rows[0]
    return (
        ("tasks", str(task))
        if task is not None and len(runs_of_task(store, task)) > 1
        else ("runs", str(run))
    )


def runs_of_task(store: Store, task: str) -> list[tuple[str, str | None]]:
    """The runs of a task, the first one first, each with its recording."""
    return [
        (row[0], row[1])
        for row in store.query(
            "SELECT id, source FROM runs WHERE task = ? ORDER BY attempt, id", (task,)
        )
    ]


def project_folder(store: Store, table: str, id_: str) -> str | None:
    """The folder that a run, a session or a task worked in."""
    rows = store.query(f"SELECT project FROM {table} WHERE id = ?", (id_,))  # a name of our own
    return rows[0][0] if rows else None
