"""A ledger that nobody keeps: sums and sessions in memory, and of requests only what is needed to count each once."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .store import Row, SQLiteStore, migrate


class MemoryStore(SQLiteStore):
    """SQLite in memory, but for the requests: they are held as they came, until one is asked for."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self._requests: dict[int, Row] = {}
        self._undo_log: list[dict[int, Row | None]] = []  # what the present transaction changed of them
        migrate(self)

    def try_insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        if table != "requests":
            return super().try_insert(table, columns, rows)
        held = self._requests
        if any(row[0] in held for row in rows):
            return False
        fresh = {row[0]: row for row in rows}
        self._undo_log.append(dict.fromkeys(fresh))
        held.update(fresh)
        return True

    def upsert(self, table: str, columns: Sequence[str], rows: Iterable[Row], clash: str) -> None:
        if table != "requests":
            super().upsert(table, columns, rows, clash)
        else:
            fresh = {row[0]: row for row in rows}
            self._undo_log.append({id_: self._requests.get(id_) for id_ in fresh})
            self._requests.update(fresh)

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
        held = self._requests
        return {id_: held[id_] for id_ in ids if id_ in held}

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._requests and ("FROM requests" in sql or "JOIN requests" in sql):
            self._flush_requests()
        return super().query(sql, values)

    def _flush_requests(self) -> None:
        """The requests as a table after all, for a question that needs them one by one."""
        from .sums import REQUEST_COLUMNS

        held, self._requests = self._requests, {}
        super().upsert("requests", REQUEST_COLUMNS, held.values(), "ON CONFLICT DO NOTHING")
