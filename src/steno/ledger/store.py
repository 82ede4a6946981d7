"""Open a ledger: find it, connect, and migrate its tables to this version."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from threading import Event, Thread
from typing import Any

from ..errors import LedgerError
from .protocol import NOTICE_SECONDS, LockPolicy, Row, Store, now_ms, query_value
from .sqlite import IN_MEMORY, REBUILD_SUFFIX, SQLiteStore

SCHEMA_VERSION = 14  # the number of migrations in `schema`; a test compares them
PROGRESS_SECONDS = 10.0  # between two lines about a migration
PROGRESS_STEPS = 10_000  # SQLite's instructions between two looks at signals: about 1 ms

__all__ = [
    "LockPolicy",
    "Row",
    "Store",
    "check_named_ledger",
    "default_ledger_path",
    "ledger_exists",
    "ledger_location",
    "ledger_url",
    "migrate",
    "open_existing_ledger",
    "open_ledger",
    "schema_version",
]


# -- location ------------------------------------------------------------------------------------


def default_ledger_path() -> Path:
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False)) / "ledger.db"


def ledger_url(location: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the path or URL of the ledger: `location`, else STENO_LEDGER, else the default."""
    return location or environ.get("STENO_LEDGER") or str(default_ledger_path())


def ledger_exists(location: str | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether opening the ledger would not create a file. Servers are not contacted."""
    url = ledger_url(location, environ)
    scheme, separator, _ = url.partition("://")
    return Path(_sqlite_path(url)).exists() if scheme == "sqlite" or not separator else True


def check_named_ledger(
    location: str | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """LedgerError if a ledger was named that does not exist: its path may be mistyped."""
    if ledger_exists(location, environ) or not (location or environ.get("STENO_LEDGER")):
        return
    url = ledger_url(location, environ)
    source = "--ledger" if location else "STENO_LEDGER"
    raise LedgerError(
        f"{url}: no such ledger ({source}); to create it: steno ledger import --ledger {quote(url)}"
    )


def ledger_location(location: str | None = None) -> str:
    """Return the ledger's absolute path, or its URL without credentials and parameters."""
    url = ledger_url(location)
    scheme, separator, address = url.partition("://")
    if separator and scheme != "sqlite":
        return f"{scheme}://{_split_address(address)[1]}"
    return os.path.abspath(_sqlite_path(url))  # noqa: PTH100  # resolve() would follow links


def _split_address(address: str) -> tuple[str, str]:
    """Return the credentials, and the host with the database.

    A password may contain any of / @ ?, so the host follows the last "@" before the parameters.
    """
    parameters = re.search(r"\?\w+=", address)
    credentials, _, host = address[: parameters and parameters.start()].rpartition("@")
    return credentials, host.partition("?")[0]


def _check_credentials(url: str, name: str) -> None:
    """LedgerError if the driver would take a part of the password for the host, and print it."""
    password = _split_address(url.partition("://")[2])[0].partition(":")[2]
    if re.search(r"[/@?#]|%(?![0-9A-Fa-f]{2})", password):
        raise LedgerError(f"{name}: percent-encode / @ ? # % in the password: %2F %40 %3F %23 %25")


def _sqlite_path(url: str) -> str:
    """Return the file path of PATH, sqlite://PATH, sqlite:///PATH or sqlite:////PATH."""
    _, separator, path = url.partition("://")
    if separator and path.startswith("//"):
        return path.removeprefix("/")
    return path or url


# -- opening -------------------------------------------------------------------------------------


def open_ledger(
    location: str | None = None, *, read_only: bool = False, locks: LockPolicy | None = None
) -> Store:
    """Open the ledger at `location` (default: see `ledger_url`), creating or migrating it.

    With `read_only`, nothing is created or migrated. `locks`: how to wait for other processes.
    LedgerError if it cannot be opened.
    """
    locks = locks or LockPolicy()
    url = ledger_url(location)
    scheme, separator, _ = url.partition("://")
    store: Store
    if not separator or scheme == "sqlite":
        store = SQLiteStore(_sqlite_path(url), read_only, locks)
    elif scheme in ("postgresql", "postgres"):
        from .postgres import PostgresStore

        name = ledger_location(url)
        _check_credentials(url, name)
        store = PostgresStore(url, name, read_only, locks)
    else:
        raise LedgerError(f"unsupported ledger URL {scheme}://; use a path or postgresql://...")
    try:
        migrate(store, read_only)
        if not read_only:
            _remove_leftovers(store)
    except BaseException:
        store.close()
        raise
    return store


def _remove_leftovers(store: Store) -> None:
    """Delete the copies of a rebuild that was killed."""
    if store.kind == "postgresql":
        from .postgres_rebuild import remove_unused_schemas

        remove_unused_schemas(store)
    elif Path(f"{store.name}{REBUILD_SUFFIX}").exists():
        from .sqlite_rebuild import remove_unused_folder

        remove_unused_folder(store.name)


def open_existing_ledger(
    location: str | None = None, locks: LockPolicy | None = None
) -> Store | None:
    """Open the ledger; None if there is none yet."""
    return open_ledger(location, locks=locks) if ledger_exists(location) else None


# -- migrations ----------------------------------------------------------------------------------


def migrate(
    store: Store, read_only: bool = False, migrations: Sequence[tuple[str, str]] | None = None
) -> None:
    """Apply the missing migrations, each in one transaction; existing ledgers are backed up."""
    version = schema_version(store)
    target = SCHEMA_VERSION if migrations is None else len(migrations)
    if version > target:
        raise LedgerError(
            f"{store.name}: written by a newer steno (schema version {version}, this one "
            f"supports {target}); upgrade steno or use another ledger with --ledger"
        )
    if version == target:
        return
    if read_only:
        reason = (
            "old schema; run `steno ledger import` to migrate it" if version else "not a ledger"
        )
        raise LedgerError(f"{store.name}: {reason}")
    if migrations is None:
        from .schema import MIGRATIONS  # lazy: most ledgers are up to date

        migrations = MIGRATIONS
    with MigrationProgress(store) as progress:
        if version:
            progress.start("copying it first")
            store.backup(version + 1)
        for number in range(version + 1, target + 1):
            name, statements = migrations[number - 1]
            _apply_migration(store, number, name, statements, progress)


def _apply_migration(
    store: Store, number: int, name: str, statements: str, progress: "MigrationProgress"
) -> None:
    with store.transaction():
        if schema_version(store) >= number:
            return  # another process has applied it
        if number == 1:
            store.execute(
                "CREATE TABLE migrations (number INTEGER PRIMARY KEY, "
                "name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
            )
        code = "\n".join(line.partition("--")[0] for line in statements.splitlines())
        steps = list(_statements(code, store.kind))
        for done, statement in enumerate(steps, 1):
            progress.start(f"version {number} ({name}), step {done} of {len(steps)}")
            store.execute(statement)
        store.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, name, now_ms()))


