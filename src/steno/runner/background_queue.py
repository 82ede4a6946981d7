"""Hands things on in a thread of its own, one after the other. Whoever puts something in never waits.

What waits to be handed on is bounded: beyond the limit things are lost, and counted. It knows nothing of what it hands on.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class BackgroundQueue(Generic[ItemT]):
    """A queue with a taker. `limit` is how much may wait, in whatever `put` counts its sizes in.

    One thing is always taken, however large. A taker that raises is asked no more: `problem` says why. With `idle`, that is
    called every so many seconds in between.
    """

    def __init__(
        self,
        take: Callable[[ItemT], None],
        limit: int,
        name: str,
        idle: Callable[[], None] | None = None,
        every: float | None = None,
    ) -> None:
        self.problem: Exception | None = None
        self._consume, self._limit, self._idle = take, limit, idle
        self._idle_interval = every if idle is not None else None
        self._queue: SimpleQueue[tuple[ItemT, int] | None] = SimpleQueue()
        # Each counter has one writer, so that none needs a lock: what was put in, and what was taken out.
        self._size_in = self._size_out = self._count_in = self._count_out = self._rejected_count = (
            self._discarded_count
        ) = 0
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def put(self, thing: ItemT, size: int) -> bool:
        """Hand it on as soon as its turn comes. False: there is no room, or no taker any more, and it is lost."""
        waiting = self._size_in - self._size_out
        if self.problem is not None or (waiting and waiting + size > self._limit):
            self._rejected_count += 1
            return False
        self._size_in += size
        self._count_in += 1
        self._queue.put((thing, size))
        return True

    @property
    def pending_count(self) -> int:
        """How many things have not had their turn."""
        return self._count_in - self._count_out

    @property
    def dropped_count(self) -> int:
        """How many things were never handed on: there was no room for them, or nobody to take them."""
        return self._rejected_count + self._discarded_count

    def finish(self, patience: float | None) -> bool:
        """Wait until all is handed on, but no longer than that. False: it is not, and what waits is left behind."""
        self._queue.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                got = self._queue.get(timeout=self._idle_interval)
            except Empty:
                self._run_idle()
                continue
            if got is None:
                return
            self._process_item(got[0])
            self._size_out += got[1]
            self._count_out += 1

    def _process_item(self, thing: ItemT) -> None:
        if self.problem is not None:
            self._discarded_count += 1
            return
        try:
            self._consume(thing)
        except Exception as problem:
            self.problem = problem
            self._discarded_count += 1

    def _run_idle(self) -> None:
        if self._idle is not None:
            try:
                self._idle()
            except Exception as problem:
                self.problem, self._idle, self._idle_interval = problem, None, None
