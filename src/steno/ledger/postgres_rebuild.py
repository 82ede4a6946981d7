"""The copies in which a PostgreSQL ledger is rebuilt: two schemas in the same database.

The connection that changes them holds an advisory lock. The server releases it when the connection
ends, however it ends.
"""

from contextlib import suppress
from types import TracebackType

from ..errors import LedgerError
from .postgres import ADVISORY_LOCK_ID, PostgresStore
from .protocol import Store, query_column, query_value

REBUILD_LOCK_ID = ADVISORY_LOCK_ID + 1
NEW_SCHEMA = "steno_rebuild_new"
OLD_SCHEMA = "steno_rebuild_old"
# Tables that an import reads or writes.
COPIED_TABLES = (
    *("sources", "glances", "sessions", "tasks", "runs", "requests", "calls", "changes"),
    *("denials", "texts", "pruned", "spend", "tool_use", "limits"),
    *("session_totals", "inherited"),
)


class PostgresRebuildArea:
    """See RebuildArea. The schemas are dropped at the end of the `with` block."""

    new = NEW_SCHEMA
    old = OLD_SCHEMA

    store: Store

    def __init__(self, ledger: PostgresStore) -> None:
        self._ledger = ledger

    def __enter__(self) -> "PostgresRebuildArea":
        ledger = self._ledger
        self.store = PostgresStore(ledger.url, ledger.name, lock_id=REBUILD_LOCK_ID)
        if not _try_lock(self.store):
            self.store.close()
            raise LedgerError(f"{ledger.name}: another process is rebuilding it")
        try:
            _drop_schemas(self.store)  # left by a process that was killed
            with self._ledger.transaction():
                self._ledger.copy_tables(self.old)
            with self.store.transaction():
                self._fill_new()
            self.store.execute(f"SET search_path = {self.new}")
        except BaseException:
            self._remove()
            raise
        return self

    def _fill_new(self) -> None:
        self.store.execute(f"CREATE SCHEMA {self.new}")
        for table in COPIED_TABLES:
            copy = f"{self.new}.{table}"
            self.store.execute(f"CREATE TABLE {copy} (LIKE {table} INCLUDING ALL)")
            columns = query_column(
                self.store,
                "SELECT attname FROM pg_attribute "
                f"WHERE attrelid = '{copy}'::regclass AND attnum > 0 "
                "AND NOT attisdropped AND attgenerated = ''",
            )
            names = ", ".join(name for name in columns if name != "seq")  # the copy counts anew
            order = "ORDER BY seq" if "seq" in columns else ""
            self.store.execute(
                f"INSERT INTO {copy} ({names}) SELECT {names} FROM {self.old}.{table} {order}"
            )

    def attach(self) -> None:
        self.store.execute("RESET search_path")

    def keep_backup(self) -> str:
        name = self._ledger.backup_name(0)
        self._ledger.execute(f"ALTER SCHEMA {self.old} RENAME TO {name}")
        return name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        with suppress(LedgerError):  # the server is gone: the next command drops them
            _drop_schemas(self.store)
        self.store.close()


def _try_lock(store: Store) -> bool:
    return bool(query_value(store, "SELECT pg_try_advisory_lock(?)", (REBUILD_LOCK_ID,)))


def _drop_schemas(store: Store) -> None:
    for schema in (NEW_SCHEMA, OLD_SCHEMA):
        store.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def remove_unused_schemas(store: Store) -> None:
    """Drop the schemas of a rebuild that was killed."""
    sql = "SELECT 1 FROM pg_namespace WHERE nspname IN (?, ?) LIMIT 1"
    with suppress(LedgerError):  # they belong to another user
        if store.query(sql, (NEW_SCHEMA, OLD_SCHEMA)) and _try_lock(store):
            try:
                _drop_schemas(store)
            finally:
                store.query("SELECT pg_advisory_unlock(?)", (REBUILD_LOCK_ID,))
