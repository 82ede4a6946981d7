"""A task with its own event loop, run in the calling thread."""

import signal

from ..process import ProcessLoop
from ..report import TaskReport
from .run_registration import RunRegistration
from .setup import TaskSetup
from .task import LogFunction, Task


class TaskRunner:
    """Runs one task. `interrupt` may be called from any thread and from a signal handler."""

    def __init__(
        self, setup: TaskSetup, log: LogFunction | None = None, warn: LogFunction | None = None
    ) -> None:
        self.loop = ProcessLoop()
        try:
            self.task = Task(self.loop, setup, log=log, warn=warn)
            self.registration = RunRegistration(self.task)
        except BaseException:
            self.loop.close()
            raise
        self.interrupt_count = 0
        self.has_signal_wakeup = False  # main thread only: signals end a wait of the loop at once

    def run(self) -> TaskReport:
        """Run to completion. If this raises, remaining processes are killed."""
        try:
            with self.loop:
                self.task.start()
                if self.has_signal_wakeup:
                    signal.set_wakeup_fd(self.loop.wakeup_fd, warn_on_full_buffer=False)
                try:
                    self.loop.run(until=lambda: self.task.is_finished)
                except KeyboardInterrupt:  # the program has no handler of its own: stop in order
                    self.interrupt()
                    self.loop.run(until=lambda: self.task.is_finished)
                    raise
                finally:
                    if self.has_signal_wakeup:
                        signal.set_wakeup_fd(-1)
        finally:
            self.task.release()
            self.registration.close()
        if self.task.report is None:
            raise RuntimeError("the task has finished without a report")
        return self.task.report

    def interrupt(self) -> None:
        """Stop the task; the second call kills it."""
        self.interrupt_count += 1
        if self.interrupt_count > 1:
            self.loop.call_soon(lambda: self.task.kill("killed"))
        else:
            self.loop.call_soon(lambda: self.task.stop("interrupted"))
