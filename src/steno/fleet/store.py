"""The state of the fleet in plain SQL: batches, tasks, workers, limits and pauses.

DBOS keeps the queue in the same database. This module does not import it: `status`, `wait` and the
board answer without it. With a ledger in SQLite, the fleet is a file beside it; with PostgreSQL, a
schema of the same database.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ..errors import LedgerError, LedgerLockedError, LedgerValueError
from ..ledger.protocol import LockPolicy, Row, Store, chunks, now_ms, placeholders, query_value
from ..ledger.sqlite import SQLiteStore
from ..ledger.store import ledger_location, ledger_url, migrate
from .rows import DEPENDENCY_REASON, LOST, PARKED_REASON, BatchRow, TaskRow, WorkerRow
from .schema import MIGRATIONS
from .spec import RetryRequest, TaskSpec

SCHEMA = "steno_fleet"
QUEUE_SCHEMA = "steno_fleet_queue"  # of DBOS
LOCK_ID = 0x5354_464C_4545_54  # of writers, apart from the ledger's
FLEET_TABLES = frozenset({"migrations", "fleet_tasks"})
RECONNECT_SECONDS = 0.5
MAX_RECONNECT_SECONDS = 60.0
# A connection that the network has lost is noticed within seconds, by both ends.
KEEPALIVE = {
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
SESSION_OPTIONS = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3"

TASK_COLUMNS = TaskRow.__struct_fields__
BATCH_COLUMNS = BatchRow.__struct_fields__
WORKER_COLUMNS = WorkerRow.__struct_fields__
TASKS_SQL = f"SELECT {', '.join('t.' + name for name in TASK_COLUMNS)} FROM fleet_tasks t"
TASK_TABLES = {  # by column
    "id": ("results", "retries", "specs", "tasks"),
    "task": ("tags", "needs"),
}
T = TypeVar("T")


def fleet_path(ledger: str | None) -> Path | None:
    """The file of the fleet; None for PostgreSQL."""
    location = ledger_location(ledger)
    return None if "://" in location else Path(location).with_suffix(".fleet.db")


def server_url(ledger: str | None, schema: str = SCHEMA) -> str:
    """The URL of the fleet's schema, for psycopg."""
    url = ledger_url(ledger)
    options = quote(f"-c search_path={schema} {SESSION_OPTIONS}", safe="")
    more = "&".join(f"{name}={value}" for name, value in KEEPALIVE.items())
    return f"{url}{'&' if '?' in url else '?'}options={options}&{more}"


def fleet_exists(ledger: str | None) -> bool:
    path = fleet_path(ledger)
    return path is None or path.exists()


def _open(ledger: str | None, read_only: bool = False) -> Store:
    path = fleet_path(ledger)
    store: Store
    locks = LockPolicy()
    if path is not None:
        store = SQLiteStore(str(path), read_only, locks, FLEET_TABLES)
    else:
        from ..ledger.postgres import PostgresStore

        name = ledger_location(ledger)
        store = PostgresStore(server_url(ledger), name, read_only, locks, LOCK_ID)
        if not read_only:
            store.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    try:
        migrate(store, read_only, MIGRATIONS)
    except BaseException:
        store.close()
        raise
    return store


