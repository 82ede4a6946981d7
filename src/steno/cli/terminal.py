"""The ends of the program: what stdout can show, lines out to it, complaints to stderr, stdin in. It never reads a recording."""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, TextIO

from ..screen.clean import TAB_WIDTH, clean, escape_json

if TYPE_CHECKING:
    from ..screen.look import PageStyle

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
    from ..screen.look import MIN_COLUMNS, PageStyle

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
        from ..screen.look import ASCII_FALLBACKS

        data = text.translate(ASCII_FALLBACKS).encode(encoding, "backslashreplace")
    write_bytes(data)
    if is_terminal(sys.stdout):
        sys.stdout.buffer.flush()


def print_text(text: str) -> None:
    """A text that an agent wrote: made safe for a terminal, as it is elsewhere. Of none nothing is written."""
    if not is_terminal(sys.stdout):
        write_bytes(text.encode("utf-8", "replace") + b"\n" * bool(text and not text.endswith("\n")))
    elif text:
        print_lines(clean(line.expandtabs(TAB_WIDTH)) for line in text.replace("\r\n", "\n").split("\n"))


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
    from ..report import SourceError

    if sys.stdin is None:
        raise SourceError("stdin is closed: give a file or a folder")
    return sys.stdin.buffer
