"""DBOS: the durable queue of tasks. Only this module and the worker import it.

Each batch has a queue of its own, with its limits of concurrency and rate. A task is a workflow
whose id is fixed by the task and its generation: queueing it twice has no effect.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import StenoError
from ..installation import extra_command
from ..ledger.protocol import chunks
from ..ledger.store import ledger_url
from .rows import BatchRow, TaskRow
from .store import KEEPALIVE, QUEUE_SCHEMA, FleetStore, fleet_path

if TYPE_CHECKING:
    from dbos import DBOSClient

APPLICATION = "steno-fleet"
VERSION = "1"  # of the workflow's arguments; workers of one version share the tasks
WORKFLOW = "steno.fleet.task"
QUEUE_PREFIX = "batch-"
FILE_POLL_SECONDS = 0.2
SERVER_POLL_SECONDS = 0.5
MIN_WINDOW = 200  # tasks of a batch that are in DBOS's queue at once
WINDOW_PER_JOB = 4
LOST_SECONDS = 30.0  # a workflow and its task end together, or nearly
BUSY_SECONDS = 30  # a wait for other processes that write to the same file


def queue_name(batch: str) -> str:
    return f"{QUEUE_PREFIX}{batch}"


def import_dbos() -> Any:
    """The module, quiet. StenoError if it is not installed."""
    try:
        import dbos
    except ModuleNotFoundError:
        raise StenoError(f"the fleet needs dbos: {extra_command('fleet')}") from None
    logging.getLogger("dbos").setLevel(logging.CRITICAL)
    return dbos


def database_url(ledger: str | None) -> str:
    """The URL of DBOS's tables, for SQLAlchemy."""
    path = fleet_path(ledger)
    if path is not None:
        return f"sqlite:///{path}"
    url = ledger_url(ledger)
    address = url.partition("://")[2]
    more = "&".join(f"{name}={value}" for name, value in KEEPALIVE.items())
    return f"postgresql://{address}{'&' if '?' in address else '?'}{more}"


class TaskQueue:
    """Puts tasks into the queue, and takes them out of it."""

    def __init__(self, store: FleetStore) -> None:
        self._store = store
        self._poll_seconds = SERVER_POLL_SECONDS if store.is_server else FILE_POLL_SECONDS
        dbos = import_dbos()
        import sqlalchemy

        url = database_url(store.ledger)
        dbos.DBOS.migrate(url, schema=QUEUE_SCHEMA)
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}}
        if store.is_server:
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
            options = {"pool_size": 1, "max_overflow": 1, "pool_pre_ping": True}
        self._engine = sqlalchemy.create_engine(url, **options)
        self._client: DBOSClient = dbos.DBOSClient(
            system_database_engine=self._engine,
            dbos_system_schema=QUEUE_SCHEMA,
            application_name=APPLICATION,
        )

    def close(self) -> None:
        self._client.destroy()
        self._engine.dispose()

    def open_batch(self, batch: BatchRow) -> None:
        """Create the batch's queue, or change its limits."""
        limiter: Any = None
        if batch.rate_count is not None and batch.rate_seconds is not None:
            limiter = {"limit": batch.rate_count, "period": batch.rate_seconds}
        self._client.register_queue(
            queue_name(batch.id),
            global_concurrency=batch.jobs,
            limiter=limiter,
            polling_interval_sec=self._poll_seconds,
            on_conflict="always_update",
        )

    def close_batch(self, batch: str) -> None:
        """Remove the queue of a batch that is done: workers look at fewer."""
        self._client.delete_queue(queue_name(batch))

    def release(self, batch: str | None = None) -> None:
        """Queue tasks that are ready, of one batch or all. Safe to repeat, and after a crash.

        Only the next few hundred of a batch: DBOS takes about 2 ms for each, so that tens of
        thousands would delay the command that adds them.
        """
        for id_ in self._store.unqueued_batches() if batch is None else [batch]:
            row = self._store.get_batch(id_)
            window = max(MIN_WINDOW, WINDOW_PER_JOB * ((row and row.jobs) or 0))
            queued = self._store.count_queued(id_)
            if queued <= window // 2:
                tasks = self._store.unqueued(id_, window - queued)
                if tasks:
                    self._add(tasks)

    def _add(self, tasks: Sequence[TaskRow]) -> None:
        """Queue tasks in one transaction; those that are queued already stay as they are."""
        portable = import_dbos().WorkflowSerializationFormat.PORTABLE  # JSON, not pickle
        with self._engine.begin() as connection:
            for task in tasks:
                self._client.enqueue_in_transaction(
                    connection,
                    {
                        "workflow_name": WORKFLOW,
                        "queue_name": queue_name(task.batch),
                        "workflow_id": task.workflow,
                        "app_version": VERSION,
                        "serialization_type": portable,
                    },
                    task.id,
                    task.generation,
                )
        self._store.mark_queued(tasks)

    def requeue_lost(self) -> None:
        """Queue tasks again that wait, but whose workflow has ended.

        That happens if a worker could write to DBOS's tables, but not to ours any more.
        """
        tasks = {task.workflow: task for task in self._store.queued_before(LOST_SECONDS)}
        for part in chunks(list(tasks)):
            found = self._client.list_workflows(
                workflow_ids=list(part),
                status=["SUCCESS", "ERROR", "CANCELLED"],
                load_input=False,
                load_output=False,
            )
            for workflow in found:
                self._store.give_back(tasks[workflow.workflow_id], "")

    def cancel(self, workflows: Sequence[str]) -> None:
        """Take workflows out of the queue; they no longer count against its limits."""
        if workflows:
            self._client.cancel_workflows(list(workflows))

    def forget(self, tasks: Sequence[TaskRow], batches: Sequence[str]) -> None:
        """Delete the workflows of tasks that were deleted, and the queues of batches."""
        workflows = [
            f"{task.id}-{generation}"
            for task in tasks
            for generation in range(1, task.generation + 1)
        ]
        for part in chunks(workflows):
            self._client.delete_workflows(list(part))
        for batch in batches:
            self.close_batch(batch)

    def claimed_by(self, worker: str) -> list[str]:
        """The workflows that a worker has taken from the queue and not finished."""
        found = self._client.list_workflows(
            executor_id=worker, status="PENDING", load_input=False, load_output=False
        )
        return [workflow.workflow_id for workflow in found]
