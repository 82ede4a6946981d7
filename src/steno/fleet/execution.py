"""One task on this machine: check out its repository, run it with the runner, return the result.

The runs are ordinary runs in the ledger, with the labels `fleet.batch` and `fleet.task`.
"""

import hashlib
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..agents import REPLAY_AGENT_NAME, get_agent
from ..agents.base import can_resume
from ..codec.redact import redact
from ..config.files import data_folder
from ..errors import StenoError
from ..event import Event
from ..ledger.discovery import transcript_folders
from ..ledger.queries.runs import load_report
from ..ledger.run_record import finish_lost_task
from ..ledger.store import open_ledger
from ..private_files import create_private_folder
from ..report import Report, TaskReport
from ..runner.attempt import AgentRun
from ..runner.prepare import PreparedTask, ensure_worktree, prepare_task
from ..runner.task_runner import TaskRunner, TaskThread
from ..units import NANO_PER_USD
from ..workspace.repository import GitError, clone_repository, fetch_repository
from .restart import Restart, restart_prompt
from .rows import TaskRow
from .spec import TaskSpec

MAX_TEXT_CHARS = 1_000_000  # of a result that is passed on
BATCH_TAG = "fleet.batch"
TASK_TAG = "fleet.task"
CLONE_SECONDS = 900


class Outcome(Struct, kw_only=True):
    """The outcome of one execution."""

    verdict: str
    ok: bool
    error: str | None = None
    text: str = ""
    run: str | None = None
    session: str | None = None
    cwd: str | None = None
    cost_nano: int | None = None
    tokens: int | None = None
    is_stopped: bool = False  # by the worker: the task starts again, or was cancelled
    is_cancelled: bool = False  # a person stopped its run

    @property
    def state(self) -> str:
        """The final state of the task."""
        if self.ok:
            return "done"
        return "cancelled" if self.is_cancelled else "failed"


class Callbacks(Struct):
    """What the worker wants to know while a task runs; called in other threads."""

    on_session: Callable[[str, str], None]  # session and folder
    on_limit: Callable[[str, float], None]  # agent, and the time of the reset


class Execution:
    """Runs one task. `stop` and `kill` may be called by any thread."""

    def __init__(
        self,
        ledger: str | None,
        batch: str,
        task: TaskRow,
        restart: Restart,
        callbacks: Callbacks,
    ) -> None:
        self._ledger = ledger
        self._batch = batch
        self._task = task
        self._restart = restart
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._runner: TaskRunner | None = None
        self._stops = 0
        self._session: str | None = None
        self._limited_until = 0.0

    @property
    def is_stopped(self) -> bool:
        return self._stops > 0

    def stop(self) -> None:
        """Stop the agent; the second call kills it."""
        with self._lock:
            self._stops += 1
            if self._runner is not None:
                self._runner.interrupt()

    def kill(self) -> None:
        self.stop()
        self.stop()

    def run(self, spec: TaskSpec, prompt: str, max_cost: float | None) -> Outcome:
        """Run the task to its end. A task that cannot be prepared fails."""
        outcome = self._run(spec, prompt, max_cost)
        outcome.is_stopped = self.is_stopped and not outcome.ok
        return outcome

    def _run(self, spec: TaskSpec, prompt: str, max_cost: float | None) -> Outcome:
        try:
            prepared = self._prepare(spec, prompt, max_cost)
            monitor = None
            if spec.policy is not None:
                from ..checks.monitor import load_monitor

                monitor = load_monitor(spec.policy)
        except (StenoError, OSError) as error:
            return Outcome(verdict="invalid_request", ok=False, error=str(error))
        if prepared.refusal is not None:
            return _outcome(prepared.refusal, prepared.setup.cwd)
        ended = threading.Event()
        try:
            with self._lock:
                self._runner = TaskThread.start(prepared.setup, ended.set, self._on_events)
                task = self._runner.task
                if monitor is not None:
                    task.sinks.append(monitor.on_events)
                task.watchers.append(self._on_changed)
                for _ in range(self._stops):
                    self._runner.interrupt()
                runner = self._runner
            ended.wait()
        except StenoError as error:  # too many open files
            return Outcome(verdict="subprocess", ok=False, error=str(error))
        with self._lock:
            self._runner = None  # there is nothing left to stop
        report = runner.task.report
        if report is None:
            error_text = str(runner.error or "no report")
            return Outcome(verdict="subprocess", ok=False, error=error_text)
        outcome = _outcome(report, prepared.setup.cwd)
        is_interrupted = runner.task.is_stopped_by_person or report.verdict == "interrupted"
        outcome.is_cancelled = is_interrupted and not report.ok
        if monitor is not None:
            _apply_policy(outcome, report, monitor.finish(report))
        return outcome

    # -- preparation -----------------------------------------------------------------------------

    def _prepare(self, spec: TaskSpec, prompt: str, max_cost: float | None) -> PreparedTask:
        options: dict[str, Any] = {
            **spec.run_options,
            "ledger": self._ledger,
            "cwd": spec.cwd,
            "name": spec.name,
            "tag": {**spec.tags, BATCH_TAG: self._batch, TASK_TAG: self._task.id},
        }
        worktree = f"{spec.name}-{self._task.id[:8]}" if spec.worktree is True else spec.worktree
        if spec.repository is not None:
            options["cwd"] = ensure_checkout(
                spec.repository, spec.commit, worktree or f"{spec.name}-{self._task.id[:8]}"
            )
        elif worktree:
            options["worktree"] = worktree
        if max_cost is not None:
            own = options.get("max_cost")
            options["max_cost"] = max_cost if own is None else min(own, max_cost)
        allow = self._restart.request.allow
        if allow:
            options["allow"] = (*options.get("allow", ()), *allow)
        is_resumed = self._choose_session(options)
        prompt = restart_prompt(prompt, self._restart, is_resumed=is_resumed)
        options = {name: value for name, value in options.items() if value is not None}
        prepared = prepare_task(prompt, options)
        # The task keeps its id in the ledger, however often it is started again.
        setup = msgspec.structs.replace(
            prepared.setup, task_id=self._task.id, denied_before=self._restart.denied
        )
        return msgspec.structs.replace(prepared, setup=setup)

    def _choose_session(self, options: dict[str, Any]) -> bool:
        """Resume the session of the last run, if its files are here; else begin a new one."""
        name = options.get("agent") or "claude"
        agent = None if name == REPLAY_AGENT_NAME else get_agent(name)
        if agent is None:
            return False
        task = self._task
        if (
            task.session is not None
            and can_resume(agent, task.session)
            and has_session_files(agent.name, task.session, task.cwd)
        ):
            options["resume"] = task.session
            options["cwd"] = task.cwd
            options.pop("worktree", None)
            return True
        if "session_id" not in agent.launch.unsupported_options:
            options["session_id"] = str(uuid.uuid4())
        return False

    # -- while it runs ---------------------------------------------------------------------------

    def _on_events(self, run: AgentRun, events: list[Event]) -> None:
        session = run.accumulator.session
        if session is not None and session != self._session:
            self._session = session
            cwd = self._runner.task.setup.cwd if self._runner is not None else None
            self._callbacks.on_session(session, cwd or str(Path.cwd()))

    def _on_changed(self) -> None:
        """A wait that has begun after a rate limit is everybody's."""
        runner = self._runner
        if runner is None or runner.task.run is None or runner.task.run.report is None:
            return
        until = runner.task.waits_until
        is_limited = runner.task.run.report.verdict == "rate_limit"
        if until is not None and is_limited and until != self._limited_until:
            self._limited_until = until
            self._callbacks.on_limit(runner.task.agent.name, until)


