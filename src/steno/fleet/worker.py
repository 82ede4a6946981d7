"""A worker: claims tasks from DBOS's queues, runs them, and takes over those of dead workers."""

import os
import random
import threading
import time
from collections.abc import Callable
from platform import node
from queue import SimpleQueue
from typing import Any, TypeVar

from ..config.files import new_run_id
from ..errors import LedgerError, StenoError
from ..ledger.protocol import now_ms
from ..ledger.store import open_ledger
from ..runner.run_registry import host_id, lost_runs, recover_runs, supersede_run
from .admission import LIMIT_POLL_SECONDS, Admission, admit, can_continue
from .execution import Callbacks, Execution, Outcome, earlier_success
from .liveness import (
    BEATS_PER_LEASE,
    FENCE_FRACTION,
    FILE_LEASE_SECONDS,
    SERVER_LEASE_SECONDS,
    WorkerLock,
    boot_seconds,
)
from .queue import (
    APPLICATION,
    VERSION,
    WORKFLOW,
    TaskQueue,
    database_url,
    import_dbos,
    queue_name,
)
from .restart import read_restart
from .rows import TaskRow, WorkerRow
from .spec import TaskResult, TaskSpec
from .store import QUEUE_SCHEMA, FleetStore
from .template import fill_in

MAX_TAKEOVERS = 3
WATCH_SECONDS = 0.2  # interval of the thread that kills agents in time
SWEEP_SECONDS = 60.0  # between two looks for tasks that have fallen out of the queue
STOP_SECONDS = 60.0  # for agents that were asked to stop
DATABASE_POOL_SIZE = 4
RESULT_COLUMNS = ("verdict", "error", "run", "session", "cwd")
LogFunction = Callable[[str], None]
T = TypeVar("T")


