"""stderr that nobody waits for: what is written there is written by a thread, in order. A stuck terminal delays nothing.

It is written beside something that must not be held up. Where nobody takes what is written, it is lost without a word.
"""

import os
import time
from collections.abc import Callable
from typing import TextIO

from ..spool import BackgroundQueue

MAX_PENDING_CHARS = 1 << 20  # letters that may wait for a terminal that stands still
FLUSH_TIMEOUT_SECONDS = 30.0  # seconds at the end: somebody may have stopped the terminal to read
IDLE_INTERVAL_SECONDS = 0.2  # seconds between two looks at what there is to say


class StderrWriter:
    """As much of a text stream as a screen needs. `live`: it may be a terminal on which a line can be taken back.

    `idle` is called now and then in between, by the thread that writes. `waiting` is how many letters may wait.
    """

    def __init__(self, stream: TextIO | None, live: bool, idle: Callable[[], None] | None = None, max_pending: int = MAX_PENDING_CHARS) -> None:
        self.encoding = stream.encoding if stream is not None else "ascii"
        self._stream, self._is_live = stream, live
        self._fd = stream.fileno() if stream is not None else -1
        self._queue: BackgroundQueue[bytes] = BackgroundQueue(self._write_bytes, max_pending, "steno stderr", idle, IDLE_INTERVAL_SECONDS)

    def isatty(self) -> bool:
        """Whether a line can be taken back there."""
        return self._is_live and self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Its descriptor."""
        return self._fd

    def write(self, text: str) -> int:
        """Have it written, soon."""
        if self._stream is not None and text:
            self._queue.put(text.encode(self.encoding, "backslashreplace"), len(text))
        return len(text)

    def flush(self) -> None:
        """It is on its way already."""

    def drain(self, patience: float) -> None:
        """Wait until what was written so far is there, but no longer than that."""
        until = time.monotonic() + patience
        while self._queue.pending_count and self._queue.problem is None and time.monotonic() < until:
            time.sleep(0.001)

    def finish(self, patience: float | None = FLUSH_TIMEOUT_SECONDS) -> None:
        """Wait until all is written, but not for ever."""
        self._queue.finish(patience)

    def _write_bytes(self, data: bytes) -> None:
        write_all(self._fd, data)


def write_all(descriptor: int, data: bytes) -> None:
    """All of it, also to a descriptor that somebody set to not wait."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            import select

            select.select([], [descriptor], [])
