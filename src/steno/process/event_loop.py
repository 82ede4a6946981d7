"""Turns: waits for descriptors and for times, and calls what was registered for them. It knows nothing of processes.

The clock and the selector are given, so that a test can make an hour pass at once. Nothing waits anywhere else.
"""

import heapq
import os
import selectors
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

# Seconds from one turn that had something to read to the next, for each descriptor that is watched (a run has three), and
# at most: one run is followed within a millisecond, two hundred of them within a tenth of a second. See `Wheel.turn`.
BATCH_DELAY_SECONDS, MAX_BATCH_DELAY_SECONDS = 0.00015, 0.09

Callback = Callable[[], None]
Clock = Callable[[], float]


class Timer:
    """A call that waits for its time."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, call: Callback | None) -> None:
        self.when = when
        self.callback = call

    def cancel(self) -> None:
        """It will not be called. A timer that is due or over already may be cancelled too."""
        self.callback = None


class EventLoop:
    """One selector, one heap of timers. All calls come from `turn`, one after the other."""

    def __init__(
        self, clock: Clock = time.monotonic, selector: selectors.BaseSelector | None = None
    ) -> None:
        self.clock = clock
        self._selector = selector or selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_count = 0
        self._pending_calls: deque[Callback] = deque()
        self._batch_delay_until = 0.0  # by the steady clock: until then, what comes is let gather
        self._wakeup_read_fd, self._wakeup_write_fd = os.pipe()
        self._wakeup_lock = RLock()  # a signal may come while we ring
        for end in (self._wakeup_read_fd, self._wakeup_write_fd):
            os.set_blocking(end, False)
        self.watch(self._wakeup_read_fd, self._drain_wakeup)

    def watch(self, descriptor: int, call: Callback, events: int = selectors.EVENT_READ) -> None:
        """Call whenever the descriptor is ready."""
        self._selector.register(descriptor, events, call)

    def unwatch(self, descriptor: int) -> None:
        """No longer."""
        self._selector.unregister(descriptor)

    def call_at(self, when: float, call: Callback) -> Timer:
        """Call once the clock shows `when`.

        A cancelled timer is kept until its time: a clock that each event puts back is looked at when it is due, and set
        again for the rest, not cancelled each time.
        """
        timer = Timer(when, call)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def call_later(self, seconds: float, call: Callback) -> Timer:
        """Call in so many seconds."""
        return self.call_at(self.clock() + seconds, call)

    def call_soon(self, call: Callback) -> None:
        """Call at the next turn. The one thing that a signal handler or another thread may do."""
        self._pending_calls.append(call)
        with (
            self._wakeup_lock,
            suppress(OSError),
        ):  # a full pipe rings as well; one that is closed has nobody to wake
            os.write(self._wakeup_write_fd, b"\0")

    @property
    def wakeup_fd(self) -> int:
        """For `signal.set_wakeup_fd`: Python hears of a signal only before or after it waits, and this ends the waiting."""
        return self._wakeup_write_fd

    def step(self, until: float | None = None) -> None:
        """Wait for whatever comes first, at most until the clock shows `until`, and make the calls that are due.

        What comes after a silence is served at once. While many speak, a turn for each line would cost more than the line:
        they are let gather for a moment, unless somebody is in a `rush`.
        """
        pause = self._batch_delay_until - time.monotonic()
        if pause > 0 and not self._pending_calls:
            time.sleep(pause)
        ready = self._selector.select(self._select_timeout(until))
        if ready:
            self._batch_delay_until = time.monotonic() + min(
                BATCH_DELAY_SECONDS * len(self._selector.get_map()), MAX_BATCH_DELAY_SECONDS
            )
        for key, _ in ready:
            key.data()
        for _ in range(len(self._pending_calls)):
            self._pending_calls.popleft()()
        now, last = (
            self.clock(),
            self._timer_count,
        )  # a timer that is set by one of these calls waits for the next turn
        while self._timers and self._timers[0][0] <= now and self._timers[0][1] <= last:
            call = heapq.heappop(self._timers)[2].callback
            if call is not None:
                call()

    def flush(self) -> None:
        """More is waiting already: the next turn is not to be put off."""
        self._batch_delay_until = 0.0

    def _select_timeout(self, until: float | None) -> float | None:
        if self._pending_calls:
            return 0.0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._timers and (until is None or self._timers[0][0] < until):
            until = self._timers[0][0]
        return None if until is None else max(0.0, until - self.clock())

    def _drain_wakeup(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wakeup_read_fd, 4096)

    def close(self) -> None:
        """Let go of the descriptors. A second call does nothing."""
        with (
            self._wakeup_lock
        ):  # else somebody might ring by a number that is another file's by then
            if self._wakeup_read_fd >= 0:
                self._selector.close()
                os.close(self._wakeup_read_fd)
                os.close(self._wakeup_write_fd)
                self._wakeup_read_fd = self._wakeup_write_fd = -1
