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

from ..report import StenoError
from .child import Child, OnTick
from .command import Command, Grace
from .guard import Guard
from .kin import Kin, born, everyone
from .mark import Mark, space
from .wheel import Clock, Wheel

_GRACE = Grace()


class Loop(Wheel):
    """Runs, turning together. Used with `with`: whatever still runs at its end is killed."""

    def __init__(self, clock: Clock = time.monotonic, selector: selectors.BaseSelector | None = None) -> None:
        super().__init__(clock, selector)
        self.children: list[Child] = []  # those that are not over
        self._people: list[Kin] | None = None
        self._guard: Guard | None = None
        self._me = (os.getpid(), born(os.getpid()) or 0, space())

    def start(
        self, command: Command, on_tick: OnTick, *, run_id: str | None = None, grace: Grace = _GRACE, leave: bool = False
    ) -> Child:
        """Start a run. Its ticks come while the loop turns, the exit last. `leave`: what outlives the agent may stay."""
        run_id = secrets.token_hex(8) if run_id is None else run_id
        if not re.fullmatch(r"[A-Za-z0-9._-]+", run_id):
            raise StenoError(f"{run_id!r} is no id of a run: letters, digits, dots, dashes and underscores only")
        if self._guard is None:
            self._guard = Guard(Mark("", *self._me))
        self._people = None
        mark = Mark(run_id, *self._me, leave)
        child = Child(self, self._everyone, command, mark, on_tick, grace, lambda: self.children.remove(child))
        self.children.append(child)
        return child

    def _everyone(self) -> list[Kin]:
        """The census, taken at most once a turn: runs that end together share it."""
        if self._people is None:
            self._people = everyone()
        return self._people

    def turn(self, until: float | None = None) -> None:
        """See `Wheel.turn`."""
        self._people = None
        super().turn(until)

    def run(self, deadline: float | None = None, until: Callable[[], bool] | None = None) -> bool:
        """Turn until all runs are over, or until `until` says so. False: the clock showed `deadline` before."""
        done = until or (lambda: not self.children)
        while not done():
            if deadline is not None and self.clock() >= deadline:
                return False
            self.turn(deadline)
        return True

    def close(self) -> None:
        """Kill what still runs, and let go of everything. A second call does nothing."""
        for child in list(self.children):
            child.kill("killed")
        self.run()
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None
        super().close()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            for child in self.children:
                child.mute()  # what failed was most likely a taker of ticks: it must not fail again while we clear up
        self.close()
