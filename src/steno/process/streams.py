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

from .event_loop import EventLoop, Timer
from .process_table import open_file_id

READ_CHUNK_BYTES = (
    65536  # what a pipe holds; one read for each turn, so that no stream waits for a louder one
)
FLUSH_THRESHOLD_BYTES = (
    16384  # bytes in one read: a pipe that is filled faster than that would make its writer wait
)
MIN_POLL_SECONDS, MAX_POLL_SECONDS = (
    0.02,
    0.08,
)  # seconds between looks at a growing file: each quiet look doubles the wait


class PipeReader:
    """Reads a pipe until its last writer has closed it."""

    is_finishing = False  # nobody can promise that an end comes: a process that we do not know may hold it open

    def __init__(
        self,
        wheel: EventLoop,
        file: IO[bytes],
        take: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop, self._file, self._on_data, self._on_end = wheel, file, take, ended
        self._fileno = file.fileno()
        self.open_file_id = open_file_id(self._fileno)  # what the system calls it
        os.set_blocking(self._fileno, False)
        wheel.watch(self._fileno, self._on_readable)

    @property
    def is_open(self) -> bool:
        """Whether more can come."""
        return not self._file.closed

    @property
    def can_have_writers(self) -> bool:
        """Whether somebody may still hold it: its end is the end of the last one."""
        return self.is_open

    def _on_readable(self) -> None:
        if self._file.closed:
            return  # closed by a call of the same turn
        try:
            data = os.read(self._fileno, READ_CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            if len(data) >= FLUSH_THRESHOLD_BYTES:
                self._loop.flush()
            self._on_data(data)
        else:
            self.close()
            self._on_end()

    def finish(self) -> None:
        """No writer is left that we know of: a pipe tells its end by itself."""

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        if not self._file.closed:
            self._loop.unwatch(self._fileno)
            self._file.close()


class FileTail:
    """Reads a file while a child appends to it. It has no end of its own: `finish` says that no writer is left."""

    can_have_writers = True  # nothing tells when the last one has closed it

    def __init__(
        self, wheel: EventLoop, take: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        self._loop, self._on_data, self._on_end = wheel, take, ended
        file, path = tempfile.mkstemp(prefix="steno-")
        try:
            self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # for reading only: who has it from us is no writer
            self.writer_fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        finally:
            os.close(file)
            Path(path).unlink()  # no name: nothing is left on the disk, however we end
        self.open_file_id = open_file_id(self._file.fileno())
        self.is_finishing = False  # what is there is read to its end, and then it is closed
        self._poll_delay = MIN_POLL_SECONDS
        self._timer: Timer = wheel.call_later(self._poll_delay, self._poll)

    @property
    def is_open(self) -> bool:
        """Whether more can come."""
        return not self._file.closed

    def _poll(self) -> None:
        data = os.read(self._file.fileno(), READ_CHUNK_BYTES * 4)
        if data:
            self._on_data(data)
        elif self.is_finishing:
            self.close()
            self._on_end()
        if not self._file.closed:
            self._poll_delay = (
                MIN_POLL_SECONDS if data else min(self._poll_delay * 2, MAX_POLL_SECONDS)
            )
            self._timer = self._loop.call_later(0.0 if data else self._poll_delay, self._poll)

    def finish(self) -> None:
        """No writer is left: the end of the file is the end."""
        if not (self.is_finishing or self._file.closed):
            self.is_finishing = True
            self._timer.cancel()
            self._timer = self._loop.call_later(0.0, self._poll)

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self._timer.cancel()
        self._file.close()


class StdinWriter:
    """Writes the prompt, and what is said later, as the child takes it. A child that does not want it is nobody's fault."""

    def __init__(
        self, wheel: EventLoop, file: IO[bytes], data: bytes, keep_open: bool = False
    ) -> None:
        self._loop, self._file, self._pending = wheel, file, memoryview(data)
        self._accepts_more = keep_open
        self._fileno = file.fileno()
        os.set_blocking(self._fileno, False)
        self._is_watched = False
        self._start_watching()

    def write(self, data: bytes) -> bool:
        """More to write; False if it is at its end."""
        if self._file.closed or not self._accepts_more:
            return False
        self._pending = memoryview(bytes(self._pending) + data)
        self._start_watching()
        return True

    def close_when_written(self) -> None:
        """Nothing more will be added."""
        self._accepts_more = False
        if not self._pending:
            self.close()

    def _start_watching(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.watch(self._fileno, self._on_writable, selectors.EVENT_WRITE)

    def _on_writable(self) -> None:
        if self._file.closed:
            return
        self._loop.flush()
        try:
            self._pending = self._pending[
                os.write(self._fileno, self._pending[:READ_CHUNK_BYTES]) :
            ]
        except BlockingIOError:
            return
        except OSError:  # it closed its stdin, or is gone
            self._pending, self._accepts_more = self._pending[:0], False
        if not self._pending:
            self._on_all_written()

    def _on_all_written(self) -> None:
        """All is written: close, or wait for more."""
        if not self._accepts_more:
            self.close()
        elif self._is_watched:
            self._is_watched = False
            self._loop.unwatch(self._fileno)

    def close(self) -> None:
        """It is at its end. A second call does nothing."""
        if not self._file.closed:
            if self._is_watched:
                self._is_watched = False
                self._loop.unwatch(self._fileno)
            with suppress(OSError):
                self._file.close()
