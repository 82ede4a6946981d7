"""What a request or a call adds to the sums: one place, so that what is added can be taken away again. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import add as plus
from typing import Any

from .store import Row, SQLiteStore, migrate

HOUR_MS = 3_600_000  # milliseconds

SPEND_KEY_COLUMNS = ("session", "model", "hour")
SPEND_SUM_COLUMNS = (
    "requests", "input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h",
    "reported_nano", "computed_nano", "saved_nano", "unpriced", "unpriced_tokens",
)  # fmt: skip
TOOL_USE_KEY_COLUMNS = ("hour", "agent", "project", "name")
TOOL_USE_SUM_COLUMNS = ("calls", "errors", "denied", "open", "timed", "total_ms")

REQUEST_COLUMNS = (
    "id", "agent", "session", "run", "kind", "message", "parent", "model", "at", "input", "cache_write", "cache_read",
    "output", "reasoning", "cache_write_1h", "cost_nano", "saved_nano", "source",
)  # fmt: skip
CALL_COLUMNS = (
    "id", "call", "agent", "session", "run", "request", "parent", "name", "kind", "target", "at", "duration_ms", "ok", "denied",
    "error",
)  # fmt: skip


def spend_delta(row: Row) -> list[int]:
    """What one row of `requests` adds to `spend`, in the order of SPENT."""
    kind, input_, write, read, output, reasoning, hour, cost, saved, source = row[4], *row[9:18]
    unknown = cost is None
    return [
        int(kind == "request"),
        input_,
        write,
        read,
        output,
        reasoning,
        hour,
        cost if source == "reported" and not unknown else 0,
        cost if source == "computed" and not unknown else 0,
        saved,
        int(unknown and kind == "request"),
        input_ + write + read + output if unknown else 0,
    ]


def tool_use_delta(row: Row) -> list[int]:
    """What one row of `calls` adds to `tool_use`, in the order of USED."""
    duration, ok, denied = row[11], row[12], row[13]
    failed = ok is not None and not ok and not denied
    return [
        1,
        int(failed),
        int(denied),
        int(ok is None and not denied),
        int(duration is not None),
        duration or 0,
    ]


class SumDeltas:
    """Changes to a table of sums, gathered by key."""

    def __init__(self) -> None:
        self.by_key: dict[Row, list[int]] = {}

    def add(self, key: Row, figures: Iterable[int], sign: int = 1) -> None:
        """Add figures under a key, or with sign -1 take them away."""
        figures = figures if sign == 1 else [-figure for figure in figures]
        total = self.by_key.get(key)
        self.by_key[key] = list(figures if total is None else map(plus, total, figures))

    def add_new_requests(self, rows: Iterable[Row]) -> None:
        """Add rows of `requests` that are all new: what `spent` says of each, in one loop, because an import is mostly this."""
        by_key = self.by_key
        for row in rows:
            key = (row[2], row[7], row[8] // HOUR_MS)
            total = by_key.get(key)
            if total is None:
                total = by_key[key] = [0] * len(SPEND_SUM_COLUMNS)
            input_, write, read, output, reasoning, hour, cost = row[9:16]
            total[0] += 1
            total[1] += input_
            total[2] += write
            total[3] += read
            total[4] += output
            total[5] += reasoning
            total[6] += hour
            total[9] += row[16]
            if cost is None:
                total[10] += 1
                total[11] += input_ + write + read + output
            else:
                total[7 if row[17] == "reported" else 8] += cost


def add_on_conflict(
    table: str, key: tuple[str, ...], figures: tuple[str, ...], largest: tuple[str, ...] = ()
) -> str:
    """The clash of a row of sums with one that is there: they are added up; of `largest` the larger stays."""
    parts = [f"{name} = {table}.{name} + excluded.{name}" for name in figures]
    for name in largest:
        parts.append(
            f"{name} = CASE WHEN excluded.{name} > {table}.{name} THEN excluded.{name} ELSE {table}.{name} END"
        )
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(parts)}"


def replace_on_conflict(columns: tuple[str, ...]) -> str:
    """The clash of a row with an older one of the same id: the new one stands."""
    return "ON CONFLICT (id) DO UPDATE SET " + ", ".join(
        f"{name} = excluded.{name}" for name in columns if name != "id"
    )


class MemoryStore(SQLiteStore):
    """SQLite in memory, but for the requests: they are held as they came, until one is asked for."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self._requests: dict[int, Row] = {}
        self._undo_log: list[
            dict[int, Row | None]
        ] = []  # what the present transaction changed of them
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

        held, self._requests = self._requests, {}
        super().upsert("requests", REQUEST_COLUMNS, held.values(), "ON CONFLICT DO NOTHING")
