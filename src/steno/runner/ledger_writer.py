"""The ledger rows of a task: inserted at its start, completed at its end.

If the ledger fails, the task continues without it, with one warning; the next steno imports the
recording.
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

_TASK_COLUMNS = ("id", "agent", "project", "prompt", "started_at", "attempts")
_RUN_COLUMNS = (
    "id",
    "session",
    "task",
    "attempt",
    "agent",
    "project",
    "source",
    "started_at",
    "prompt",
)
_ZERO_RUN_COLUMNS = (
    "ok",
    "succeeded",
    "complete",
    "tools",
    "tool_errors",
    "files",
    "denials",
    "unknown",
)


class LedgerWriter:
    """Writes one task to the ledger."""

    def __init__(self, setup: TaskSetup, task_id: str, warn: Callable[[str], None]) -> None:
        self._setup = setup
        self._task_id = task_id
        self._warn = warn
        self._store: Store | None = None
        self._rows: dict[str, LedgerRowSink] = {}
        self._attempt = 0
        self._last_run_id = ""
        self._pending_runs: set[str] = set()  # runs whose end is not written yet

    def has_pending_write(self, run_id: str) -> bool:
        """Whether the end of a run, or of the task that it closes, is not written yet."""
        return run_id in self._pending_runs

    def _write(self, work: Callable[[Store], Any]) -> bool:
        """Write in one transaction; False if that failed. The ledger is not used after that."""
        if self._store is None:
            return False
        try:
            with self._store.transaction():
                work(self._store)
        except LedgerError as error:
            self._warn_unavailable(error)
            self._store = None
            return False
        return True

    def _warn_unavailable(self, error: LedgerError) -> None:
        self._warn(f"continuing without the ledger: {error}")

    def open_task(self, now: float) -> None:
        """Insert the task's row."""
        if not self._setup.record:
            return
        try:
            self._store = open_ledger(self._setup.ledger)
        except LedgerError as error:
            self._warn_unavailable(error)
            return
        prompt = redact_and_truncate(self._setup.launch_options.prompt, MAX_PROMPT_CHARS)
        self._write(
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
            self._pending_runs.add(run.id)
        if self._store is None:
            return
        self._attempt = attempt
        self._last_run_id = run.id
        started_at = int(run.started_at * 1000)
        session = run.requested_session_id
        header = run.parser.header
        rows = LedgerRowSink(run.agent, session or run.id, started_at, run.id)
        rows.id_namespace = header.id_namespace() if header is not None else ""
        self._rows[run.id] = rows
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
                started_at=started_at,
                prompt=redact_and_truncate(run.launch_options.prompt, MAX_PROMPT_CHARS),
            )
        )

    def end_attempt(self, run: AgentRun, report: Report, why: str) -> None:
        """Write a finished attempt: report, requests, tool calls."""
        rows = self._rows.pop(run.id, None)
        if rows is None:
            return
        batch = rows.batch()
        started_at = int(run.started_at * 1000)
        columns = {"task": self._task_id, "attempt": self._attempt, "why": why}
        if self._write(
            lambda store: upsert_run(store, report, batch, started_at, Pricer(), **columns)
        ):
            self._pending_runs.discard(run.id)

    def mark_handed_over(self, session: str | None) -> None:
        """Mark a session as continued in a new one."""
        self._write(lambda store: mark_session_refreshed(store, session))

    def close_task(self, report: TaskReport, now: float) -> None:
        """Complete the task's row."""
        values = (self._task_id, report.verdict, len(report.attempts), int(now * 1000))
        if not self._write(lambda store: finish_task(store, *values)) and self._last_run_id:
            self._pending_runs.add(self._last_run_id)
        self.release()

    def release(self) -> None:
        """Close the ledger. A second call does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _add_rows(rows: LedgerRowSink, run: AgentRun, events: list[Event]) -> None:
    rows.start_folder = run.accumulator.start_folder
    rows.add(events)
