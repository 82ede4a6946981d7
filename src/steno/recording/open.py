"""Opens recordings, transcripts and folders of them; finds them by their content.

The first line usually decides; the lines after it are checked only if it does not.
"""

import io
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..codec.decode import LineSplitter
from ..errors import SourceError
from .format import parse_header
from .parse import AGENT_DETECTION_LINES, RunParser, iter_json_objects

EXPECTED_INPUT = (
    "expected an agent's output or transcript (JSON lines, plain or compressed with gzip or zstd), "
    "or a steno recording"
)


def find_recordings(path: Path) -> list[Path]:
    """The path itself, or every recording below a folder, sorted. SourceError without any."""
    if not is_folder(path) or (path / "stdout").is_file():
        return [path]
    recordings = list(_find_below(path, set()))
    if not recordings:
        expected = "expected streams, recordings, transcripts or folders with stdout"
        raise SourceError(f"{path}: no recordings in this folder; {expected}")
    return recordings


def is_first_visit(folder: str | Path, visited: set[tuple[int, int]]) -> bool:
    """Whether the folder is new, under any name: symbolic links can form a cycle."""
    stat = os.stat(folder)  # noqa: PTH116  # faster than pathlib, for thousands of folders
    identity = (stat.st_dev, stat.st_ino)
    is_new = identity not in visited
    visited.add(identity)
    return is_new


def _find_below(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir()) if is_first_visit(folder, visited) else []
    except OSError as error:
        raise unreadable_error(folder, error) from None
    for entry in entries:
        if entry.is_dir():
            if (entry / "stdout").is_file():
                if is_first_visit(entry, visited):
                    yield entry
            elif not (entry.name == "subagents" and folder.with_suffix(".jsonl").is_file()):
                yield from _find_below(entry, visited)
        elif entry.is_file() and _is_recording(entry) and not _is_subagent_transcript(entry):
            yield entry


def _is_recording(path: Path, given: bool = False) -> bool:
    """Whether a file is a recording: one found in a folder, or named by the user (`given`)."""
    first = read_first_line(path)
    if first is None:
        return given  # a run that printed nothing
    if parse_header(first) is not None:
        return True
    line = first.removeprefix(b"\xef\xbb\xbf").strip()
    if line.startswith(b"[{"):
        return given or b'"type"' in line
    if agents.detect_agent(line) is not None or find_identifying_line(path, given) is not None:
        return True
    return given and _is_torn(line if line != b"{" else b"".join(read_lines(path)))


def _is_torn(data: bytes) -> bool:
    """Whether a line or document starts like those of agents, but cannot be decoded."""
    if not data.startswith((b'{"', b"{\n")) and data != b"{":
        return False
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True
    return False


def find_identifying_line(path: Path, given: bool = False) -> bytes | None:
    """The line that identifies the agent if the first does not: it may be noise, torn or several.

    In a file named by the user (`given`) one such line is enough, and the file may be a document of
    many lines. In a file found in a folder at least half of the lines must be an agent's: other
    texts may quote such a line.
    """
    checked = 0
    matches: list[bytes] = []
    for line in _first_lines(path):
        if given and not checked and line.strip() == b"{":
            return _read_document(path)
        checked += 1
        objects = iter_json_objects(line)
        match = next((value for value in objects if agents.detect_agent(value) is not None), None)
        if match is not None:
            matches.append(match)
            if given:
                break
    return matches[0] if matches and (given or 2 * len(matches) >= checked) else None


def _first_lines(path: Path) -> Iterator[bytes]:
    """The lines used for detection, without blank ones; none if the file cannot be read."""
    lines = read_lines(path, FIRST_LINE_BUFFER_BYTES)
    try:
        yield from islice((line for line in lines if line.strip()), AGENT_DETECTION_LINES)
    except SourceError:
        return
    finally:
        lines.close()


def _read_document(path: Path) -> bytes | None:
    """The content of a file with one JSON document, if it is an agent's."""
    try:
        document = b"".join(read_lines(path))
    except SourceError:
        return None
    return document if agents.detect_agent(document) is not None else None


def _is_subagent_transcript(path: Path) -> bool:
    """Whether this is a subagent's transcript, which is read with the session next to it."""
    if not path.name.startswith("agent-"):
        return False
    session = session_id_of(path)
    return session is not None and path.with_name(f"{session}.jsonl").is_file()


READ_CHUNK_BYTES = 1 << 20  # large: fewer refills of the line buffer
FIRST_LINE_BUFFER_BYTES = 1 << 13  # for reading only the first line
BINARY_CHECK_BYTES = 1 << 16  # checked to reject binary files
MAX_EXIT_CODE_CHARS = 15  # longer than any exit code
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
TRUNCATED_FILE = "truncated {} file; download or compress it again"

