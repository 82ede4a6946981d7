"""The terminal: styles, errors, progress, and signals that end a command."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TextIO

from ..executables import find_executable
from ..views.formatting import TAB_WIDTH, clean, escape_json

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_by_signal(number: int) -> NoReturn:
    """Terminate by a signal, without a core dump; SystemExit with its code if it is blocked."""
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


class StopSignal(BaseException):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise StopSignal at the first signal; the second one ends the process.

    Signals that were ignored before stay ignored.
    """
    numbers = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    old_handlers = {number: signal.getsignal(number) for number in numbers}

    def on_signal(number: int, frame: object) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_DFL)
        raise StopSignal(number)

    for number in numbers:
        signal.signal(number, on_signal)
    try:
        yield
    except StopSignal as received:  # where nothing had to be finished
        exit_by_signal(received.number)
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


if TYPE_CHECKING:
    from ..views.table import PageStyle

DEFAULT_COLUMNS = 80  # without a terminal
SYNC_FAILURE_PREFIX = "[steno] ✗"  # of sync messages that report a failure


def print_error(text: str) -> None:
    """Print one line to stderr, with the program's name and without secrets."""
    from ..codec.redact import redact

    if sys.stderr is not None:
        print(f"steno: {clean(redact(text))}", file=sys.stderr, flush=True)


def is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty())


def detect_style(stream: TextIO | None = None) -> "PageStyle":
    """Width and colours of stdout or another stream: COLUMNS, NO_COLOR, FORCE_COLOR, terminal."""
    from ..views.table import MIN_COLUMNS, PageStyle

    stream = sys.stdout if stream is None else stream
    on_terminal = is_terminal(stream)
    value = os.environ.get("COLUMNS", "")
    columns = int(value) if value.isdecimal() and len(value) < 6 else 0
    if not columns and on_terminal:
        columns = os.get_terminal_size(stream.fileno()).columns
    limit = max(MIN_COLUMNS, columns) if columns else None
    has_colour = on_terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("NO_COLOR"):
        has_colour = False
    elif os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        has_colour = True
    return PageStyle(limit or DEFAULT_COLUMNS, limit, has_colour)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to stdout. Characters outside its encoding are escaped or replaced by ASCII."""
    text = "".join(line + "\n" for line in lines)
    encoding = sys.stdout.encoding or "ascii"
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        from ..views.table import ASCII_FALLBACKS

        data = text.translate(ASCII_FALLBACKS).encode(encoding, "backslashreplace")
    write_bytes(data)
    if is_terminal(sys.stdout):
        sys.stdout.buffer.flush()


def _pager_command() -> list[str]:
    """The command in STENO_PAGER or PAGER, else less; empty if it is `cat` or an empty text."""
    from shlex import split

    value = os.environ.get("STENO_PAGER", os.environ.get("PAGER", "less"))
    try:
        command = split(value)
    except ValueError:  # an unclosed quote
        return []
    return [] if command == ["cat"] else command


@contextmanager
def pager() -> Iterator[None]:
    """Send stdout through the user's pager, if it is a terminal and there is one.

    If the pager is closed early, the rest of the output is dropped.
    """
    command = _pager_command() if is_terminal(sys.stdout) else []
    program = find_executable(command[0]) if command else None
    if program is None:
        yield
        return
    from subprocess import PIPE, Popen

    environment = {"LESS": "FRX", "LESSCHARSET": "utf-8", **os.environ}
    sys.stdout.flush()
    try:
        words = [program, *command[1:]]
        process = Popen(words, stdin=PIPE, env=environment)  # noqa: S603  # the user's own
    except OSError:  # not installed
        yield
        return
    terminal = os.dup(1)
    if process.stdin is not None:
        os.dup2(process.stdin.fileno(), 1)
        process.stdin.close()
    try:
        with suppress(BrokenPipeError, KeyboardInterrupt):
            yield
            sys.stdout.flush()
    finally:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        sys.stdout.flush()  # what the pager did not take
        while process.poll() is None:
            with suppress(KeyboardInterrupt):  # the pager handles Ctrl-C itself
                process.wait()
        os.dup2(terminal, 1)
        os.close(terminal)


def print_text(text: str) -> None:
    """Print an agent's text: sanitized on a terminal, unchanged elsewhere; nothing if empty."""
    if not is_terminal(sys.stdout):
        newline = b"\n" if text and not text.endswith("\n") else b""
        write_bytes(text.encode("utf-8", "replace") + newline)
    elif text:
        print_lines(
            clean(line.expandtabs(TAB_WIDTH)) for line in text.replace("\r\n", "\n").split("\n")
        )


