"""The seam to the database: open a ledger, read rows, put rows. SQLite and PostgreSQL behind one small face.

It knows transactions, locks and how each database says that something went wrong. It never knows what a row means.
SQL is written with `?` for both. A ledger is opened by a path, `sqlite:///PATH` or `postgresql://...`.
"""

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ..errors import LedgerError, LedgerValueError
from .schema import MIGRATIONS

Row = tuple[Any, ...]
LOCK_TIMEOUT_SECONDS = 60  # a writer waits this long for the others; an import holds the lock for well under a second at a time
ADVISORY_LOCK_ID = (
    0x5354_454E_4F  # the number under which writers of a PostgreSQL ledger wait for each other
)
STATEMENT_CACHE_SIZE = 64
PAGE_CACHE_KB = 32_768  # pages that a long import comes back to; rows lie scattered by their hashes
WAL_CHECKPOINT_PAGES = 8_192  # pages in the log before they are moved to the file: 32 MB, so that a page is moved once for many changes
MAX_IDS_PER_QUERY = 500  # numbers asked for in one statement: below the limit of every SQLite build


class Store(Protocol):
    """A ledger that is open."""

    kind: str
    name: str

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """What a question answers."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Carry out one statement; how many rows it touched."""
        ...

    def upsert(self, table: str, columns: Sequence[str], rows: Iterable[Row], clash: str) -> None:
        """Insert rows; `clash` says what happens to those that are there already (`ON CONFLICT ...`)."""
        ...

    def try_insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        """Insert rows that are expected to be new. If one is there already nothing is inserted, and the answer is False."""
        ...

    def fetch_by_id(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        """The rows of these ids that are there already, by their id (the first of `columns`)."""
        ...

    def transaction(self) -> "Any":
        """A context in which everything that is written is written together, alone, or not at all."""
        ...

    def backup(self, number: int) -> str:
        """Keep a copy of the whole ledger as it is before migration `number`, and say where."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def fetch_rows_by_id(
    store: Store, table: str, columns: Sequence[str], ids: Iterable[Any]
) -> dict[Any, Row]:
    """The rows of these ids that are there already, by their id (the first of `columns`)."""
    wanted: list[Any] = list(ids)
    found: dict[Any, Row] = {}
    for start in range(0, len(wanted), MAX_IDS_PER_QUERY):
        part = wanted[start : start + MAX_IDS_PER_QUERY]
        marks = ",".join("?" * len(part))
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE id IN ({marks})"  # names of our own
        found.update({row[0]: row for row in store.query(sql, part)})
    return found


# -- opening -----------------------------------------------------------------------------------------------------


def default_ledger_path() -> Path:
    """Where the ledger lies when nobody says otherwise: in the user's data directory."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False)) / "ledger.db"


def ledger_location(where: str | None = None) -> str:
    """Where the ledger lies that `where` means, whoever asks and from which folder; without a password."""
    where = where or os.environ.get("STENO_LEDGER") or str(default_ledger_path())
    if "://" in where and not where.startswith("sqlite:"):
        return re.sub(r"//[^/@]*@", "//", where).partition("?")[0]
    return os.path.abspath(_sqlite_path(where))  # noqa: PTH100


def open_ledger(where: str | None = None, *, read_only: bool = False) -> Store:
    """The ledger at `where` (else STENO_LEDGER, else the default place), migrated to this version's tables.

    With `only_read` nothing is made and nothing can be changed. LedgerError when it cannot be opened.
    """
    where = where or os.environ.get("STENO_LEDGER") or str(default_ledger_path())
    store = _connect(where, read_only)
    try:
        migrate(store, read_only)
    except BaseException:
        store.close()
        raise
    return store


def _connect(where: str, read_only: bool) -> Store:
    scheme, mark, _ = where.partition("://")
    if not mark or scheme == "sqlite":
        return SQLiteStore(_sqlite_path(where), read_only)
    if scheme in ("postgresql", "postgres"):
        from .postgres import PostgresStore

        return PostgresStore(where, read_only)
    raise LedgerError(f"a ledger cannot be opened by {scheme}://; give a path or postgresql://...")


def _sqlite_path(where: str) -> str:
    """The path of a ledger in a file: as it is, or as sqlite://PATH or sqlite:////PATH."""
    _, mark, rest = where.partition("://")
    return rest.removeprefix("/") if mark and rest.startswith("//") else rest or where


def migrate(
    store: Store, read_only: bool = False, migrations: Sequence[tuple[str, str]] = MIGRATIONS
) -> None:
    """Bring the tables up to this version, each step with its record in one transaction."""
    have = schema_version(store)
    if have > len(migrations):
        newer = f"{store.name}: this ledger was written by a newer steno (tables {have}, this one knows {len(migrations)})"
        raise LedgerError(f"{newer}; upgrade steno or name another ledger with --ledger")
    if have == len(migrations):
        return
    if read_only:
        what = (
            "an older ledger; run `steno ledger import` once to migrate it"
            if have
            else "this is not a ledger"
        )
        raise LedgerError(f"{store.name}: {what}")
    if have:
        store.backup(have + 1)
    for number in range(have + 1, len(migrations) + 1):
        _apply_migration(store, number, *migrations[number - 1])


def _apply_migration(store: Store, number: int, name: str, statements: str) -> None:
    with store.transaction():
        if schema_version(store) >= number:
            return  # another process was faster
        if number == 1:
            store.execute(
                "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
            )
        for statement in split_statements(statements):
            store.execute(statement)
        store.execute(
            "INSERT INTO migrations VALUES (?, ?, ?)", (number, name, int(time.time() * 1000))
        )


def schema_version(store: Store) -> int:
    """The number of the last migration that this ledger has; 0: it is empty."""
    found = "SELECT count(*) FROM sqlite_master WHERE name = 'migrations'"
    if store.kind == "postgresql":
        found = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('migrations')"
    if not store.query(found)[0][0]:
        return 0
    return int(store.query("SELECT coalesce(max(number), 0) FROM migrations")[0][0])


def split_statements(statements: str) -> list[str]:
    """The single statements of a migration, without comments."""
    bare = "\n".join(line.partition("--")[0] for line in statements.splitlines())
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


# -- SQLite ------------------------------------------------------------------------------------------------------

_SQL_TYPES = {
    "<int>": "INTEGER",
    "<blob>": "BLOB",
    "<serial>": "INTEGER PRIMARY KEY",
    "<by key>": "WITHOUT ROWID",
}


class SQLiteStore:
    """A ledger in one file. Readers never wait; writers wait for each other (WAL)."""

    kind = "sqlite"

    def __init__(self, path: str, read_only: bool = False) -> None:
        self.name = path
        self._connection = self._open(path, read_only)
        if path != ":memory:" and not read_only:
            self._configure()

    def _open(self, path: str, read_only: bool) -> sqlite3.Connection:
        file = Path(path)
        try:
            if read_only:
                if path != ":memory:" and not file.is_file():
                    raise LedgerError(
                        f"{path}: there is no ledger yet; `steno ledger import` makes one"
                    )
            elif path != ":memory:" and not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(
                    os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
                )  # what agents did is its owner's business only
            base = _connect_sqlite(
                f"file:{_quote_path(path)}?mode=ro" if read_only else path, uri=read_only
            )
            return (
                _connect_sqlite(f"file:{_quote_path(path)}?mode=ro&immutable=1", uri=True)
                if _needs_immutable_mode(base, file)
                else base
            )
        except (OSError, sqlite3.Error) as problem:
            raise _to_ledger_error(path, problem) from None

    def _configure(self) -> None:
        """Set what the file needs to be used by several programs at once."""
        give_up = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KB}")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
                return
            except sqlite3.OperationalError as problem:
                # Two programs that make the same file at once: the change of mode does not wait by itself.
                if "locked" not in str(problem) or time.monotonic() > give_up:
                    if "readonly" in str(problem):
                        return  # it can still be read; a write will say so
                    raise _to_ledger_error(self.name, problem) from None
                time.sleep(0.01)
            except sqlite3.Error as problem:
                raise _to_ledger_error(self.name, problem) from None

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as problem:
            raise _to_ledger_error(self.name, problem) from None

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        for word, meaning in _SQL_TYPES.items():
            sql = sql.replace(word, meaning)
        try:
            return self._connection.execute(sql, values).rowcount
        except sqlite3.Error as problem:
            raise _to_ledger_error(self.name, problem) from None

    def upsert(self, table: str, columns: Sequence[str], rows: Iterable[Row], clash: str) -> None:
        try:
            self._connection.executemany(f"{_insert_sql(table, columns)} {clash}", rows)
        except sqlite3.Error as problem:
            raise _to_ledger_error(self.name, problem) from None

    def try_insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        self._connection.execute("SAVEPOINT adding")
        try:
            self._connection.executemany(_insert_sql(table, columns), rows)
        except sqlite3.IntegrityError:
            self._connection.execute("ROLLBACK TO adding")
            return False
        except sqlite3.Error as problem:
            raise _to_ledger_error(self.name, problem) from None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE adding")
        return True

    def fetch_by_id(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        return fetch_rows_by_id(self, table, columns, ids)

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
        copy = f"{self.name}.before-{number}"
        try:
            copy = (
                _reserve_path(copy)
                or _reserve_path(f"{copy}.{time.time_ns()}.{os.getpid()}")
                or copy
            )
        except OSError as problem:
            raise LedgerError(f"{copy}: a copy cannot be kept here: {problem.strerror}") from None
        self.execute("VACUUM INTO ?", (copy,))
        return copy

    def close(self) -> None:
        self._connection.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The driver's own connection, for what only SQLite has."""
        return self._connection


def _reserve_path(path: str) -> str | None:
    """A name for a copy, taken by making an empty file of it; None if it is somebody else's, who may be copying now."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    return path


def _insert_sql(table: str, columns: Sequence[str]) -> str:
    marks = ",".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # names of our own


def _connect_sqlite(name: str, uri: bool) -> sqlite3.Connection:
    return sqlite3.connect(
        name,
        timeout=LOCK_TIMEOUT_SECONDS,
        isolation_level=None,
        cached_statements=STATEMENT_CACHE_SIZE,
        uri=uri,
        check_same_thread=False,  # SQLite itself takes care; who has one must use it by one thread at a time
    )


def _needs_immutable_mode(base: sqlite3.Connection, file: Path) -> bool:
    """Whether a ledger lies where nothing can be written, so that not even its log can be opened: nobody changes it then.

    One whose log holds something (it was copied while it was in use) would be read without it: that is refused.
    """
    try:
        base.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError as problem:
        log = Path(f"{file}-wal")
        if (
            "unable to open" not in str(problem)
            or os.access(file.parent, os.W_OK)
            or (log.exists() and log.stat().st_size)
        ):
            return False
        base.close()
        return True
    except sqlite3.DatabaseError:
        return False  # it is none: whoever uses it is told
    return False


def _quote_path(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


_ERROR_HINTS = {
    "disk is full": "the disk is full; nothing of the last step was written. Make room and run it again",
    "disk I/O error": "the disk failed or is full; nothing of the last step was written. Check it and run it again",
    "readonly": "it cannot be written; check its permissions, or name another with --ledger",
    "No such file": "it cannot be opened; check the folder, or name another with --ledger",
    "unable to open": "it cannot be opened; check the folder and its permissions, or name another with --ledger",
    "not a database": "it is not a ledger; name another file with --ledger",
    "malformed": "the file is damaged; move it away and run `steno ledger import` to build a new one",
    "locked": f"another program has held it for {LOCK_TIMEOUT_SECONDS} s; try again when it is done",
}


def _to_ledger_error(name: str, problem: Exception) -> Exception:
    """What to raise: a value that no column takes is the fault of whoever gave it, all else is the ledger's."""
    if isinstance(problem, sqlite3.DataError | sqlite3.IntegrityError):
        return LedgerValueError(f"{name}: {problem}")
    if isinstance(problem, LedgerError):
        return problem
    text = str(getattr(problem, "strerror", None) or problem)
    remedy = next((remedy for words, remedy in _ERROR_HINTS.items() if words in text), None)
    return LedgerError(f"{name}: {remedy or text}")