Source = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | BinaryIO
    | Iterable[bytes]
    | Iterable[str]
)


# -- bytes -----------------------------------------------------------------------------------------


def unreadable_error(name: object, error: OSError) -> SourceError:
    """The SourceError for a failed read."""
    if isinstance(error, FileNotFoundError):
        return _source_error(name, "no such file or folder")
    return _source_error(name, f"cannot be read: {error.strerror or error}")


def _source_error(name: object, message: str) -> SourceError:
    return SourceError(f"{name}: {message}", message)


def read_lines(
    path: Path, buffer: int = READ_CHUNK_BYTES, problems: list[str] | None = None
) -> Generator[bytes, None, None]:
    """The lines of a file with their newlines, decompressed from gzip or zstd. Raises SourceError.

    With a list of `problems`, a truncated or damaged file is read as far as possible: the reason is
    appended to the list instead of raised. Use a small buffer to read only the first lines.
    """
    try:
        with io.BufferedReader(io.FileIO(path), buffer) as file:
            yield from decompress_lines(file, str(path), problems)
    except OSError as error:
        raise unreadable_error(path, error) from None


def _stream_lines(source: Any, name: str, problems: list[str]) -> Iterator[bytes]:
    """The lines of a file or pipe opened by the caller."""
    try:
        if isinstance(source, io.BufferedReader):
            yield from decompress_lines(source, name, problems)
        else:
            yield from lines_from_chunks(iter(lambda: source.read(READ_CHUNK_BYTES), b""))
    except OSError as error:
        raise unreadable_error(name, error) from None


def decompress_lines(
    file: "io.BufferedReader[Any]", name: str, problems: list[str] | None = None
) -> Iterator[bytes]:
    """The lines of an open file or pipe, as soon as they arrive."""
    head = file.peek(4)[:4]
    if head.startswith(GZIP_MAGIC):
        return lines_from_chunks(_readable_chunks(_gunzip(file, name), problems))
    if head.startswith(ZSTD_MAGIC):
        return lines_from_chunks(_readable_chunks(_unzstd(file, name), problems))
    return file


def _readable_chunks(chunks: Iterable[bytes], problems: list[str] | None) -> Iterator[bytes]:
    """The chunks up to an error, which goes to `problems` if there is a list and a chunk."""
    has_data = False
    try:
        for chunk in chunks:
            has_data = has_data or chunk != b""
            yield chunk
    except SourceError as error:
        if problems is None or not has_data:
            raise
        problems.append(f"only part of it could be read: {error.strerror}")


def lines_from_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their newlines, from chunks of any size."""
    splitter = LineSplitter()
    for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line + b"\n"
    rest = splitter.flush()
    if rest:
        yield rest


def _gunzip(file: "io.BufferedReader[Any]", name: str) -> Iterator[bytes]:
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield from iter(lambda: unpacked.read1(READ_CHUNK_BYTES), b"")
    except EOFError:
        raise _source_error(name, TRUNCATED_FILE.format("gzip")) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _source_error(name, f"damaged gzip: {error}") from None


def _unzstd(file: "io.BufferedReader[Any]", name: str) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        message = "compressed with zstd; install support: pip install 'stenograph[zstd]'"
        raise _source_error(name, message) from None

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        for data in iter(lambda: file.read1(READ_CHUNK_BYTES), b""):
            while data:
                if decompressor.eof:  # another frame follows
                    decompressor = zstandard.ZstdDecompressor().decompressobj()
                yield decompressor.decompress(data)
                data = decompressor.unused_data
    except zstandard.ZstdError as error:
        raise _source_error(name, f"damaged zstd: {error}") from None
    if not decompressor.eof:
        raise _source_error(name, TRUNCATED_FILE.format("zstd"))


def is_binary(head: bytes) -> bool:
    """Whether the data has NUL bytes and no line that opens a JSON object or array."""
    if b"\x00" not in head:
        return False
    lines = (line.lstrip(b"\xef\xbb\xbf \t\r\x00").rstrip() for line in head.split(b"\n"))
    return not any(
        line[:2] in (b'{"', b"{}", b"[{", b"[]") or line in (b"{", b"[") for line in lines
    )


# -- files -----------------------------------------------------------------------------------------


def is_folder(path: Path) -> bool:
    """Whether this is an accessible folder; access errors show when it is opened."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_pipe(path: Path) -> bool:
    """Whether it can be read only once: a named pipe, a terminal, a socket."""
    try:
        return path.is_fifo() or path.is_char_device() or path.is_socket()
    except OSError:
        return False


