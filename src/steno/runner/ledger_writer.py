"""A task's rows in the ledger: made when it begins, filled when it ends.

A ledger that fails is told of once, and left out. What it is owed then is known: the next steno takes it in from the tape.
"""

from collections.abc import Callable
from typing import Any

from ..codec.redact import redact_and_truncate
from ..errors import LedgerError
from ..event import Event
from ..ledger.row_sink import LedgerRowSink
from ..ledger.run_record import (
    finish_task,
    insert_active_run,
    insert_task,
    mark_session_refreshed,
    upsert_run,
)
from ..ledger.store import Store, open_ledger
from ..ledger.upsert import Pricer
from ..report import Report, TaskReport
from .attempt import MAX_PROMPT_CHARS, AgentRun
from .setup import TaskSetup


class LedgerWriter:
    """The ledger, as one task writes it."""

    def __init__(self, setup: TaskSetup, task: str, say: Callable[[str], None]) -> None:
        self._setup, self._task_id, self._warn = setup, task, say
        self._store: Store | None = None
        self._rows: dict[str, LedgerRowSink] = {}
        self._attempt, self._last_run_id = 0, ""
        self._pending_runs: set[str] = set()  # runs whose end is not written yet

    def has_pending_write(self, run: str) -> bool:
        """Whether the end of a run, or of the task that it closes, is still to be written."""
        return run in self._pending_runs

    def _write(self, work: Callable[[Store], Any]) -> bool:
        """Write, all or nothing; whether it is written. The run is worth more than its row: what fails is said once."""
        if self._store is None:
            return False
        try:
            with self._store.transaction():
                work(self._store)
        except LedgerError as problem:
            self._warn(f"the ledger is left out: {problem}")
            self._store = None
            return False
        return True

    def open_task(self, now: float) -> None:
        """A task begins."""
        if not self._setup.record:
            return
        try:
            self._store = open_ledger(self._setup.ledger)
        except LedgerError as problem:
            self._warn(f"the ledger is left out: {problem}")
            return
        prompt, at = (
            redact_and_truncate(self._setup.launch_options.prompt, MAX_PROMPT_CHARS),
            int(now * 1000),
        )
        self._write(
            lambda store: insert_task(
                store,
                id_=self._task_id,
                agent=self._setup.agent,
                project=self._setup.cwd,
                prompt=prompt,
                started_at=at,
            )
        )

    def begin_attempt(self, run: AgentRun, attempt: int) -> None:
        """An attempt begins: its row says that it runs."""
        if run.recording_path is not None:
            self._pending_runs.add(run.id)
        if self._store is None:
            return
        self._attempt, self._last_run_id, at = attempt, run.id, int(run.started_at * 1000)
        session = run.requested_session_id
        rows = self._rows[run.id] = LedgerRowSink(run.agent, session or run.id, at, run.id)
        rows.id_namespace = (
            run.parser.header.id_namespace() if run.parser.header is not None else ""
        )
        run.sinks.append(lambda _, events: _add_rows(rows, run, events))
        self._write(
            lambda store: insert_active_run(
                store,
                id_=run.id,
                session=session,
                task=self._task_id,
                attempt=attempt,
                agent=run.agent.name,
                project=self._setup.cwd,
                source=str(run.recording_path),
                started_at=at,
                prompt=redact_and_truncate(run.launch_options.prompt, MAX_PROMPT_CHARS),
            )
        )

    def end_attempt(self, run: AgentRun, report: Report, why: str) -> None:
        """An attempt is over: its report, its requests, its calls."""
        rows = self._rows.pop(run.id, None)
        if rows is None:
            return
        batch, at = rows.batch(), int(run.started_at * 1000)
        told = {"task": self._task_id, "attempt": self._attempt, "why": why}
        if self._write(lambda store: upsert_run(store, report, batch, at, Pricer(), **told)):
            self._pending_runs.discard(run.id)

    def mark_handed_over(self, session: str | None) -> None:
        """A session was handed over to a new one."""
        self._write(lambda store: mark_session_refreshed(store, session))

    def close_task(self, report: TaskReport, now: float) -> None:
        """The task is over."""
        values = (self._task_id, report.verdict, len(report.attempts), int(now * 1000))
        if not self._write(lambda store: finish_task(store, *values)) and self._last_run_id:
            self._pending_runs.add(self._last_run_id)
        self.release()

    def release(self) -> None:
        """Nothing more is written. A second call does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _add_rows(rows: LedgerRowSink, run: AgentRun, events: list[Event]) -> None:
    rows.start_folder = run.accumulator.start_folder
    rows.add(events)
