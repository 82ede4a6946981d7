"""The interface that SQLite and PostgreSQL ledgers share."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

Row = tuple[Any, ...]
MAX_VALUES_PER_QUERY = 500  # placeholders in one statement; below the limit of every SQLite build

T = TypeVar("T")


class Store(Protocol):
    """An open ledger. SQL uses `?` placeholders for both databases."""

    kind: str
    name: str

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a SELECT."""
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

    def backup(self, number: int) -> str:
        """Copy the ledger as it is before migration `number` and return the copy's name."""
        ...

    def close(self) -> None: ...


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
