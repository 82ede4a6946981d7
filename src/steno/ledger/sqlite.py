"""A ledger in one SQLite file: readers never wait, writers wait for each other (WAL)."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import LedgerError, LedgerValueError
from ..private_files import create_private_folder
from .protocol import STREAMED_ROWS, LockPolicy, LockWait, Row, Store, placeholders

BUSY_TIMEOUT_SECONDS = 0.05  # a wait inside SQLite, which Ctrl-C does not end
STATEMENT_CACHE_SIZE = 64
PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "cache_size = -32768",  # KB: rows are scattered by hash, a long import revisits many pages
    "journal_size_limit = 67108864",  # the log is cut to this after a large import or migration
    "wal_autocheckpoint = 8192",  # pages, 32 MB: a page is moved once for many changes
)
IN_MEMORY = ":memory:"
REBUILD_SUFFIX = ".rebuild"  # of the folder in which the ledger is rebuilt
T = TypeVar("T")
_open_connection = partial(
    sqlite3.connect,
    timeout=BUSY_TIMEOUT_SECONDS,
    isolation_level=None,
    cached_statements=STATEMENT_CACHE_SIZE,
    check_same_thread=False,  # any thread may use it, one at a time
)

_SQL_TYPES = {
    "<int>": "INTEGER",
    "<blob>": "BLOB",
    "<serial>": "INTEGER PRIMARY KEY",
    "<by key>": "WITHOUT ROWID",
    "<descending>": "DESC",  # NULL comes last
    "<;>": ";",
}
LEDGER_TABLES = frozenset({"migrations", "sources", "sessions", "runs", "requests", "spend"})
NOT_A_LEDGER = "not a ledger; use another file with --ledger"
_RESTORE = (
    "restore it from recordings and transcripts: "
    "mv {name} {name}.damaged && steno ledger import --ledger {name}"
)
FLEET_SUFFIX = ".fleet.db"  # of the queue beside a ledger
_DAMAGED_FLEET = (
    "not the queue of a fleet, or damaged; move it away (queued tasks are lost, the runs are in "
    "the ledger): mv {name} {name}.damaged"
)
_ERROR_HINTS = {
    "disk is full": "disk full; the last step was not written. Free some space and try again",
    "disk I/O error": "disk error or disk full; the last step was not written. "
    "Check the disk and try again",
    "readonly": "not writable; check its permissions, or use another ledger with --ledger",
    "No such file": "cannot be opened; check the folder, or use another ledger with --ledger",
    "unable to open": "cannot be opened; check the folder and its permissions, "
    "or use another ledger with --ledger",
    "not a ledger": NOT_A_LEDGER,
    "not a database": f"{NOT_A_LEDGER}. If it was one, {_RESTORE}",
    "malformed": f"file damaged; {_RESTORE}",
}
_DAMAGED = ("not a ledger", "not a database", "malformed")


class SQLiteStore(Store):
    kind = "sqlite"

    def __init__(
        self,
        path: str,
        read_only: bool = False,
        locks: LockPolicy | None = None,
        required_tables: frozenset[str] = LEDGER_TABLES,
    ) -> None:
        self.name = path
        self.locks = locks or LockPolicy()
        file = Path(path)
        try:
            if path != IN_MEMORY and read_only and not file.is_file():
                raise LedgerError(f"{path}: no ledger yet; create one with `steno ledger import`")
            if path != IN_MEMORY and not read_only and not file.exists():
                # Readable by its owner only: it contains what agents did.
                create_private_folder(file.parent)
                os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = self._retry(lambda: _connect(path, read_only, required_tables))
        except (OSError, sqlite3.Error) as error:
            raise _to_ledger_error(path, error) from None
        if path != IN_MEMORY and not read_only:
            self._configure()

    def _configure(self) -> None:
        try:
            for pragma in PRAGMAS:
                self._retry(partial(self._connection.execute, f"PRAGMA {pragma}"))
        except sqlite3.Error as error:
            if "readonly" not in str(error):  # still readable; a write will fail with its own error
                raise _to_ledger_error(self.name, error) from None

    def _retry(self, action: Callable[[], T]) -> T:
        """Repeat an action until the ledger is not locked. LedgerLockedError, or sqlite3.Error."""
        wait = LockWait(self.name, self.locks)
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if not _is_locked(error):
                    raise
            wait.pause()

    def _execute_when_unlocked(
        self, error: sqlite3.Error, sql: str, values: Sequence[Any]
    ) -> sqlite3.Cursor:
        """Execute a statement that failed; LedgerError if the cause is not a lock."""
        if not _is_locked(error) or self._connection.in_transaction:
            raise _to_ledger_error(self.name, error) from None
        try:
            return self._retry(lambda: self._connection.execute(sql, values))
        except sqlite3.Error as other:
            raise _to_ledger_error(self.name, other) from None

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            return self._execute_when_unlocked(error, sql, values).fetchall()

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[list[Row]]:
        try:
            cursor = self._connection.execute(sql, values)
        except sqlite3.Error as error:
            cursor = self._execute_when_unlocked(error, sql, values)
        try:
            while rows := cursor.fetchmany(STREAMED_ROWS):
                yield rows
        except sqlite3.Error as error:
            raise _to_ledger_error(self.name, error) from None

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        for marker, sql_type in _SQL_TYPES.items():
            sql = sql.replace(marker, sql_type)
        try:
            return self._connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            return self._execute_when_unlocked(error, sql, values).rowcount

    def upsert(
        self, table: str, columns: Sequence[str], rows: Iterable[Row], on_conflict: str
    ) -> None:
        try:
            self._connection.executemany(f"{_insert_sql(table, columns)} {on_conflict}", rows)
        except sqlite3.Error as error:
            raise _to_ledger_error(self.name, error) from None

    def try_insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        self._connection.execute("SAVEPOINT adding")
        try:
            self._connection.executemany(_insert_sql(table, columns), rows)
        except sqlite3.IntegrityError:
            self._connection.execute("ROLLBACK TO adding")
            return False
        except sqlite3.Error as error:
            raise _to_ledger_error(self.name, error) from None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE adding")
        return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    def set_bulk(self, is_bulk: bool) -> None:
        """The log grows to 256 MB before its pages are moved to the ledger."""
        self.execute(f"PRAGMA wal_autocheckpoint = {65_536 if is_bulk else 8_192}")

    def backup(self, number: int) -> str:
        path = self.reserve_backup(number)
        part = f"{path}.part"  # what is left of a killed process is no backup
        try:
            Path(part).unlink(missing_ok=True)
            Path(part).touch(0o600)
            self.execute("VACUUM INTO ?", (part,))
            Path(part).replace(path)
        except BaseException as error:
            Path(part).unlink(missing_ok=True)
            Path(path).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _to_ledger_error(path, error) from None
            raise
        return path

    def reserve_backup(self, number: int) -> str:
        """Create an empty file for a backup and return its path."""
        path = f"{self.name}.before-{number}"
        try:
            return (
                _reserve_path(path)
                or _reserve_path(f"{path}.{time.time_ns()}.{os.getpid()}")
                or path
            )
        except OSError as error:
            raise LedgerError(f"{path}: cannot write the backup: {error.strerror}") from None

    def close(self) -> None:
        self._connection.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The driver's connection, for features that only SQLite has."""
        return self._connection


