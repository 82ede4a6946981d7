"""Which files are recordings, going by their content.

Usually the first line shows it. Else the file is parsed until a line, an array or a document is an
agent's, wherever it begins.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec import Raw, Struct

from ..agents.line_shapes import describe_other
from ..codec.decode import decode_raw
from ..errors import SourceError
from .format import parse_header
from .lines import READ_CHUNK_BYTES, read_lines
from .parse import RunParser

FIRST_LINE_BUFFER_BYTES = 1 << 13  # for reading only the first line
BINARY_CHECK_BYTES = 1 << 16  # checked to reject binary files
# Read of a file that was found in a folder, and whose first line is no agent's.
MAX_FOUND_BYTES = 4 << 20
MAX_DESCRIBED_LINES = 1000  # read to say what a refused file looks like
MAX_LISTED_FILES = 3
EXPECTED_INPUT = (
    "expected an agent's output or transcript (JSON lines or documents, plain or compressed with "
    "gzip or zstd), or a steno recording"
)


class FileIdentity(Struct):
    """What a recording is: a steno recording, or the output of an agent, empty if unknown.

    `line` is the first object that shows the agent.
    """

    is_steno_recording: bool = False
    agent: str = ""
    line: bytes = b""


def identify(path: Path, given: bool = False) -> FileIdentity | None:
    """Identify a file, found in a folder or named by the user (`given`); None: no recording.

    One line of an agent is enough in a file named by the user. Other texts may quote such a line:
    in a file found in a folder, half of the text must be the agent's, or a whole run.
    """
    first = read_first_line(path)
    if first is None:
        return FileIdentity() if given else None  # a run that printed nothing
    header = parse_header(first)
    if header is not None:
        return FileIdentity(is_steno_recording=True, agent=header.agent or "")
    if not given and b"\x00" in first:
        return None  # binary
    try:
        return _identify_given(path) if given else _identify_found(path)
    except SourceError:
        return None


def _identify_given(path: Path) -> FileIdentity | None:
    parser = RunParser()
    lines = read_lines(path, problems=[])
    try:
        for data in lines:
            parser.parse_line(data, data[-1:] != b"\n")
            if parser.identifying_line is not None:
                break
        parser.flush()
    finally:
        lines.close()
    counts = parser.lines
    is_torn = counts.torn and counts.read - counts.blank == 1  # nothing but the start of a line
    return FileIdentity() if is_torn and parser.identifying_line is None else _identity(parser)


def _identity(parser: RunParser) -> FileIdentity | None:
    line = parser.identifying_line
    return None if line is None else FileIdentity(agent=parser.agent.name, line=line)


def _identify_found(path: Path) -> FileIdentity | None:
    parser = RunParser()
    counts = parser.lines
    foreign: int | None = None  # objects before the first one of an agent
    size = 0
    lines = read_lines(path, FIRST_LINE_BUFFER_BYTES, [])
    try:
        for data in lines:
            parser.accumulator.add(parser.parse_line(data, data[-1:] != b"\n"))
            if foreign is None and parser.identifying_line is not None:
                foreign = parser.accumulator.unknown
                if foreign + counts.malformed + counts.not_object == 0:
                    return _identity(parser)
            size += len(data)
            if size > MAX_FOUND_BYTES:
                break
        parser.accumulator.add(parser.flush())
    finally:
        lines.close()
    others = (foreign or 0) + counts.malformed + counts.not_object
    is_run = bool(parser.accumulator.results) and parser.accumulator.session is not None
    is_own = is_run or 2 * others <= counts.read - counts.blank
    return _identity(parser) if is_own else None


# -- parts of files --------------------------------------------------------------------------------


def is_pipe(path: Path) -> bool:
    """Whether it can be read only once: a named pipe, a terminal, a socket."""
    try:
        return path.is_fifo() or path.is_char_device() or path.is_socket()
    except OSError:
        return False


def read_first_line(path: Path) -> bytes | None:
    """The first line that is not blank; None without one or if the file cannot be read."""
    return next(_first_lines(path), None)


def _first_lines(path: Path) -> Iterator[bytes]:
    """The lines that are not blank, as far as the file can be read."""
    lines = read_lines(path, FIRST_LINE_BUFFER_BYTES)
    try:
        yield from (line for line in lines if line.strip())
    except SourceError:
        return
    finally:
        lines.close()


def read_start(path: Path, max_bytes: int) -> bytes:
    """The beginning of a file, as far as it can be read: at most `max_bytes`."""
    lines = read_lines(path, min(READ_CHUNK_BYTES, max_bytes), [])
    start = bytearray()
    try:
        while len(start) < max_bytes and (line := next(lines, b"")):
            start += line
    finally:
        lines.close()
    return bytes(start[:max_bytes])


def is_binary(head: bytes) -> bool:
    """Whether the data has NUL bytes and no line that opens a JSON object or array."""
    if b"\x00" not in head:
        return False
    lines = (line.lstrip(b"\xef\xbb\xbf \t\r\x00").rstrip() for line in head.split(b"\n"))
    return not any(
        line[:2] in (b'{"', b"{}", b"[{", b"[]") or line in (b"{", b"[") for line in lines
    )


def is_binary_file(path: Path) -> bool:
    """Whether a file has binary data. Pipes are not read: that is possible only once."""
    return not is_pipe(path) and is_binary(read_start(path, BINARY_CHECK_BYTES))


# -- messages --------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    """Why a file named by the user is no recording, and what was expected."""
    what = describe(path)
    if what == "empty":
        return f"file is empty; {EXPECTED_INPUT}"
    if what == "binary data":
        return f"binary data; {EXPECTED_INPUT}"
    return f"not a recording; {EXPECTED_INPUT}; found {what}"


def describe(path: Path) -> str:
    """What a file that is no recording looks like."""
    try:
        if is_binary_file(path):
            return "binary data"
        parser = RunParser()
        for data in islice(_first_lines(path), MAX_DESCRIBED_LINES):
            parser.parse_line(data, data[-1:] != b"\n")
    except SourceError as error:
        return error.strerror or "unreadable"
    parser.flush()
    if parser.identifying_line is not None:
        return f"text with lines of {parser.agent.name}; name the file to read them"
    if parser.first_unknown is not None:
        value = decode_raw(Raw(parser.first_unknown))
        return describe_other(value) if isinstance(value, dict) else "JSON of an unknown format"
    return "text" if parser.lines.read > parser.lines.blank else "empty"


def skipped_message(files: list[Path]) -> str:
    """Which files below a folder are not recordings, and what the first of them look like."""
    names = [f"{_short(path)} ({describe(path)})" for path in files[:MAX_LISTED_FILES]]
    more = len(files) - len(names)
    rest = [f"{more} more"] if more > 0 else []
    noun = "file that is not a recording" if len(files) == 1 else "files that are not recordings"
    return f"skipped {len(files)} {noun}: {', '.join(names + rest)}"


def _short(path: Path) -> Path:
    """The path, relative to the current folder if it is below it."""
    current = Path.cwd()
    return path.relative_to(current) if path.is_relative_to(current) else path
