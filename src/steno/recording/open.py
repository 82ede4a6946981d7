"""Opens recordings, transcripts and folders of them; finds them by their content.

The first line usually decides; the lines after it are checked only if it does not.
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..codec.decode import MAX_LINE_BYTES, decoder
from ..errors import SourceError
from .format import parse_header, stderr_events
from .lines import (
    READ_CHUNK_BYTES,
    limited_lines,
    read_lines,
    source_error,
    stream_lines,
    unreadable_error,
)
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
    return given and _is_torn(line if line != b"{" else _read_start(path, MAX_LINE_BYTES))


def _is_torn(data: bytes) -> bool:
    """Whether a line or document starts like those of agents, but cannot be decoded."""
    if not data.startswith((b'{"', b"{\n")) and data != b"{":
        return False
    try:
        decoder(msgspec.Raw).decode(data)  # Python objects would take 20 times its size
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
    matches = 0
    first_match: bytes | None = None
    for line in _first_lines(path):
        if given and not checked and line.strip() == b"{":
            return _read_document(path)
        checked += 1
        objects = iter_json_objects(line)
        match = next((value for value in objects if agents.detect_agent(value) is not None), None)
        if match is not None:
            matches += 1
            first_match = first_match or match
            if given:
                break
    return first_match if given or 2 * matches >= checked else None


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
        document = _read_start(path, MAX_LINE_BYTES)
    except SourceError:
        return None
    return document if agents.detect_agent(document) is not None else None


def _read_start(path: Path, max_bytes: int) -> bytes:
    """The beginning of a file, as far as it can be read: at most `max_bytes`."""
    lines = read_lines(path, min(READ_CHUNK_BYTES, max_bytes), [])
    start = bytearray()
    try:
        while len(start) < max_bytes and (line := next(lines, b"")):
            start += line
    finally:
        lines.close()
    return bytes(start[:max_bytes])


def _is_subagent_transcript(path: Path) -> bool:
    """Whether this is a subagent's transcript, which is read with the session next to it."""
    if not path.name.startswith("agent-"):
        return False
    session = session_id_of(path)
    return session is not None and path.with_name(f"{session}.jsonl").is_file()


FIRST_LINE_BUFFER_BYTES = 1 << 13  # for reading only the first line
BINARY_CHECK_BYTES = 1 << 16  # checked to reject binary files
MAX_SESSIONS = 1000  # of subagents in one run
MAX_EXIT_CODE_CHARS = 15  # longer than any exit code

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
    # Those of a workflow are in a folder of their own.
    below = sorted((path.parent / path.stem / "subagents").rglob("agent-*.jsonl"))
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


def read_session(
    agent: Agent, session: str | None, folders: Sequence[str], since: str = "", prefix: str = ""
) -> Iterator[bytes]:
    """The lines of a session's transcripts, then those of the subagents that they name.

    `prefix` stands before the glob, `since` is as in `read_transcripts`.
    """
    transcripts = agent.transcripts
    if session is None or transcripts.pattern is None:
        return
    sessions = [session]
    for name in sessions:  # grows
        pattern = prefix + transcripts.pattern(name)
        for line in read_transcripts(pattern, folders, since, transcripts.totals_marker):
            yield line
            for found in transcripts.sessions_in(line):
                if len(sessions) < MAX_SESSIONS and found not in sessions:
                    sessions += filter(agent.is_session_id, (found,))


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


