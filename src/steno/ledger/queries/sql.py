"""Run the user's SQL: one statement that can only read."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from ...errors import LedgerError
from ..protocol import Store
from ..sqlite import SQLiteStore

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
