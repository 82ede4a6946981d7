"""The same task several times, each in its own git worktree, and what the runs have in common."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct, field

from ..config.files import new_run_id
from ..errors import StenoError
from ..report import Report, TaskReport
from ..runner.prepare import PreparedTask, discard_worktree, prepare_task
from ..runner.task_runner import TaskRunner, TaskThread
from .across import RunStatistics, summarize
from .monitor import PolicyMonitor
from .policy import Policy, as_warnings
from .rules import RuleFinding

TAG = "repeat"  # of all runs; its value is the ID of the repetition
ID_CHARS = 8
TICK_SECONDS = 0.5


class RepeatedRun(Struct):
    """A finished run. `is_interrupted`: stopped with the repetition, so it does not count."""

    number: int
    report: TaskReport
    findings: list[RuleFinding] = field(default_factory=list)
    worktree: str | None = None
    is_interrupted: bool = False


class RepeatResult(Struct, kw_only=True):
    """All runs by number, the statistics of those that count, and the broken rules over them."""

    id: str
    requested: int
    runs: list[RepeatedRun]
    statistics: RunStatistics
    across: list[RuleFinding]
    baseline: RunStatistics | None = None
    baseline_name: str | None = None

    @property
    def counted(self) -> list[RepeatedRun]:
        return [run for run in self.runs if not run.is_interrupted]

    @property
    def ok(self) -> bool:
        return not self.across and bool(self.counted)


class Repetition:
    """Runs a task `count` times, up to `jobs` at once.

    `problem` is why fewer runs were started than asked for, with the report of a refused run.
    """

    def __init__(
        self,
        prompt: str,
        options: Mapping[str, Any],
        *,
        count: int,
        jobs: int = 1,
        policy: Policy | None = None,
        in_place: bool = False,
        option_label: Callable[[str], str] = str,
    ) -> None:
        self.id = new_run_id()[:ID_CHARS]
        self.count = count
        self.runs: list[RepeatedRun] = []
        self.notes: list[str] = []  # of the first run, for people
        self.problem: str | None = None
        self.refusal: TaskReport | None = None
        self.interrupt_count = 0
        self._prompt = prompt
        self._options = options
        self._jobs = jobs
        self._policy = policy or Policy()
        self._in_place = in_place
        self._option_label = option_label
        self._started = 0
        self._active: dict[int, tuple[TaskRunner, PolicyMonitor]] = {}
        self._finished: SimpleQueue[int] = SimpleQueue()

    @property
    def active_count(self) -> int:
        return len(self._active)

    def run(self, on_finished: Callable[[RepeatedRun], None], on_tick: Callable[[], None]) -> None:
        """Run to the end. An error of steno itself stops the other runs, and is raised then."""
        error: BaseException | None = None
        while self._start_more() or self._active:
            try:
                number = self._finished.get(timeout=TICK_SECONDS)
            except Empty:
                on_tick()
                continue
            runner, monitor = self._active.pop(number)
            if runner.error is not None or runner.task.report is None:
                error = error or runner.error or RuntimeError("a task ended without a report")
                self.interrupt()
                continue
            run = self._collect(number, runner, monitor, runner.task.report)
            self.runs.append(run)
            on_finished(run)
        self.runs.sort(key=lambda run: run.number)
        if error is not None:
            raise error

    def interrupt(self) -> None:
        """Start no more runs and stop the active ones; a second call kills them.

        May be called from a signal handler.
        """
        self.interrupt_count += 1
        for runner, _ in list(self._active.values()):
            runner.interrupt()

    # -- one run ---------------------------------------------------------------------------------

    def _start_more(self) -> bool:
        """Start runs while there is room; False if no more will follow."""
        while self._can_start() and len(self._active) < self._jobs:
            self._start()
        return self._can_start()

    def _can_start(self) -> bool:
        return self._started < self.count and not self.interrupt_count and self.problem is None

    def _start(self) -> None:
        self._started += 1
        number = self._started
        try:
            prepared = self._prepare(number)
        except StenoError as error:
            if number == 1:
                raise
            self.problem = str(error)
            return
        if prepared.refusal is not None:
            self.refusal = prepared.refusal
            self.problem = f"{prepared.refusal.error}; {prepared.refusal.hint}"
            return
        if number == 1:
            self.notes = [note for note in prepared.notes if not note.startswith("new worktree")]
        monitor = PolicyMonitor(self._policy)
        runner = TaskThread.start(
            prepared.setup, lambda: self._finished.put(number), monitor.on_events
        )
        self._active[number] = (runner, monitor)
        if self.interrupt_count and not runner.interrupt_count:  # meanwhile
            runner.interrupt()

    def _prepare(self, number: int) -> PreparedTask:
        tags = [*(self._options.get("tag") or ()), f"{TAG}={self.id}"]
        options = {**self._options, "tag": tags}
        if not self._in_place:
            options["worktree"] = self._worktree_name(number)
        try:
            return prepare_task(self._prompt, options, self._option_label)
        except StenoError as error:
            if str(error).startswith("--worktree"):
                raise StenoError(f"{error}; to run in the folder itself: --in-place") from None
            raise

    def _worktree_name(self, number: int) -> str:
        return f"{TAG}-{self.id}-{number}"

    def _collect(
        self, number: int, runner: TaskRunner, monitor: PolicyMonitor, report: TaskReport
    ) -> RepeatedRun:
        findings = monitor.finish(report)
        report.warnings += as_warnings(findings)
        report.ok = report.ok and not findings
        return RepeatedRun(
            number=number,
            report=report,
            findings=findings,
            worktree=None if self._in_place else runner.task.setup.cwd,
            is_interrupted=bool(runner.interrupt_count) and not report.ok,
        )

    def remove_worktrees(self) -> None:
        """Delete the worktrees of all finished runs, with their branches."""
        cwd = str(Path(self._options.get("cwd") or "").expanduser().absolute())
        for run in self.runs:
            if run.worktree is not None:
                discard_worktree(cwd, self._worktree_name(run.number))
                run.worktree = None

    # -- result ----------------------------------------------------------------------------------

    def result(self, baseline_name: str | None = None) -> RepeatResult:
        """The statistics of the finished runs, and what they break together."""
        reports: Sequence[Report] = [run.report for run in self.runs if not run.is_interrupted]
        return RepeatResult(
            id=self.id,
            requested=self.count,
            runs=self.runs,
            statistics=summarize(reports),
            across=self._policy.check_across(list(reports)),
            baseline=self._policy.across.get("baseline"),
            baseline_name=baseline_name,
        )
