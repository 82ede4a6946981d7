"""Queries of `steno ledger`: prune old details, and read-only SQL.

Pruning deletes whole sessions, with their runs, requests, calls and texts, if they were last active
before a given time. Each leaves a mark in `pruned`, and `sources` stays while its file exists, so
that no import, copy of a file or rebuild brings them back.
"""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...errors import LedgerError
from ...units import HOUR_MS
from ..protocol import Store, chunks, query_column
from ..rows import pruned_id
from ..sqlite import SQLiteStore
from ..totals import TOOL_COUNT_FIELDS
from .filters import WhereClause, distinct_sql
from .search import drop_index, try_update_index
from .sql_check import READ_ONLY_MESSAGE, check_read_only
from .usage import CALL_SUMS_SQL

DETAIL_TABLES = ("runs", "requests", "calls", "changes", "denials", "texts")
SUM_TABLES = ("spend", "tool_use")
# Runs last: notes refer to them.
DELETE_ORDER = ("notes", *(table for table in DETAIL_TABLES if table != "runs"), "runs", "sessions")
FILES_PER_BATCH = 5_000
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
    """SQL conditions for the sessions that were last active before a time.

    With `prepare`, they are looked up once for all tables.
    """

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
        self._in_sessions = WhereClause().add(
            f"session IN (SELECT id FROM sessions{self.where_sessions.sql})",
            *self.where_sessions.values,
        )

    def prepare(self, store: Store) -> None:
        """Keep the ids of the sessions in a temporary table."""
        store.execute("DROP TABLE IF EXISTS selected_sessions")
        store.execute("CREATE TEMPORARY TABLE selected_sessions (id TEXT PRIMARY KEY)")
        where = self.where_sessions
        sql = f"INSERT INTO selected_sessions SELECT id FROM sessions{where.sql} ORDER BY id"
        store.execute(sql, where.values)
        if store.kind == "postgresql":
            store.execute("ANALYZE selected_sessions")
        self._in_sessions = WhereClause().add("session IN (SELECT id FROM selected_sessions)")

    def parts(self, table: str) -> list[WhereClause]:
        """Select the rows of a table to delete, in parts without a common row.

        Not one condition with OR: no index helps with that.
        """
        if table == "sessions":
            return [self.where_sessions]
        if table == "tool_use":
            return [self._old("hour < ?", self.before // HOUR_MS)]
        in_sessions = self._in_sessions.copy()
        if table == "runs":
            orphans = self._old("started_at < ?", self.before)
        elif table == "spend":
            orphans = self._old("hour < ?", self.before // HOUR_MS)
        elif table == "notes":
            return [
                in_sessions,
                *(
                    WhereClause().add(f"run IN (SELECT id FROM runs{runs.sql})", *runs.values)
                    for runs in self.parts("runs")
                ),
            ]
        else:
            return [in_sessions]
        exists = f"EXISTS (SELECT 1 FROM sessions WHERE sessions.id = {table}.session)"
        return [in_sessions, orphans.add(f"NOT {exists}")]

    def _old(self, condition: str, value: int) -> WhereClause:
        return WhereClause().add(condition, value).add_in("project", self.projects)


def preview_prune(store: Store, selection: PruneSelection, include_sums: bool) -> list[PrunedTable]:
    """Return what pruning deletes, table by table."""
    tables = [*DETAIL_TABLES, "notes", "sessions", *(SUM_TABLES if include_sums else ())]
    selection.prepare(store)
    preview = []
    for table in tables:
        size = f"coalesce(sum({ROW_OVERHEAD_BYTES} + {TEXT_SIZES_SQL.get(table, '0')}), 0)"
        pruned = PrunedTable(table, 0, 0)
        for where in selection.parts(table):
            ((rows, size_bytes),) = store.query(
                f"SELECT count(*), {size} FROM {table}{where.sql}", where.values
            )
            pruned.rows += int(rows)
            pruned.bytes += int(size_bytes)
        preview.append(pruned)
    return preview


def runs_and_folders(store: Store, selection: PruneSelection) -> tuple[set[str], list[str]]:
    """Return the runs to delete, and all project folders: their snapshots may be in any of them."""
    runs: set[str] = set()
    for where in selection.parts("runs"):
        runs.update(query_column(store, f"SELECT id FROM runs{where.sql}", where.values))
    folders = query_column(store, distinct_sql("project", "runs"))
    return runs, folders


def prune(store: Store, selection: PruneSelection, include_sums: bool) -> None:
    """Delete the selection in one transaction, then index the texts that are left."""
    with store.transaction():
        drop_index(store)
        selection.prepare(store)  # again: others may have written since the preview
        _mark_pruned(store, selection)
        if include_sums:
            _delete_rows(store, "spend", *selection.parts("spend"))
        else:
            _mark_counted_rows(store, selection)
        for table in DELETE_ORDER:
            _delete_rows(store, table, *selection.parts(table))
        finished_tasks = (
            WhereClause()
            .add("verdict IS NOT NULL AND ended_at < ?", selection.before)
            .add("NOT EXISTS (SELECT 1 FROM runs WHERE runs.task = tasks.id)")
            .add_in("project", selection.projects)
        )
        _delete_rows(store, "tasks", finished_tasks)
        if include_sums:
            _delete_rows(store, "tool_use", *selection.parts("tool_use"))
            _recount_tool_use(store, selection)
    try_update_index(store)


def forget_missing_files(store: Store, before: int) -> int:
    """Delete what is known of files that no longer exist, and return their number.

    Only of files that were last changed before a time. Of a file that is on another machine, the
    next import there reads all of it again, which counts nothing twice.
    """
    count = 0
    for table in ("sources", "glances"):
        last = ""
        while True:
            where = WhereClause().add("path > ?", last).add("mtime_ns < ?", before * 1_000_000)
            sql = f"SELECT path FROM {table}{where.sql} ORDER BY path LIMIT {FILES_PER_BATCH}"
            paths = query_column(store, sql, where.values)
            if not paths:
                break
            last = paths[-1]
            missing = [path for path in paths if not Path(path).exists()]
            with store.transaction():
                for part in chunks(missing):
                    _delete_rows(store, table, WhereClause().add_in("path", part))
            count += len(missing)
    return count


def _mark_pruned(store: Store, selection: PruneSelection) -> None:
    """Remember the deleted sessions and runs.

    A run that printed nothing has a session without a row. Active runs are not marked: they are
    written when they finish.
    """
    runs: list[Any] = []
    for where in selection.parts("runs"):
        where.add("verdict IS NOT NULL")
        runs += store.query(f"SELECT id, session FROM runs{where.sql}", where.values)
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
        for where in selection.parts(table):
            store.execute(
                f"INSERT INTO pruned (id) SELECT id FROM {table}{where.sql} ON CONFLICT DO NOTHING",
                where.values,
            )


def _delete_rows(store: Store, table: str, *parts: WhereClause) -> None:
    for where in parts:
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
MAX_QUERY_SECONDS = 60.0
PROGRESS_STEPS = 10_000  # SQLite's instructions between two looks at the clock: about 1 ms
# A role that can read all tables and do nothing else, also for a superuser; since PostgreSQL 14.
READING_ROLE = "pg_read_all_data"
_ALLOWED_ACTIONS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
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
    store: Store, sql: str, values: Sequence[Any] = (), seconds: float | None = MAX_QUERY_SECONDS
) -> tuple[list[str], list[list[Any]]]:
    """Return unique column names and the rows. LedgerError, in one line, if invalid.

    `seconds`: the time limit.
    """
    if isinstance(store, SQLiteStore):
        names, rows = _query_sqlite(store, sql, values, seconds)
    else:
        names, rows = _query_postgres(store, sql, values, seconds)
    if not names:
        raise LedgerError(EMPTY_QUERY_MESSAGE)
    return _unique_names(names), [[_to_plain_value(value) for value in row] for row in rows]


def _query_sqlite(
    store: SQLiteStore, sql: str, values: Sequence[Any], seconds: float | None
) -> tuple[list[str], Iterable[Any]]:
    deadline = None if seconds is None else time.monotonic() + seconds

    def is_too_late() -> bool:  # Python also handles Ctrl-C here, which makes SQLite stop
        return deadline is not None and time.monotonic() > deadline

    try:
        store.connection.set_authorizer(_authorize)
        store.connection.set_progress_handler(is_too_late, PROGRESS_STEPS)
        cursor = store.connection.execute(sql, values)
        names = [name for name, *_ in cursor.description or ()]
        return names, cursor.fetchall()
    except sqlite3.Warning as error:  # Python 3.11: more than one statement
        raise LedgerError(f"sql: {error}") from None
    except sqlite3.Error as error:
        if "interrupted" in str(error) and not is_too_late():
            raise KeyboardInterrupt from None
        raise LedgerError(f"sql: {_sqlite_reason(error, seconds)}") from None
    finally:
        with suppress(sqlite3.ProgrammingError):  # the connection is closed
            store.connection.set_authorizer(None)
            store.connection.set_progress_handler(None, 0)


def _sqlite_reason(error: sqlite3.Error, seconds: float | None) -> str:
    if "interrupted" in str(error) and seconds is not None:
        return _timeout_message(seconds)
    phrases = ("not authorized", "prohibited", "authorization denied")
    return READ_ONLY_MESSAGE if any(phrase in str(error) for phrase in phrases) else str(error)


def _timeout_message(seconds: float) -> str:
    return f"timed out after {seconds:g} s (--timeout)"


def _authorize(
    action: int, first: str | None, second: str | None, base: str | None, trigger: str | None
) -> int:
    """Allow reading only: `VACUUM INTO` and `ATTACH` write files even on a read-only ledger."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if second == "load_extension" else sqlite3.SQLITE_OK
    allowed = action in _ALLOWED_ACTIONS or (
        action == sqlite3.SQLITE_PRAGMA and first in _ALLOWED_PRAGMAS
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _query_postgres(
    store: Any, sql: str, values: Sequence[Any], seconds: float | None
) -> tuple[list[str], Iterable[Any]]:
    import psycopg

    check_read_only(sql)
    connection = store.connection
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SET TRANSACTION READ ONLY")
            _restrict_transaction(connection, seconds)
            # Prepared, because the server then accepts one statement only.
            cursor = connection.execute(*store.to_driver_query(sql, values), prepare=True)
            names = [column.name for column in cursor.description or ()]
            return names, cursor.fetchall() if names else []
    except psycopg.errors.ReadOnlySqlTransaction:
        raise LedgerError(f"sql: {READ_ONLY_MESSAGE}") from None
    except psycopg.errors.QueryCanceled as error:
        reason = str(error) if seconds is None else _timeout_message(seconds)
        raise LedgerError(f"sql: {reason}") from None
    except psycopg.Error as error:
        raise LedgerError(f"sql: {' '.join(str(error).split())}") from None


def _restrict_transaction(connection: Any, seconds: float | None) -> None:
    """Set a time limit and, where the server permits it, a role that can only read."""
    import psycopg

    connection.execute(
        "SELECT set_config('statement_timeout', %s, true), "
        "set_config('standard_conforming_strings', 'on', true), "
        # The schema of the user's name is another one after the change of role.
        "set_config('search_path', array_to_string(array(SELECT quote_ident(name) "
        "FROM unnest(current_schemas(false)) AS name), ', '), true)",
        (str(int((seconds or 0) * 1000)),),
    )
    with suppress(psycopg.Error), connection.transaction():
        connection.execute(f"SET LOCAL ROLE {READING_ROLE}")


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
