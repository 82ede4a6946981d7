"""stderr that nobody waits for: what is written there is written by a thread, in order. A stuck terminal delays nothing.

It is written beside something that must not be held up. Where nobody takes what is written, it is lost without a word.
"""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

import msgspec

from ..errors import StenoError
from ..event import Event
from ..runner.background_queue import BackgroundQueue
from ..views.sanitize import escape_json

MAX_PENDING_CHARS = 1 << 20  # letters that may wait for a terminal that stands still
FLUSH_TIMEOUT_SECONDS = 30.0  # seconds at the end: somebody may have stopped the terminal to read
IDLE_INTERVAL_SECONDS = 0.2  # seconds between two looks at what there is to say


class StderrWriter:
    """As much of a text stream as a screen needs. `live`: it may be a terminal on which a line can be taken back.

    `idle` is called now and then in between, by the thread that writes. `waiting` is how many letters may wait.
    """

    def __init__(
        self,
        stream: TextIO | None,
        live: bool,
        idle: Callable[[], None] | None = None,
        max_pending: int = MAX_PENDING_CHARS,
    ) -> None:
        self.encoding = stream.encoding if stream is not None else "ascii"
        self._stream, self._is_live = stream, live
        self._fd = stream.fileno() if stream is not None else -1
        self._queue: BackgroundQueue[bytes] = BackgroundQueue(
            self._write_bytes, max_pending, "steno stderr", idle, IDLE_INTERVAL_SECONDS
        )

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
        while (
            self._queue.pending_count and self._queue.problem is None and time.monotonic() < until
        ):
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


MAX_PENDING_BYTES = 64 << 20  # bytes that may wait for whoever reads them

encode = msgspec.json.Encoder().encode


class EventFile:
    """Where the events go. StenoError: they cannot."""

    def __init__(self, where: str) -> None:
        self._target = where
        self._fd = _open_target(
            where
        )  # -1: a named pipe that nobody may read yet; it is opened by the thread
        self._lines = self._lost_events = 0
        self._queue: BackgroundQueue[bytes] = BackgroundQueue(
            self._write, MAX_PENDING_BYTES, "steno events"
        )

    def put(self, events: list[Event]) -> None:
        """Have them written, a line each."""
        if events:
            data = b"\n".join(map(encode, events)) + b"\n"
            if not self._queue.put(data, len(data)):
                self._lost_events += len(events)

    def finish(self) -> str | None:
        """Wait until all are written, but not for ever; what went wrong, if anything did."""
        done = self._queue.finish(FLUSH_TIMEOUT_SECONDS)
        problem = self._queue.problem
        if problem is not None:
            return f"--json-events {self._target}: {getattr(problem, 'strerror', None) or problem}"
        if self._lost_events:
            return f"--json-events {self._target}: {self._lost_events} events were lost: whoever reads them is too slow"
        return None if done else f"--json-events {self._target}: nobody reads what is left"

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._fd = os.open(self._target, os.O_WRONLY)
        write_all(self._fd, escape_json(data) if os.isatty(self._fd) else data)


def _open_target(where: str) -> int:
    if where.isdecimal():
        return _check_descriptor(int(where))
    with suppress(OSError):
        found = os.stat(where)  # noqa: PTH116
        if _is_stdin_or_stdout(found):
            raise StenoError(
                f"--json-events {where}: it is stdin or stdout, and they belong to the stream; name another file"
            )
        if stat.S_ISFIFO(found.st_mode):
            return -1
    try:
        return os.open(where, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as problem:
        raise StenoError(f"--json-events {where}: cannot be written: {problem.strerror}") from None


def _check_descriptor(number: int) -> int:
    """A descriptor that was handed to us. stdin and stdout are the stream's."""
    if number < 2:
        raise StenoError(
            f"--json-events {number}: stdin and stdout belong to the stream; for a file of that name: ./{number}"
        )
    try:
        os.write(number, b"")
        found = os.fstat(number)
    except (OSError, OverflowError) as problem:
        hint, why = (
            f"for a file of that name: ./{number}",
            getattr(problem, "strerror", None) or "there is none of that number",
        )
        raise StenoError(
            f"--json-events {number}: no descriptor that can be written ({why}); {hint}"
        ) from None
    if _is_stdin_or_stdout(found):
        raise StenoError(
            f"--json-events {number}: it leads to stdin or stdout, and they belong to the stream"
        )
    return number


def _is_stdin_or_stdout(found: os.stat_result) -> bool:
    """Whether it is the file, the pipe or the socket that the stream comes from or goes to. A device is nobody's."""
    for own in (0, 1):
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(own)) and not stat.S_ISCHR(found.st_mode):
                return True
    return False
