"""A ledger in one SQLite file: readers never wait, writers wait for each other (WAL)."""

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LedgerError, LedgerValueError
from .protocol import Row, Store, placeholders

LOCK_TIMEOUT_SECONDS = 60  # an import holds the lock for well under a second at a time
LOCK_RETRY_SECONDS = 0.01
STATEMENT_CACHE_SIZE = 64
PAGE_CACHE_KB = 32_768  # rows are scattered by hash, so a long import revisits many pages
WAL_CHECKPOINT_PAGES = 8_192  # 32 MB of log, so that a page is moved once for many changes
IN_MEMORY = ":memory:"
_open_connection = partial(
    sqlite3.connect,
    timeout=LOCK_TIMEOUT_SECONDS,
    isolation_level=None,
    cached_statements=STATEMENT_CACHE_SIZE,
    check_same_thread=False,  # any thread may use it, one at a time
)

_SQL_TYPES = {
    "<int>": "INTEGER",
    "<blob>": "BLOB",
    "<serial>": "INTEGER PRIMARY KEY",
    "<by key>": "WITHOUT ROWID",
}
_ERROR_HINTS = {
    "disk is full": "disk full; the last step was not written. Free some space and try again",
    "disk I/O error": "disk error or disk full; the last step was not written. "
    "Check the disk and try again",
    "readonly": "not writable; check its permissions, or use another ledger with --ledger",
    "No such file": "cannot be opened; check the folder, or use another ledger with --ledger",
    "unable to open": "cannot be opened; check the folder and its permissions, "
    "or use another ledger with --ledger",
    "not a database": "not a ledger; use another file with --ledger",
    "malformed": "file damaged; move it away and run `steno import` to build a new one",
    "locked": f"locked by another program for {LOCK_TIMEOUT_SECONDS} s; try again later",
}


class SQLiteStore(Store):
    kind = "sqlite"

    def __init__(self, path: str, read_only: bool = False) -> None:
        self.name = path
        file = Path(path)
        try:
            if path != IN_MEMORY and read_only and not file.is_file():
                raise LedgerError(f"{path}: no ledger yet; create one with `steno import`")
            if path != IN_MEMORY and not read_only and not file.exists():
                # Readable by its owner only: it contains what agents did.
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
            self._connection = _connect(path, read_only)
        except (OSError, sqlite3.Error) as error:
            raise _to_ledger_error(path, error) from None
        if path != IN_MEMORY and not read_only:
            self._configure()

    def _configure(self) -> None:
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KB}")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
                return
            except sqlite3.OperationalError as error:
                if "readonly" in str(error):
                    return  # still readable; a write will fail with its own error
                # Changing the journal mode does not wait for another program that does the same.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise _to_ledger_error(self.name, error) from None
                time.sleep(LOCK_RETRY_SECONDS)
            except sqlite3.Error as error:
                raise _to_ledger_error(self.name, error) from None

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise _to_ledger_error(self.name, error) from None

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        for marker, sql_type in _SQL_TYPES.items():
            sql = sql.replace(marker, sql_type)
        try:
            return self._connection.execute(sql, values).rowcount
        except sqlite3.Error as error:
            raise _to_ledger_error(self.name, error) from None

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

    def backup(self, number: int) -> str:
        path = f"{self.name}.before-{number}"
        try:
            path = (
                _reserve_path(path)
                or _reserve_path(f"{path}.{time.time_ns()}.{os.getpid()}")
                or path
            )
        except OSError as error:
            raise LedgerError(f"{path}: cannot write the backup: {error.strerror}") from None
        self.execute("VACUUM INTO ?", (path,))
        return path

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


def _connect(path: str, read_only: bool) -> sqlite3.Connection:
    connection = _open_connection(_read_only_uri(path) if read_only else path, uri=read_only)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError as error:
        if _needs_immutable_mode(path, error):
            connection.close()
            return _open_connection(f"{_read_only_uri(path)}&immutable=1", uri=True)
    except sqlite3.DatabaseError:
        pass  # not a database: the first query reports it
    return connection


def _read_only_uri(path: str) -> str:
    from urllib.parse import quote

    return f"file:{quote(path)}?mode=ro"


def _needs_immutable_mode(path: str, error: sqlite3.OperationalError) -> bool:
    """Whether the ledger is on read-only storage, where SQLite cannot open the WAL.

    Immutable mode ignores the WAL, so it is refused if the WAL has content (a copy of a ledger
    that was in use).
    """
    wal = Path(f"{path}-wal")
    has_wal_content = wal.exists() and wal.stat().st_size > 0
    return (
        "unable to open" in str(error)
        and not os.access(Path(path).parent, os.W_OK)
        and not has_wal_content
    )


def _to_ledger_error(name: str, error: Exception) -> Exception:
    if isinstance(error, sqlite3.DataError | sqlite3.IntegrityError):
        return LedgerValueError(f"{name}: {error}")
    if isinstance(error, LedgerError):
        return error
    text = str(getattr(error, "strerror", None) or error)
    hint = next((hint for phrase, hint in _ERROR_HINTS.items() if phrase in text), None)
    return LedgerError(f"{name}: {hint or text}")
