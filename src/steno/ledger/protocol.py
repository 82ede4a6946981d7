"""The interface that SQLite and PostgreSQL ledgers share, and their waiting for locks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf
from threading import Timer
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from ..errors import LedgerLockedError

LOCK_TIMEOUT_SECONDS = 60.0  # an import holds the lock for well under a second at a time
NOTICE_SECONDS = 2.0
RETRY_SECONDS = 0.02


def now_ms() -> int:
    """The time as the ledger stores it: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class LockPolicy(Struct):
    """How long a ledger waits for locks. It may be changed by another thread meanwhile."""

    timeout: float = LOCK_TIMEOUT_SECONDS
    give_up_at: float = inf  # by time.monotonic: the end of all waits
    on_wait: Callable[[str], None] | None = None  # gets one line if a wait takes long


class LockWait:
    """One wait. Call `pause` between two attempts to get the lock."""

    def __init__(self, name: str, policy: LockPolicy) -> None:
        self._name = name
        self._policy = policy
        self._began = time.monotonic()
        self._is_reported = False

    def pause(self) -> None:
        """Sleep for a moment. LedgerLockedError if it is time to give up."""
        now = time.monotonic()
        policy = self._policy
        if now - self._began >= policy.timeout or now >= policy.give_up_at:
            raise LedgerLockedError(
                f"{self._name}: locked by another program for {now - self._began:.0f} s; "
                "try again later"
            )
        is_long = now - self._began >= NOTICE_SECONDS
        if is_long and policy.on_wait is not None and not self._is_reported:
            self._is_reported = True
            policy.on_wait(waiting_message(self._name))
        time.sleep(RETRY_SECONDS)


def waiting_message(name: str) -> str:
    return f"waiting for the ledger, which another program has locked: {name}"


@contextmanager
def report_slow_connect(name: str, policy: LockPolicy) -> Iterator[None]:
    """Report it if connecting to a server takes long."""
    on_wait = policy.on_wait
    if on_wait is None:
        yield
        return
    timer = Timer(NOTICE_SECONDS, on_wait, (f"waiting for the ledger's server: {name}",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


Row = tuple[Any, ...]
STREAMED_ROWS = 500
MAX_VALUES_PER_QUERY = 500  # placeholders in one statement; below the limit of every SQLite build

T = TypeVar("T")


class Store(Protocol):
    """An open ledger. SQL uses `?` placeholders for both databases."""

    kind: str
    name: str
    locks: LockPolicy

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a SELECT."""
        ...

    def stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[list[Row]]:
        """Yield the rows of a SELECT in parts, which are not kept."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement and return the number of affected rows."""
        ...

    def upsert(
        self, table: str, columns: Sequence[str], rows: Iterable[Row], on_conflict: str
    ) -> None:
        """Insert rows; `on_conflict` is the `ON CONFLICT ...` clause for existing ones."""
        ...

    def try_insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        """Insert rows that are expected to be new; False, and nothing inserted, if one exists."""
        ...

    def fetch_by_id(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        """Return the existing rows with these ids, by id (the first of `columns`)."""
        rows: dict[Any, Row] = {}
        for part in chunks(list(ids)):
            ids_sql = placeholders(len(part))
            sql = f"SELECT {', '.join(columns)} FROM {table} WHERE id IN ({ids_sql})"
            rows.update({row[0]: row for row in self.query(sql, part)})
        return rows

    def transaction(self) -> AbstractContextManager[None]:
        """Commit everything written in the block, or nothing; only one writer at a time."""
        ...

    def set_bulk(self, is_bulk: bool) -> None:
        """Prepare for a large import, or end it: fewer writes for more disk space meanwhile."""
        return

    def backup(self, number: int) -> str:
        """Copy the ledger as it is before migration `number` and return the copy's name."""
        ...

    def close(self) -> None: ...


class RebuildArea(Protocol):
    """Two copies of a ledger: `store` is changed, the other shows what it was.

    The attributes `new` and `old` are their schemas in statements of the ledger itself.
    """

    store: Store
    new: str
    old: str

    def attach(self) -> None:
        """Close `store`, and make both copies readable for statements of the ledger."""
        ...

    def keep_backup(self) -> str:
        """Keep the old copy as a backup and return its name. Call it in a transaction."""
        ...


def chunks(items: Sequence[T], size: int = MAX_VALUES_PER_QUERY) -> Iterator[Sequence[T]]:
    """Split a sequence into parts that fit one statement."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def placeholders(count: int) -> str:
    return ",".join("?" * count)


def query_value(store: Store, sql: str, values: Sequence[Any] = ()) -> Any:
    """Return the only column of the first row; None if there is no row."""
    for (value,) in store.query(sql, values):
        return value
    return None


def query_column(store: Store, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """Return the only column of every row."""
    return [value for (value,) in store.query(sql, values)]
