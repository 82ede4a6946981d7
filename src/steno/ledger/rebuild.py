"""Rebuild the ledger from its transcripts and recordings.

A copy is rebuilt, and then replaces the rows of the ledger in one transaction: until then the old
rows answer, and a rebuild that is killed changes nothing. Other processes may write meanwhile.
Sessions that changed since the copy was made keep their rows in the ledger.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager

from msgspec import Struct

from ..errors import LedgerError
from .importer import SOURCE_COLUMNS, ImportResult, ProgressCallback, import_sources
from .protocol import RebuildArea, Row, Store, chunks, placeholders, query_column, query_value
from .queries.search import drop_index, try_update_index
from .rows import (
    CALL_COLUMNS,
    CHANGE_COLUMNS,
    DENIAL_COLUMNS,
    LIMIT_COLUMNS,
    REQUEST_COLUMNS,
    SESSION_COLUMNS,
    SESSION_TOTAL_COLUMNS,
    TEXT_COLUMNS,
    call_from_row,
    pruned_id,
)
from .run_record import ADD_ATTEMPTS, RUN_COLUMNS, TASK_COLUMNS
from .sqlite import SQLiteStore
from .totals import SPEND_COLUMNS, TOOL_USE_COLUMNS, ToolUseDeltas, add_call, upsert_tool_use

NUMBERED_TABLES = {  # with a column `seq`: the order of insertion
    "requests": REQUEST_COLUMNS,
    "calls": CALL_COLUMNS,
    "changes": CHANGE_COLUMNS,
    "denials": DENIAL_COLUMNS,
    "texts": TEXT_COLUMNS,
}
REBUILT_TABLES = {
    **NUMBERED_TABLES,
    "runs": RUN_COLUMNS,
    "spend": SPEND_COLUMNS,
    "sources": SOURCE_COLUMNS,
    "session_totals": SESSION_TOTAL_COLUMNS,
    "inherited": ("session", "request"),
}
# Any change of a session changes one of these, or adds a row with a new `seq`.
COMPARED_TABLES = {
    "sources": SOURCE_COLUMNS,
    "runs": tuple(name for name in RUN_COLUMNS if name != "report"),
    "spend": SPEND_COLUMNS,
    "sessions": SESSION_COLUMNS,
    "calls": CALL_COLUMNS,
}
ROW_KEYS = {"sources": "path", "runs": "id", **dict.fromkeys(NUMBERED_TABLES, "id")}


class RebuildResult(Struct):
    sessions: int  # read again, without runs that have no session
    kept: int  # left as they are: a file is missing, or a run is active
    pruned: int  # left as they are: their details were pruned
    copy: str  # the backup
    pulled: ImportResult
    changed: int = 0  # left as they are: another process wrote them during the rebuild


def rebuild(
    store: Store,
    progress: ProgressCallback | None = None,
    recordings: Sequence[str] = (),
    active: Collection[str] = (),
) -> RebuildResult:
    """Read all sources of the ledger again and replace what they give.

    `recordings` are imported too: the ledger may not know them. `active` are those of active runs,
    which are written when they finish.
    """
    with _rebuild_area(store) as area:
        files = _files_by_session(area.store)
        pruned = _pruned_sessions(area.store, files)
        candidates = [session for session in files if session not in pruned]
        complete = [
            session
            for session in candidates
            if all(path not in active and os.access(path, os.R_OK) for path in files[session])
        ]
        known_paths = {path for paths in files.values() for path in paths}
        paths = {path for session in complete for path in files[session]}
        paths |= set(recordings) - known_paths - set(active)
        with area.store.transaction():
            area.store.execute("DELETE FROM glances")
            for part in chunks(complete):
                _delete_sessions(area.store, part)
        imported = import_sources(area.store, sorted(paths), progress, index_texts=False)
        area.attach()
        with store.transaction():
            changed = _changed_sessions(store, area)
            kept = _linked_sessions(store, area, changed) if changed else set()
            _replace_rows(store, area, kept)
            backup = area.keep_backup()
    try_update_index(store)
    return RebuildResult(
        sessions=len(store.fetch_by_id("sessions", ("id",), set(complete) - kept)),
        kept=len(candidates) - len(complete),
        pruned=len(pruned),
        copy=backup,
        pulled=imported,
        changed=len(kept),
    )


# -- the copy ------------------------------------------------------------------------------------


def _rebuild_area(store: Store) -> AbstractContextManager[RebuildArea]:
    """Copies of the ledger. LedgerError if another process has made some."""
    if isinstance(store, SQLiteStore):
        from .sqlite_rebuild import SQLiteRebuildArea

        return SQLiteRebuildArea(store)
    from .postgres import PostgresStore
    from .postgres_rebuild import PostgresRebuildArea

    if not isinstance(store, PostgresStore):
        raise LedgerError(f"{store.name}: cannot be rebuilt")
    return PostgresRebuildArea(store)


def _files_by_session(store: Store) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    sql = (
        "SELECT path, session FROM sources "
        "UNION SELECT source, session FROM runs WHERE source IS NOT NULL"
    )
    for path, session in store.query(sql):
        files.setdefault(session or "", []).append(path)
    return files


def _pruned_sessions(store: Store, sessions: Iterable[str]) -> set[str]:
    """Return the sessions with pruned details: their sums exist only in the ledger."""
    sessions_by_mark = {pruned_id("sessions", session): session for session in sessions}
    pruned = store.fetch_by_id("pruned", ("id",), sessions_by_mark)
    return {sessions_by_mark[mark] for mark in pruned}


def _delete_sessions(store: Store, sessions: Sequence[str]) -> None:
    """Delete the rows of some sessions and subtract them from the sums."""
    deltas: ToolUseDeltas = {}
    _add_calls(store, deltas, sessions, -1)
    upsert_tool_use(store, deltas)
    store.execute("DELETE FROM tool_use WHERE calls = 0 AND denied = 0")
    ids = placeholders(len(sessions))
    for table in REBUILT_TABLES:
        # The import fills the row of a task's run again; deleting it would lose the task.
        condition = " AND task IS NULL" if table == "runs" else ""
        store.execute(f"DELETE FROM {table} WHERE session IN ({ids}){condition}", sessions)
    store.execute(f"DELETE FROM sessions WHERE id IN ({ids})", sessions)


def _add_calls(
    store: Store, deltas: ToolUseDeltas, sessions: Sequence[str], sign: int, schema: str = ""
) -> None:
    """Add the calls of some sessions to the sums of tool use."""
    ids = placeholders(len(sessions))
    sql = f"SELECT id, coalesce(project, '') FROM {schema}sessions WHERE id IN ({ids})"
    projects: dict[str, str] = dict(store.query(sql, sessions))
    sql = f"SELECT {', '.join(CALL_COLUMNS)} FROM {schema}calls WHERE session IN ({ids})"
    for row in store.query(sql, sessions):
        *_, agent = row
        add_call(deltas, agent, call_from_row(row), projects, sign)


# -- the replacement -----------------------------------------------------------------------------


def _changed_sessions(store: Store, area: RebuildArea) -> set[str]:
    """Return the sessions that other processes wrote since the copy was made."""
    pruned_count = "SELECT count(*) FROM {}pruned"
    if query_value(store, pruned_count.format("")) != query_value(
        store, pruned_count.format(f"{area.old}.")
    ):
        raise LedgerError(
            f"{store.name}: pruned during the rebuild, which changed nothing; run it again"
        )
    changed: set[str] = set()
    for table, columns in COMPARED_TABLES.items():
        names = ", ".join(columns)
        now = f"SELECT {names} FROM {table}"
        before = f"SELECT {names} FROM {area.old}.{table}"
        for sql in (f"{now} EXCEPT {before}", f"{before} EXCEPT {now}"):
            session = _session_sql(table)
            changed.update(query_column(store, f"SELECT {session} FROM ({sql}) AS rows_"))
    for table in NUMBERED_TABLES:
        last = f"SELECT coalesce(max(seq), 0) FROM {area.old}.{table}"
        sql = f"SELECT DISTINCT session FROM {table} WHERE seq > ({last})"
        changed.update(query_column(store, sql))
    return changed


def _session_sql(table: str, alias: str = "") -> str:
    """The session of a row; empty if unknown."""
    return f"{alias}id" if table == "sessions" else f"coalesce({alias}session, '')"


def _linked_sessions(store: Store, area: RebuildArea, sessions: Iterable[str]) -> set[str]:
    """Return these sessions, and all whose rows the rebuild moved from or to one of them.

    A message that two transcripts contain belongs to the one that was read first.
    """
    links: dict[str, set[str]] = {}
    for table, key in ROW_KEYS.items():
        new_session = _session_sql(table, "a.")
        old_session = _session_sql(table, "b.")
        sql = (
            f"SELECT DISTINCT {new_session}, {old_session} FROM {area.new}.{table} a "
            f"JOIN {table} b ON b.{key} = a.{key} WHERE {new_session} <> {old_session}"
        )
        for first, second in store.query(sql):
            links.setdefault(first, set()).add(second)
            links.setdefault(second, set()).add(first)
    linked: set[str] = set()
    waiting = set(sessions)
    while waiting:
        session = waiting.pop()
        linked.add(session)
        waiting |= links.get(session, set()) - linked
    return linked


def _replace_rows(store: Store, area: RebuildArea, kept: Collection[str]) -> None:
    """Replace the rows of all sessions but `kept`. Tasks are only added."""
    store.execute("DROP TABLE IF EXISTS kept_sessions")
    store.execute("CREATE TEMPORARY TABLE kept_sessions (session TEXT PRIMARY KEY)")
    rows: list[Row] = [(session,) for session in kept]
    store.upsert("kept_sessions", ("session",), rows, "ON CONFLICT DO NOTHING")
    for table, columns in {**REBUILT_TABLES, "sessions": SESSION_COLUMNS}.items():
        where = f"WHERE {_session_sql(table)} NOT IN (SELECT session FROM kept_sessions)"
        if not kept:
            where = ""
        names = ", ".join(columns)
        order = "ORDER BY seq" if table in NUMBERED_TABLES else ""
        store.execute(f"DELETE FROM {table} {where}")
        store.execute(
            f"INSERT INTO {table} ({names}) SELECT {names} FROM {area.new}.{table} {where} {order}"
        )
    names = ", ".join(TOOL_USE_COLUMNS)
    store.execute("DELETE FROM tool_use")
    store.execute(f"INSERT INTO tool_use ({names}) SELECT {names} FROM {area.new}.tool_use")
    deltas: ToolUseDeltas = {}
    for part in chunks(list(kept)):
        _add_calls(store, deltas, part, -1, f"{area.new}.")
        _add_calls(store, deltas, part, 1)
    upsert_tool_use(store, deltas)
    names = ", ".join(TASK_COLUMNS)
    store.execute(
        f"INSERT INTO tasks ({names}) SELECT {names} FROM {area.new}.tasks WHERE true "
        f"{ADD_ATTEMPTS}"
    )
    names = ", ".join(LIMIT_COLUMNS)
    store.execute(
        f"INSERT INTO limits ({names}) SELECT {names} FROM {area.new}.limits WHERE true "
        "ON CONFLICT DO NOTHING"
    )
    store.execute("DELETE FROM glances")  # requests that are read again count once
    store.execute("DROP TABLE kept_sessions")
    if store.kind == "sqlite":  # its index is not updated when texts change
        drop_index(store)
