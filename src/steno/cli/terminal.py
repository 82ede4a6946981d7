"""The ends of the program: what stdout can show, lines out to it, complaints to stderr, stdin in. It never reads a recording."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, TextIO

from ..views.sanitize import TAB_WIDTH, clean, escape_json

if TYPE_CHECKING:
    from ..views.layout import PageStyle

DEFAULT_COLUMNS = 80  # of a page where there is no terminal


SYNC_FAILURE_PREFIX = "[steno] ✗"  # how a line of a sync begins that tells of a failure


def print_error(text: str) -> None:
    """One line on stderr."""
    if sys.stderr is not None:
        print(f"steno: {clean(text)}", file=sys.stderr, flush=True)


def is_terminal(stream: object) -> bool:
    """Whether a person sees what is written there."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty())


def detect_style(stream: TextIO | None = None) -> "PageStyle":
    """How stdout (or another stream) is to be written: the terminal's width and colours, and what the user asked for."""
    from ..views.layout import MIN_COLUMNS, PageStyle

    stream = sys.stdout if stream is None else stream
    seen = is_terminal(stream)
    given = os.environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() and len(given) < 6 else 0
    if not columns and seen:
        columns = os.get_terminal_size(stream.fileno()).columns
    limit = max(MIN_COLUMNS, columns) if columns else None
    return PageStyle(limit or DEFAULT_COLUMNS, limit, _has_colour(seen))


def _has_colour(seen: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return seen and os.environ.get("TERM") != "dumb"


def print_lines(lines: Iterable[str]) -> None:
    """Lines to stdout. Letters that its encoding lacks are written out; our own get an ASCII stand-in."""
    text = "".join(line + "\n" for line in lines)
    encoding = sys.stdout.encoding or "ascii"
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        from ..views.layout import ASCII_FALLBACKS

        data = text.translate(ASCII_FALLBACKS).encode(encoding, "backslashreplace")
    write_bytes(data)
    if is_terminal(sys.stdout):
        sys.stdout.buffer.flush()


def print_text(text: str) -> None:
    """A text that an agent wrote: made safe for a terminal, as it is elsewhere. Of none nothing is written."""
    if not is_terminal(sys.stdout):
        write_bytes(
            text.encode("utf-8", "replace") + b"\n" * bool(text and not text.endswith("\n"))
        )
    elif text:
        print_lines(
            clean(line.expandtabs(TAB_WIDTH)) for line in text.replace("\r\n", "\n").split("\n")
        )


def print_json(data: bytes) -> None:
    """A line of JSON to stdout, in which nothing that an agent wrote can move the cursor."""
    write_bytes(escape_json(data) + b"\n")


def write_bytes(data: bytes) -> None:
    """Bytes to stdout, all of them: unbuffered (PYTHONUNBUFFERED), a write may take only a part and not say so."""
    write, rest = sys.stdout.buffer.write, memoryview(data)
    while rest:
        rest = rest[write(rest) :]


def stdin_bytes() -> BinaryIO:
    """The program's stdin; SourceError if it has none."""
    from ..errors import SourceError

    if sys.stdin is None:
        raise SourceError("stdin is closed: give a file or a folder")
    return sys.stdin.buffer


INITIAL_DELAY_SECONDS = 1.0  # seconds before anything is shown: most work is over by then
REDRAW_SECONDS = 0.1  # seconds between two pictures
CLOCK_CHECK_BYTES = 1 << 20  # bytes between two looks at the clock


class Progress:
    """How far the work is."""

    def __init__(self, total: int, is_shown: bool = True) -> None:
        self.total_files, self.done_files, self.done_bytes = total, 0, 0
        self.total_bytes = 0  # bytes in all, where that is known
        self.is_shown = is_shown and is_terminal(sys.stderr)
        self.started_at = time.monotonic()
        self._next_draw, self._is_drawn = self.started_at + INITIAL_DELAY_SECONDS, False

    def track(self, data: Iterable[bytes]) -> Iterable[bytes]:
        """The same bytes, counted as they pass."""
        return self._track(data) if self.is_shown else data

    def _track(self, data: Iterable[bytes]) -> Iterator[bytes]:
        mark = self.done_bytes
        for piece in data:
            self.done_bytes += len(piece)
            if self.done_bytes >= mark:
                mark = self.done_bytes + CLOCK_CHECK_BYTES
                self._draw()
            yield piece

    def update(self, size: int, whole: int) -> None:
        """So many bytes of so many are done."""
        self.done_bytes, self.total_bytes = size, whole
        if self.is_shown:
            self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next_draw:
            return
        self._next_draw, self._is_drawn = now + REDRAW_SECONDS, True
        rate = self.done_bytes / 1e6 / (now - self.started_at)
        what = f"{self.done_files} of {self.total_files} read, {self.done_bytes / 1e6:,.1f} MB"
        if self.total_bytes:
            what = f"{self.done_bytes / 1e6:,.1f} of {self.total_bytes / 1e6:,.1f} MB ({self.done_bytes / self.total_bytes:.0%})"
        sys.stderr.write(f"\r\x1b[Ksteno: {what}, {rate:,.1f} MB/s")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away, before something else is written."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False


class StepProgress:
    """How many of some things are done, where a person waits for it: `with Steps("texts") as steps: ... steps.show(3, 10)`."""

    def __init__(self, noun: str) -> None:
        self.noun, self.is_shown = noun, is_terminal(sys.stderr)
        self._next_draw, self._is_drawn = time.monotonic() + INITIAL_DELAY_SECONDS, False

    def __enter__(self) -> "StepProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def update(self, done: int, total: int) -> None:
        """Draw the line, if it is time for it."""
        now = time.monotonic()
        if self.is_shown and now >= self._next_draw:
            self._next_draw, self._is_drawn = now + REDRAW_SECONDS, True
            sys.stderr.write(f"\r\x1b[Ksteno: {done:,} of {total:,} {self.noun}")
            sys.stderr.flush()
