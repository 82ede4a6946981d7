"""A ledger in memory for one report: requests stay Python rows until a query needs the table."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .protocol import Row
from .rows import REQUEST_COLUMNS
from .sqlite import IN_MEMORY, SQLiteStore
from .store import migrate


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

    def _flush_requests(self) -> None:
        requests = self._requests
        self._requests = {}
        super().upsert("requests", REQUEST_COLUMNS, requests.values(), "ON CONFLICT DO NOTHING")
