"""The ledger of a task: what is looked up before it starts, and what is written as it runs.

A missing ledger is not created: nothing is written before a run starts.
"""

import os
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..agents import Agent
from ..codec.redact import redact_and_truncate
from ..errors import LedgerError, StenoError
from ..ledger.queries import budget, runs, sessions
from ..ledger.queries.filters import TimeZone
from ..ledger.results import BudgetStatus
from ..ledger.row_sink import LedgerRowSink
from ..ledger.rows import now_ms
from ..ledger.run_record import (
    finish_task,
    insert_active_run,
    insert_task,
    mark_session_refreshed,
    upsert_run,
)
from ..ledger.store import Store, open_existing_ledger, open_ledger
from ..ledger.upsert import Pricer
from ..report import Report, TaskReport
from .attempt import MAX_PROMPT_CHARS, AgentRun
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
    store = open_existing_ledger(ledger)
    if store is None:
        return None
    try:
        if not budget.has_budgets(store):
            return None
        _import_new_runs(store, warn)
        statuses = budget.list_budgets(store, TimeZone(), now_ms())
    finally:
        store.close()
    projects = (None, project, os.path.realpath(project))
    applicable = [status for status in statuses if status.project in projects]
    return min(applicable, key=lambda status: status.limit_nano - status.spent_nano, default=None)


def _import_new_runs(store: Store, warn: Callable[[str], None]) -> None:
    """Import runs started without steno: they count too."""
    from ..ledger import importer  # lazy: loads every reader

    try:
        importer.import_new(store, warn, requests_only=True)
    except LedgerError as error:
        warn(f"budgets checked without new runs: {error}")


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
        # Runs whose end, or the end of the task that they close, is not written yet.
        self.pending_runs: set[str] = set()

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
            self.pending_runs.add(run.id)
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
        rows.start_folder = run.accumulator.start_folder
        run.sinks.append(lambda _, events: rows.add(events))
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
        """Write a finished attempt: report, requests, tool calls.

        Called after the recording is closed: if steno is killed between, it can be imported.
        """
        rows = self._rows.pop(run.id, None)
        if rows is None:
            return
        batch = rows.batch()
        started_at = int(run.started_at * 1000)
        columns = {"task": self._task_id, "attempt": self._attempt, "why": why}
        if self._write(
            lambda store: upsert_run(store, report, batch, started_at, Pricer(), **columns)
        ):
            self.pending_runs.discard(run.id)

    def mark_handed_over(self, session: str | None) -> None:
        """Mark a session as continued in a new one."""
        self._write(lambda store: mark_session_refreshed(store, session))

    def close_task(self, report: TaskReport, now: float) -> None:
        """Complete the task's row."""
        values = (self._task_id, report.verdict, len(report.attempts), int(now * 1000))
        if not self._write(lambda store: finish_task(store, *values)) and self._last_run_id:
            self.pending_runs.add(self._last_run_id)
        self.release()

    def release(self) -> None:
        """Close the ledger. A second call does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None
