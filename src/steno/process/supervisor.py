"""The event loop with child processes: starts runs, and steps until they have finished.

Only the thread that runs the loop may touch it or its children; other threads and signal handlers
use `call_soon`.
"""

import os
import re
import secrets
import selectors
import time
from collections.abc import Callable
from types import TracebackType

from ..errors import StenoError
from .child import ChildProcess, OnRecord, ProcessCommand
from .event_loop import Clock, EventLoop
from .process_info import ProcessInfo, RunTag, pid_namespace
from .process_tree import GracePeriods, Watchdog, list_processes, start_time_of

_DEFAULT_GRACE = GracePeriods()


class ProcessLoop(EventLoop):
    """Runs child processes. As a context manager, it kills what still runs at the end."""

    def __init__(
        self, clock: Clock = time.monotonic, selector: selectors.BaseSelector | None = None
    ) -> None:
        super().__init__(clock, selector)
        self.children: list[ChildProcess] = []  # unfinished ones
        self._process_snapshot: list[ProcessInfo] = []
        self._snapshot_step = -1  # the step in which it was taken
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
        """Start a run. Its records come while the loop runs, the exit last.

        `keep_orphans`: processes that outlive the agent are left running.
        """
        run_id = secrets.token_hex(8) if run_id is None else run_id
        if not re.fullmatch(r"[A-Za-z0-9._-]+", run_id):
            raise StenoError(
                f"invalid run id {run_id!r}: use letters, digits, dots, dashes and underscores"
            )
        if self._watchdog is None:
            self._watchdog = Watchdog(RunTag("", *self._own_identity))
        self._snapshot_step = -1
        child = ChildProcess(
            loop=self,
            list_processes=self._list_processes,
            command=command,
            run_tag=RunTag(run_id, *self._own_identity, keep_orphans),
            on_record=on_record,
            grace=grace,
            on_finished=lambda: self.children.remove(child),
        )
        self.children.append(child)
        return child

    def _list_processes(self) -> list[ProcessInfo]:
        """The process table, read at most once per step: runs that end together share it."""
        if self._snapshot_step != self.step_count:
            self._snapshot_step = self.step_count
            self._process_snapshot = list_processes()
        return self._process_snapshot

    def run(self, deadline: float | None = None, until: Callable[[], bool] | None = None) -> bool:
        """Step until all runs have finished or `until` is true; False if `deadline` came first."""
        is_done = until or (lambda: not self.children)
        while not is_done():
            if deadline is not None and self.clock() >= deadline:
                return False
            self.step(deadline)
        return True

    def close(self) -> None:
        """Kill what still runs, and close. A second call does nothing."""
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
            # Probably a record callback failed: it must not fail again during cleanup.
            for child in self.children:
                child.discard_records()
        self.close()
