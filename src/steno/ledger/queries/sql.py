"""A question in the user's own SQL. It can only read: one statement, on a ledger that was opened for reading alone."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from ...errors import LedgerError
from ..store import SQLiteStore, Store

EMPTY_QUERY_MESSAGE = "sql: nothing was asked; give one SELECT, such as: SELECT count(*) FROM runs"
READ_ONLY_MESSAGE = "only questions are allowed here (SELECT, WITH, VALUES, EXPLAIN): this command never changes a ledger"
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
    """The names of the columns, each once, and the rows. LedgerError says in one line what is wrong with the question."""
    names, rows = (
        _query_sqlite(store, sql, values)
        if isinstance(store, SQLiteStore)
        else _query_postgres(store, sql, values)
    )
    if not names:
        raise LedgerError(EMPTY_QUERY_MESSAGE)
    return _unique_names(names), [[_to_plain_value(value) for value in row] for row in rows]


def _query_sqlite(
    store: SQLiteStore, sql: str, values: Sequence[Any]
) -> tuple[list[str], Iterable[Any]]:
    try:
        store.connection.set_authorizer(_authorize)
        found = store.connection.execute(sql, values)
        return [column[0] for column in found.description or ()], found.fetchall()
    except sqlite3.Warning as problem:  # of Python 3.11: more than one statement
        raise LedgerError(f"sql: {problem}") from None
    except sqlite3.Error as problem:
        refused = any(
            word in str(problem)
            for word in ("not authorized", "prohibited", "authorization denied")
        )
        raise LedgerError(f"sql: {READ_ONLY_MESSAGE if refused else problem}") from None
    finally:
        with suppress(sqlite3.ProgrammingError):  # it was closed
            store.connection.set_authorizer(None)


def _authorize(
    action: int, first: str | None, second: str | None, base: str | None, trigger: str | None
) -> int:
    """Reading is all that is allowed; `VACUUM INTO` and `ATTACH` would write files even from here."""
    allowed = action in _ALLOWED_ACTIONS or (
        action == sqlite3.SQLITE_PRAGMA and first in _ALLOWED_PRAGMAS
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _query_postgres(store: Any, sql: str, values: Sequence[Any]) -> tuple[list[str], Iterable[Any]]:
    import psycopg

    base = store.connection
    try:
        with base.transaction(force_rollback=True):
            base.execute("SET TRANSACTION READ ONLY")
            base.execute("SELECT 1")  # from here on the transaction cannot be made a writing one
            found = base.execute(
                *store.to_driver_query(sql, values), prepare=True
            )  # prepared: the server then takes one statement only
            names = [column.name for column in found.description or ()]
            return names, found.fetchall() if names else []
    except psycopg.errors.ReadOnlySqlTransaction:
        raise LedgerError(f"sql: {READ_ONLY_MESSAGE}") from None
    except psycopg.Error as problem:
        raise LedgerError(f"sql: {' '.join(str(problem).split())}") from None


def _unique_names(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        many = 2
        unique = name
        while unique in found:
            unique, many = f"{name}_{many}", many + 1
        found.append(unique)
    return found


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Decimal):
        return float(value)
    return bytes(value) if isinstance(value, memoryview) else value