class FleetStore:
    """One connection, used by one thread at a time; a lost one is opened again."""

    def __init__(
        self, ledger: str | None, *, is_patient: bool = False, read_only: bool = False
    ) -> None:
        """`is_patient`: wait for a server that is restarted, as a worker does."""
        self.ledger = ledger
        self._is_patient = is_patient and fleet_path(ledger) is None
        self._lock = threading.RLock()
        self._read_only = read_only
        self._store: Store | None = _open(ledger, read_only)
        self._depth = 0
        self.is_closed = False

    @property
    def is_server(self) -> bool:
        return fleet_path(self.ledger) is None

    def close(self) -> None:
        """Close the connection; waits of other threads end with an error."""
        self.is_closed = True
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    def _retry(self, action: Callable[[Store], T]) -> T:
        """Run an action; again with a new connection if the server was lost meanwhile."""
        give_up_at = time.monotonic() + (MAX_RECONNECT_SECONDS if self._is_patient else 0.0)
        while True:
            try:
                if self._store is None:
                    self._store = _open(self.ledger, self._read_only)
                return action(self._store)
            except (LedgerLockedError, LedgerValueError):
                raise
            except LedgerError:
                self._drop()
                if self.is_closed or self._depth or time.monotonic() >= give_up_at:
                    raise
            time.sleep(RECONNECT_SECONDS)

    def _drop(self) -> None:
        store = self._store
        self._store = None
        if store is not None:
            with suppress(Exception):  # it is lost anyway
                store.close()

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._lock:
            return self._retry(lambda store: store.query(sql, values))

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        with self._lock:
            return self._retry(lambda store: store.execute(sql, values))

    def write(self, action: Callable[[Store], T]) -> T:
        """Run an action in one transaction; no other writer is active meanwhile."""

        def attempt(store: Store) -> T:
            with store.transaction():
                return action(store)

        with self._lock:
            return self._retry(attempt)

    # -- tasks -----------------------------------------------------------------------------------

    def add_batch(
        self, batch: BatchRow, tasks: Sequence[tuple[str, TaskSpec]], limits: dict[str, int]
    ) -> None:
        """Add a batch and the tasks that it does not have yet."""
        by_name = {spec.name: id_ for id_, spec in tasks}
        encode = msgspec.json.encode

        def insert(store: Store) -> None:
            store.upsert(
                "fleet_batches",
                BATCH_COLUMNS,
                [msgspec.structs.astuple(batch)],
                "ON CONFLICT (id) DO UPDATE SET jobs = excluded.jobs, "
                "rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds, "
                "budget_nano = excluded.budget_nano",
            )
            sql = "SELECT coalesce(max(number), 0) FROM fleet_tasks WHERE batch = ?"
            first = query_value(store, sql, (batch.id,))
            rows = [
                (
                    *(id_, batch.id, first + number, spec.name, spec.agent, spec.model),
                    *("held" if spec.depends_on else "waiting", 1, 0),
                )
                for number, (id_, spec) in enumerate(tasks, 1)
            ]
            nothing = "ON CONFLICT DO NOTHING"
            # Tasks that are known keep the order of the file, too.
            renumber = "ON CONFLICT (id) DO UPDATE SET number = excluded.number"
            store.upsert("fleet_tasks", TASK_COLUMNS[:9], rows, renumber)
            specs = [(id_, encode(spec).decode()) for id_, spec in tasks]
            update = "ON CONFLICT (id) DO UPDATE SET spec = excluded.spec"
            store.upsert("fleet_specs", ("id", "spec"), specs, update)
            for part in chunks([id_ for id_, _ in tasks]):  # others than before, perhaps
                marks = placeholders(len(part))
                store.execute(f"DELETE FROM fleet_needs WHERE task IN ({marks})", part)
            needs = [(id_, by_name[need]) for id_, spec in tasks for need in spec.depends_on]
            store.upsert("fleet_needs", ("task", "needs"), needs, nothing)
            tags = [(id_, *item) for id_, spec in tasks for item in spec.tags.items()]
            store.upsert("fleet_tags", ("task", "name", "value"), tags, nothing)
            self._set_limits(store, limits)

        self.write(insert)

    @staticmethod
    def _set_limits(store: Store, limits: dict[str, int]) -> None:
        rows = [(*name.split(":", 1), most) for name, most in limits.items()]
        for kind, name, most in rows:
            if not most:
                store.execute("DELETE FROM fleet_limits WHERE kind = ? AND name = ?", (kind, name))
        rows = [row for row in rows if row[2]]
        store.upsert(
            "fleet_limits",
            ("kind", "name", "most"),
            rows,
            "ON CONFLICT (kind, name) DO UPDATE SET most = excluded.most",
        )

    def get_batch(self, id_: str) -> BatchRow | None:
        sql = f"SELECT {', '.join(BATCH_COLUMNS)} FROM fleet_batches WHERE id = ?"
        for row in self.query(sql, (id_,)):
            return BatchRow(**dict(zip(BATCH_COLUMNS, row, strict=True)))
        return None

    def batches(self) -> list[BatchRow]:
        """All batches, newest first."""
        sql = f"SELECT {', '.join(BATCH_COLUMNS)} FROM fleet_batches ORDER BY created_at DESC"
        return [BatchRow(**dict(zip(BATCH_COLUMNS, row, strict=True))) for row in self.query(sql)]

    def tasks(self, where: str, values: Sequence[Any] = ()) -> list[TaskRow]:
        """Tasks by a condition on `t`, in the order of their batch."""
        sql = f"{TASKS_SQL} WHERE {where} ORDER BY t.batch, t.number"
        return [TaskRow(*row) for row in self.query(sql, values)]

    def get_task(self, id_: str) -> TaskRow | None:
        return next(iter(self.tasks("t.id = ?", (id_,))), None)

    def get_tasks(self, ids: Iterable[str]) -> list[TaskRow]:
        rows: list[TaskRow] = []
        for part in chunks(list(ids)):
            rows += self.tasks(f"t.id IN ({placeholders(len(part))})", part)
        return rows

    def get_spec(self, id_: str) -> TaskSpec:
        ((spec,),) = self.query("SELECT spec FROM fleet_specs WHERE id = ?", (id_,))
        return msgspec.json.decode(spec, type=TaskSpec)

    def get_specs(self, ids: Sequence[str]) -> dict[str, TaskSpec]:
        rows = self._by_id("SELECT id, spec FROM fleet_specs", ids)
        return {id_: msgspec.json.decode(spec, type=TaskSpec) for id_, spec in rows}

    def get_retry(self, id_: str) -> RetryRequest:
        """What `steno fleet retry` gave the task besides another start."""
        return self._retries([id_]).get(id_, RetryRequest())

    def _retries(self, ids: Sequence[str]) -> dict[str, RetryRequest]:
        rows = self._by_id("SELECT id, request FROM fleet_retries", ids)
        return {id_: msgspec.json.decode(text, type=RetryRequest) for id_, text in rows}

    def _by_id(self, sql: str, ids: Sequence[str]) -> Iterator[Row]:
        for part in chunks(list(ids)):
            yield from self.query(f"{sql} WHERE id IN ({placeholders(len(part))})", part)

    def result_text(self, id_: str) -> str:
        return self.result_texts([id_]).get(id_, "")

    def result_texts(self, ids: Sequence[str]) -> dict[str, str]:
        return {
            id_: str(text) for id_, text in self._by_id("SELECT id, text FROM fleet_results", ids)
        }

    def needs_of(self, id_: str) -> list[TaskRow]:
        """The tasks that this one depends on."""
        where = "t.id IN (SELECT needs FROM fleet_needs WHERE task = ?)"
        return self.tasks(where, (id_,))

    def mark_ready(self, batch: str) -> None:
        """Move tasks whose dependencies are done to `waiting`, and block those of failed ones."""

        def update(store: Store) -> None:
            blocked = (
                "UPDATE fleet_tasks SET state = 'blocked', ended_at = ?, error = ? "
                "WHERE batch = ? AND state = 'held' AND EXISTS (SELECT 1 FROM fleet_needs n "
                "JOIN fleet_tasks d ON d.id = n.needs WHERE n.task = fleet_tasks.id "
                "AND d.state IN ('failed', 'blocked', 'cancelled', 'parked'))"
            )
            while store.execute(blocked, (now_ms(), DEPENDENCY_REASON, batch)):
                pass  # then those that depend on these
            store.execute(
                "UPDATE fleet_tasks SET state = 'waiting' WHERE batch = ? AND state = 'held' "
                "AND NOT EXISTS (SELECT 1 FROM fleet_needs n JOIN fleet_tasks d ON d.id = n.needs "
                "WHERE n.task = fleet_tasks.id AND d.state <> 'done')",
                (batch,),
            )

        self.write(update)

    def unqueued_batches(self) -> list[str]:
        """Batches with tasks that wait and are not in DBOS's queue."""
        sql = "SELECT DISTINCT batch FROM fleet_tasks WHERE state = 'waiting' AND queued_at IS NULL"
        return [row[0] for row in self.query(sql)]

    def count_queued(self, batch: str) -> int:
        """How many tasks of a batch wait in DBOS's queue."""
        sql = (
            "SELECT count(*) FROM fleet_tasks "
            "WHERE state = 'waiting' AND batch = ? AND queued_at IS NOT NULL"
        )
        return int(self.query(sql, (batch,))[0][0])

    def unqueued(self, batch: str, most: int) -> list[TaskRow]:
        """The first tasks of a batch that wait and are not in DBOS's queue."""
        sql = (
            f"{TASKS_SQL} WHERE t.state = 'waiting' AND t.batch = ? AND t.queued_at IS NULL "
            "ORDER BY t.number LIMIT ?"
        )
        return [TaskRow(*row) for row in self.query(sql, (batch, most))]

    def queued_before(self, seconds: float) -> list[TaskRow]:
        """Tasks that have been in DBOS's queue for at least this time."""
        where = "t.state = 'waiting' AND t.queued_at < ?"
        return self.tasks(where, (now_ms() - int(seconds * 1000),))

    def mark_queued(self, tasks: Sequence[TaskRow]) -> None:
        """Note that tasks are in the queue, unless they were started again meanwhile."""
        now = now_ms()

        def update(store: Store) -> None:
            for task in tasks:
                store.execute(
                    "UPDATE fleet_tasks SET queued_at = ? WHERE id = ? AND generation = ?",
                    (now, task.id, task.generation),
                )

        self.write(update)

    def requeue(self, ids: Sequence[str], request: RetryRequest | None = None) -> list[TaskRow]:
        """Start tasks that have ended again: a new generation, without result.

        What an earlier request permitted stays permitted; its answer was for the run after it.
        """
        requests = [] if request is None else self._add_request(ids, request)

        def update(store: Store) -> None:
            replace = "ON CONFLICT (id) DO UPDATE SET request = excluded.request"
            store.upsert("fleet_retries", ("id", "request"), requests, replace)
            for part in chunks(ids):
                marks = placeholders(len(part))
                store.execute(
                    "UPDATE fleet_tasks SET state = CASE WHEN EXISTS (SELECT 1 FROM fleet_needs n "
                    "WHERE n.task = fleet_tasks.id) THEN 'held' ELSE 'waiting' END, "
                    "generation = generation + 1, takeovers = 0, worker = NULL, verdict = NULL, "
                    "error = NULL, queued_at = NULL, started_at = NULL, ended_at = NULL "
                    f"WHERE id IN ({marks}) AND state IN ('failed','blocked','cancelled','parked')",
                    part,
                )

        self.write(update)
        return self.get_tasks(ids)

    def _add_request(self, ids: Sequence[str], request: RetryRequest) -> list[tuple[str, str]]:
        before = self._retries(ids)
        rows = []
        for id_ in ids:
            allow = (*before.get(id_, request).allow, *request.allow)
            merged = RetryRequest(allow=tuple(dict.fromkeys(allow)), answer=request.answer)
            rows.append((id_, msgspec.json.encode(merged).decode()))
        return rows

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel tasks that have not ended."""
        for part in chunks(ids):
            self.execute(
                "UPDATE fleet_tasks SET state = 'cancelled', ended_at = ?, error = 'cancelled' "
                f"WHERE id IN ({placeholders(len(part))}) "
                "AND state IN ('held', 'waiting', 'running')",
                (now_ms(), *part),
            )

    def deletable(self, tasks: Iterable[TaskRow], ended_before: int) -> list[TaskRow]:
        """Of these tasks, those that have ended, and whose result no other one may still need."""
        tasks = list(tasks)
        sql = "SELECT n.needs, n.task FROM fleet_needs n JOIN fleet_tasks d ON d.id = n.task "
        rows = self.query(f"{sql} WHERE d.state <> 'done'")
        chosen = {task.id for task in tasks if task.is_final}
        needed = {needs for needs, task in rows if task not in chosen}
        return [
            task
            for task in tasks
            if task.is_final and (task.ended_at or 0) < ended_before and task.id not in needed
        ]

    def remove_others(self, batch: str, ids: Iterable[str]) -> int:
        """Delete tasks that are no longer in the file of a batch, and return their number.

        Those that have succeeded stay; those that run are cancelled.
        """
        known = set(ids)
        tasks = self.tasks("t.batch = ? AND t.state <> 'done'", (batch,))
        gone = [task for task in tasks if task.id not in known]
        self.cancel([task.id for task in gone if task.state == "running"])
        self.delete([task.id for task in gone if task.state != "running"])
        return len(gone)

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete tasks with their results, and batches without any left; returns the latter."""

        def remove(store: Store) -> list[str]:
            for part in chunks(ids):
                marks = placeholders(len(part))
                for key, tables in TASK_TABLES.items():
                    for table in tables:
                        store.execute(f"DELETE FROM fleet_{table} WHERE {key} IN ({marks})", part)
            empty = "NOT EXISTS (SELECT 1 FROM fleet_tasks WHERE batch = fleet_batches.id)"
            batches = [row[0] for row in store.query(f"SELECT id FROM fleet_batches WHERE {empty}")]
            store.execute(f"DELETE FROM fleet_batches WHERE {empty}")
            return batches

        return self.write(remove)

    # -- one task, by its worker -----------------------------------------------------------------

    def note_session(self, task: TaskRow, worker: str, session: str, cwd: str) -> None:
        """Remember the session, so that a worker that takes the task over can resume it."""
        self.execute(
            "UPDATE fleet_tasks SET session = ?, cwd = ? "
            "WHERE id = ? AND worker = ? AND generation = ?",
            (session, cwd, task.id, worker, task.generation),
        )

    def give_back(self, task: TaskRow, worker: str) -> bool:
        """Let a task that was stopped halfway start again; False if it is not ours any more."""
        return bool(
            self.execute(
                "UPDATE fleet_tasks SET state = 'waiting', worker = NULL, reserved_nano = NULL, "
                "generation = generation + 1, queued_at = NULL "
                "WHERE id = ? AND generation = ? AND (state = 'waiting' "
                "OR state = 'running' AND worker = ?)",
                (task.id, task.generation, worker),
            )
        )

    def wait_again(self, task: TaskRow, worker: str) -> bool:
        """Let a task wait for a larger share of the budget; False if it is not ours any more."""
        return bool(
            self.execute(
                "UPDATE fleet_tasks SET state = 'waiting', worker = NULL, reserved_nano = NULL "
                "WHERE id = ? AND worker = ? AND generation = ? AND state = 'running'",
                (task.id, worker, task.generation),
            )
        )

    def finish(self, task: TaskRow, worker: str, text: str, **columns: Any) -> bool:
        """Write the result of a task, once; False if it is not ours any more."""
        names = ", ".join(f"{name} = ?" for name in columns)

        def update(store: Store) -> bool:
            changed = store.execute(
                f"UPDATE fleet_tasks SET {names}, reserved_nano = NULL, ended_at = ? "
                "WHERE id = ? AND worker = ? AND generation = ? AND state = 'running'",
                (*columns.values(), now_ms(), task.id, worker, task.generation),
            )
            if changed:
                store.upsert(
                    "fleet_results",
                    ("id", "text"),
                    [(task.id, text)],
                    "ON CONFLICT (id) DO UPDATE SET text = excluded.text",
                )
            return bool(changed)

        return self.write(update)

    def add_cost(
        self, task: TaskRow, worker: str, run: str, cost_nano: int | None, tokens: int | None
    ) -> None:
        """Book what a run has spent, also one that is not the last; a second call does nothing.

        The run becomes that of the task if the task is still this worker's.
        """
        self.execute(
            "UPDATE fleet_tasks SET cost_nano = coalesce(cost_nano + ?, cost_nano, ?), "
            "tokens = coalesce(tokens + ?, tokens, ?), reserved_nano = NULL, "
            "run = CASE WHEN worker = ? AND generation = ? THEN ? ELSE run END "
            "WHERE id = ? AND coalesce(run, '') <> ?",
            (
                *(cost_nano, cost_nano, tokens, tokens),
                *(worker, task.generation, run, task.id, run),
            ),
        )

    def pause(self, agent: str, until: float, reason: str) -> None:
        """Let no worker start this agent before `until` (seconds since 1970)."""
        self.execute(
            "INSERT INTO fleet_pauses (agent, until, reason) VALUES (?, ?, ?) "
            "ON CONFLICT (agent) DO UPDATE SET until = excluded.until, reason = excluded.reason "
            "WHERE fleet_pauses.until < excluded.until",
            (agent, int(until * 1000), reason),
        )

    def pauses(self) -> list[tuple[str, int, str]]:
        """Agents that are paused now, until when (ms), and why."""
        sql = "SELECT agent, until, reason FROM fleet_pauses WHERE until > ?"
        return [(row[0], row[1], row[2]) for row in self.query(sql, (now_ms(),))]

    # -- workers ---------------------------------------------------------------------------------

    def clock_sql(self) -> str:
        """Milliseconds since 1970 by the database's clock: the workers' clocks may differ."""
        if self.is_server:
            return "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

    def register_worker(self, worker: WorkerRow) -> None:
        columns = ", ".join(WORKER_COLUMNS)
        clock = self.clock_sql()
        self.execute(
            f"INSERT INTO fleet_workers ({columns}) VALUES (?, ?, ?, ?, ?, {clock}, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state",
            (
                *(worker.id, worker.host, worker.pid, worker.jobs, worker.started_at),
                *(worker.lease_ms, worker.state),
            ),
        )

    def beat(self, worker: str, state: str) -> bool:
        """Renew a worker's lease; False if it was taken over."""
        clock = self.clock_sql()
        sql = f"UPDATE fleet_workers SET seen_at = {clock}, state = ? WHERE id = ?"
        return bool(self.execute(sql, (state, worker)))

    def remove_worker(self, worker: str) -> None:
        self.execute("DELETE FROM fleet_workers WHERE id = ?", (worker,))

    def workers(self, only_lost: bool = False) -> list[WorkerRow]:
        """The workers; those whose lease has expired, by the database's clock, are LOST."""
        columns = ", ".join(WORKER_COLUMNS[:-1])
        is_lost = f"seen_at + lease_ms < {self.clock_sql()}"
        sql = (
            f"SELECT {columns}, CASE WHEN {is_lost} THEN '{LOST}' ELSE state END FROM fleet_workers"
        )
        workers = [WorkerRow(*row) for row in self.query(f"{sql} ORDER BY started_at")]
        return [worker for worker in workers if worker.state == LOST or not only_lost]

    def take_from(self, worker: str, claimed: Sequence[str], most_takeovers: int) -> None:
        """Let the tasks of a dead worker start again; park those that were taken over too often.

        `claimed` are the workflows that it had taken from the queue; not all had started.
        """

        def update(store: Store) -> None:
            _restart_running(store, "worker = ?", (worker,), most_takeovers)
            for workflow in claimed:
                id_, _, generation = workflow.rpartition("-")
                store.execute(
                    "UPDATE fleet_tasks SET generation = generation + 1, queued_at = NULL "
                    "WHERE id = ? AND generation = ? AND state = 'waiting'",
                    (id_, int(generation)),
                )

        self.write(update)

    def take_back(self, task: TaskRow, worker: str, most_takeovers: int) -> None:
        """The same for one task of a worker that lives, after an error of its own."""
        where = "worker = ? AND id = ? AND generation = ?"
        values = (worker, task.id, task.generation)
        self.write(lambda store: _restart_running(store, where, values, most_takeovers))
        self.give_back(task, worker)  # if it had not started yet


def _restart_running(store: Store, where: str, values: Sequence[Any], most: int) -> None:
    store.execute(
        "UPDATE fleet_tasks SET state = 'parked', worker = NULL, ended_at = ?, "
        f"reserved_nano = NULL, error = ? WHERE {where} AND state = 'running' AND takeovers >= ?",
        (now_ms(), PARKED_REASON, *values, most),
    )
    store.execute(
        "UPDATE fleet_tasks SET state = 'waiting', worker = NULL, reserved_nano = NULL, "
        "takeovers = takeovers + 1, generation = generation + 1, queued_at = NULL "
        f"WHERE {where} AND state = 'running'",
        values,
    )


@contextmanager
def open_fleet(ledger: str | None, *, read_only: bool = False) -> Iterator[FleetStore]:
    """The fleet of a ledger, for one command."""
    store = FleetStore(ledger, read_only=read_only)
    try:
        yield store
    finally:
        store.close()
