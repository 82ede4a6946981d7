"""A ledger that nobody keeps: sums and sessions in memory, and of requests only what is needed to count each once."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .store import Row, SQLite, migrate


class Fleeting(SQLite):
    """SQLite in memory, but for the requests: they are held as they came, until one is asked for."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self._requests: dict[int, Row] = {}
        self._was: list[dict[int, Row | None]] = []  # what the present transaction changed of them
        migrate(self)

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        if table != "requests":
            return super().add(table, columns, rows)
        held = self._requests
        if any(row[0] in held for row in rows):
            return False
        fresh = {row[0]: row for row in rows}
        self._was.append(dict.fromkeys(fresh))
        held.update(fresh)
        return True

    def put(self, table: str, columns: Sequence[str], rows: Iterable[Row], clash: str) -> None:
        if table != "requests":
            super().put(table, columns, rows, clash)
        else:
            fresh = {row[0]: row for row in rows}
            self._was.append({id_: self._requests.get(id_) for id_ in fresh})
            self._requests.update(fresh)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._was = []
        try:
            with super().writing():
                yield
        except BaseException:
            for changed in reversed(self._was):
                for id_, row in changed.items():
                    if row is None:
                        self._requests.pop(id_, None)
                    else:
                        self._requests[id_] = row
            raise

    def known(self, table: str, columns: Sequence[str], ids: Iterable[Any]) -> dict[Any, Row]:
        if table != "requests":
            return super().known(table, columns, ids)
        held = self._requests
        return {id_: held[id_] for id_ in ids if id_ in held}

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._requests and ("FROM requests" in sql or "JOIN requests" in sql):
            self._write_down()
        return super().rows(sql, values)

    def _write_down(self) -> None:
        """The requests as a table after all, for a question that needs them one by one."""
        from .sums import REQUEST

        held, self._requests = self._requests, {}
        super().put("requests", REQUEST, held.values(), "ON CONFLICT DO NOTHING")