def read_folder_exit_code(folder: Path) -> int | None:
    """The exit code in a recording folder, if it has that file; negative for a signal."""
    path = folder / "exit_code"
    if not path.is_file():
        return None
    text = _read_start(path, FIRST_LINE_BUFFER_BYTES).decode("utf-8", "replace").strip()
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

    def read(
        self,
        agent: Agent | None = None,
        input_format: str | None = None,
        take: Callable[[list[ev.Event]], None] | None = None,
    ) -> RunParser:
        """Parse the whole recording. `take` gets the events too, which takes longer."""
        self.require_recording(agent)
        parser = RunParser(agent, input_format)
        if take:
            for events in self.batches(parser):
                parser.accumulator.add(events)
                take(events)
            return parser
        parser.feed_sink((self.lines,), parser.accumulator)
        parser.accumulator.add(parser.interpret_stderr(self.extra_events))
        if parser.transcript_pattern("*") is not None:
            parser.accumulator.add(parser.enrich(self.transcript_lines(parser)))
        return parser

    def events(self, agent: Agent | None = None) -> Iterator[ev.Event]:
        """The events of the recording, one by one."""
        self.require_recording(agent)
        for events in self.batches(RunParser(agent)):
            yield from events

    def batches(self, parser: RunParser) -> Iterator[list[ev.Event]]:
        """The events, as this parser reads them, in batches."""
        yield from parser.batches(self.lines)
        yield from ([event] for event in parser.interpret_stderr(self.extra_events))
        yield parser.enrich(self.transcript_lines(parser))

    def require_recording(self, agent: Agent | None) -> None:
        """SourceError if the file is none. With an agent given, any text is read."""
        if agent is None and self._file is not None and not _is_recording(self._file, given=True):
            raise SourceError(f"{self.name}: not a recording; {EXPECTED_INPUT}")

    def transcript_lines(self, parser: RunParser) -> Iterator[bytes]:
        """The lines of the session's transcripts, from the recording's folder or the agent's."""
        if parser.agent.transcripts.pattern is None or parser.header is not None:
            return iter(())  # a recording file already contains them
        if self.folder is not None:
            lines = self._folder_transcripts(self.folder, parser)
            if lines is not None:
                return lines
        return local_transcript_lines(parser) if self.use_local_transcripts else iter(())

    def _folder_transcripts(self, folder: Path, parser: RunParser) -> Iterator[bytes] | None:
        """The session's transcripts in the recording's folder; None without any.

        All of `sessions`, which is what steno keeps, else those named like the session, anywhere.
        Of all sessions, if the stream names none: Copilot does so at the end only.
        """
        session = parser.transcript_session("*")
        sessions = folder / "sessions"
        if sessions.is_dir():
            return read_session(parser.agent, session, [str(sessions)])
        pattern = parser.transcript_pattern("*")
        if pattern is None or next(folder.glob(f"*/{pattern}"), None) is None:
            return None
        return read_session(parser.agent, session, [str(folder)], prefix="*/")


def local_transcript_lines(parser: RunParser) -> Iterator[bytes]:
    """The lines of the session's transcripts in the folders of the agent."""
    folders = parser.agent.transcripts.folders(os.environ, str(Path.home()))
    return read_session(parser.agent, parser.transcript_session(), folders)


def open_recording(source: Source, name: str = "stream") -> RecordingInput:
    """Open any supported source. `name` stands for an open file or pipe in messages."""
    if isinstance(source, bytes | bytearray | memoryview):
        data = io.BytesIO(source)
        is_long = data.getbuffer().nbytes > MAX_LINE_BYTES
        return RecordingInput("bytes", limited_lines(data) if is_long else data)
    if isinstance(source, str | os.PathLike):
        if not os.fspath(source):  # Path("") would be the current folder
            raise source_error("''", "empty file name")
        return open_path(Path(source))
    if isinstance(source, io.TextIOBase):
        raise SourceError("text streams are not supported; open the file in binary mode")
    if hasattr(source, "read"):
        problems: list[str] = []
        lines = stream_lines(source, name, problems)
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
    if len(data) > MAX_LINE_BYTES:
        data = data.removesuffix(b"\n")[:MAX_LINE_BYTES]
    return data if data.endswith(b"\n") else data + b"\n"


def open_path(path: Path) -> RecordingInput:
    """Open a file, or a folder with a file `stdout`."""
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
        lines = chain(lines, *map(read_lines, subagent_transcripts(path)))
    return RecordingInput(
        name=name,
        lines=lines,
        use_local_transcripts=True,
        problems=problems,
        file=None if is_pipe(path) else path,
    )


def is_binary(head: bytes) -> bool:
    """Whether the data has NUL bytes and no line that opens a JSON object or array."""
    if b"\x00" not in head:
        return False
    lines = (line.lstrip(b"\xef\xbb\xbf \t\r\x00").rstrip() for line in head.split(b"\n"))
    return not any(
        line[:2] in (b'{"', b"{}", b"[{", b"[]") or line in (b"{", b"[") for line in lines
    )


def _refuse_binary(path: Path) -> None:
    """Raise SourceError for binary data. Pipes are skipped: they can be read only once."""
    if is_pipe(path):
        return
    if is_binary(_read_start(path, BINARY_CHECK_BYTES)):
        expected = "expected JSON lines or a recording, plain or compressed with gzip or zstd"
        raise SourceError(f"{path}: binary data; {expected}")


def _stderr_and_exit_events(folder: Path) -> Iterator[ev.Event]:
    stderr = folder / "stderr"
    for line in read_lines(stderr) if stderr.is_file() else ():
        yield from stderr_events([line], None)
    code = read_folder_exit_code(folder)
    if code is not None:
        yield ev.Exited(0, None, None, None, code)
