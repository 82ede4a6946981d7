"""A bounded queue with a consumer thread; `put` never blocks, items over the limit are dropped."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class BackgroundQueue(Generic[ItemT]):
    """Passes items to `consume` one by one; `limit` is in the unit of the sizes given to `put`.

    An item larger than the limit is accepted by an empty queue. After an exception in `consume`,
    kept in `problem`, items are dropped. `idle` is called after `every` seconds without an item.
    """

    def __init__(
        self,
        consume: Callable[[ItemT], None],
        limit: int,
        name: str,
        idle: Callable[[], None] | None = None,
        every: float | None = None,
    ) -> None:
        self.problem: Exception | None = None
        self._consume = consume
        self._limit = limit
        self._idle = idle
        self._idle_interval = every if idle is not None else None
        self._queue: SimpleQueue[tuple[ItemT, int] | None] = SimpleQueue()
        # Each counter has one writing thread, so none needs a lock.
        self._size_in = 0
        self._size_out = 0
        self._count_in = 0
        self._count_out = 0
        self._rejected_count = 0
        self._discarded_count = 0
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def put(self, item: ItemT, size: int) -> bool:
        """Queue an item; False if it is dropped because the queue is full or has failed."""
        waiting = self._size_in - self._size_out
        if self.problem is not None or (waiting and waiting + size > self._limit):
            self._rejected_count += 1
            return False
        self._size_in += size
        self._count_in += 1
        self._queue.put((item, size))
        return True

    @property
    def pending_count(self) -> int:
        """Items not consumed yet."""
        return self._count_in - self._count_out

    @property
    def dropped_count(self) -> int:
        """Items that were never consumed."""
        return self._rejected_count + self._discarded_count

    def finish(self, timeout: float | None) -> bool:
        """Wait until the queue is empty; False after `timeout` seconds."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- in the thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                entry = self._queue.get(timeout=self._idle_interval)
            except Empty:
                self._run_idle()
                continue
            if entry is None:
                return
            item, size = entry
            self._process_item(item)
            self._size_out += size
            self._count_out += 1

    def _process_item(self, item: ItemT) -> None:
        if self.problem is not None:
            self._discarded_count += 1
            return
        try:
            self._consume(item)
        except Exception as error:
            self.problem = error
            self._discarded_count += 1

    def _run_idle(self) -> None:
        if self._idle is not None:
            try:
                self._idle()
            except Exception as error:
                self.problem = error
                self._idle = None
                self._idle_interval = None
