"""The loop that serves any number of runs: it starts them, and turns until they are over. It never judges them.

The thread that turns the loop is the only one that may touch it or its children; others, and signal handlers, use
`soon`.
"""

import os
import re
import secrets
import selectors
import time
from collections.abc import Callable
from types import TracebackType

from ..errors import StenoError
from .child import ChildProcess, OnRecord
from .command import GracePeriods, ProcessCommand
from .event_loop import Clock, EventLoop
from .process_table import ProcessInfo, RunTag, list_processes, pid_namespace, start_time_of
from .process_tree import Watchdog

_DEFAULT_GRACE = GracePeriods()


class ProcessLoop(EventLoop):
    """Runs, turning together. Used with `with`: whatever still runs at its end is killed."""

    def __init__(
        self, clock: Clock = time.monotonic, selector: selectors.BaseSelector | None = None
    ) -> None:
        super().__init__(clock, selector)
        self.children: list[ChildProcess] = []  # those that are not over
        self._process_snapshot: list[ProcessInfo] | None = None
        self._watchdog: Watchdog | None = None
        self._own_identity = (os.getpid(), start_time_of(os.getpid()) or 0, pid_namespace())

    def start(
        self,
        command: ProcessCommand,
        on_record: OnRecord,
        *,
        run_id: str | None = None,
        grace: GracePeriods = _DEFAULT_GRACE,
        keep_orphans: bool = False,
    ) -> ChildProcess:
        """Start a run. Its ticks come while the loop turns, the exit last. `leave`: what outlives the agent may stay."""
        run_id = secrets.token_hex(8) if run_id is None else run_id
        if not re.fullmatch(r"[A-Za-z0-9._-]+", run_id):
            raise StenoError(
                f"{run_id!r} is no id of a run: letters, digits, dots, dashes and underscores only"
            )
        if self._watchdog is None:
            self._watchdog = Watchdog(RunTag("", *self._own_identity))
        self._process_snapshot = None
        mark = RunTag(run_id, *self._own_identity, keep_orphans)
        child = ChildProcess(
            self,
            self._list_processes,
            command,
            mark,
            on_record,
            grace,
            lambda: self.children.remove(child),
        )
        self.children.append(child)
        return child

    def _list_processes(self) -> list[ProcessInfo]:
        """The census, taken at most once a turn: runs that end together share it."""
        if self._process_snapshot is None:
            self._process_snapshot = list_processes()
        return self._process_snapshot

    def step(self, until: float | None = None) -> None:
        """See `Wheel.turn`."""
        self._process_snapshot = None
        super().step(until)

    def run(self, deadline: float | None = None, until: Callable[[], bool] | None = None) -> bool:
        """Turn until all runs are over, or until `until` says so. False: the clock showed `deadline` before."""
        done = until or (lambda: not self.children)
        while not done():
            if deadline is not None and self.clock() >= deadline:
                return False
            self.step(deadline)
        return True

    def close(self) -> None:
        """Kill what still runs, and let go of everything. A second call does nothing."""
        for child in list(self.children):
            child.kill("killed")
        self.run()
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        super().close()

    def __enter__(self) -> "ProcessLoop":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for child in self.children:
                child.discard_records()  # what failed was most likely a taker of ticks: it must not fail again while we clear up
        self.close()
