"""The ledger of a task: what is looked up before it starts, and what is written as it runs.

A missing ledger is not created: nothing is written before a run starts. No run waits for the
ledger: if it is locked or on a server, a thread writes to it.
"""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from threading import Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from ..agents import Agent
from ..codec.redact import redact_and_truncate
from ..errors import LedgerError, LedgerLockedError, StenoError
from ..ledger.protocol import (
    LOCK_TIMEOUT_SECONDS,
    NOTICE_SECONDS,
    LockPolicy,
    now_ms,
    waiting_message,
)
from ..ledger.queries import budget, runs, sessions
from ..ledger.queries.filters import TimeZone, has_rows
from ..ledger.results import BudgetStatus
from ..ledger.row_sink import LedgerRowSink
from ..ledger.rows import LimitRow, RowBatch, fill_ids, limit_row
from ..ledger.run_record import (
    encode_tags,
    finish_task,
    insert_active_run,
    insert_task,
    mark_session_refreshed,
    origin_columns,
    upsert_run,
)
from ..ledger.store import Store, ledger_location, ledger_url, open_existing_ledger, open_ledger
from ..ledger.upsert import Pricer
from ..process.event_loop import EventLoop, Timer
from ..recording.format import Header
from ..report import Report, TaskReport
from .attempt import MAX_PROMPT_CHARS, AgentRun
from .retry_policy import reset_time
from .setup import TaskSetup

# -- sessions --------------------------------------------------------------------------------------


class ResumableSession(Struct, frozen=True):
    """A session to resume, and its folder if known."""

    id: str
    folder: str | None = None


def resolve_session(
    agent: Agent, given_id: str, ledger: str | None, option: str
) -> ResumableSession:
    """The session with this id, or the one of a run or session id prefix in the ledger."""
    if agent.is_session_id(given_id):
        return ResumableSession(given_id)
    store = open_existing_ledger(ledger)
    if store is None:
        raise StenoError(
            f"{option} {given_id}: expected a session id (a UUID); run ids need a ledger, "
            "and there is none yet"
        )
    try:
        session = _find_session(store, given_id, option)
    finally:
        store.close()
    if not agent.is_session_id(session.id):
        raise StenoError(f"{option} {given_id}: that run has no {agent.name} session to resume")
    return session


def _find_session(store: Store, prefix: str, option: str) -> ResumableSession:
    match = runs.find_by_prefix(store, prefix)
    if match is None:
        raise StenoError(
            f"{option} {prefix}: expected a session id (a UUID) or the start of a run id "
            "in the ledger"
        )
    table, row_id = match
    if table == "runs":
        run = runs.get_run(store, row_id)
        return ResumableSession(run.session or "", run.project)
    return ResumableSession(row_id, sessions.get_session(store, row_id).project)


# -- budgets ---------------------------------------------------------------------------------------


def tightest_budget(
    ledger: str | None, project: str, warn: Callable[[str], None]
) -> BudgetStatus | None:
    """The project's budget with the least left; None if none is set."""
    try:
        statuses = _budget_statuses(ledger, warn)
    except LedgerLockedError as error:
        warn(f"budgets not checked: {error}")
        return None
    projects = (None, project, os.path.realpath(project))
    applicable = [status for status in statuses if status.project in projects]
    return min(applicable, key=lambda status: status.limit_nano - status.spent_nano, default=None)


def _budget_statuses(ledger: str | None, warn: Callable[[str], None]) -> list[BudgetStatus]:
    store = open_existing_ledger(ledger, LockPolicy(MAX_BUDGET_WAIT_SECONDS))
    if store is None:
        return []
    try:
        if not has_rows(store, "budgets"):
            return []
        _import_new_runs(store, warn)
        return budget.list_budgets(store, TimeZone(), now_ms())
    finally:
        store.close()


def _import_new_runs(store: Store, warn: Callable[[str], None]) -> None:
    """Import runs started without steno: they count too."""
    from ..ledger import importer  # lazy: loads every reader

    try:
        importer.import_new(store, warn, requests_only=True)
    except LedgerError as error:
        warn(f"budgets checked without new runs: {error}")


Work = Callable[[Store], object]
OnDone = Callable[[bool], None]  # gets whether it was written; called by the loop
MAX_BUDGET_WAIT_SECONDS = 1.0  # for locks, before a run starts
RELEASE_SECONDS = 0.5  # for a thread that waits for a lock


class LedgerJob(Struct, eq=False):
    """What one task writes in one transaction."""

    writer: "LedgerWriter"
    work: Work
    on_done: OnDone

    def finish(self, error: Exception | None) -> None:
        """Call `on_done`, and warn if it failed."""
        if error is not None:
            self.writer.fail(error)
        self.on_done(error is None)


