"""Hands things on in a thread of its own, one after the other. Whoever puts something in never waits.

What waits to be handed on is bounded: beyond the limit things are lost, and counted. It knows nothing of what it hands on.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Spool(Generic[Thing]):
    """A queue with a taker. `limit` is how much may wait, in whatever `put` counts its sizes in.

    One thing is always taken, however large. A taker that raises is asked no more: `problem` says why. With `idle`, that is
    called every so many seconds in between.
    """

    def __init__(
        self,
        take: Callable[[Thing], None],
        limit: int,
        name: str,
        idle: Callable[[], None] | None = None,
        every: float | None = None,
    ) -> None:
        self.problem: Exception | None = None
        self._take, self._limit, self._idle = take, limit, idle
        self._every = every if idle is not None else None
        self._queue: SimpleQueue[tuple[Thing, int] | None] = SimpleQueue()
        # Each counter has one writer, so that none needs a lock: what was put in, and what was taken out.
        self._came = self._went = self._put = self._taken = self._refused = self._dropped = 0
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def put(self, thing: Thing, size: int) -> bool:
        """Hand it on as soon as its turn comes. False: there is no room, or no taker any more, and it is lost."""
        waiting = self._came - self._went
        if self.problem is not None or (waiting and waiting + size > self._limit):
            self._refused += 1
            return False
        self._came += size
        self._put += 1
        self._queue.put((thing, size))
        return True

    @property
    def waiting(self) -> int:
        """How many things have not had their turn."""
        return self._put - self._taken

    @property
    def lost(self) -> int:
        """How many things were never handed on: there was no room for them, or nobody to take them."""
        return self._refused + self._dropped

    def finish(self, patience: float | None) -> bool:
        """Wait until all is handed on, but no longer than that. False: it is not, and what waits is left behind."""
        self._queue.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                got = self._queue.get(timeout=self._every)
            except Empty:
                self._rest()
                continue
            if got is None:
                return
            self._hand_on(got[0])
            self._went += got[1]
            self._taken += 1

    def _hand_on(self, thing: Thing) -> None:
        if self.problem is not None:
            self._dropped += 1
            return
        try:
            self._take(thing)
        except Exception as problem:
            self.problem = problem
            self._dropped += 1

    def _rest(self) -> None:
        if self._idle is not None:
            try:
                self._idle()
            except Exception as problem:
                self.problem, self._idle, self._every = problem, None, None