class Worker:
    """Runs up to `jobs` tasks at once, of all batches or of one."""

    def __init__(
        self,
        ledger: str | None,
        *,
        jobs: int,
        lease: float | None = None,
        batch: str | None = None,
        log: LogFunction = lambda text: None,
        on_finished: Callable[[TaskRow], None] = lambda task: None,
    ) -> None:
        self.store = FleetStore(ledger, is_patient=True)
        self.queue = TaskQueue(self.store)
        self._pulse = FleetStore(ledger)  # a connection that no task delays
        default = SERVER_LEASE_SECONDS if self.store.is_server else FILE_LEASE_SECONDS
        self.id = f"{node()[:40]}-{new_run_id()}"
        self._ledger = ledger
        self._host = host_id()
        self._jobs = jobs
        self._lease = lease or default
        self._batch = batch
        self._log = log
        self._on_finished = on_finished
        self._lock = WorkerLock(self.store, self.id)
        self._claiming = threading.Lock()  # held for a query; the next one never is
        self._guard = threading.Lock()  # for the two below
        self._claimed: set[str] = set()  # workflows
        self._executions: dict[str, Execution] = {}
        self._stopping = threading.Event()  # no more claims; running agents are stopped
        self._closed = threading.Event()
        self._is_draining = False
        self._is_fenced = False
        self._renewed_at = boot_seconds()
        self._threads: list[threading.Thread] = []
        self._notes: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register, and begin to claim tasks."""
        self._lock.acquire()
        self.store.register_worker(self._row())
        self._launch()
        for target in (self._keep_alive, self._keep_house, self._watch, self._write_notes):
            thread = threading.Thread(target=target, name=f"steno {target.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _row(self) -> WorkerRow:
        now = now_ms()
        lease = int(self._lease * 1000)
        return WorkerRow(self.id, node(), os.getpid(), self._jobs, now, now, lease, self._state)

    @property
    def _state(self) -> str:
        return "draining" if self._is_draining or self._stopping.is_set() else "active"

    def _launch(self) -> None:
        dbos = import_dbos()
        instance = dbos.DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": database_url(self._ledger),
                "dbos_system_schema": QUEUE_SCHEMA,
                "executor_id": self.id,
                "application_version": VERSION,
                "console_log_level": "CRITICAL",
                "log_level": "CRITICAL",
                "use_listen_notify": False,
                "sys_db_pool_size": DATABASE_POOL_SIZE,
                "run_migrations": False,  # the queue has done that
            }
        )

        def workflow(task: str, generation: int) -> str:
            return self._workflow(task, generation)

        dbos.DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(workflow)
        if self._batch is not None:
            dbos.DBOS.listen_queues([queue_name(self._batch)])
        dbos.DBOS.launch()
        self._limit_claims(instance)

    def _limit_claims(self, instance: Any) -> None:
        """Claim no more than this worker can run: DBOS has a limit per worker and queue only."""
        database = instance._sys_db
        claim = database.start_queued_workflows

        def claim_within_limit(queue: Any, *args: Any, **options: Any) -> Any:
            with self._claiming:
                free = 0 if self._is_closed_for_claims() else self._jobs - self.active_count
                if free <= 0:
                    return [], "worker_concurrency"
                running = args[3] if len(args) > 3 else 0
                queue._worker_concurrency = running + free
                ids, reason = claim(queue, *args, **options)
                with self._guard:
                    self._claimed.update(ids)
                return ids, reason

        database.start_queued_workflows = claim_within_limit

    def _is_closed_for_claims(self) -> bool:
        return self._is_draining or self._stopping.is_set() or self._is_fenced

    @property
    def active_count(self) -> int:
        """Tasks that this worker has claimed and not finished."""
        with self._guard:
            return len(self._claimed)

    def drain(self) -> None:
        """Finish what runs, and claim no more."""
        self._is_draining = True

    def stop(self) -> None:
        """Stop the agents; their tasks go back to the queue. The second call kills them."""
        self._stopping.set()
        with self._guard:
            executions = list(self._executions.values())
        for execution in executions:
            execution.stop()

    def wait(self, until: Callable[[], bool], poll: float = 0.1) -> None:
        """Wait until the condition holds, or a drained or stopped worker has nothing left."""
        while not until():
            if (self._is_draining or self._stopping.is_set()) and not self.active_count:
                return
            time.sleep(poll)

    def close(self) -> None:
        """Stop what still runs, and leave the fleet."""
        if self.active_count:
            self.stop()
            deadline = time.monotonic() + STOP_SECONDS
            while self.active_count and time.monotonic() < deadline:
                time.sleep(0.05)
        self._closed.set()
        self._notes.put(None)
        for thread in self._threads:
            thread.join(WATCH_SECONDS * 5)
        import_dbos().DBOS.destroy(destroy_registry=True)
        if lost_runs():
            self._recover_runs()
        if not self.active_count:
            try:
                self.queue.release()
                self.store.remove_worker(self.id)
            except LedgerError:
                pass  # others find the lease expired
        self._lock.release()
        self._pulse.close()
        self.queue.close()
        self.store.close()

    # -- liveness --------------------------------------------------------------------------------

    def _keep_alive(self) -> None:
        """Thread: renew the lease. Nothing here waits for a task."""
        while self._wait_for_beat():
            try:
                self._lock.acquire()
                is_known = self._pulse.beat(self.id, self._state)
                if self._is_fenced:
                    self._rejoin()
                elif not is_known:
                    self._fence("taken over by another worker")
                else:
                    self._renewed_at = boot_seconds()
            except Exception as error:  # the fleet's database is away: the watch decides
                self._log(f"fleet: {' '.join(str(error).split())}; trying again")

    def _wait_for_beat(self) -> bool:
        """Wait for a part of the lease; False if the worker is closed."""
        seconds = self._lease / BEATS_PER_LEASE * random.uniform(0.8, 1.0)  # noqa: S311  # jitter
        return not self._closed.wait(seconds)

    def _keep_house(self) -> None:
        """Thread: take over from dead workers, queue what is ready, record lost runs."""
        swept_at = 0.0
        while self._wait_for_beat():
            if self._is_fenced:
                continue
            try:
                for worker in self.store.workers(only_lost=True):
                    if worker.id != self.id and self._lock.is_free(worker.id):
                        self._take_over(worker)
                self._stop_cancelled()
                self.queue.release()
                if lost_runs():  # dead, or not written because the ledger was away
                    self._recover_runs()
                if boot_seconds() - swept_at > SWEEP_SECONDS:
                    swept_at = boot_seconds()
                    self.queue.requeue_lost()
            except Exception as error:  # tried again with the next beat
                self._log(f"fleet: {' '.join(str(error).split())}")

    def _write_notes(self) -> None:
        """Thread: write what the agents' thread must not wait for."""
        while (write := self._notes.get()) is not None:
            try:
                write()
            except LedgerError as error:
                self._log(f"fleet: {error}")

    def _watch(self) -> None:
        """Thread: kill the agents before the lease expires. The lock of a file cannot be lost."""
        while self.store.is_server and not self._closed.wait(WATCH_SECONDS):
            silence = boot_seconds() - self._renewed_at
            if not self._is_fenced and silence > self._lease * FENCE_FRACTION:
                self._fence(f"no contact with the fleet for {silence:.0f} s")

    def _fence(self, reason: str) -> None:
        self._is_fenced = True
        with self._guard:
            executions = list(self._executions.values())
        self._log(f"{reason}: killing {len(executions)} agents, so that others can take over")
        for execution in executions:
            execution.kill()

    def _stop_cancelled(self) -> None:
        """Stop agents whose task is not ours any more: it was cancelled."""
        with self._guard:
            executions = dict(self._executions)
        for task in self.store.get_tasks(executions):
            if task.state != "running" and not executions[task.id].is_stopped:
                executions[task.id].stop()

    def _rejoin(self) -> None:
        """Back in contact: give up what is not done, and start again."""
        with self._guard:
            if self._executions:
                return  # agents are being killed, or their results written
        self._requeue(self.id)
        self.store.register_worker(self._row())
        self._renewed_at = boot_seconds()
        self._is_fenced = False
        self._log("back in contact with the fleet")

    def _take_over(self, worker: WorkerRow) -> None:
        """Let the tasks of a dead worker start again, here or elsewhere."""
        self._log(f"worker {worker.id} is dead: taking over its tasks")
        if worker.host == node():
            self._recover_runs()
        self._requeue(worker.id)
        self.store.remove_worker(worker.id)

    def _requeue(self, worker: str) -> None:
        """Each step can be repeated: this worker may die as well."""
        claimed = self.queue.claimed_by(worker)
        self.store.take_from(worker, claimed, MAX_TAKEOVERS)
        self.queue.cancel(claimed)
        self.queue.release()

    def _recover_runs(self) -> None:
        """Kill what is left of runs on this machine whose steno is dead, and record them."""
        try:
            store = open_ledger(self._ledger)
            try:
                recover_runs(store)
            finally:
                store.close()
        except StenoError as error:
            self._log(f"lost runs were not recorded: {error}")

    # -- tasks -----------------------------------------------------------------------------------

    def _workflow(self, task: str, generation: int) -> str:
        """The workflow: one execution of a task. What it returns is of no use but for people."""
        row: TaskRow | None = None
        try:
            row = self.store.get_task(task)
            if row is None or row.generation != generation:
                return "superseded"
            return self._run(row)
        except Exception as error:  # such as a database that was away for too long
            self._log(f"{task}: {type(error).__name__}: {' '.join(str(error).split())}")
            if row is not None:
                self._take_back(row)
            return "error"
        finally:
            with self._guard:
                self._claimed.discard(f"{task}-{generation}")

    def _take_back(self, task: TaskRow) -> None:
        """Let a task start again after an error of this worker; wait for the database."""
        while not (self._is_fenced or self._closed.is_set()):
            try:
                self.store.take_back(task, self.id, MAX_TAKEOVERS)
                return
            except LedgerError:
                self._closed.wait(1.0)

    def _run(self, task: TaskRow) -> str:
        spec = self.store.get_spec(task.id)
        while True:
            admission = self._wait_for_admission(task, spec)
            if admission is None:
                return self._give_back(task)
            if admission.action == "drop":
                return admission.reason
            try:
                answer = self._execute(task, spec, admission.max_cost)
            finally:
                with self._guard:
                    self._executions.pop(task.id, None)
            if answer is not None:
                return answer
            task = self.store.get_task(task.id) or task

    def _execute(self, task: TaskRow, spec: TaskSpec, max_cost: float | None) -> str | None:
        """Run the task and write its result; None if it waits for a larger share of the budget."""
        outcome = None
        if task.started_at is not None:  # it was begun before
            outcome = earlier_success(self._ledger, task)
        outcome = outcome or self._run_agent(task, spec, max_cost)
        if outcome is not None and outcome.run is not None:
            spent = (outcome.run, outcome.cost_nano, outcome.tokens)
            self._write_result(lambda: self.store.add_cost(task, self.id, *spent))
        if outcome is None or outcome.is_stopped:
            return self._give_back(task)
        own = spec.options.get("max_cost")
        if (
            outcome.verdict == "max_budget"
            and (own is None or (max_cost or 0) < own)
            and can_continue(self.store, task, max_cost)
            and self.store.wait_again(task, self.id)
        ):
            return None
        self._finish(task, outcome)
        return outcome.verdict

    def _wait_for_admission(self, task: TaskRow, spec: TaskSpec) -> Admission | None:
        """The answer, after all waits; None if the worker stops meanwhile."""
        own = spec.options.get("max_cost")
        while not self._stopping.is_set():
            if self._is_fenced:  # the takeover, perhaps by this worker, queues it again
                self._stopping.wait(LIMIT_POLL_SECONDS)
                continue
            admission = admit(self.store, task, self.id, self._host, own)
            if admission.action != "wait":
                return admission
            self._stopping.wait(admission.wait_seconds * random.uniform(0.9, 1.3))  # noqa: S311
        return None

    def _run_agent(self, task: TaskRow, spec: TaskSpec, max_cost: float | None) -> Outcome | None:
        """Run the agent; None if the worker was stopped or cut off before it started."""
        batch = self.store.get_batch(task.batch)
        put = self._notes.put
        note = self.store.note_session
        pause = self.store.pause
        reason = f"rate limit met by {task.name}"
        callbacks = Callbacks(
            lambda session, cwd: put(lambda: note(task, self.id, session, cwd)),
            lambda agent, until: put(lambda: pause(agent, until, reason)),
        )
        name = task.batch if batch is None else batch.name
        restart = read_restart(self._ledger, task, self.store.get_retry(task.id))
        execution = Execution(self._ledger, name, task, restart, callbacks)
        with self._guard:
            self._executions[task.id] = execution
        if self._stopping.is_set() or self._is_fenced:
            return None
        return execution.run(spec, self._prompt(task, spec), max_cost)

    def _prompt(self, task: TaskRow, spec: TaskSpec) -> str:
        if not spec.depends_on:
            return spec.prompt
        results = {
            need.name: TaskResult(
                name=need.name,
                verdict=need.verdict or need.state,
                text=self.store.result_text(need.id),
                cwd=need.cwd,
                run=need.run,
                session=need.session,
            )
            for need in self.store.needs_of(task.id)
        }
        return fill_in(spec.prompt, spec.vars, results)

    def _give_back(self, task: TaskRow) -> str:
        if not self._is_fenced:
            self.store.give_back(task, self.id)
        return "stopped; it starts again"

    def _write_result(self, write: Callable[[], T]) -> T:
        """Write as soon as the database can be reached: only this worker has the result."""
        while True:
            try:
                return write()
            except LedgerError:
                if self._stopping.is_set() or self._closed.wait(1.0):
                    raise

    def _finish(self, task: TaskRow, outcome: Outcome) -> None:
        columns = {
            "state": outcome.state,
            **{name: getattr(outcome, name) for name in RESULT_COLUMNS},
        }
        finish = self.store.finish
        written = self._write_result(lambda: finish(task, self.id, outcome.text, **columns))
        if not written:
            self._drop_result(task, outcome)
        else:
            detail = "" if outcome.ok else f": {outcome.error}"
            self._log(f"{task.name}: {outcome.verdict}{detail}")
            self._on_finished(self.store.get_task(task.id) or task)
            self.store.mark_ready(task.batch)
            self.queue.release(task.batch)

    def _drop_result(self, task: TaskRow, outcome: Outcome) -> None:
        """The task is not ours any more: a success that others can't know of does not count."""
        row = self.store.get_task(task.id)
        is_known = row is not None and row.run == outcome.run  # written before, or by another
        if outcome.ok and outcome.run is not None and not is_known:
            supersede_run(outcome.run, "another worker had taken over the task")