def print_json(data: bytes) -> None:
    """Print a line of JSON to stdout, with terminal control characters escaped."""
    write_bytes(escape_json(data) + b"\n")


def write_bytes(data: bytes) -> None:
    """Write all bytes to stdout. With PYTHONUNBUFFERED a single write may be partial."""
    write = sys.stdout.buffer.write
    rest = memoryview(data)
    while rest:
        rest = rest[write(rest) :]


def stdin_bytes() -> BinaryIO:
    """stdin as a binary file; SourceError if it is closed."""
    from ..errors import SourceError

    if sys.stdin is None:
        raise SourceError("stdin is closed; give a file or folder")
    return sys.stdin.buffer


INITIAL_DELAY_SECONDS = 1.0  # most commands finish earlier, and show no progress
REDRAW_SECONDS = 0.1
CLOCK_CHECK_BYTES = 1 << 20  # bytes between two reads of the clock


class Progress:
    """A progress line on stderr for reading files, if that is a terminal."""

    def __init__(self, total: int, is_shown: bool = True) -> None:
        self.total_files = total
        self.done_files = 0
        self.done_bytes = 0
        self.total_bytes = 0  # 0 if unknown
        self.is_shown = is_shown and is_terminal(sys.stderr)
        self.started_at = time.monotonic()
        self._next_draw = self.started_at + INITIAL_DELAY_SECONDS
        self._is_drawn = False

    def track(self, data: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes, counted for the progress line."""
        next_check = self.done_bytes
        for chunk in data:
            self.done_bytes += len(chunk)
            if self.done_bytes >= next_check:
                next_check = self.done_bytes + CLOCK_CHECK_BYTES
                self._draw()
            yield chunk

    def update(self, done_bytes: int, total_bytes: int) -> None:
        self.done_bytes = done_bytes
        self.total_bytes = total_bytes
        if self.is_shown:
            self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next_draw:
            return
        self._next_draw = now + REDRAW_SECONDS
        self._is_drawn = True
        rate = self.done_bytes / 1e6 / (now - self.started_at)
        text = f"{self.done_files} of {self.total_files} read, {self.done_bytes / 1e6:,.1f} MB"
        if self.total_bytes:
            part = f"{self.done_bytes / self.total_bytes:.0%}"
            text = f"{self.done_bytes / 1e6:,.1f} of {self.total_bytes / 1e6:,.1f} MB ({part})"
        sys.stderr.write(f"\r\x1b[Ksteno: {text}, {rate:,.1f} MB/s")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line before something else is printed."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False


class StepProgress:
    """A progress line that counts items: `with StepProgress("texts") as steps: ...`."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.is_shown = is_terminal(sys.stderr)
        self._next_draw = time.monotonic() + INITIAL_DELAY_SECONDS
        self._is_drawn = False

    def __enter__(self) -> "StepProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Erase the line before something else is printed."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False

    def update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.is_shown and now >= self._next_draw:
            self._next_draw = now + REDRAW_SECONDS
            self._is_drawn = True
            sys.stderr.write(f"\r\x1b[Ksteno: {done:,} of {total:,} {self.noun}")
            sys.stderr.flush()