def read_first_line(path: Path) -> bytes | None:
    """The first line that is not blank; None without one or if the file cannot be read."""
    lines = read_lines(path, FIRST_LINE_BUFFER_BYTES)
    try:
        return next((line for line in lines if line.strip()), None)
    except SourceError:
        return None
    finally:
        lines.close()


class _SessionLine(msgspec.Struct):
    sessionId: str | None = None


def session_id_of(path: Path) -> str | None:
    """The session named in a transcript's first line."""
    try:
        return msgspec.json.decode(read_first_line(path) or b"{}", type=_SessionLine).sessionId
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def subagent_transcripts(path: Path) -> list[Path]:
    """The transcripts of a session's subagents: below its folder, or next to it (old versions)."""
    below = sorted((path.parent / path.stem / "subagents").glob("agent-*.jsonl"))
    siblings = [other for other in sorted(path.parent.glob("agent-*.jsonl")) if other != path]
    return below + [other for other in siblings if session_id_of(other) == path.stem]


class _TimestampLine(msgspec.Struct):
    timestamp: str = ""


def read_transcripts(
    pattern: str | None,
    folders: Iterable[str],
    since: str = "",
    totals_marker: bytes | None = None,
) -> Iterator[bytes]:
    """The lines of the files that match a glob below the folders; unreadable files are skipped.

    With `since`, a timestamp as the lines have it, older lines are left out, except the first line
    of each file, which names the session, and lines that contain `totals_marker`.
    """
    if pattern is None:
        return
    for folder in folders:
        for path in sorted(Path(folder).glob(pattern)):
            with suppress(SourceError):
                yield from (
                    line
                    for number, line in enumerate(read_lines(path))
                    if not number
                    or (totals_marker is not None and totals_marker in line)
                    or is_line_since(line, since)
                )


def last_session_totals(
    pattern: str | None, folders: Iterable[str], marker: bytes | None, before: str = ""
) -> bytes | None:
    """The last line with the marker in the files that match a glob below the folders.

    `before`: a timestamp as the lines have it; nothing is read from the first line that is later.
    """
    last = None
    for line in read_transcripts(pattern, folders):
        if marker is not None and marker in line:
            last = line
        elif before and is_line_since(line, before):
            break
    return last


def is_line_since(line: bytes, since: str) -> bool:
    """Whether a transcript line is not older than a timestamp; "" is before all."""
    return not since or _timestamp_of(line) >= since


def _timestamp_of(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=_TimestampLine).timestamp
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def read_folder_stderr(folder: Path) -> Iterator[bytes]:
    """The lines of stderr in a recording folder, if it has that file."""
    path = folder / "stderr"
    if path.is_file():
        yield from read_lines(path)


def read_folder_exit_code(folder: Path) -> int | None:
    """The exit code in a recording folder, if it has that file; negative for a signal."""
    path = folder / "exit_code"
    if not path.is_file():
        return None
    text = b"".join(read_lines(path)).decode("utf-8", "replace").strip()
    try:
        if len(text) > MAX_EXIT_CODE_CHARS:
            raise ValueError
        return int(text)
    except ValueError:
        raise SourceError(f"{path}: expected a whole number, found {text[:40]!r}") from None


# -- recordings ------------------------------------------------------------------------------------


class RecordingInput:
    """One recording: the lines of its stdout, and events from other sources such as stderr.

    `folder` is set for a recording folder, `file` for a file that must be a recording. With
    `use_local_transcripts`, the agent's transcripts on this machine complete the stream. `problems`
    says, after reading, what could not be read.
    """

    def __init__(
        self,
        name: str,
        lines: Iterable[bytes],
        extra_events: Iterable[ev.Event] = (),
        folder: Path | None = None,
        use_local_transcripts: bool = False,
        problems: list[str] | None = None,
        file: Path | None = None,
    ) -> None:
        self.name = name
        self.lines = lines
        self._file = file
        self.folder = folder
        self.use_local_transcripts = use_local_transcripts
        self.problems = [] if problems is None else problems
        self.extra_events = extra_events
        if problems is not None:
            # A generator, because the problems are known only after reading.
            notices = (ev.Notice(0, None, None, None, "cut", text) for text in problems)
            self.extra_events = chain(notices, extra_events)

    def read(self, agent: Agent | None = None, input_format: str | None = None) -> RunParser:
        """Parse the whole recording."""
        self.require_recording(agent)
        parser = RunParser(agent, input_format)
        parser.feed_sink((self.lines,), parser.accumulator)
        parser.add_events(self.extra_events)
        if parser.agent.transcripts.pattern is not None:
            parser.accumulator.add(parser.enrich(self.transcript_lines(parser)))
        return parser

    def events(
        self, agent: Agent | None = None, input_format: str | None = None
    ) -> Iterator[ev.Event]:
        """The events of the recording, one by one."""
        self.require_recording(agent)
        parser = RunParser(agent, input_format)
        yield from parser.events(self.lines)
        yield from parser.interpret_stderr(self.extra_events)
        yield from parser.enrich(self.transcript_lines(parser))

    def require_recording(self, agent: Agent | None) -> None:
        """SourceError if the file is none. With an agent given, any text is read."""
        if agent is None and self._file is not None and not _is_recording(self._file, given=True):
            raise SourceError(f"{self.name}: not a recording; {EXPECTED_INPUT}")

    def transcript_lines(self, parser: RunParser) -> Iterator[bytes]:
        """The lines of the session's transcripts, from the recording's folder or the agent's."""
        if parser.agent.transcripts.pattern is None or parser.header is not None:
            return iter(())  # a recording file already contains them
        sessions = self.folder / "sessions" if self.folder is not None else None
        if sessions is not None and sessions.is_dir():
            return read_transcripts(parser.transcript_pattern("*"), [str(sessions)])
        folders: list[str] = []
        if self.use_local_transcripts:
            folders = parser.agent.transcripts.folders(os.environ, str(Path.home()))
        return read_transcripts(parser.transcript_pattern(), folders)


