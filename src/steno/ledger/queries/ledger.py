"""Queries of `steno ledger`: prune old details, and read-only SQL.

Pruning deletes whole sessions, with their runs, requests, calls and texts, if they were last active
before a given time. Each leaves a mark in `pruned`, and `sources` stays, so that no import, copy of
a file or rebuild brings them back.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from msgspec import Struct

from ...errors import LedgerError
from ..protocol import Store, query_column
from ..rows import HOUR_MS, pruned_id
from ..sqlite import SQLiteStore
from ..totals import TOOL_COUNT_FIELDS
from .filters import WhereClause
from .search import drop_index
from .usage import CALL_SUMS_SQL

DETAIL_TABLES = ("runs", "requests", "calls", "changes", "denials", "texts")
SUM_TABLES = ("spend", "tool_use")
# Runs last: notes refer to them.
DELETE_ORDER = ("notes", *(table for table in DETAIL_TABLES if table != "runs"), "runs", "sessions")
ROW_OVERHEAD_BYTES = 200  # estimated size of a row without its text
TEXT_SIZES_SQL = {
    "runs": "coalesce(length(report), 0) + coalesce(length(prompt), 0)",
    "texts": "length(text)",
}


class PrunedTable(Struct):
    """Number and estimated size of the rows to delete from one table."""

    table: str
    rows: int
    bytes: int


class PruneSelection:
    """SQL conditions for the sessions that were last active before a time."""

    def __init__(self, before: int, projects: tuple[str, ...] | None) -> None:
        self.before = before // HOUR_MS * HOUR_MS  # whole hours, like the sums
        self.projects = projects
        self.where_sessions = (
            WhereClause()
            .add("last_at < ?", self.before)
            .add_in("project", projects)
            .add(
                "NOT EXISTS (SELECT 1 FROM runs "
                "WHERE runs.session = sessions.id AND runs.started_at >= ?)",
                self.before,
            )
        )
        self._in_sessions = f"session IN (SELECT id FROM sessions{self.where_sessions.sql})"

    def where(self, table: str) -> WhereClause:
        """Select the rows of a table to delete."""
        if table == "sessions":
            return self.where_sessions
        if table == "runs":
            return self._where_runs()
        if table == "notes":
            runs = self._where_runs()
            return self._in_sessions_or(f"run IN (SELECT id FROM runs{runs.sql})", *runs.values)
        if table in SUM_TABLES:
            return self._where_sums(table)
        return WhereClause().add(self._in_sessions, *self.where_sessions.values)

    def _where_runs(self) -> WhereClause:
        """Select the runs of the sessions, and those whose session is unknown."""
        orphans = (
            WhereClause()
            .add("started_at < ?", self.before)
            .add_in("project", self.projects)
            .add("(session IS NULL OR session NOT IN (SELECT id FROM sessions))")
        )
        return self._in_sessions_or(f"({' AND '.join(orphans.conditions)})", *orphans.values)

    def _where_sums(self, table: str) -> WhereClause:
        old = WhereClause().add("hour < ?", self.before // HOUR_MS)
        old.add_in("project", self.projects)
        if table == "tool_use":
            return old
        old.add("session NOT IN (SELECT id FROM sessions)")
        return self._in_sessions_or(f"({' AND '.join(old.conditions)})", *old.values)

    def _in_sessions_or(self, condition: str, *values: object) -> WhereClause:
        sql = f"({self._in_sessions} OR {condition})"
        return WhereClause().add(sql, *self.where_sessions.values, *values)


def preview_prune(store: Store, selection: PruneSelection, include_sums: bool) -> list[PrunedTable]:
    """Return what pruning deletes, table by table."""
    tables = [*DETAIL_TABLES, "notes", "sessions", *(SUM_TABLES if include_sums else ())]
    preview = []
    for table in tables:
        where = selection.where(table)
        size = f"coalesce(sum({ROW_OVERHEAD_BYTES} + {TEXT_SIZES_SQL.get(table, '0')}), 0)"
        ((rows, size_bytes),) = store.query(
            f"SELECT count(*), {size} FROM {table}{where.sql}", where.values
        )
        preview.append(PrunedTable(table, int(rows), int(size_bytes)))
    return preview


def runs_and_folders(store: Store, selection: PruneSelection) -> tuple[set[str], list[str]]:
    """Return the runs to delete, and all project folders: their snapshots may be in any of them."""
    where = selection.where("runs")
    runs: set[str] = set(query_column(store, f"SELECT id FROM runs{where.sql}", where.values))
    folders = query_column(store, "SELECT DISTINCT project FROM runs WHERE project IS NOT NULL")
    return runs, folders


def prune(store: Store, selection: PruneSelection, include_sums: bool) -> None:
    """Delete the selection in one transaction. The next search rebuilds the text index."""
    with store.transaction():
        drop_index(store)
        _mark_pruned(store, selection)
        if include_sums:
            _delete_rows(store, "spend", selection.where("spend"))
        else:
            _mark_counted_rows(store, selection)
        for table in DELETE_ORDER:
            _delete_rows(store, table, selection.where(table))
        finished_tasks = (
            WhereClause()
            .add("verdict IS NOT NULL AND ended_at < ?", selection.before)
            .add("id NOT IN (SELECT task FROM runs WHERE task IS NOT NULL)")
            .add_in("project", selection.projects)
        )
        _delete_rows(store, "tasks", finished_tasks)
        if include_sums:
            _delete_rows(store, "tool_use", selection.where("tool_use"))
            _recount_tool_use(store, selection)


def _mark_pruned(store: Store, selection: PruneSelection) -> None:
    """Remember the deleted sessions and runs.

    A run that printed nothing has a session without a row. Active runs are not marked: they are
    written when they finish.
    """
    where_runs = selection.where("runs").add("verdict IS NOT NULL")
    runs = store.query(f"SELECT id, session FROM runs{where_runs.sql}", where_runs.values)
    where_sessions = selection.where_sessions
    sessions = set(
        query_column(store, f"SELECT id FROM sessions{where_sessions.sql}", where_sessions.values)
    )
    sessions |= {session for _, session in runs if session is not None}
    marks = [
        *(pruned_id("runs", run) for run, _ in runs),
        *(pruned_id("sessions", session) for session in sessions),
    ]
    store.upsert("pruned", ("id",), [(mark,) for mark in marks], "ON CONFLICT DO NOTHING")


def _mark_counted_rows(store: Store, selection: PruneSelection) -> None:
    """Remember what the sums include: a fork that copies it later must not be counted again."""
    for table in ("requests", "calls"):
        where = selection.where(table)
        store.execute(
            f"INSERT INTO pruned (id) SELECT id FROM {table}{where.sql} ON CONFLICT DO NOTHING",
            where.values,
        )


def _delete_rows(store: Store, table: str, where: WhereClause) -> None:
    store.execute(f"DELETE FROM {table}{where.sql}", where.values)


def _recount_tool_use(store: Store, selection: PruneSelection) -> None:
    """Restore the sums of sessions that stay."""
    where = WhereClause().add("c.at < ?", selection.before).add_in("s.project", selection.projects)
    columns = ", ".join(("hour", "agent", "project", "name", *TOOL_COUNT_FIELDS, "slowest_ms"))
    store.execute(
        f"INSERT INTO tool_use ({columns}) "
        f"SELECT c.at / {HOUR_MS}, c.agent, coalesce(s.project, ''), c.name, {CALL_SUMS_SQL}, "
        "coalesce(max(c.duration_ms), 0) "
        f"FROM calls c JOIN sessions s ON s.id = c.session{where.sql} GROUP BY 1, 2, 3, 4",
        where.values,
    )


def reclaim_space(store: Store) -> None:
    """Return freed space to the disk. PostgreSQL does so by itself."""
    if store.kind == "sqlite":
        store.execute("VACUUM")


EMPTY_QUERY_MESSAGE = "sql: empty query; expected one SELECT, such as: SELECT count(*) FROM runs"
READ_ONLY_MESSAGE = (
    "only SELECT, WITH, VALUES and EXPLAIN are allowed: this command never changes a ledger"
)
_ALLOWED_ACTIONS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_ALLOWED_PRAGMAS = {
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "foreign_key_list",
    "data_version",
}


def run_query(
    store: Store, sql: str, values: Sequence[Any] = ()
) -> tuple[list[str], list[list[Any]]]:
    """Return unique column names and the rows. LedgerError, in one line, if invalid."""
    if isinstance(store, SQLiteStore):
        names, rows = _query_sqlite(store, sql, values)
    else:
        names, rows = _query_postgres(store, sql, values)
    if not names:
        raise LedgerError(EMPTY_QUERY_MESSAGE)
    return _unique_names(names), [[_to_plain_value(value) for value in row] for row in rows]


def _query_sqlite(
    store: SQLiteStore, sql: str, values: Sequence[Any]
) -> tuple[list[str], Iterable[Any]]:
    try:
        store.connection.set_authorizer(_authorize)
        cursor = store.connection.execute(sql, values)
        names = [name for name, *_ in cursor.description or ()]
        return names, cursor.fetchall()
    except sqlite3.Warning as error:  # Python 3.11: more than one statement
        raise LedgerError(f"sql: {error}") from None
    except sqlite3.Error as error:
        phrases = ("not authorized", "prohibited", "authorization denied")
        is_denied = any(phrase in str(error) for phrase in phrases)
        raise LedgerError(f"sql: {READ_ONLY_MESSAGE if is_denied else error}") from None
    finally:
        with suppress(sqlite3.ProgrammingError):  # the connection is closed
            store.connection.set_authorizer(None)


def _authorize(
    action: int, first: str | None, second: str | None, base: str | None, trigger: str | None
) -> int:
    """Allow reading only: `VACUUM INTO` and `ATTACH` write files even on a read-only ledger."""
    allowed = action in _ALLOWED_ACTIONS or (
        action == sqlite3.SQLITE_PRAGMA and first in _ALLOWED_PRAGMAS
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _query_postgres(store: Any, sql: str, values: Sequence[Any]) -> tuple[list[str], Iterable[Any]]:
    import psycopg

    connection = store.connection
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute("SELECT 1")  # after a query, the mode can't be changed any more
            # Prepared, because the server then accepts one statement only.
            cursor = connection.execute(*store.to_driver_query(sql, values), prepare=True)
            names = [column.name for column in cursor.description or ()]
            return names, cursor.fetchall() if names else []
    except psycopg.errors.ReadOnlySqlTransaction:
        raise LedgerError(f"sql: {READ_ONLY_MESSAGE}") from None
    except psycopg.Error as error:
        raise LedgerError(f"sql: {' '.join(str(error).split())}") from None


def _unique_names(names: list[str]) -> list[str]:
    unique_names: list[str] = []
    for name in names:
        unique = name
        number = 2
        while unique in unique_names:
            unique = f"{name}_{number}"
            number += 1
        unique_names.append(unique)
    return unique_names


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Decimal):
        return float(value)
    return bytes(value) if isinstance(value, memoryview) else value
