"""Opens recordings, transcripts and folders of them."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from .. import event as ev
from ..agents import Agent
from ..codec.decode import MAX_LINE_BYTES
from ..errors import SourceError
from .format import stderr_events
from .identify import (
    identify,
    is_binary_file,
    is_pipe,
    read_first_line,
    read_start,
    refusal,
    skipped_message,
)
from .lines import (
    limited_lines,
    read_lines,
    source_error,
    stream_lines,
    unreadable_error,
)
from .parse import RunParser


def find_recordings(path: Path, skipped: list[Path] | None = None) -> list[Path]:
    """The path itself, or every recording below a folder, sorted. SourceError without any.

    `skipped` gets the files below the folder that are not recordings.
    """
    if not is_folder(path) or (path / "stdout").is_file():
        return [path]
    others: list[Path] = []
    recordings = list(_find_below(path, set(), others))
    if not recordings:
        expected = "expected streams, recordings, transcripts or folders with stdout"
        found = f"; {skipped_message(others)}" if others else ""
        raise SourceError(f"{path}: no recordings in this folder{found}; {expected}")
    if skipped is not None:
        skipped += others
    return recordings


def is_first_visit(folder: str | Path, visited: set[tuple[int, int]]) -> bool:
    """Whether the folder is new, under any name: symbolic links can form a cycle."""
    stat = os.stat(folder)  # noqa: PTH116  # faster than pathlib, for thousands of folders
    identity = (stat.st_dev, stat.st_ino)
    is_new = identity not in visited
    visited.add(identity)
    return is_new


def _find_below(folder: Path, visited: set[tuple[int, int]], skipped: list[Path]) -> Iterator[Path]:
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
                yield from _find_below(entry, visited, skipped)
        elif entry.is_file() and not _is_subagent_transcript(entry):
            if identify(entry) is not None:
                yield entry
            else:
                skipped.append(entry)


def _is_subagent_transcript(path: Path) -> bool:
    """Whether this is a subagent's transcript, which is read with the session next to it."""
    if not path.name.startswith("agent-"):
        return False
    session = session_id_of(path)
    return session is not None and path.with_name(f"{session}.jsonl").is_file()


MAX_SESSIONS = 1000  # of subagents in one run
MAX_EXIT_CODE_CHARS = 15  # longer than any exit code
MAX_EXIT_CODE_FILE_BYTES = 1 << 13

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
                    for number, line in enumerate(_transcript_lines(path))
                    if not number
                    or (totals_marker is not None and totals_marker in line)
                    or is_line_since(line, since)
                )


def _transcript_lines(path: Path) -> Iterator[bytes]:
    """The lines of a transcript; one that is a document becomes one line."""
    if path.suffix == ".json":
        yield read_start(path, MAX_LINE_BYTES).replace(b"\n", b" ") + b"\n"
    else:
        yield from read_lines(path)


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
    text = read_start(path, MAX_EXIT_CODE_FILE_BYTES).decode("utf-8", "replace").strip()
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
        if agent is None and self._file is not None and identify(self._file, given=True) is None:
            raise SourceError(f"{self.name}: {refusal(self._file)}")

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
    if is_binary_file(path):
        raise SourceError(f"{path}: {refusal(path)}")
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


def _stderr_and_exit_events(folder: Path) -> Iterator[ev.Event]:
    stderr = folder / "stderr"
    for line in read_lines(stderr) if stderr.is_file() else ():
        yield from stderr_events([line], None)
    code = read_folder_exit_code(folder)
    if code is not None:
        yield ev.Exited(0, None, None, None, code)
