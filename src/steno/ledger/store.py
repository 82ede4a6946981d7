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

from ..report import LedgerError
from .schema import MIGRATIONS

Row = tuple[Any, ...]
BUSY_SECONDS = 60  # a writer waits this long for the others; an import holds the lock for well under a second at a time
LOCK = 0x5354_454E_4F  # the number under which writers of a PostgreSQL ledger wait for each other
KEPT_STATEMENTS = 64
CACHE_KB = 32_768  # pages that a long import comes back to; rows lie scattered by their hashes
LOG_PAGES = 8_192  # pages in the log before they are moved to the file: 32 MB, so that a page is moved once for many changes
IN_ONE_QUESTION = 500  # numbers asked for in one statement: below the limit of every SQLite build


class UnfitError(LedgerError):
    """A value that no column takes: the fault of whoever gave it."""


class Store(Protocol):
    """A ledger that is open."""

    kind: str
    name: str

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """What a question answers."""
        ...

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Carry out one statement; how many rows it touched."""
        ...

    def put(self, table: str, columns: Sequence[str], rows: Iterable[Row], clash: str) -> None:
        """Insert rows; `clash` says what happens to those that are there already (`ON CONFLICT ...`)."""
        ...

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        """Insert rows that are expected to be new. If one is there already nothing is inserted, and the answer is False."""
        ...

    def known(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        """The rows of these ids that are there already, by their id (the first of `columns`)."""
        ...

    def writing(self) -> "Any":
        """A context in which everything that is written is written together, alone, or not at all."""
        ...

    def keep_copy(self, number: int) -> str:
        """Keep a copy of the whole ledger as it is before migration `number`, and say where."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def by_id(store: Store, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
    """The rows of these ids that are there already, by their id (the first of `columns`)."""
    wanted: list[Any] = list(ids)
    found: dict[Any, Row] = {}
    for start in range(0, len(wanted), IN_ONE_QUESTION):
        part = wanted[start : start + IN_ONE_QUESTION]
        marks = ",".join("?" * len(part))
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE id IN ({marks})"  # noqa: S608  # names of our own
        found.update({row[0]: row for row in store.rows(sql, part)})
    return found


# -- opening -----------------------------------------------------------------------------------------------------


def default_path() -> Path:
    """Where the ledger lies when nobody says otherwise: in the user's data directory."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False)) / "ledger.db"


def address(where: str | None = None) -> str:
    """Where the ledger lies that `where` means, whoever asks and from which folder; without a password."""
    where = where or os.environ.get("STENO_LEDGER") or str(default_path())
    if "://" in where and not where.startswith("sqlite:"):
        return re.sub(r"//[^/@]*@", "//", where).partition("?")[0]
    return os.path.abspath(_path(where))  # noqa: PTH100


def open_ledger(where: str | None = None, *, only_read: bool = False) -> Store:
    """The ledger at `where` (else STENO_LEDGER, else the default place), migrated to this version's tables.

    With `only_read` nothing is made and nothing can be changed. LedgerError when it cannot be opened.
    """
    where = where or os.environ.get("STENO_LEDGER") or str(default_path())
    store = _connect(where, only_read)
    try:
        migrate(store, only_read)
    except BaseException:
        store.close()
        raise
    return store


def _connect(where: str, only_read: bool) -> Store:
    scheme, mark, _ = where.partition("://")
    if not mark or scheme == "sqlite":
        return SQLite(_path(where), only_read)
    if scheme in ("postgresql", "postgres"):
        from .postgres import PostgreSQL

        return PostgreSQL(where, only_read)
    raise LedgerError(f"a ledger cannot be opened by {scheme}://; give a path or postgresql://...")


def _path(where: str) -> str:
    """The path of a ledger in a file: as it is, or as sqlite://PATH or sqlite:////PATH."""
    _, mark, rest = where.partition("://")
    return rest.removeprefix("/") if mark and rest.startswith("//") else rest or where


def migrate(store: Store, only_read: bool = False, migrations: Sequence[tuple[str, str]] = MIGRATIONS) -> None:
    """Bring the tables up to this version, each step with its record in one transaction."""
    have = applied(store)
    if have > len(migrations):
        newer = f"{store.name}: this ledger was written by a newer steno (tables {have}, this one knows {len(migrations)})"
        raise LedgerError(f"{newer}; upgrade steno or name another ledger with --ledger")
    if have == len(migrations):
        return
    if only_read:
        what = "an older ledger; run `steno import` once to migrate it" if have else "this is not a ledger"
        raise LedgerError(f"{store.name}: {what}")
    if have:
        store.keep_copy(have + 1)
    for number in range(have + 1, len(migrations) + 1):
        _migrate_one(store, number, *migrations[number - 1])


