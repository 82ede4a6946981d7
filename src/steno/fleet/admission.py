"""May a task start now? Checks what DBOS's queue of one batch cannot know.

Pauses after a rate limit, the limits per agent and model, and the batch's budget hold over all
workers and batches: they are checked, and the task is started, in one transaction.

A budget is divided before it is spent: each task that starts reserves its share, and is stopped
when it has used that. What it leaves goes back. So the sum can exceed the budget only by what one
task uses between two looks at its cost.
"""

from msgspec import Struct

from ..ledger.protocol import Store, now_ms, query_value
from ..units import NANO_PER_USD
from .rows import BUDGET_REASON, BatchRow, TaskRow
from .store import FleetStore

LIMIT_POLL_SECONDS = 0.5
MAX_PAUSE_STEP_SECONDS = 1.0  # a pause can be prolonged, and a worker stopped, meanwhile
GENEROUS_SHARE = 2  # times the mean cost of the batch's tasks


class Admission(Struct, frozen=True):
    """The answer: go, wait or drop."""

    action: str
    wait_seconds: float = 0.0
    max_cost: float | None = None  # dollars: the share of the batch's budget
    reason: str = ""


def admit(store: FleetStore, task: TaskRow, worker: str, host: str, own: float | None) -> Admission:
    """Start the task if no limit forbids it. `own` is its own cost limit in dollars."""
    for agent, until, reason in store.pauses():
        if agent == task.agent:
            seconds = min(MAX_PAUSE_STEP_SECONDS, (until - now_ms()) / 1000)
            return Admission("wait", max(0.05, seconds), reason=reason)
    batch = store.get_batch(task.batch)
    return store.write(lambda inner: _admit(inner, task, batch, worker, host, own))


def _admit(
    store: Store, task: TaskRow, batch: BatchRow | None, worker: str, host: str, own: float | None
) -> Admission:
    sql = "SELECT state, generation FROM fleet_tasks WHERE id = ?"
    if store.query(sql, (task.id,)) != [("waiting", task.generation)]:
        return Admission("drop", reason="cancelled, or started elsewhere")
    limit = _reached_limit(store, task)
    if limit is not None:
        return Admission("wait", LIMIT_POLL_SECONDS, reason=limit)
    seconds = 0.0 if batch is None else _rate_wait(store, batch)
    if seconds > 0:
        return Admission("wait", min(seconds, MAX_PAUSE_STEP_SECONDS), reason="rate of the batch")
    share: int | None = None
    if batch is not None and batch.budget_nano is not None:
        share = _share(store, batch, own)
        if share is None:
            return Admission("wait", LIMIT_POLL_SECONDS, reason="waits for a part of the budget")
        if share <= 0:
            _block_for_budget(store, batch)
            return Admission("drop", reason=BUDGET_REASON)
    now = now_ms()
    store.execute(
        "UPDATE fleet_tasks SET state = 'running', worker = ?, host = ?, reserved_nano = ?, "
        "admitted_at = ?, started_at = coalesce(started_at, ?) WHERE id = ?",
        (worker, host, share, now, now, task.id),
    )
    return Admission("go", max_cost=None if share is None else share / NANO_PER_USD)


def _reached_limit(store: Store, task: TaskRow) -> str | None:
    names = {"agent": task.agent, "model": task.model or ""}
    for kind, name in names.items():
        sql = "SELECT most FROM fleet_limits WHERE kind = ? AND name = ?"
        most = query_value(store, sql, (kind, name))
        if most is None:
            continue
        count = f"SELECT count(*) FROM fleet_tasks WHERE state = 'running' AND {kind} = ?"
        if query_value(store, count, (name,)) >= most:
            return f"limit of {kind} {name}: {most}"
    return None


def _rate_wait(store: Store, batch: BatchRow) -> float:
    """Seconds until the batch's rate allows another start.

    DBOS limits how many tasks are claimed; on a busy machine they may start later, all at once.
    """
    if batch.rate_count is None or batch.rate_seconds is None:
        return 0.0
    sql = "SELECT admitted_at FROM fleet_tasks WHERE batch = ? AND admitted_at > ? "
    order = "ORDER BY admitted_at DESC LIMIT 1 OFFSET ?"
    since = now_ms() - int(batch.rate_seconds * 1000)
    oldest = query_value(store, sql + order, (batch.id, since, batch.rate_count - 1))
    return 0.0 if oldest is None else (oldest - since) / 1000


def _share(store: Store, batch: BatchRow, own: float | None) -> int | None:
    """What a task may spend, in nano-dollars; 0: nothing is left; None: wait for the others."""
    spent, reserved, running, waiting, mean = _sums(store, batch.id)
    left = (batch.budget_nano or 0) - spent - reserved
    if left <= 0:
        return None if running else 0
    slots = max(1, min(waiting, max(1, (batch.jobs or waiting) - running)))
    share: int = min(left, max(left // slots, mean * GENEROUS_SHARE))
    if own is not None:
        share = min(left, int(own * NANO_PER_USD))
    if running and share < mean:
        return None
    return share


def _sums(store: Store, batch: str) -> list[int]:
    """What a batch has spent and reserved, its tasks by state, and the mean cost of one."""
    (row,) = store.query(
        "SELECT coalesce(sum(cost_nano), 0), "
        "coalesce(sum(CASE WHEN state = 'running' THEN reserved_nano END), 0), "
        "count(CASE WHEN state = 'running' THEN 1 END), "
        "count(CASE WHEN state = 'waiting' THEN 1 END), "
        "coalesce(avg(CASE WHEN state IN ('done', 'failed') THEN cost_nano END), 0) "
        "FROM fleet_tasks WHERE batch = ?",
        (batch,),
    )
    return [int(value) for value in row]  # PostgreSQL's sums are decimals


def _block_for_budget(store: Store, batch: BatchRow) -> None:
    """Nothing is left or reserved: the rest does not start."""
    store.execute(
        "UPDATE fleet_tasks SET state = 'blocked', error = ?, ended_at = ? "
        "WHERE batch = ? AND state IN ('waiting', 'held')",
        (BUDGET_REASON, now_ms(), batch.id),
    )


def has_budget_left(store: FleetStore, batch: BatchRow) -> bool:
    """Whether a batch may spend more than it has spent and reserved."""
    spent, reserved, *_ = store.write(lambda inner: _sums(inner, batch.id))
    return batch.budget_nano is None or batch.budget_nano > spent + reserved


def can_continue(store: FleetStore, task: TaskRow, max_cost: float | None) -> bool:
    """Whether a task that has used up its share would get a larger one now."""
    batch = store.get_batch(task.batch)
    if batch is None or batch.budget_nano is None or max_cost is None:
        return False
    spent, reserved, *_ = store.write(lambda inner: _sums(inner, task.batch))
    left = batch.budget_nano - spent - reserved
    return left > max_cost * NANO_PER_USD / 2
