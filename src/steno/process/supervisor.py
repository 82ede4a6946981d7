"""The event loop with child processes: starts runs, and steps until they have finished.

Only the thread that runs the loop may touch it or its children; other threads and signal handlers
use `call_soon`.
"""

import re
import secrets
import selectors
import time
from collections.abc import Callable
from types import TracebackType

from ..errors import StenoError
from .child import ChildProcess, OnRecord, ProcessCommand
from .event_loop import Clock, EventLoop, OnError
from .process_tree import (
    GracePeriods,
    StartPoint,
    Watchdog,
    fork_count,
    list_processes,
    own_identity,
)
from .run_tag import ProcessInfo, RunTag

_DEFAULT_GRACE = GracePeriods()


class ProcessLoop(EventLoop):
    """Runs child processes. As a context manager, it kills what still runs at the end.

    Loops that share a selector (see EventLoop) also share the watchdog and the process table.
    """

    root: "ProcessLoop"

    def __init__(
        self,
        clock: Clock = time.monotonic,
        selector: selectors.BaseSelector | None = None,
        parent: "ProcessLoop | None" = None,
        on_error: OnError | None = None,
    ) -> None:
        super().__init__(clock, selector, parent, on_error)
        self.children: list[ChildProcess] = []  # unfinished ones
        if parent is None:
            self._process_snapshot: list[ProcessInfo] = []
            self._snapshot_step = -1  # the step in which it was taken
            self._watchdog: Watchdog | None = None
            self._own_identity = own_identity()
            # When the unfinished children of all loops were started, oldest first.
            self._start_points: dict[ChildProcess, StartPoint] = {}

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
        root = self.root
        if root._watchdog is None:
            root._watchdog = Watchdog(RunTag("", *root._own_identity))
        root._snapshot_step = -1
        forks = fork_count()

        def on_finished() -> None:
            self.children.remove(child)
            root._start_points.pop(child, None)

        child = ChildProcess(
            loop=self,
            list_processes=root._list_processes,
            command=command,
            run_tag=RunTag(run_id, *root._own_identity, keep_orphans),
            on_record=on_record,
            grace=grace,
            on_finished=on_finished,
        )
        self.children.append(child)
        root._start_points[child] = StartPoint(child.pid or 0, forks)
        return child

    def _list_processes(self) -> list[ProcessInfo]:
        """The processes since the oldest child, read at most once per step.

        Runs that end together share them.
        """
        if self._snapshot_step != self.step_count:
            self._snapshot_step = self.step_count
            oldest = next(iter(self._start_points.values()), None)
            self._process_snapshot = list_processes(oldest)
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
        self.root.run(until=lambda: not self.children)
        if self.root is self and self._watchdog is not None:
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