class LedgerQueue:
    """Writes to one ledger for all tasks of a loop, in order.

    In the loop's thread if that is possible at once, else in a thread of its own until everything
    is written. A server is connected only while there is something to write: it allows few
    connections.
    """

    def __init__(self, ledger: str | None) -> None:
        self._ledger = ledger
        self._is_server = "://" in ledger_url(ledger)
        self._store: Store | None = None
        self._locks = LockPolicy(timeout=inf, give_up_at=0.0)
        self._lock = Lock()  # for the three below
        self._jobs: deque[LedgerJob] = deque()
        self._current: LedgerJob | None = None
        self._thread: Thread | None = None
        self._writers: set[LedgerWriter] = set()

    @staticmethod
    def of(loop: EventLoop, writer: "LedgerWriter", ledger: str | None) -> "LedgerQueue":
        """The queue that this loop's tasks share."""
        queues = _queues.setdefault(loop.root, {})
        queue = queues.setdefault(ledger_url(ledger), LedgerQueue(ledger))
        queue._writers.add(writer)
        return queue

    def submit(self, job: LedgerJob) -> None:
        """Write now or later. For the loop's thread only."""
        with self._lock:
            if self._thread is not None:
                self._jobs.append(job)
                return
        if not self._is_server:
            self._locks.give_up_at = 0.0
            try:
                self._write(job)
            except LedgerLockedError:
                pass  # nothing was written: the thread waits for the lock
            except LedgerError as error:
                job.finish(error)
                return
            else:
                job.finish(None)
                return
        self._jobs.append(job)
        self._thread = Thread(target=self._write_jobs, name="steno ledger", daemon=True)
        self._thread.start()

    def _write(self, job: LedgerJob) -> None:
        if self._store is None:
            self._store = open_ledger(self._ledger, locks=self._locks)
        with self._store.transaction():
            if not job.writer.is_used:  # given up while this thread waited for the server
                raise LedgerError("not written")
            job.work(self._store)

    def _write_jobs(self) -> None:
        """The thread."""
        while (job := self._next_job()) is not None:
            error: Exception | None = None
            try:
                if job.writer.is_used:
                    self._write(job)
                else:
                    error = LedgerError("not written")
            except Exception as raised:  # whatever it is, no task must wait for this thread
                error = raised
            is_unreachable = self._store is None and not isinstance(error, LedgerLockedError)
            job.writer.loop.call_soon(partial(job.finish, error))
            while is_unreachable and (job := self._next_job()) is not None:
                job.writer.loop.call_soon(partial(job.finish, error))

    def _next_job(self) -> LedgerJob | None:
        """The next job; None at the end of the thread."""
        with self._lock:
            if not self._jobs:
                self._current = None
                self._thread = None
                if self._is_server or not self._writers:
                    self._close()
                return None
            self._current = self._jobs.popleft()
            self._locks.give_up_at = self._current.writer.give_up_at
            return self._current

    def stop_waiting(self, writer: "LedgerWriter") -> None:
        """Wait for no lock any more for this task."""
        with self._lock:
            if self._current is not None and self._current.writer is writer:
                self._locks.give_up_at = 0.0

    def release(self, writer: "LedgerWriter") -> None:
        """A task needs the ledger no more; the last one closes it. A second call does nothing."""
        if writer not in self._writers:
            return
        self.stop_waiting(writer)
        with self._lock:
            self._writers.discard(writer)
            thread = self._thread
            if not self._writers and thread is None:
                self._close()
        if not self._writers and thread is not None:
            thread.join(RELEASE_SECONDS)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


_queues: WeakKeyDictionary[EventLoop, dict[str, LedgerQueue]] = WeakKeyDictionary()