class MigrationProgress:
    """Report the step of a migration that takes long, from another thread.

    An interrupt stops SQLite inside a statement: the version that was being applied is undone.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._step = ""
        self._done = Event()
        self._thread = Thread(target=self._report, daemon=True)

    def start(self, step: str) -> None:
        """Set the step that is reported."""
        self._step = step

    def __enter__(self) -> "MigrationProgress":
        if self._store.locks.on_wait is not None:
            self._thread.start()
        if isinstance(self._store, SQLiteStore):
            # Python handles signals here; an exception makes SQLite stop, and is lost.
            self._store.connection.set_progress_handler(lambda: 0, PROGRESS_STEPS)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        if isinstance(self._store, SQLiteStore):
            self._store.connection.set_progress_handler(None, 0)
            if isinstance(error, LedgerError) and str(error).endswith(": interrupted"):
                raise KeyboardInterrupt from None

    def _report(self) -> None:
        report = self._store.locks.on_wait
        wait = NOTICE_SECONDS
        while report is not None and not self._done.wait(wait):
            report(f"migrating the ledger: {self._step}; interrupting it loses nothing")
            wait = PROGRESS_SECONDS


def _statements(code: str, kind: str) -> Iterator[str]:
    """The statements for one kind of database."""
    for statement in map(str.strip, re.split(r"(?<!<);", code)):
        match = re.match("<(sqlite|postgresql)>", statement)
        if match is not None and match[1] == kind:
            yield statement[match.end() :]
        elif match is None and statement:
            yield statement


def schema_version(store: Store) -> int:
    """Return the number of the last applied migration; 0 for an empty database."""
    sql = "SELECT count(*) FROM sqlite_master WHERE name = 'migrations'"
    if store.kind == "postgresql":
        sql = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('migrations')"
    if not query_value(store, sql):
        return 0
    return int(query_value(store, "SELECT coalesce(max(number), 0) FROM migrations"))


class MemoryStore(SQLiteStore):
    def __init__(self) -> None:
        super().__init__(IN_MEMORY)
        self._requests: dict[int, Row] = {}
        # Requests before the changes of the current transaction; None: new.
        self._undo_log: list[dict[int, Row | None]] = []
        migrate(self)

    def try_insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        if table != "requests":
            return super().try_insert(table, columns, rows)
        new = {row[0]: row for row in rows}  # the id is the first column
        if not self._requests.keys().isdisjoint(new):
            return False
        self._undo_log.append(dict.fromkeys(new))
        self._requests.update(new)
        return True

    def upsert(
        self, table: str, columns: Sequence[str], rows: Iterable[Row], on_conflict: str
    ) -> None:
        if table != "requests":
            super().upsert(table, columns, rows, on_conflict)
            return
        new = {row[0]: row for row in rows}  # the id is the first column
        self._undo_log.append({id_: self._requests.get(id_) for id_ in new})
        self._requests.update(new)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._undo_log = []
        try:
            with super().transaction():
                yield
        except BaseException:
            for changed in reversed(self._undo_log):
                for id_, row in changed.items():
                    if row is None:
                        self._requests.pop(id_, None)
                    else:
                        self._requests[id_] = row
            raise

    def fetch_by_id(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        if table != "requests":
            return super().fetch_by_id(table, columns, ids)
        requests = self._requests
        return {id_: requests[id_] for id_ in ids if id_ in requests}

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._requests and ("FROM requests" in sql or "JOIN requests" in sql):
            self._flush_requests()
        return super().query(sql, values)

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[list[Row]]:
        yield self.query(sql, values)

    def _flush_requests(self) -> None:
        from .rows import REQUEST_COLUMNS  # lazy: it loads the events

        requests = self._requests
        self._requests = {}
        super().upsert("requests", REQUEST_COLUMNS, requests.values(), "ON CONFLICT DO NOTHING")
