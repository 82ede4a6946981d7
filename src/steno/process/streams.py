"""Non-blocking stdin, stdout and stderr of a child. Bytes are moved, never interpreted."""

import os
import selectors
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from .event_loop import EventLoop, Timer
from .process_tree import open_file_id

READ_CHUNK_BYTES = 65536  # a pipe's capacity; one read per step, so that no stream starves others
FLUSH_THRESHOLD_BYTES = 16384  # bytes in one read: a pipe filled faster would block its writer
MIN_POLL_SECONDS = 0.02  # between reads of a growing file; each empty read doubles the delay
MAX_POLL_SECONDS = 0.08


class PipeReader:
    """Reads a pipe until its last writer has closed it."""

    is_finishing = False  # end of file may never come: an unknown process may keep the pipe open

    def __init__(
        self,
        loop: EventLoop,
        file: IO[bytes],
        on_data: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._file = file
        self._on_data = on_data
        self._on_end = on_end
        self._fileno = file.fileno()
        self.is_open = True  # more data can come
        os.set_blocking(self._fileno, False)
        loop.watch(self._fileno, self._on_readable)

    @property
    def open_file_id(self) -> str:
        """For the search of its writers; "" after its end, which means that there are none."""
        return open_file_id(self._fileno) if self.is_open else ""

    def _on_readable(self) -> None:
        if not self.is_open:
            return  # closed by another call of the same step
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

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._fileno)
            self._file.close()


class FileTail:
    """Reads a file while a child appends to it. `finish` marks its end: no writer is left."""

    def __init__(
        self, loop: EventLoop, on_data: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._on_data = on_data
        self._on_end = on_end
        file, path = tempfile.mkstemp(prefix="steno-")
        try:
            # Read-only: a process that inherits this descriptor must not count as a writer.
            self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # closed by close()
            self.writer_fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        finally:
            os.close(file)
            Path(path).unlink()  # nothing stays on disk, also after a crash
        # A file does not signal when its last writer closed it: known also after `close`.
        self.open_file_id = open_file_id(self._file.fileno())
        self.is_open = True  # more data can come
        self.is_finishing = False  # reading the rest; closes at the end of the file
        self._poll_delay = MIN_POLL_SECONDS
        self._timer: Timer = loop.call_later(self._poll_delay, self._poll)

    def _poll(self) -> None:
        data = os.read(self._file.fileno(), READ_CHUNK_BYTES * 4)
        if data:
            self._on_data(data)
        elif self.is_finishing:
            self.close()
            self._on_end()
        if self.is_open:
            doubled = min(self._poll_delay * 2, MAX_POLL_SECONDS)
            self._poll_delay = MIN_POLL_SECONDS if data else doubled
            self._timer = self._loop.call_later(0.0 if data else self._poll_delay, self._poll)

    def finish(self) -> None:
        """No writer is left: read to the end of the file, then close."""
        if self.is_open and not self.is_finishing:
            self.is_finishing = True
            self._timer.cancel()
            self._timer = self._loop.call_later(0.0, self._poll)

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        self.is_open = False
        self._timer.cancel()
        self._file.close()


class StdinWriter:
    """Writes the prompt and later messages as the child reads them. A closed stdin is no error."""

    def __init__(
        self, loop: EventLoop, file: IO[bytes], data: bytes, keep_open: bool = False
    ) -> None:
        self._loop = loop
        self._file = file
        self._pending = memoryview(data)
        self._accepts_more = keep_open
        self._fileno = file.fileno()
        os.set_blocking(self._fileno, False)
        self._is_watched = False
        self._start_watching()

    def write(self, data: bytes) -> bool:
        """Queue more data; False if stdin is closed."""
        if self._file.closed or not self._accepts_more:
            return False
        self._pending = memoryview(bytes(self._pending) + data)
        self._start_watching()
        return True

    def close_when_written(self) -> None:
        """Accept no more data; close once the queued data is written."""
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
            written = os.write(self._fileno, self._pending[:READ_CHUNK_BYTES])
            self._pending = self._pending[written:]
        except BlockingIOError:
            return
        except OSError:  # the child closed its stdin, or exited
            self._pending = self._pending[:0]
            self._accepts_more = False
        if not self._pending:
            self._on_all_written()

    def _on_all_written(self) -> None:
        if not self._accepts_more:
            self.close()
        elif self._is_watched:
            self._is_watched = False
            self._loop.unwatch(self._fileno)

    def close(self) -> None:
        """Close stdin. A second call does nothing."""
        if not self._file.closed:
            if self._is_watched:
                self._is_watched = False
                self._loop.unwatch(self._fileno)
            with suppress(OSError):
                self._file.close()
