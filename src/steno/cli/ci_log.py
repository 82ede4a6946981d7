"""Keep text of agents from being executed as commands of the CI system that reads our output.

GitHub Actions runs `::command::` at the start of a line and `##[command]` anywhere in it, Azure
Pipelines `##vso[...]`, TeamCity `##teamcity[...]`, on stdout and stderr alike. A space in between
makes a command harmless. In a line of JSON, the bracket is escaped instead: the value stays exact.
Streams that are files stay as they are: they are no log.
"""

import io
import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# The runner skips whatever .NET calls white space before `::`, and a byte order mark.
_SPACE_CHARACTERS = "\t\v\f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_SPACE = b"(?:%s)*+" % b"|".join(char.encode() for char in _SPACE_CHARACTERS)
_COMMAND_BRACKET = re.compile(rb"(##[A-Za-z]{0,16})\[")
_COMMAND_COLONS = re.compile(rb"\A(%s:):" % _SPACE)
_JSON_START = re.compile(rb'%s[{"]' % _SPACE)
# What may become `::` at the start of a line, also with a character of which bytes are missing.
_UNDECIDED = re.compile(rb"%s(:?|[\xc2-\xef][\x80-\xbf]?)\Z" % _SPACE)
_OPEN_BRACKET = re.compile(rb"##?[A-Za-z]{0,16}\Z")
_LINE_END = re.compile(rb"(?<=[\r\n])")


class LogGuard:
    """Changes the bytes of one stream, in which a command may come in pieces."""

    def __init__(self) -> None:
        self._line = b""  # stands for the current line so far
        self._lock = Lock()

    def protect(self, data: bytes) -> bytes:
        """The data without commands, and without the end of one that began before."""
        with self._lock:
            before = self._line
            lines = _LINE_END.split(before + data)
            self._line = _shorten(lines[-1])
        return b"".join(map(_protect_line, lines))[len(before) :]


def _protect_line(line: bytes) -> bytes:
    if _JSON_START.match(line):
        return _COMMAND_BRACKET.sub(rb"\1\\u005b", line)
    return _COMMAND_COLONS.sub(rb"\1 :", _COMMAND_BRACKET.sub(rb"\1 [", line))


def _shorten(line: bytes) -> bytes:
    """A short line that continues in the same way."""
    undecided = _UNDECIDED.match(line)
    if undecided is not None:
        return undecided[1]
    bracket = _OPEN_BRACKET.search(line)
    return (b"{" if _JSON_START.match(line) else b"x") + (bracket[0] if bracket else b"")


# -- the streams of this process -------------------------------------------------------------------

_guards: dict[int, LogGuard] = {}  # by descriptor


def protect(descriptor: int, data: bytes) -> bytes:
    """What may be written to a descriptor instead of the data."""
    guard = _guards.get(descriptor)
    return data if guard is None else guard.protect(data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, also to a non-blocking descriptor."""
    rest = memoryview(protect(descriptor, data))
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def has_command(descriptor: int, data: bytes) -> bool:
    """Whether a guard would change the data."""
    return descriptor in _guards and LogGuard().protect(data) != data


@contextmanager
def unguarded(stream: TextIO) -> Iterator[None]:
    """Print exactly: workflow commands of our own, or a binary document."""
    stream.flush()
    guards = _guards.copy()
    _guards.clear()
    try:
        yield
        stream.flush()
    finally:
        _guards.update(guards)


def print_commands(stream: TextIO, commands: Iterable[str]) -> None:
    """Print workflow commands of our own."""
    text = "".join(f"{command}\n" for command in commands)
    encoding = stream.encoding or "ascii"
    with unguarded(stream):
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def guard_output() -> None:
    """Protect what this process prints from now on."""
    by_file: dict[tuple[int, int], LogGuard] = {}  # stdout and stderr may be the same pipe
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        descriptor = _log_descriptor(stream)
        if descriptor is None or isinstance(getattr(stream.buffer, "raw", None), _GuardedFile):
            continue
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        _guards[descriptor] = by_file.setdefault(key, LogGuard())
        setattr(sys, name, _guarded_stream(stream, descriptor))


def _log_descriptor(stream: TextIO | None) -> int | None:
    """The descriptor of a stream; None if it is a file, or replaced by an object without one."""
    try:
        descriptor = -1 if stream is None else stream.fileno()
        return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor
    except (OSError, ValueError):
        return None


class _GuardedFile(io.RawIOBase):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer") -> int:
        chunk = bytes(data)
        write_all(self._descriptor, chunk)
        return len(chunk)


def _guarded_stream(stream: TextIO, descriptor: int) -> io.TextIOWrapper:
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_GuardedFile(descriptor)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )
