"""Run tasks with a clock that can be advanced, and check what must hold after each of them."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import steno
from steno import event as ev
from steno.process import ProcessLoop, process_tree, run_tag
from steno.report import Report, TaskReport
from steno.runner.attempt import AgentRun
from steno.runner.setup import TaskSetup
from steno.runner.task import Task

LONG = 120.0  # seconds; for slow machines


class Clock:
    """A clock that can be advanced."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def steady(self) -> float:
        """Monotonic time, for the loop."""
        return time.monotonic() + self.ahead

    def now(self) -> float:
        """Wall-clock time."""
        return time.time() + self.ahead


class Carried:
    """A task, and everything it did."""

    def __init__(self, loop: ProcessLoop, setup: TaskSetup, clock: Clock) -> None:
        self.clock = clock
        self.loop = loop
        self.said: list[str] = []
        self.waits: list[float] = []
        self.runs: list[AgentRun] = []
        self.events: list[ev.Event] = []
        self.task = Task(loop, setup, log=self.said.append, now=clock.now)
        self.task.random_fraction = lambda: 0.5
        self.task.sinks.append(self._record)

    def _record(self, run: AgentRun, events: list[ev.Event]) -> None:
        if run not in self.runs:
            self.runs.append(run)
        self.events += events

    def until(self, condition: Callable[[], bool]) -> None:
        """Continue until a condition holds or the task has finished."""
        end = time.monotonic() + LONG
        while not (condition() or self.task.is_finished):
            assert time.monotonic() < end
            self.loop.step(self.loop.clock() + 0.02)

    def finish(self) -> "Carried":
        """Continue to the end; waits between attempts take no time."""
        end = time.monotonic() + LONG
        while not self.task.is_finished:
            assert time.monotonic() < end
            self.loop.step(self.loop.clock() + 1.0)
            if self.task.waits_until is not None:
                self.waits.append(self.task.waits_until - self.clock.now())
                self.clock.ahead += max(self.waits[-1], 0.0) + 0.001
        return self

    @property
    def report(self) -> TaskReport:
        assert self.task.report is not None
        return self.task.report

    @property
    def verdicts(self) -> list[str]:
        return [attempt.verdict for attempt in self.report.attempts]

    @property
    def whys(self) -> list[str]:
        """The decision after each attempt."""
        return [attempt.why for attempt in self.report.attempts]

    def asked(self) -> list[str]:
        """The prompt of each attempt."""
        return [run.launch_options.prompt for run in self.runs]


@contextmanager
def carried(setup: TaskSetup) -> Iterator[Carried]:
    """Start a task. At the end, no process is left, and recordings give the same reports."""
    clock = Clock()
    with ProcessLoop(clock.steady) as loop:
        task_run = Carried(loop, setup, clock)
        task_run.task.start()
        yield task_run
    assert left() == []
    for run in task_run.runs:
        assert run.report is not None
        if run.recording_path is not None:
            assert replayed(run.recording_path) == sourceless(run.report)


def carry_out(setup: TaskSetup) -> Carried:
    """Run a task to its end."""
    with carried(setup) as task:
        return task.finish()


def replayed(recording: Path) -> Report:
    """The report of a recording, without its source."""
    return sourceless(steno.read(recording))


def sourceless(report: Report) -> Report:
    """A report without its source, the only field that may differ."""
    return msgspec.structs.replace(report, source=None)


def left() -> list[run_tag.ProcessInfo]:
    """The processes still running that this process started as a steno."""
    return [
        process
        for process in process_tree.list_processes()
        if os.getpid() in [tag.steno_pid for tag in run_tag.parse_run_tags(process.run_tags)]
    ]
