"""What `steno fleet status` and the live board show: counts, cost, forecast, time left."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ..errors import StenoError
from ..ledger.protocol import chunks, placeholders
from ..units import NANO_PER_USD
from .rows import FAILED_STATES, FINAL_STATES, BatchRow, TaskRow, WorkerRow
from .spec import TaskResult
from .store import FleetStore

MIN_PREFIX = 4  # of the id of a task or batch
SHORT_ID_CHARS = 8
MAX_RUNNING_SHOWN = 20
MAX_NAMED = 4  # tasks or batches in an error message


class RunningTask(Struct, frozen=True):
    id: str
    name: str
    agent: str
    worker: str | None
    started_at: int | None
    worker_state: str | None  # active, draining, lost


class Board(Struct, kw_only=True):
    """One batch as it stands. Amounts are unknown (None) while no task has reported a cost."""

    id: str
    name: str
    file: str | None  # None: from stdin, named with --name, or spawned
    created_at: int
    total: int
    states: dict[str, int]
    failed: int  # tasks that ended neither with a success nor by a person
    failures: dict[str, int]  # those that had a run, by verdict; the others are in `states`
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
    def failure_words(self) -> dict[str, int]:
        """The failed tasks by verdict; without a run, by state."""
        others = {state: self.states.get(state, 0) for state in FAILED_STATES[1:]}
        return {**self.failures, **{state: count for state, count in others.items() if count}}

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
    workers = store.workers()
    boards = [read_board(store, batch, workers) for batch in batches]
    return FleetStatus(batches=boards, workers=workers, pauses=pauses)


def active_workers(store: FleetStore) -> list[WorkerRow]:
    """The workers that start tasks: neither lost nor draining."""
    return [worker for worker in store.workers() if worker.state == "active"]


def read_board(
    store: FleetStore, batch: BatchRow, workers: Sequence[WorkerRow] | None = None
) -> Board:
    workers = store.workers() if workers is None else workers
    rows = store.query(
        "SELECT state, verdict, count(*), sum(cost_nano), count(cost_nano), sum(tokens), "
        "min(started_at), max(ended_at), sum(ended_at - admitted_at), "
        "count(ended_at - admitted_at) FROM fleet_tasks WHERE batch = ? GROUP BY state, verdict",
        (batch.id,),
    )
    states: dict[str, int] = {}
    failures: dict[str, int] = {}
    for state, verdict, count, *_ in rows:
        states[state] = states.get(state, 0) + count
        if state == "failed":
            failures[verdict or "unknown"] = failures.get(verdict or "unknown", 0) + count
    known = sum(row[4] for row in rows)
    ended = [row for row in rows if row[0] in ("done", "failed")]
    total = sum(states.values())
    left = total - sum(states.get(state, 0) for state in FINAL_STATES)
    cost = int(sum(row[3] or 0 for row in rows)) / NANO_PER_USD if known else None
    return Board(
        id=batch.id,
        name=batch.name,
        file=_source_file(batch),
        created_at=batch.created_at,
        total=total,
        states=states,
        failed=sum(states.get(state, 0) for state in FAILED_STATES),
        failures=failures,
        running=_running(store, batch.id, workers) if states.get("running") else [],
        tokens=int(sum(row[5] or 0 for row in rows)) if any(row[5] for row in rows) else None,
        cost_usd=cost,
        unknown_costs=sum(row[2] - row[4] for row in ended),
        budget_usd=None if batch.budget_nano is None else batch.budget_nano / NANO_PER_USD,
        forecast_usd=None if cost is None else cost + cost / known * left,
        started_at=min((row[6] for row in rows if row[6] is not None), default=None),
        ended_at=max((row[7] for row in rows if row[7] is not None), default=None),
        eta_s=_time_left(
            batch,
            workers,
            left=left,
            not_started=left - states.get("running", 0),
            mean_ms=_mean(sum(row[8] or 0 for row in ended), sum(row[9] for row in ended)),
        ),
        jobs=batch.jobs,
        rate=_rate(batch),
    )


def _mean(total: int, count: int) -> float | None:
    return max(0.0, float(total) / count) if count else None


def _time_left(
    batch: BatchRow,
    workers: Sequence[WorkerRow],
    *,
    left: int,
    not_started: int,
    mean_ms: float | None,
) -> float | None:
    """Seconds until a batch ends, if the rest takes as long as what has ended; None if unknown."""
    if not left:
        return 0.0
    jobs = sum(worker.jobs for worker in workers if worker.state == "active")
    if mean_ms is None or not jobs:
        return None
    at_once = min(left, jobs, batch.jobs or jobs)
    seconds = mean_ms / 1000 * left / at_once
    if batch.rate_count is not None and batch.rate_seconds is not None:
        seconds = max(seconds, not_started * batch.rate_seconds / batch.rate_count)
    return seconds


def _source_file(batch: BatchRow) -> str | None:
    """The path of the task file; other batches have a source such as `name:NAME`."""
    source = batch.source or ""
    return source if source.startswith("/") else None


def _rate(batch: BatchRow) -> str | None:
    if batch.rate_count is None or batch.rate_seconds is None:
        return None
    units = {1.0: "s", 60.0: "min", 3600.0: "h"}
    unit = units.get(batch.rate_seconds, f"{batch.rate_seconds:g}s")
    return f"{batch.rate_count}/{unit}"


def _running(store: FleetStore, batch: str, workers: Sequence[WorkerRow]) -> list[RunningTask]:
    rows = store.query(
        "SELECT id, name, agent, worker, started_at FROM fleet_tasks "
        f"WHERE batch = ? AND state = 'running' ORDER BY started_at LIMIT {MAX_RUNNING_SHOWN}",
        (batch,),
    )
    states = {worker.id: worker.state for worker in workers}
    return [RunningTask(*(*row, states.get(row[3]))) for row in rows]


# -- selection -----------------------------------------------------------------------------------


def find_batches(store: FleetStore, word: str) -> list[BatchRow]:
    """The batches of a name, newest first; else that of an id, whose start is enough."""
    batches = store.batches()
    if by_id := [batch for batch in batches if batch.id == word]:
        return by_id
    if by_name := [batch for batch in batches if batch.name == word]:
        return by_name
    by_prefix = [batch for batch in batches if batch.id.startswith(word)]
    return by_prefix if _is_prefix(word) and len(by_prefix) == 1 else []


def _is_prefix(word: str) -> bool:
    """Whether a word can be the start of an id."""
    return len(word) >= MIN_PREFIX and all(letter in "0123456789abcdef" for letter in word)


def find_batch(store: FleetStore, word: str) -> BatchRow | None:
    """A batch by its id (the start is enough), or the newest one of a name."""
    return next(iter(find_batches(store, word)), None)


def select_tasks(
    store: FleetStore,
    words: Sequence[str],
    tags: Sequence[str] = (),
    *,
    is_exact: bool = False,
) -> list[TaskRow]:
    """The tasks that words name, each once; with tags, only those that have all of them.

    A word is an id (its start is enough), a name, BATCH/NAME, or a batch. Without words: all tasks
    with the tags. `is_exact`: refuse a word that several batches match.
    """
    tagged = _with_tags(store, tags) if tags else {}
    if not words:
        return list(tagged.values())
    found: dict[str, TaskRow] = {}
    for word in words:
        if is_exact:
            _check_batch(store, word)
        tasks = _find(store, word)
        if not tasks:
            raise StenoError(f"no task or batch {word!r} in the fleet; see: steno fleet status")
        tasks = [task for task in tasks if not tags or task.id in tagged]
        if is_exact:
            _check_batches(store, word, tasks)
        found.update({task.id: task for task in tasks})
    return list(found.values())


def _find(store: FleetStore, word: str) -> list[TaskRow]:
    batch_word, _, name = word.rpartition("/")
    if batch_word:
        batch = find_batch(store, batch_word)
        where = "t.batch = ? AND t.name = ?"
        return [] if batch is None else store.tasks(where, (batch.id, name))
    if _is_prefix(word):
        end = f"{word}g"  # after all ids that begin with the word
        if tasks := store.tasks("t.id >= ? AND t.id < ?", (word, end)):
            if len(tasks) > 1:
                raise StenoError(f"{word}: the start of {len(tasks)} task ids; give more of it")
            return tasks
    batch = find_batch(store, word)
    if batch is not None:
        return store.tasks("t.batch = ?", (batch.id,))
    return store.tasks("t.name = ?", (word,))


def _check_batch(store: FleetStore, word: str) -> None:
    """StenoError if BATCH or BATCH/NAME stands for several batches of one name."""
    batches = find_batches(store, word.rpartition("/")[0] or word)
    if len(batches) > 1:
        labels = [f"{batch.id[:SHORT_ID_CHARS]} {_source_file(batch) or ''}" for batch in batches]
        raise StenoError(f"{word}: {len(batches)} batches ({_list(labels)}); use the batch's id")


def _check_batches(store: FleetStore, word: str, tasks: Sequence[TaskRow]) -> None:
    """StenoError if the tasks of one name are in several batches."""
    batches = {task.batch for task in tasks}
    if len(batches) > 1:
        labels = batch_labels(store, batches)
        names = _list([f"{labels[task.batch]}/{task.name}" for task in tasks])
        raise StenoError(f"{word}: {len(tasks)} tasks ({names}); use BATCH/NAME")


def _list(words: Sequence[str]) -> str:
    more = ["..."] if len(words) > MAX_NAMED else []
    return ", ".join([*(word.strip() for word in words[:MAX_NAMED]), *more])


def batch_word(store: FleetStore, batch: BatchRow) -> str:
    """A word that names this batch on a command line: its name, or the start of its id."""
    label = batch_labels(store, [batch.id])[batch.id]
    is_clear = not label.startswith("-") and find_batches(store, label) == [batch]
    return label if is_clear else batch.id


def batch_labels(store: FleetStore, ids: Iterable[str]) -> dict[str, str]:
    """The name of each batch; the start of its id if another one has the same name."""
    batches = store.batches()
    names = [batch.name for batch in batches]
    return {
        batch.id: batch.name if names.count(batch.name) == 1 else batch.id[:SHORT_ID_CHARS]
        for batch in batches
        if batch.id in set(ids)
    }


def _with_tags(store: FleetStore, tags: Sequence[str]) -> dict[str, TaskRow]:
    """The tasks that have all these labels, by id."""
    conditions = []
    values: list[str] = []
    for tag in tags:
        name, separator, value = tag.partition("=")
        has_value = " AND value = ?" if separator else ""
        conditions.append(f"t.id IN (SELECT task FROM fleet_tags WHERE name = ?{has_value})")
        values += [name, value] if separator else [name]
    return {task.id: task for task in store.tasks(" AND ".join(conditions), values)}


def blocked_dependants(store: FleetStore, tasks: Sequence[TaskRow]) -> list[TaskRow]:
    """The blocked tasks that depend on these, directly or through other blocked ones."""
    found: dict[str, TaskRow] = {}
    seen = {task.id for task in tasks}
    last = [task.id for task in tasks]
    while last:
        new: dict[str, TaskRow] = {}
        for part in chunks(last):
            where = f"SELECT task FROM fleet_needs WHERE needs IN ({placeholders(len(part))})"
            rows = store.tasks(f"t.state = 'blocked' AND t.id IN ({where})", part)
            new.update({task.id: task for task in rows if task.id not in seen})
        seen |= new.keys()
        found |= new
        last = list(new)
    return list(found.values())


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
