"""The three streams of a child, without ever blocking: its output as it comes, its prompt as it takes it.

It moves bytes and never looks at them.
"""

import os
import selectors
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from .kin import link
from .wheel import Timer, Wheel

CHUNK = 65536  # what a pipe holds; one read for each turn, so that no stream waits for a louder one
LOUD = 16384  # bytes in one read: a pipe that is filled faster than that would make its writer wait
POLL_FIRST, POLL_LAST = 0.02, 0.08  # seconds between looks at a growing file: each quiet look doubles the wait


class Pipe:
    """Reads a pipe until its last writer has closed it."""

    finishing = False  # nobody can promise that an end comes: a process that we do not know may hold it open

    def __init__(self, wheel: Wheel, file: IO[bytes], take: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._wheel, self._file, self._take, self._ended = wheel, file, take, ended
        self._fileno = file.fileno()
        self.link = link(self._fileno)  # what the system calls it
        os.set_blocking(self._fileno, False)
        wheel.watch(self._fileno, self._ready)

    @property
    def open(self) -> bool:
        """Whether more can come."""
        return not self._file.closed

    @property
    def held(self) -> bool:
        """Whether somebody may still hold it: its end is the end of the last one."""
        return self.open

    def _ready(self) -> None:
        if self._file.closed:
            return  # closed by a call of the same turn
        try:
            data = os.read(self._fileno, CHUNK)
        except BlockingIOError:
            return
        if data:
            if len(data) >= LOUD:
                self._wheel.rush()
            self._take(data)
        else:
            self.close()
            self._ended()

    def finish(self) -> None:
        """No writer is left that we know of: a pipe tells its end by itself."""

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        if not self._file.closed:
            self._wheel.unwatch(self._fileno)
            self._file.close()


class Tail:
    """Reads a file while a child appends to it. It has no end of its own: `finish` says that no writer is left."""

    held = True  # nothing tells when the last one has closed it

    def __init__(self, wheel: Wheel, take: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._wheel, self._take, self._ended = wheel, take, ended
        file, path = tempfile.mkstemp(prefix="steno-")
        try:
            self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # for reading only: who has it from us is no writer
            self.writer = os.open(path, os.O_WRONLY | os.O_APPEND)
        finally:
            os.close(file)
            Path(path).unlink()  # no name: nothing is left on the disk, however we end
        self.link = link(self._file.fileno())
        self.finishing = False  # what is there is read to its end, and then it is closed
        self._wait = POLL_FIRST
        self._timer: Timer = wheel.after(self._wait, self._look)

    @property
    def open(self) -> bool:
        """Whether more can come."""
        return not self._file.closed

    def _look(self) -> None:
        data = os.read(self._file.fileno(), CHUNK * 4)
        if data:
            self._take(data)
        elif self.finishing:
            self.close()
            self._ended()
        if not self._file.closed:
            self._wait = POLL_FIRST if data else min(self._wait * 2, POLL_LAST)
            self._timer = self._wheel.after(0.0 if data else self._wait, self._look)

    def finish(self) -> None:
        """No writer is left: the end of the file is the end."""
        if not (self.finishing or self._file.closed):
            self.finishing = True
            self._timer.cancel()
            self._timer = self._wheel.after(0.0, self._look)

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self._timer.cancel()
        self._file.close()


class Feed:
    """Writes the prompt, and what is said later, as the child takes it. A child that does not want it is nobody's fault."""

    def __init__(self, wheel: Wheel, file: IO[bytes], data: bytes, keep_open: bool = False) -> None:
        self._wheel, self._file, self._left = wheel, file, memoryview(data)
        self._open = keep_open
        self._fileno = file.fileno()
        os.set_blocking(self._fileno, False)
        self._watched = False
        self._watch()

    def add(self, data: bytes) -> bool:
        """More to write; False if it is at its end."""
        if self._file.closed or not self._open:
            return False
        self._left = memoryview(bytes(self._left) + data)
        self._watch()
        return True

    def hang_up(self) -> None:
        """Nothing more will be added."""
        self._open = False
        if not self._left:
            self.close()

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._wheel.watch(self._fileno, self._ready, selectors.EVENT_WRITE)

    def _ready(self) -> None:
        if self._file.closed:
            return
        self._wheel.rush()
        try:
            self._left = self._left[os.write(self._fileno, self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it closed its stdin, or is gone
            self._left, self._open = self._left[:0], False
        if not self._left:
            self._rest()

    def _rest(self) -> None:
        """All is written: close, or wait for more."""
        if not self._open:
            self.close()
        elif self._watched:
            self._watched = False
            self._wheel.unwatch(self._fileno)

    def close(self) -> None:
        """It is at its end. A second call does nothing."""
        if not self._file.closed:
            if self._watched:
                self._watched = False
                self._wheel.unwatch(self._fileno)
            with suppress(OSError):
                self._file.close()
