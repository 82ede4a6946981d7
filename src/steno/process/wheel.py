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
BREATH, LONGEST_BREATH = 0.00015, 0.09

Call = Callable[[], None]
Clock = Callable[[], float]


class Timer:
    """A call that waits for its time."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Call | None) -> None:
        self.when = when
        self.call = call

    def cancel(self) -> None:
        """It will not be called. A timer that is due or over already may be cancelled too."""
        self.call = None


class Wheel:
    """One selector, one heap of timers. All calls come from `turn`, one after the other."""

    def __init__(self, clock: Clock = time.monotonic, selector: selectors.BaseSelector | None = None) -> None:
        self.clock = clock
        self._selector = selector or selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._soon: deque[Call] = deque()
        self._breath = 0.0  # by the steady clock: until then, what comes is let gather
        self._bell, self._rope = os.pipe()
        self._ringing = RLock()  # a signal may come while we ring
        for end in (self._bell, self._rope):
            os.set_blocking(end, False)
        self.watch(self._bell, self._hush)

    def watch(self, descriptor: int, call: Call, events: int = selectors.EVENT_READ) -> None:
        """Call whenever the descriptor is ready."""
        self._selector.register(descriptor, events, call)

    def unwatch(self, descriptor: int) -> None:
        """No longer."""
        self._selector.unregister(descriptor)

    def at(self, when: float, call: Call) -> Timer:
        """Call once the clock shows `when`.

        A cancelled timer is kept until its time: a clock that each event puts back is looked at when it is due, and set
        again for the rest, not cancelled each time.
        """
        timer = Timer(when, call)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def after(self, seconds: float, call: Call) -> Timer:
        """Call in so many seconds."""
        return self.at(self.clock() + seconds, call)

    def soon(self, call: Call) -> None:
        """Call at the next turn. The one thing that a signal handler or another thread may do."""
        self._soon.append(call)
        with self._ringing, suppress(OSError):  # a full pipe rings as well; one that is closed has nobody to wake
            os.write(self._rope, b"\0")

    @property
    def rope(self) -> int:
        """For `signal.set_wakeup_fd`: Python hears of a signal only before or after it waits, and this ends the waiting."""
        return self._rope

    def turn(self, until: float | None = None) -> None:
        """Wait for whatever comes first, at most until the clock shows `until`, and make the calls that are due.

        What comes after a silence is served at once. While many speak, a turn for each line would cost more than the line:
        they are let gather for a moment, unless somebody is in a `rush`.
        """
        pause = self._breath - time.monotonic()
        if pause > 0 and not self._soon:
            time.sleep(pause)
        ready = self._selector.select(self._patience(until))
        if ready:
            self._breath = time.monotonic() + min(BREATH * len(self._selector.get_map()), LONGEST_BREATH)
        for key, _ in ready:
            key.data()
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        now, last = self.clock(), self._count  # a timer that is set by one of these calls waits for the next turn
        while self._timers and self._timers[0][0] <= now and self._timers[0][1] <= last:
            call = heapq.heappop(self._timers)[2].call
            if call is not None:
                call()

    def rush(self) -> None:
        """More is waiting already: the next turn is not to be put off."""
        self._breath = 0.0

    def _patience(self, until: float | None) -> float | None:
        if self._soon:
            return 0.0
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if self._timers and (until is None or self._timers[0][0] < until):
            until = self._timers[0][0]
        return None if until is None else max(0.0, until - self.clock())

    def _hush(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)

    def close(self) -> None:
        """Let go of the descriptors. A second call does nothing."""
        with self._ringing:  # else somebody might ring by a number that is another file's by then
            if self._bell >= 0:
                self._selector.close()
                os.close(self._bell)
                os.close(self._rope)
                self._bell = self._rope = -1
