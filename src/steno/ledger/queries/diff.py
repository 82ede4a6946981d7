"""The files that a run, session or task changed, each with the tool call behind it."""

from datetime import datetime, timezone
from typing import NamedTuple

from ...analysis.attribution import CallSpan, CallTimes, only_possible_call
from ...report import resolve_path
from ...workspace.changes import Change
from ..protocol import Store, query_value
from .filters import WhereClause
from .runs import LedgerId

OWNER_CONDITIONS = {
    "runs": "run = ?",
    "sessions": "session = ?",
    "tasks": "run IN (SELECT id FROM runs WHERE task = ?)",
}


class _Call(NamedTuple):
    call: str
    name: str
    kind: str
    at: int
    duration_ms: int | None


class TaskRun(NamedTuple):
    run: str
    source: str | None


def list_changes(store: Store, table: str, id_: str) -> list[Change]:
    """Return the changes of a run (`runs`), session (`sessions`) or task (`tasks`), in order."""
    calls = _list_calls(store, table, id_)
    root = project_folder(store, table, id_)
    tools = {call.call: call.name for call in calls}
    times = CallTimes(
        CallSpan(call.call, call.kind, call.at, call.at + (call.duration_ms or 0)) for call in calls
    )
    sql = (
        "SELECT path, change, source, call, at, inside FROM changes "
        f"WHERE {OWNER_CONDITIONS[table]} ORDER BY at, seq"
    )
    changes = []
    for path, change, source, call, at, is_inside in store.query(sql, (id_,)):
        if not call and source != "git":
            call = times.call_at(at)
        if path[:1] == "/":
            path, _, is_inside = resolve_path(path, root)
        changes.append(
            Change(
                path=path,
                change=change,
                source=source,
                call=call,
                tool=tools.get(call or ""),
                at=datetime.fromtimestamp(at / 1000, timezone.utc),
                inside=bool(is_inside),
            )
        )
    return changes


def find_sole_writer(store: Store, table: str, id_: str) -> tuple[str, str] | None:
    """Return the only call that can have changed files unseen, and its tool; else None."""
    calls = _list_calls(store, table, id_)
    writer = only_possible_call((call.call, call.kind) for call in calls)
    tools = {call.call: call.name for call in calls}
    return None if writer is None else (writer, tools[writer])


def _list_calls(store: Store, table: str, id_: str) -> list[_Call]:
    sql = (
        "SELECT call, name, kind, at, duration_ms FROM calls "
        f"WHERE {OWNER_CONDITIONS[table]} ORDER BY at, seq"
    )
    return [_Call(*row) for row in store.query(sql, (id_,))]


def newest_run_or_task(store: Store, where: WhereClause) -> LedgerId | None:
    """Return the newest run, or its task (`tasks`) if that has several runs."""
    sql = f"SELECT id, task FROM runs{where.sql} ORDER BY started_at DESC NULLS LAST, id LIMIT 1"
    for run, task in store.query(sql, where.values):
        if task is not None and len(runs_of_task(store, task)) > 1:
            return LedgerId("tasks", task)
        return LedgerId("runs", run)
    return None


def runs_of_task(store: Store, task: str) -> list[TaskRun]:
    """Return the runs of a task in order."""
    sql = "SELECT id, source FROM runs WHERE task = ? ORDER BY attempt, id"
    return [TaskRun(*row) for row in store.query(sql, (task,))]


def project_folder(store: Store, table: str, id_: str) -> str | None:
    """Return the folder in which a run, session or task worked."""
    folder: str | None = query_value(store, f"SELECT project FROM {table} WHERE id = ?", (id_,))
    return folder
