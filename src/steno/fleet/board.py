"""What `steno fleet status` and the live board show: counts, cost, forecast, time left."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..units import NANO_PER_USD
from .spec import TaskResult
from .store import FINAL_STATES, BatchRow, FleetStore, TaskRow, WorkerRow

MIN_PREFIX = 4  # of a task's id
MAX_RUNNING_SHOWN = 20


class RunningTask(Struct, frozen=True):
    id: str
    name: str
    agent: str
    worker: str | None
    started_at: int | None


class Board(Struct, kw_only=True):
    """One batch as it stands. Amounts are unknown (None) while no task has reported a cost."""

    id: str
    name: str
    created_at: int
    total: int
    states: dict[str, int]
    failures: dict[str, int]  # failed tasks by verdict
    running: list[RunningTask]
    tokens: int | None
    cost_usd: float | None
    unknown_costs: int  # finished tasks without a known cost
    budget_usd: float | None
    forecast_usd: float | None
    started_at: int | None
    ended_at: int | None
    eta_s: float | None
    jobs: int | None
    rate: str | None

    @property
    def finished(self) -> int:
        return sum(self.states.get(state, 0) for state in FINAL_STATES)

    @property
    def is_finished(self) -> bool:
        return self.finished == self.total

    @property
    def is_good(self) -> bool:
        return self.states.get("done", 0) == self.total


class FleetStatus(Struct, kw_only=True):
    batches: list[Board]
    workers: list[WorkerRow]
    pauses: list[dict[str, Any]]  # agent, until (ms), reason


def fleet_status(store: FleetStore, batches: Sequence[BatchRow]) -> FleetStatus:
    """The boards of these batches, the workers and the pauses."""
    pauses = [
        {"agent": agent, "until": until, "reason": reason}
        for agent, until, reason in store.pauses()
    ]
    boards = [read_board(store, batch) for batch in batches]
    return FleetStatus(batches=boards, workers=store.workers(), pauses=pauses)


def read_board(store: FleetStore, batch: BatchRow) -> Board:
    rows = store.query(
        "SELECT state, verdict, count(*), sum(cost_nano), count(cost_nano), sum(tokens), "
        "min(started_at), max(ended_at) FROM fleet_tasks WHERE batch = ? GROUP BY state, verdict",
        (batch.id,),
    )
    states: dict[str, int] = {}
    failures: dict[str, int] = {}
    for state, verdict, count, *_ in rows:
        states[state] = states.get(state, 0) + count
        if state == "failed":
            failures[verdict or "unknown"] = failures.get(verdict or "unknown", 0) + count
    known = sum(row[4] for row in rows)
    ended = states.get("done", 0) + states.get("failed", 0)
    total = sum(states.values())
    left = total - sum(states.get(state, 0) for state in FINAL_STATES)
    cost = int(sum(row[3] or 0 for row in rows)) / NANO_PER_USD if known else None
    started_at = min((row[6] for row in rows if row[6] is not None), default=None)
    return Board(
        id=batch.id,
        name=batch.name,
        created_at=batch.created_at,
        total=total,
        states=states,
        failures=failures,
        running=_running(store, batch.id) if states.get("running") else [],
        tokens=int(sum(row[5] or 0 for row in rows)) if any(row[5] for row in rows) else None,
        cost_usd=cost,
        unknown_costs=sum(row[2] - row[4] for row in rows if row[0] in ("done", "failed")),
        budget_usd=None if batch.budget_nano is None else batch.budget_nano / NANO_PER_USD,
        forecast_usd=None if cost is None else cost + cost / known * left,
        started_at=started_at,
        ended_at=max((row[7] for row in rows if row[7] is not None), default=None),
        eta_s=_time_left(started_at, ended, left),
        jobs=batch.jobs,
        rate=_rate(batch),
    )


def _time_left(started_at: int | None, ended: int, left: int) -> float | None:
    if not left:
        return 0.0
    if started_at is None or not ended:
        return None
    return max(0.0, (now_ms() - started_at) / 1000 / ended * left)


def _rate(batch: BatchRow) -> str | None:
    if batch.rate_count is None or batch.rate_seconds is None:
        return None
    units = {1.0: "s", 60.0: "min", 3600.0: "h"}
    unit = units.get(batch.rate_seconds, f"{batch.rate_seconds:g}s")
    return f"{batch.rate_count}/{unit}"


def _running(store: FleetStore, batch: str) -> list[RunningTask]:
    rows = store.query(
        "SELECT id, name, agent, worker, started_at FROM fleet_tasks "
        f"WHERE batch = ? AND state = 'running' ORDER BY started_at LIMIT {MAX_RUNNING_SHOWN}",
        (batch,),
    )
    return [RunningTask(*row) for row in rows]


# -- selection -----------------------------------------------------------------------------------


def find_batch(store: FleetStore, word: str) -> BatchRow | None:
    """A batch by its id, or the newest one of a name."""
    batches = store.batches()
    by_id = next((batch for batch in batches if batch.id == word), None)
    return by_id or next((batch for batch in batches if batch.name == word), None)


def select_tasks(
    store: FleetStore, words: Sequence[str], tags: Sequence[str] = ()
) -> list[TaskRow]:
    """Tasks by id (its start is enough), name, or batch; and by label. Each one once."""
    found: dict[str, TaskRow] = {}
    for word in words:
        tasks = _find(store, word)
        if not tasks:
            raise StenoError(f"no task or batch {word!r} in the fleet; see: steno fleet status")
        found.update({task.id: task for task in tasks})
    if tags:
        selected = [_with_tag(store, tag) for tag in tags]
        ids = set.intersection(*({task.id for task in tasks} for tasks in selected))
        for tasks in selected:
            found.update({task.id: task for task in tasks if task.id in ids})
    return list(found.values())


def _find(store: FleetStore, word: str) -> list[TaskRow]:
    batch_word, _, name = word.rpartition("/")
    if batch_word:
        batch = find_batch(store, batch_word)
        where = "t.batch = ? AND t.name = ?"
        return [] if batch is None else store.tasks(where, (batch.id, name))
    if len(word) >= MIN_PREFIX and all(letter in "0123456789abcdef" for letter in word):
        end = f"{word}g"  # after all ids that begin with the word
        if tasks := store.tasks("t.id >= ? AND t.id < ?", (word, end)):
            if len(tasks) > 1:
                raise StenoError(f"{word}: the start of {len(tasks)} task ids; give more of it")
            return tasks
    batch = find_batch(store, word)
    if batch is not None:
        return store.tasks("t.batch = ?", (batch.id,))
    return store.tasks("t.name = ?", (word,))


def _with_tag(store: FleetStore, tag: str) -> list[TaskRow]:
    name, separator, value = tag.partition("=")
    where = "t.id IN (SELECT task FROM fleet_tags WHERE name = ?"
    if separator:
        return store.tasks(f"{where} AND value = ?)", (name, value))
    return store.tasks(f"{where})", (name,))


def select_results(store: FleetStore, word: str) -> list[TaskResult]:
    """The results of the successful tasks that a word names; else that of a run in the ledger."""
    try:
        tasks = select_tasks(store, [word])
    except StenoError:
        result = _result_of_run(store.ledger, word)
        if result is None:
            raise
        return [result]
    return [
        TaskResult(task.name, task.verdict or task.state, store.result_text(task.id))
        for task in tasks
        if task.state == "done"
    ]


def _result_of_run(ledger: str | None, word: str) -> TaskResult | None:
    """The answer of a successful run; None if the ledger has no such run."""
    from ..codec.redact import redact  # lazy: `steno fleet status` needs none of it
    from ..ledger.queries.runs import find_by_prefix, load_report
    from ..ledger.store import open_existing_ledger

    runs = open_existing_ledger(ledger)
    if runs is None:
        return None
    try:
        found = find_by_prefix(runs, word)
        report = None if found is None else load_report(runs, found.id)
    finally:
        runs.close()
    if report is None or not report.ok:
        return None
    return TaskResult(report.name or word, report.verdict, redact(report.result or report.text))
