"""Tasks carried out to their end, by a clock that can be put forward, and what must hold of each of them afterwards."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import steno
from steno import event as ev
from steno.process import ProcessLoop
from steno.process import process_info as mark
from steno.process import process_table as kin
from steno.report import Report, TaskReport
from steno.runner.attempt import AgentRun
from steno.runner.setup import TaskSetup
from steno.runner.task import Task

LONG = 120.0  # seconds; no task may need it, the machine may be slow


class Clock:
    """The time, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def steady(self) -> float:
        """For the loop."""
        return time.monotonic() + self.ahead

    def now(self) -> float:
        """For people."""
        return time.time() + self.ahead


class Carried:
    """A task that goes on, or went on: all that can be seen of it."""

    def __init__(self, loop: ProcessLoop, setup: TaskSetup, clock: Clock) -> None:
        self.clock, self.loop = clock, loop
        self.said: list[str] = []
        self.waits: list[float] = []
        self.runs: list[AgentRun] = []
        self.events: list[ev.Event] = []
        self.task = Task(loop, setup, log=self.said.append, now=clock.now)
        self.task.random_fraction = lambda: 0.5
        self.task.sinks.append(self._see)

    def _see(self, run: AgentRun, events: list[ev.Event]) -> None:
        if run not in self.runs:
            self.runs.append(run)
        self.events += events

    def until(self, what: Callable[[], bool]) -> None:
        """Go on until it is so, or the task is over."""
        end = time.monotonic() + LONG
        while not (what() or self.task.is_finished):
            assert time.monotonic() < end
            self.loop.step(self.loop.clock() + 0.02)

    def finish(self) -> "Carried":
        """Go on to the end; a wait between two attempts takes no time."""
        until = time.monotonic() + LONG
        while not self.task.is_finished:
            assert time.monotonic() < until
            self.loop.step(self.loop.clock() + 1.0)
            if self.task.waits_until is not None:
                self.waits.append(self.task.waits_until - self.clock.now())
                self.clock.ahead += max(self.waits[-1], 0.0) + 0.001
        return self

    @property
    def report(self) -> TaskReport:
        """Of the whole task."""
        assert self.task.report is not None
        return self.task.report

    @property
    def verdicts(self) -> list[str]:
        """Of the attempts."""
        return [attempt.verdict for attempt in self.report.attempts]

    @property
    def whys(self) -> list[str]:
        """What was decided after each attempt."""
        return [attempt.why for attempt in self.report.attempts]

    def asked(self) -> list[str]:
        """What each attempt was asked."""
        return [run.launch_options.prompt for run in self.runs]


@contextmanager
def carried(setup: TaskSetup) -> Iterator[Carried]:
    """A task that has begun. After it, nothing of it is left, and each of its tapes tells what was reported live."""
    clock = Clock()
    with ProcessLoop(clock.steady) as loop:
        found = Carried(loop, setup, clock)
        found.task.start()
        yield found
    assert left() == []
    for run in found.runs:
        assert run.report is not None
        if run.recording_path is not None:
            assert replayed(run.recording_path) == sourceless(run.report)


def carry_out(setup: TaskSetup) -> Carried:
    """A task, from its beginning to its end."""
    with carried(setup) as found:
        return found.finish()


def replayed(tape: Path) -> Report:
    """What a tape tells."""
    return sourceless(steno.read(tape))


def sourceless(report: Report) -> Report:
    """A report without its source, which is all that may differ."""
    return msgspec.structs.replace(report, source=None)


def left() -> list[mark.ProcessInfo]:
    """The living processes that this one started as a steno."""
    return [
        one
        for one in kin.list_processes()
        if os.getpid() in [found.steno_pid for found in mark.parse_run_tags(one.run_tags)]
    ]