def earlier_success(ledger: str | None, task: TaskRow) -> Outcome | None:
    """What an earlier run of the task has achieved, if its worker died before it could say so."""
    store = open_ledger(ledger)
    try:
        sql = "SELECT id FROM runs WHERE task = ? AND verdict = 'success' AND ok = 1"
        for (run,) in store.query(sql, (task.id,)):
            report = load_report(store, run)
            if report is not None:
                with store.transaction():
                    finish_lost_task(store, task.id, report.verdict)
                return _outcome(report, task.cwd)
    finally:
        store.close()
    return None


def has_session_files(agent: str, session: str, cwd: str | None) -> bool:
    """Whether the agent's files of a session, and its folder, are on this machine."""
    if cwd is None or not os.path.isdir(cwd):  # noqa: PTH112  # the text as it is
        return False
    return any(
        session in path.name
        for name, folder in transcript_folders(os.environ)
        if name == agent
        for path in Path(folder).rglob("*.json*")
    )


def _outcome(report: Report, cwd: str | None) -> Outcome:
    usd = report.cost.usd
    attempts = report.attempts if isinstance(report, TaskReport) else []
    return Outcome(
        verdict=report.verdict,
        ok=report.ok,
        error=report.reason and redact(report.reason),
        text=redact((report.result or report.text)[:MAX_TEXT_CHARS]),
        run=attempts[-1].run_id if attempts else report.run_id,
        session=report.session_id,
        cwd=cwd,
        cost_nano=None if usd is None else round(usd * NANO_PER_USD),
        tokens=report.tokens.total,
    )


def _apply_policy(outcome: Outcome, report: TaskReport, findings: Any) -> None:
    from ..checks.policy import as_warnings

    warnings = as_warnings(findings)
    if warnings:
        outcome.ok = False
        outcome.error = outcome.error or "; ".join(warnings)
        if outcome.verdict == "success":
            outcome.verdict = "policy"


def ensure_checkout(repository: str, commit: str | None, name: str) -> str:
    """A worktree of a repository, or of a clone that steno keeps; created if needed.

    `name` is the worktree's, `commit` defaults to HEAD. Returns its folder.
    """
    is_url = "://" in repository or ":" in repository.partition("/")[0]
    try:
        folder = _ensure_clone(repository, commit) if is_url else Path(repository)
    except GitError as error:
        raise StenoError(f"repository {repository}: {error}") from None
    return ensure_worktree(str(folder), name, commit).cwd


def _ensure_clone(url: str, commit: str | None) -> Path:
    folder = data_folder() / "repositories" / hashlib.sha256(url.encode()).hexdigest()[:16]
    create_private_folder(folder)
    clone = folder / "clone"
    if (clone / ".git").exists():
        if commit is not None:
            fetch_repository(url, clone, CLONE_SECONDS)
        return clone
    draft = folder / f"clone.{os.getpid()}.{os.urandom(4).hex()}"
    clone_repository(url, draft, CLONE_SECONDS)
    try:
        draft.rename(clone)
    except OSError:  # another worker was faster
        if not (clone / ".git").exists():
            raise
    return clone
