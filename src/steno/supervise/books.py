"""A task's rows in the ledger: made when it begins, filled when it ends.

A ledger that fails is told of once, and left out. What it is owed then is known: the next steno takes it in from the tape.
"""

from collections.abc import Callable
from typing import Any

from ..event import Event
from ..ledger.book import Pricer
from ..ledger.record import record
from ..ledger.rows import Rows
from ..ledger.store import Store, open_ledger
from ..redact import clipped
from ..report import LedgerError, Report, TaskReport
from .run import PROMPT, Run
from .values import Setup


class Books:
    """The ledger, as one task writes it."""

    def __init__(self, setup: Setup, task: str, say: Callable[[str], None]) -> None:
        self._setup, self._task, self._say = setup, task, say
        self._store: Store | None = None
        self._rows: dict[str, Rows] = {}
        self._attempt, self._last = 0, ""
        self._owed: set[str] = set()  # runs whose end is not written yet

    def owes(self, run: str) -> bool:
        """Whether the end of a run, or of the task that it closes, is still to be written."""
        return run in self._owed

    def _do(self, work: Callable[[Store], Any]) -> bool:
        """Write, all or nothing; whether it is written. The run is worth more than its row: what fails is said once."""
        if self._store is None:
            return False
        try:
            with self._store.writing():
                work(self._store)
        except LedgerError as problem:
            self._say(f"the ledger is left out: {problem}")
            self._store = None
            return False
        return True

    def open(self, now: float) -> None:
        """A task begins."""
        if not self._setup.record:
            return
        try:
            self._store = open_ledger(self._setup.ledger)
        except LedgerError as problem:
            self._say(f"the ledger is left out: {problem}")
            return
        prompt, at = clipped(self._setup.ask.prompt, PROMPT), int(now * 1000)
        row = (self._task, self._setup.agent, self._setup.cwd, prompt, at, 0)
        names = "id, agent, project, prompt, started_at, attempts"
        self._do(lambda store: store.change(f"INSERT INTO tasks ({names}) VALUES (?, ?, ?, ?, ?, ?)", row))  # noqa: S608

    def begin(self, run: Run, attempt: int) -> None:
        """An attempt begins: its row says that it runs."""
        if run.tape is not None:
            self._owed.add(run.id)
        if self._store is None:
            return
        self._attempt, self._last, at = attempt, run.id, int(run.began * 1000)
        session = run.asked_session
        rows = self._rows[run.id] = Rows(run.agent, session or run.id, at, run.id)
        rows.own = run.reading.tape.own() if run.reading.tape is not None else ""
        run.sinks.append(lambda _, events: _added(rows, run, events))
        whose = (run.id, session, self._task, attempt, run.agent.name, self._setup.cwd, str(run.tape), at)
        prompt = clipped(run.ask.prompt, PROMPT)
        names = "id, session, task, attempt, agent, project, source, started_at, prompt"
        zeros = "ok, succeeded, complete, cost_source, tools, tool_errors, files, denials, unknown"
        marks = ", ".join("?" * 9)
        sql = f"INSERT INTO runs ({names}, {zeros}) VALUES ({marks}, 0, 0, 0, 'unknown', 0, 0, 0, 0, 0)"  # noqa: S608
        self._do(lambda store: store.change(sql, (*whose, prompt)))

    def end(self, run: Run, report: Report, why: str) -> None:
        """An attempt is over: its report, its requests, its calls."""
        rows = self._rows.pop(run.id, None)
        if rows is None:
            return
        batch, at = rows.batch(), int(run.began * 1000)
        told = {"task": self._task, "attempt": self._attempt, "why": why}
        if self._do(lambda store: record(store, report, batch, at, Pricer(), **told)):
            self._owed.discard(run.id)

    def refreshed(self, session: str | None) -> None:
        """A session was handed over to a new one."""
        self._do(lambda store: store.change("UPDATE sessions SET stop = 'refreshed' WHERE id = ?", (session,)))

    def close(self, report: TaskReport, now: float) -> None:
        """The task is over."""
        values = (report.verdict, len(report.attempts), int(now * 1000), self._task)
        sql = "UPDATE tasks SET verdict = ?, attempts = ?, ended_at = ? WHERE id = ?"
        if not self._do(lambda store: store.change(sql, values)) and self._last:
            self._owed.add(self._last)
        self.let_go()

    def let_go(self) -> None:
        """Nothing more is written. A second call does nothing."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _added(rows: Rows, run: Run, events: list[Event]) -> None:
    rows.place = run.fold.place
    rows.add(events)
