"""A task with the loop that turns it, carried out in the thread that calls. Others may ask it to end. It decides nothing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ..process import ProcessLoop
from ..report import TaskReport
from .run_registration import register
from .setup import TaskSetup
from .task import LogFunction, Task


class TaskRunner:
    """A task that is carried out. `interrupt` may be called from any thread, and from a signal handler."""

    def __init__(
        self, setup: TaskSetup, log: LogFunction | None = None, warn: LogFunction | None = None
    ) -> None:
        self.loop = ProcessLoop()
        try:
            self.task = Task(self.loop, setup, log=log, warn=warn)
            self.registration = register(self.task)
        except BaseException:
            self.loop.close()
            raise
        self.interrupt_count = 0  # how often it was asked to end
        self.has_signal_wakeup = False  # signals, in the main thread of a program that is ours: one ends a wait of the loop at once

    def run(self) -> TaskReport:
        """Until it is over. What still runs when this fails is killed."""
        try:
            with self.loop, self._signal_wakeup():
                self.task.start()
                try:
                    self._run_loop()
                except (
                    KeyboardInterrupt
                ):  # of a program that leaves Ctrl-C as it is: the run ends in order first
                    self.interrupt()
                    self._run_loop()
                    raise
        finally:
            self.task.release()
            self.registration.close()
        return self._finished_report()

    @contextmanager
    def _signal_wakeup(self) -> Iterator[None]:
        if self.has_signal_wakeup:
            signal.set_wakeup_fd(self.loop.wakeup_fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            if self.has_signal_wakeup:
                signal.set_wakeup_fd(-1)

    def _run_loop(self) -> None:
        self.loop.run(until=lambda: self.task.is_finished)

    def _finished_report(self) -> TaskReport:
        if self.task.report is None:
            raise RuntimeError("the task is over and has no report")
        return self.task.report

    def interrupt(self) -> None:
        """End it: the first time in order, the second time at once."""
        self.interrupt_count += 1
        self.loop.call_soon(self._kill if self.interrupt_count > 1 else self._stop)

    def _stop(self) -> None:
        self.task.stop("interrupted")

    def _kill(self) -> None:
        self.task.kill("killed")