class LedgerWriter:
    """Writes one task to the ledger, in order.

    After a failure the ledger is not used any more; the recording can be imported.
    """

    def __init__(
        self, setup: TaskSetup, task_id: str, loop: EventLoop, warn: Callable[[str], None]
    ) -> None:
        self._setup = setup
        self._task_id = task_id
        self.loop = loop
        self._warn = warn
        self.is_used = False
        self.give_up_at = inf  # by time.monotonic: the end of waits for locks
        self._queue: LedgerQueue | None = None
        self._notice_timer = Timer(0.0, None)
        self._give_up_timer = Timer(0.0, None)
        self._on_closed: Callable[[], None] | None = None
        self._rows: dict[str, LedgerRowSink] = {}
        self._attempt = 0
        self._last_run_id = ""
        # Runs whose end, or the end of the task that they close, is not written yet.
        self.pending_runs: set[str] = set()
        self.on_written: Callable[[str], None] | None = None  # gets runs that were pending

    # -- writing ---------------------------------------------------------------------------------

    def _submit(self, work: Work, on_done: OnDone = lambda is_written: None) -> None:
        """Write in one transaction, now or later."""
        if self._queue is None or not self.is_used:
            on_done(False)
        else:
            self._queue.submit(LedgerJob(self, work, on_done))

    def fail(self, error: Exception) -> None:
        """Warn once, and use the ledger no more."""
        if self.is_used:
            self.is_used = False
            self._warn(f"continuing without the ledger: {error}")

    def _on_run_written(self, run_id: str, is_written: bool) -> None:
        if is_written:
            self.pending_runs.discard(run_id)
            if self.on_written is not None:
                self.on_written(run_id)

    # -- the course of a task --------------------------------------------------------------------

    def open_task(self, now: float) -> None:
        """Insert the task's row."""
        if not self._setup.record:
            return
        self.is_used = True
        self._queue = LedgerQueue.of(self.loop, self, self._setup.ledger)
        prompt = redact_and_truncate(self._setup.launch_options.prompt, MAX_PROMPT_CHARS)
        self._submit(
            lambda store: insert_task(
                store,
                id_=self._task_id,
                agent=self._setup.agent,
                project=self._setup.cwd,
                prompt=prompt,
                started_at=int(now * 1000),
            )
        )

    def begin_attempt(self, run: AgentRun, attempt: int) -> None:
        """Insert the row of a running attempt."""
        if run.recording_path is not None:
            self.pending_runs.add(run.id)
        if not self.is_used:
            return
        self._attempt = attempt
        self._last_run_id = run.id
        started_at = int(run.started_at * 1000)
        session = run.requested_session_id
        header = run.parser.header or Header()
        rows = LedgerRowSink(run.agent, "", started_at, run.id)
        rows.id_namespace = header.id_namespace()
        self._rows[run.id] = rows
        rows.start_folder = run.accumulator.start_folder
        run.sinks.append(lambda _, events: rows.add(events))
        self._submit(
            lambda store: insert_active_run(
                store,
                id_=run.id,
                session=session,
                task=self._task_id,
                attempt=attempt,
                agent=run.agent.name,
                project=self._setup.cwd,
                source=str(run.recording_path),
                started_at=started_at,
                prompt=redact_and_truncate(run.launch_options.prompt, MAX_PROMPT_CHARS),
                name=header.name,
                tags=encode_tags(header.tags),
                **origin_columns(header.origin),
            )
        )

    def end_attempt(self, run: AgentRun, report: Report, why: str) -> None:
        """Write a finished attempt: report, requests, tool calls.

        Called after the recording is closed: if steno is killed between, it can be imported.
        """
        rows = self._rows.pop(run.id, None)
        if rows is None:
            return
        batch = rows.batch()
        fill_ids(batch, run.id, report.session_id or run.requested_session_id or run.id)
        batch.limits += _reached_limits(report, batch)
        started_at = int(run.started_at * 1000)
        columns: dict[str, Any] = {
            "task": self._task_id,
            "attempt": self._attempt,
            "why": why,
        }
        # The task's report shares the list, and adds to it.
        report = replace(report, warnings=[*report.warnings])
        self._submit(
            lambda store: upsert_run(store, report, batch, started_at, Pricer(), **columns),
            partial(self._on_run_written, run.id),
        )

    def mark_handed_over(self, session: str | None) -> None:
        """Mark a session as continued in a new one."""
        self._submit(lambda store: mark_session_refreshed(store, session))

    # -- end -------------------------------------------------------------------------------------

    def close_task(
        self,
        report: TaskReport,
        now: float,
        on_closed: Callable[[], None],
        max_wait: float = LOCK_TIMEOUT_SECONDS,
    ) -> None:
        """Complete the task's row, then call `on_closed`: at once unless the ledger is locked."""
        values = (self._task_id, report.verdict, len(report.attempts), int(now * 1000))
        self._on_closed = on_closed
        self._submit(lambda store: finish_task(store, *values), self._on_task_written)
        if self._on_closed is None:
            return
        location = ledger_location(self._setup.ledger)
        notice = f"{waiting_message(location)}; Ctrl-C stops waiting"
        self._notice_timer = self.loop.call_later(NOTICE_SECONDS, lambda: self._warn(notice))
        reason = f": {location} is locked by another program"
        self._give_up_timer = self.loop.call_later(max_wait, lambda: self.abandon(reason))

    def _on_task_written(self, is_written: bool) -> None:
        if not is_written and self._last_run_id:
            self.pending_runs.add(self._last_run_id)
        self._close()

    def abandon(self, reason: str = "") -> None:
        """Stop waiting for the ledger; the next command imports the recording."""
        self.is_used = False
        self.give_up_at = 0.0
        if self._queue is not None:
            self._queue.stop_waiting(self)
        if self._on_closed is not None:
            self._warn(f"run not in the ledger yet; the next steno command adds it{reason}")
            self._on_task_written(False)

    def _close(self) -> None:
        self._notice_timer.cancel()
        self._give_up_timer.cancel()
        on_closed = self._on_closed
        self._on_closed = None
        if on_closed is not None:
            self.release()
            on_closed()

    def release(self) -> None:
        """The ledger is needed no more. A second call does nothing."""
        self.give_up_at = 0.0
        if self._queue is not None:
            self._queue.release(self)


def _reached_limits(report: Report, batch: RowBatch) -> list[LimitRow]:
    """The limit that stopped the run, if its error names the reset and no event does."""
    if report.verdict != "rate_limit" or any(row.status == "rejected" for row in batch.limits):
        return []
    now = now_ms()
    resets_at = reset_time(report.error or "", now / 1000, report.limits.resets_at)
    if resets_at is None:
        return []
    return [
        limit_row(
            batch.agent,
            now,
            kind=report.limits.kind,
            status="rejected",
            utilization=None,
            resets_at=int(resets_at),
            source="error",
        )
    ]
