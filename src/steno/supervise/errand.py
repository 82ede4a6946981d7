"""A task with the loop that turns it, carried out in the thread that calls. Others may ask it to end. It decides nothing."""

from ..process import Loop
from ..report import TaskReport
from .live import attend
from .task import Say, Task
from .values import Setup


class Errand:
    """A task that is carried out. `interrupt` may be called from any thread, and from a signal handler."""

    def __init__(self, setup: Setup, say: Say | None = None, warn: Say | None = None) -> None:
        self.loop = Loop()
        self.task = Task(self.loop, setup, say=say, warn=warn)
        self.presence = attend(self.task)
        self.asked = 0  # how often it was asked to end

    def carry_out(self) -> TaskReport:
        """Until it is over. What still runs when this fails is killed."""
        with self.loop:
            self.task.start()
            try:
                self._turn()
            except KeyboardInterrupt:  # of a program that leaves Ctrl-C as it is: the run ends in order first
                self.interrupt()
                self._turn()
                raise
        return self._report()

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
