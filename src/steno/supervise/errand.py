"""A task with the loop that turns it, carried out in the thread that calls. Others may ask it to end. It decides nothing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ..process import Loop
from ..report import TaskReport
from .live import attend
from .task import Say, Task
from .values import Setup


class Errand:
    """A task that is carried out. `interrupt` may be called from any thread, and from a signal handler."""

    def __init__(self, setup: Setup, say: Say | None = None, warn: Say | None = None) -> None:
        self.loop = Loop()
        try:
            self.task = Task(self.loop, setup, say=say, warn=warn)
            self.presence = attend(self.task)
        except BaseException:
            self.loop.close()
            raise
        self.asked = 0  # how often it was asked to end
        self.hears = False  # signals, in the main thread of a program that is ours: one ends a wait of the loop at once

    def carry_out(self) -> TaskReport:
        """Until it is over. What still runs when this fails is killed."""
        try:
            with self.loop, self._hearing():
                self.task.start()
                try:
                    self._turn()
                except KeyboardInterrupt:  # of a program that leaves Ctrl-C as it is: the run ends in order first
                    self.interrupt()
                    self._turn()
                    raise
        finally:
            self.task.let_go()
            self.presence.close()
        return self._report()

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        if self.hears:
            signal.set_wakeup_fd(self.loop.rope, warn_on_full_buffer=False)
        try:
            yield
        finally:
            if self.hears:
                signal.set_wakeup_fd(-1)

    def _turn(self) -> None:
        self.loop.run(until=lambda: self.task.over)

    def _report(self) -> TaskReport:
        if self.task.report is None:
            raise RuntimeError("the task is over and has no report")
        return self.task.report

    def interrupt(self) -> None:
        """End it: the first time in order, the second time at once."""
        self.asked += 1
        self.loop.soon(self._kill if self.asked > 1 else self._stop)

    def _stop(self) -> None:
        self.task.stop("interrupted")

    def _kill(self) -> None:
        self.task.kill("killed")