def open_recording(source: Source, name: str = "stream") -> RecordingInput:
    """Open any supported source. `name` stands for an open file or pipe in messages."""
    if isinstance(source, bytes | bytearray | memoryview):
        return RecordingInput("bytes", io.BytesIO(source))
    if isinstance(source, str | os.PathLike):
        if not os.fspath(source):  # Path("") would be the current folder
            raise _source_error("''", "empty file name")
        return _open_path(Path(source))
    if isinstance(source, io.TextIOBase):
        raise SourceError("text streams are not supported; open the file in binary mode")
    if hasattr(source, "read"):
        problems: list[str] = []
        lines = _stream_lines(source, name, problems)
        return RecordingInput(name, lines, use_local_transcripts=True, problems=problems)
    if not hasattr(source, "__iter__"):
        raise SourceError(
            f"expected a path, bytes, a binary file or lines, found {type(source).__name__}"
        )
    return RecordingInput("lines", (_to_line_bytes(line) for line in source))


def _to_line_bytes(line: bytes | str) -> bytes:
    if not isinstance(line, bytes | str):
        raise SourceError(f"expected lines of bytes or text, found {type(line).__name__}")
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    return data if data.endswith(b"\n") else data + b"\n"


def _open_path(path: Path) -> RecordingInput:
    name = os.fsencode(path).decode("utf-8", "replace")  # valid UTF-8
    problems: list[str] = []
    if is_folder(path):
        if not (path / "stdout").is_file():
            raise SourceError(f"{path}: a folder without stdout is not a recording; name a file")
        return RecordingInput(
            name=name,
            lines=read_lines(path / "stdout", problems=problems),
            extra_events=_stderr_and_exit_events(path),
            folder=path,
            use_local_transcripts=True,
            problems=problems,
        )
    _refuse_binary(path)
    lines: Iterable[bytes] = read_lines(path, problems=problems)
    if path.suffix == ".jsonl" and not path.name.startswith("agent-"):
        lines = chain(lines, _subagent_lines(path))
    return RecordingInput(
        name=name,
        lines=lines,
        use_local_transcripts=True,
        problems=problems,
        file=None if is_pipe(path) else path,
    )


def _refuse_binary(path: Path) -> None:
    """Raise SourceError for binary data. Pipes are skipped: they can be read only once."""
    if is_pipe(path):
        return
    lines = read_lines(path, BINARY_CHECK_BYTES, [])
    try:
        head = b"".join(islice(lines, 20))[:BINARY_CHECK_BYTES]
    finally:
        lines.close()
    if is_binary(head):
        expected = "expected JSON lines or a recording, plain or compressed with gzip or zstd"
        raise SourceError(f"{path}: binary data; {expected}")


def _subagent_lines(path: Path) -> Iterator[bytes]:
    """The lines of a session's subagents, if the file is a session's transcript."""
    for other in subagent_transcripts(path):
        yield from read_lines(other)


def _stderr_and_exit_events(folder: Path) -> Iterator[ev.Event]:
    for line in read_folder_stderr(folder):
        if line.strip():
            yield ev.Stderr(0, None, None, None, line.decode("utf-8", "replace").rstrip("\r\n"))
    code = read_folder_exit_code(folder)
    if code is not None:
        yield ev.Exited(0, None, None, None, code)
