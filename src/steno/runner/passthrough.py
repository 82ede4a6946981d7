"""Copies one descriptor to another unchanged and shows the bytes on their way.

Each chunk is written before anything else sees it. Like `cat`, it waits for its reader, and for
nothing else.

Measured against `cat` with `benchmarks.passing` (1,000 lines/s, 2 busy CPUs): p50 at most +5 µs,
p99 +14 µs. tee(2) and wider pipes gave nothing above the noise.
"""

import io
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from select import select

from ..errors import SourceError

MAX_READ_BYTES = 1 << 16  # what a pipe holds; more would not fit malloc's small blocks
MAX_UNSEEN_BYTES = 1 << 16  # passed on without being parsed, while input keeps coming
IDLE_SECONDS = 0.0001  # of silence before parsing: until then the CPU belongs to the reader
MAX_LINE_BYTES = 32 << 20  # the largest lines seen, with images in them, have a few megabytes


class SignalReceived(Exception):  # noqa: N818  # control flow inside this module, not an error
    """`stop` was called during a write."""


class PassThrough:
    """One stream, consumed once: by `chunks`, `lines` or `drain`.

    Once it `is_finished`, both descriptors are released, so that the processes at the other ends
    notice first. The cause: end of input, `is_reader_gone`, `stop_signal` or `problem`.
    """

    def __init__(self, source: int = 0, target: int = 1) -> None:
        self.is_finished = False
        self.is_reader_gone = False
        self.stop_signal: int | None = None
        self.problem: SourceError | OSError | None = None
        self._source = source
        self._target = target
        self._is_writing = False
        self._wakeup_read, self.wakeup_fd = _make_wakeup_pipe(self)

    # -- consumers ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Pass everything on without looking at it."""
        while not self.is_finished:
            self._pass_chunk()

    def chunks(self) -> Iterator[bytes]:
        """The bytes, as they came."""
        for chunks in self._batches():
            yield from chunks

    def lines(self) -> Iterator[list[bytes]]:
        """Complete lines with their newlines, in batches.

        A line longer than MAX_LINE_BYTES comes in pieces.
        """
        held: list[bytes] = []  # the start of a line whose end has not come
        for chunks in self._batches():
            lines = _complete_lines(held, io.BytesIO(b"".join(chunks)).readlines())
            if lines:
                yield lines
        if held:
            yield [b"".join(held)]

    def _batches(self) -> Iterator[list[bytes]]:
        """Chunks that have passed, when there is time to parse them: input pauses, or is a lot."""
        chunks: list[bytes] = []
        size = 0
        while not self.is_finished:
            data = self._pass_chunk()
            if data:
                chunks.append(data)
                size += len(data)
            if chunks and (self.is_finished or size >= MAX_UNSEEN_BYTES or self._is_idle()):
                yield chunks
                chunks = []
                size = 0

    def _is_idle(self) -> bool:
        return not select([self._source], [], [], IDLE_SECONDS)[0]

    # -- bytes -------------------------------------------------------------------------------------

    def _pass_chunk(self) -> bytes:
        """Read once and write all of it. What was read counts even if it cannot be written."""
        data = b""
        try:
            data = self._read()
            self._write(data)
        except SignalReceived:
            pass
        except BrokenPipeError:
            self.is_reader_gone = True
        except (SourceError, OSError) as error:
            self.problem = error
        if not data or self.is_reader_gone or self.problem is not None or self.stop_signal:
            self._release()
        return data

    def _read(self) -> bytes:
        """The next chunk; empty at the end of the input and after `stop`."""
        try:
            while self.stop_signal is None:
                ready = select([self._source, self._wakeup_read], [], [])[0]
                if self._wakeup_read in ready:  # the signal's handler runs before the next round
                    os.read(self._wakeup_read, 64)
                    continue
                try:
                    return os.read(self._source, MAX_READ_BYTES)
                except BlockingIOError:  # O_NONBLOCK is shared with the process that set it
                    continue
        except OSError as error:
            raise SourceError(f"stdin cannot be read: {error.strerror or error}") from None
        return b""

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        self._is_writing = True
        while rest:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:
                select([], [self._target], [])
        self._is_writing = False

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, number: int) -> None:
        """End the stream; called from a signal handler.

        A write to a reader that doesn't read is aborted. A wait for input ends by `wakeup_fd`,
        which belongs into signal.set_wakeup_fd: Python's own handlers miss a signal that comes
        just before the wait.
        """
        self.stop_signal = number
        with suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self.wakeup_fd, b"\0")
        if self._is_writing:
            self._is_writing = False
            raise SignalReceived

    def _release(self) -> None:
        """Close both ends by putting /dev/null in their place, so that no new file gets 0 or 1."""
        self.is_finished = True
        self._is_writing = False
        try:
            null = os.open(os.devnull, os.O_RDWR)
        except OSError:  # too many open files
            os.close(self._source)
            os.close(self._target)
            return
        os.dup2(null, self._source)
        os.dup2(null, self._target)
        os.close(null)


def _make_wakeup_pipe(owner: PassThrough) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
        weakref.finalize(owner, os.close, end)
    return ends


def _complete_lines(held: list[bytes], lines: list[bytes]) -> list[bytes]:
    """Complete lines, the first joined with `held`; the rest of the last one is held."""
    if held:
        held.append(lines[0])
        if lines[0][-1:] != b"\n" and sum(map(len, held)) < MAX_LINE_BYTES:
            return []
        lines[0] = b"".join(held)
        held.clear()
    if lines[-1][-1:] != b"\n" and len(lines[-1]) < MAX_LINE_BYTES:
        held.append(lines.pop())
    return lines