def _reserve_path(path: str) -> str | None:
    """Create an empty file for a backup; None if it exists (another process may be writing it)."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    return path


def _insert_sql(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders(len(columns))})"


def _connect(path: str, read_only: bool, required_tables: frozenset[str]) -> sqlite3.Connection:
    """Connect to a ledger or a new file; a database of another program is left alone."""
    connection = _open_connection(_read_only_uri(path) if read_only else path, uri=read_only)
    try:
        try:
            names = _list_tables(connection)
        except sqlite3.OperationalError as error:
            if not _needs_immutable_mode(path, error):
                raise
            connection.close()
            connection = _open_connection(f"{_read_only_uri(path)}&immutable=1", uri=True)
            names = _list_tables(connection)
        if names and not names >= required_tables:
            raise _to_ledger_error(path, sqlite3.DatabaseError("not a ledger"))
    except BaseException:
        connection.close()
        raise
    return connection


def _list_tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _read_only_uri(path: str) -> str:
    from urllib.parse import quote

    return f"file:{quote(path)}?mode=ro"


def _needs_immutable_mode(path: str, error: sqlite3.OperationalError) -> bool:
    """Whether the ledger is in a folder that can't be written, where SQLite cannot open the WAL.

    Immutable mode ignores the WAL, so it is refused if the WAL has content (a copy of a ledger
    that was in use).
    """
    wal = Path(f"{path}-wal")
    has_wal_content = wal.exists() and wal.stat().st_size > 0
    is_refused = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    can_write = os.access(
        Path(path).parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids
    )
    return is_refused and not can_write and not has_wal_content


def _is_locked(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)  # missing if Python's module raised the error
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _to_ledger_error(name: str, error: Exception) -> Exception:
    if isinstance(error, sqlite3.DataError | sqlite3.IntegrityError):
        return LedgerValueError(f"{name}: {error}")
    if isinstance(error, LedgerError):
        return error
    from shlex import quote

    text = str(getattr(error, "strerror", None) or error)
    phrase = next((phrase for phrase in _ERROR_HINTS if phrase in text), "")
    hint = _ERROR_HINTS.get(phrase)
    if phrase in _DAMAGED and name.endswith(FLEET_SUFFIX):
        hint = _DAMAGED_FLEET
    return LedgerError(f"{name}: {hint.replace('{name}', quote(name)) if hint else text}")