def _migrate_one(store: Store, number: int, name: str, statements: str) -> None:
    with store.writing():
        if applied(store) >= number:
            return  # another process was faster
        if number == 1:
            store.change("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)")
        for statement in split(statements):
            store.change(statement)
        store.change("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, int(time.time() * 1000)))


def applied(store: Store) -> int:
    """The number of the last migration that this ledger has; 0: it is empty."""
    found = "SELECT count(*) FROM sqlite_master WHERE name = 'migrations'"
    if store.kind == "postgresql":
        found = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('migrations')"
    if not store.rows(found)[0][0]:
        return 0
    return int(store.rows("SELECT coalesce(max(number), 0) FROM migrations")[0][0])


def split(statements: str) -> list[str]:
    """The single statements of a migration, without comments."""
    bare = "\n".join(line.partition("--")[0] for line in statements.splitlines())
    return [statement.strip() for statement in bare.split(";") if statement.strip()]


# -- SQLite ------------------------------------------------------------------------------------------------------

_WORDS = {"<int>": "INTEGER", "<blob>": "BLOB", "<serial>": "INTEGER PRIMARY KEY", "<by key>": "WITHOUT ROWID"}


class SQLite:
    """A ledger in one file. Readers never wait; writers wait for each other (WAL)."""

    kind = "sqlite"

    def __init__(self, path: str, only_read: bool = False) -> None:
        self.name = path
        self._base = self._open(path, only_read)
        if path != ":memory:" and not only_read:
            self._settle()

    def _open(self, path: str, only_read: bool) -> sqlite3.Connection:
        file = Path(path)
        try:
            if only_read:
                if path != ":memory:" and not file.is_file():
                    raise LedgerError(f"{path}: there is no ledger yet; `steno import` makes one")
            elif path != ":memory:" and not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))  # what agents did is its owner's business only
            base = _connected(f"file:{_escaped(path)}?mode=ro" if only_read else path, uri=only_read)
            return _connected(f"file:{_escaped(path)}?mode=ro&immutable=1", uri=True) if _is_sealed(base, file) else base
        except (OSError, sqlite3.Error) as problem:
            raise _trouble(path, problem) from None

    def _settle(self) -> None:
        """Set what the file needs to be used by several programs at once."""
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._base.execute("PRAGMA journal_mode = WAL")
                self._base.execute("PRAGMA synchronous = NORMAL")
                self._base.execute(f"PRAGMA cache_size = -{CACHE_KB}")
                self._base.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
                return
            except sqlite3.OperationalError as problem:
                # Two programs that make the same file at once: the change of mode does not wait by itself.
                if "locked" not in str(problem) or time.monotonic() > give_up:
                    if "readonly" in str(problem):
                        return  # it can still be read; a write will say so
                    raise _trouble(self.name, problem) from None
                time.sleep(0.01)
            except sqlite3.Error as problem:
                raise _trouble(self.name, problem) from None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._base.execute(sql, values).fetchall()
        except sqlite3.Error as problem:
            raise _trouble(self.name, problem) from None

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        for word, meaning in _WORDS.items():
            sql = sql.replace(word, meaning)
        try:
            return self._base.execute(sql, values).rowcount
        except sqlite3.Error as problem:
            raise _trouble(self.name, problem) from None

    def put(self, table: str, columns: Sequence[str], rows: Iterable[Row], clash: str) -> None:
        try:
            self._base.executemany(f"{_insert(table, columns)} {clash}", rows)
        except sqlite3.Error as problem:
            raise _trouble(self.name, problem) from None

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        self._base.execute("SAVEPOINT adding")
        try:
            self._base.executemany(_insert(table, columns), rows)
        except sqlite3.IntegrityError:
            self._base.execute("ROLLBACK TO adding")
            return False
        except sqlite3.Error as problem:
            raise _trouble(self.name, problem) from None
        finally:
            if self._base.in_transaction:
                self._base.execute("RELEASE adding")
        return True

    def known(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        return by_id(self, table, columns, ids)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.change("BEGIN IMMEDIATE")
        try:
            yield
            self.change("COMMIT")
        except BaseException:
            if self._base.in_transaction:
                self._base.rollback()
            raise

    def keep_copy(self, number: int) -> str:
        copy = f"{self.name}.before-{number}"
        try:
            copy = _taken(copy) or _taken(f"{copy}.{time.time_ns()}.{os.getpid()}") or copy
        except OSError as problem:
            raise LedgerError(f"{copy}: a copy cannot be kept here: {problem.strerror}") from None
        self.change("VACUUM INTO ?", (copy,))
        return copy

    def close(self) -> None:
        self._base.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The driver's own connection, for what only SQLite has."""
        return self._base


def _taken(path: str) -> str | None:
    """A name for a copy, taken by making an empty file of it; None if it is somebody else's, who may be copying now."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    return path


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ",".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  # names of our own


def _connected(name: str, uri: bool) -> sqlite3.Connection:
    return sqlite3.connect(
        name,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        cached_statements=KEPT_STATEMENTS,
        uri=uri,
        check_same_thread=False,  # SQLite itself takes care; who has one must use it by one thread at a time
    )


def _is_sealed(base: sqlite3.Connection, file: Path) -> bool:
    """Whether a ledger lies where nothing can be written, so that not even its log can be opened: nobody changes it then.

    One whose log holds something (it was copied while it was in use) would be read without it: that is refused.
    """
    try:
        base.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError as problem:
        log = Path(f"{file}-wal")
        if "unable to open" not in str(problem) or os.access(file.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            return False
        base.close()
        return True
    except sqlite3.DatabaseError:
        return False  # it is none: whoever uses it is told
    return False


def _escaped(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


_REMEDIES = {
    "disk is full": "the disk is full; nothing of the last step was written. Make room and run it again",
    "disk I/O error": "the disk failed or is full; nothing of the last step was written. Check it and run it again",
    "readonly": "it cannot be written; check its permissions, or name another with --ledger",
    "No such file": "it cannot be opened; check the folder, or name another with --ledger",
    "unable to open": "it cannot be opened; check the folder and its permissions, or name another with --ledger",
    "not a database": "it is not a ledger; name another file with --ledger",
    "malformed": "the file is damaged; move it away and run `steno import` to build a new one",
    "locked": f"another program has held it for {BUSY_SECONDS} s; try again when it is done",
}


def _trouble(name: str, problem: Exception) -> Exception:
    """What to raise: a value that no column takes is the fault of whoever gave it, all else is the ledger's."""
    if isinstance(problem, sqlite3.DataError | sqlite3.IntegrityError):
        return UnfitError(f"{name}: {problem}")
    if isinstance(problem, LedgerError):
        return problem
    text = str(getattr(problem, "strerror", None) or problem)
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in text), None)
    return LedgerError(f"{name}: {remedy or text}")
