"""Event loop: waits for descriptors and timers, and makes the registered calls.

Clock and selector are parameters, so that a test can make an hour pass at once.
"""

import heapq
import os
import selectors
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from msgspec import Struct

# Delay between two steps that had something to read, per watched descriptor (a run has three), and
# its maximum: one run is followed within a millisecond, 200 runs within a tenth of a second.
BATCH_DELAY_SECONDS = 0.00015
MAX_BATCH_DELAY_SECONDS = 0.09

# A wait with timers takes at most this long at a time. One that takes that much longer means that
# steno was suspended (Ctrl-Z, SIGSTOP); less is noticed only with `on_continued`.
MAX_WAIT_SECONDS = 1.0
MIN_SUSPENSION_SECONDS = 0.5

Callback = Callable[[], None]
Clock = Callable[[], float]
OnError = Callable[[Exception], None]


class Timer(Struct, eq=False):
    """A scheduled call."""

    when: float
    callback: Callback | None

    def cancel(self) -> None:
        """Drop the call. No effect if it was made already."""
        self.callback = None


class EventLoop:
    """One selector, one heap of timers. All calls are made by `step`, one after the other.

    A call that raises ends `step`. With `on_error`, this gets the exception instead: loops that
    share one selector (`parent`) survive the failure of one of them.
    """

    def __init__(
        self,
        clock: Clock = time.monotonic,
        selector: selectors.BaseSelector | None = None,
        parent: "EventLoop | None" = None,
        on_error: OnError | None = None,
    ) -> None:
        self.root: EventLoop = self if parent is None else parent.root
        self._on_error = on_error
        self.clock: Clock = clock if parent is None else parent.clock
        if parent is None:
            self._open(selector)

    def _open(self, selector: selectors.BaseSelector | None) -> None:
        self._selector = selector or selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_count = 0
        self._step_count = 0
        self._suspended_seconds = 0.0
        self._pending_calls: deque[Callback] = deque()
        self._batch_delay_until = 0.0  # by time.monotonic
        self._active_at: float | None = None  # the last wait ended
        self._was_continued = False
        # `wakeup_fd` is for `signal.set_wakeup_fd`: it ends a wait in progress, so that Python runs
        # its handler.
        self._wakeup_read_fd, self.wakeup_fd = os.pipe()
        self._wakeup_lock = RLock()  # reentrant: a signal handler may call call_soon inside it
        for end in (self._wakeup_read_fd, self.wakeup_fd):
            os.set_blocking(end, False)
        self.watch(self._wakeup_read_fd, self._drain_wakeup)

    @property
    def step_count(self) -> int:
        return self.root._step_count

    @property
    def suspended_seconds(self) -> float:
        """How long steno was suspended in all, by the clock."""
        return self.root._suspended_seconds

    def _guard(self, callback: Callback) -> Callback:
        """The callback, with its exceptions passed to `on_error`."""
        on_error = self._on_error
        if on_error is None:
            return callback

        def call() -> None:
            try:
                callback()
            except Exception as error:
                on_error(error)

        return call

    def watch(
        self, descriptor: int, callback: Callback, events: int = selectors.EVENT_READ
    ) -> None:
        """Call whenever the descriptor is ready."""
        self.root._selector.register(descriptor, events, self._guard(callback))

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        self.root._selector.unregister(descriptor)

    def call_at(self, when: float, callback: Callback) -> Timer:
        """Call when the clock reaches `when`.

        A cancelled timer stays in the heap until it is due. A timeout that every event postpones
        should be checked when due and set again, instead of cancelled each time.
        """
        root = self.root
        timer = Timer(when, self._guard(callback))
        root._timer_count += 1
        heapq.heappush(root._timers, (when, root._timer_count, timer))
        return timer

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call after this many seconds."""
        return self.call_at(self.clock() + seconds, callback)

    def call_soon(self, callback: Callback) -> None:
        """Call at the next step. The only method that is safe in signal handlers and threads."""
        root = self.root
        root._pending_calls.append(self._guard(callback))
        # A full pipe wakes the loop as well; a closed loop needs no wakeup.
        with root._wakeup_lock, suppress(OSError):
            os.write(root.wakeup_fd, b"\0")

    def step(self, until: float | None = None) -> None:
        """Wait for the next event, at most until the clock reaches `until`; make the due calls.

        Output after a pause is read at once. Under load, a step per line would cost more than the
        line itself: reads are batched by a short delay, unless `flush` was called.
        """
        self._step_count += 1
        started = self.clock()
        pause = self._batch_delay_until - time.monotonic()
        if pause > 0 and not self._pending_calls:
            time.sleep(pause)

        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._timers and (until is None or self._timers[0][0] < until):
            until = self._timers[0][0]
        timeout = None if until is None else min(max(0.0, until - self.clock()), MAX_WAIT_SECONDS)
        if self._pending_calls:
            timeout = 0.0
        ready = self._selector.select(timeout)
        now = self.clock()  # before the calls: a pipe is read between a long one and a timer
        suspended = 0.0 if timeout is None else now - started - timeout
        if self._was_continued:
            self._was_continued = False
            suspended = now - (started if self._active_at is None else self._active_at)
        elif suspended < MIN_SUSPENSION_SECONDS:
            suspended = 0.0
        self._suspended_seconds += suspended
        self._active_at = now
        if suspended and not ready:  # output may have come meanwhile: read it before any timer
            return
        if ready:
            self._batch_delay_until = time.monotonic() + min(
                BATCH_DELAY_SECONDS * len(self._selector.get_map()), MAX_BATCH_DELAY_SECONDS
            )
        for key, _ in ready:
            key.data()
        for _ in range(len(self._pending_calls)):
            self._pending_calls.popleft()()

        last = self._timer_count  # a timer set by one of these calls waits for the next step
        while self._timers and self._timers[0][0] <= now and self._timers[0][1] <= last:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()

    def on_continued(self, number: int, frame: object) -> None:
        """Handler of SIGCONT: all time since the last step counts as suspended."""
        self._was_continued = True

    def flush(self) -> None:
        """Skip the batch delay of the next step: more data is waiting."""
        self.root._batch_delay_until = 0.0

    def _drain_wakeup(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wakeup_read_fd, 4096)

    def close(self) -> None:
        """Close the descriptors. A second call does nothing, nor one of a loop with a parent."""
        if self.root is not self:
            return
        # Locked: another thread must not write to a descriptor number that was reused.
        with self._wakeup_lock:
            if self._wakeup_read_fd >= 0:
                self._selector.close()
                os.close(self._wakeup_read_fd)
                os.close(self.wakeup_fd)
                self._wakeup_read_fd = -1
                self.wakeup_fd = -1
