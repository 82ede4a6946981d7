"""Where bytes come from: files, folders, pipes, compressed or not. It opens and reads; it never interprets a line.

A folder that holds `stdout` is one recording, with `stderr` and `exit_code` beside it where they
exist. Formats are told by the bytes, never by a name (I1).
"""

import io
import os
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .. import event as ev
from ..agents import Agent
from ..codec.lines import LineSplitter
from ..errors import SourceError
from .parse import RunParser

READ_CHUNK_BYTES = (
    1 << 20
)  # bytes a read: fewer refills of the buffer that lines are cut from, and still a small part of the memory
BINARY_CHECK_BYTES = 1 << 16  # bytes looked at to tell a recording from something else
FIRST_LINE_BUFFER_BYTES = (
    1 << 13
)  # bytes a read where only the first line is wanted, which is short
MAX_EXIT_CODE_CHARS = (
    15  # characters of an exit code: more than any has, and a number that fits everywhere
)
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

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


# -- bytes --------------------------------------------------------------------------------------------


def unreadable_error(name: object, problem: OSError) -> SourceError:
    """What to say of something that the system does not let us read."""
    return _source_error(name, f"cannot be read: {problem.strerror or problem}")


def _source_error(name: object, what: str) -> SourceError:
    return SourceError(f"{name}: {what}", what)


def read_lines(
    path: Path, buffer: int = READ_CHUNK_BYTES, problems: list[str] | None = None
) -> Generator[bytes, None, None]:
    """The lines of a file with their newlines, unpacked where they are gzip or zstd. SourceError says what is wrong.

    Whoever needs only its first lines asks for a small buffer. Whoever gives a list wants of a packed file that is cut or
    damaged what can be read: what is wrong with it is put there, and nothing is raised.
    """
    try:
        with io.BufferedReader(io.FileIO(path), buffer) as file:
            yield from decompress_lines(file, str(path), problems)
    except OSError as problem:
        raise unreadable_error(path, problem) from None


def _stream_lines(source: Any, name: str, cut: list[str]) -> Iterator[bytes]:
    """The lines of a file or pipe that somebody else opened."""
    try:
        if isinstance(source, io.BufferedReader):
            yield from decompress_lines(source, name, cut)
        else:
            yield from lines_from_chunks(iter(lambda: source.read(READ_CHUNK_BYTES), b""))
    except OSError as problem:
        raise unreadable_error(name, problem) from None


def decompress_lines(
    file: "io.BufferedReader[Any]", name: str, cut: list[str] | None = None
) -> Iterator[bytes]:
    """The lines of an open file or pipe, as soon as they are there."""
    head = file.peek(4)[:4]
    if head.startswith(GZIP_MAGIC):
        return lines_from_chunks(_readable_chunks(_gunzip(file, name), cut))
    if head.startswith(ZSTD_MAGIC):
        return lines_from_chunks(_readable_chunks(_unzstd(file, name), cut))
    return file


def _readable_chunks(chunks: Iterable[bytes], cut: list[str] | None) -> Iterator[bytes]:
    """What can be unpacked of a file, if anything can; see `lines`."""
    some = False
    try:
        for chunk in chunks:
            some = some or chunk != b""
            yield chunk
    except SourceError as problem:
        if cut is None or not some:
            raise
        cut.append(f"only a part could be read: {problem.strerror}")


def lines_from_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their newlines, from bytes that come in any pieces."""
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
        with gzip.GzipFile(fileobj=file) as packed:
            yield from iter(lambda: packed.read1(READ_CHUNK_BYTES), b"")
    except EOFError:
        raise _source_error(name, "the gzip file is cut short; fetch or pack it again") from None
    except (gzip.BadGzipFile, zlib.error) as problem:
        raise _source_error(name, f"damaged gzip: {problem}") from None


def _unzstd(file: "io.BufferedReader[Any]", name: str) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise _source_error(
            name, "packed with zstd, which needs one more package: pip install 'stenograph[zstd]'"
        ) from None

    unpack = zstandard.ZstdDecompressor().decompressobj()
    try:
        for data in iter(lambda: file.read1(READ_CHUNK_BYTES), b""):
            while data:
                if unpack.eof:  # several frames may follow each other
                    unpack = zstandard.ZstdDecompressor().decompressobj()
                yield unpack.decompress(data)
                data = unpack.unused_data
    except zstandard.ZstdError as problem:
        raise _source_error(name, f"damaged zstd: {problem}") from None
    if not unpack.eof:
        raise _source_error(name, "the zstd file is cut short; fetch or pack it again")


def is_binary(head: bytes) -> bool:
    """Whether the first bytes can be no recording: no line opens an object or array, and there are NUL bytes."""
    if b"\x00" not in head:
        return False
    lines = (line.lstrip(b"\xef\xbb\xbf \t\r\x00").rstrip() for line in head.split(b"\n"))
    return not any(
        line[:2] in (b'{"', b"{}", b"[{", b"[]") or line in (b"{", b"[") for line in lines
    )


# -- files ----------------------------------------------------------------------------------------------


def is_folder(path: Path) -> bool:
    """Whether this is a folder that we may look at; what we may not look at is told when it is opened."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_pipe(path: Path) -> bool:
    """Whether what is read of it is gone: a named pipe, a terminal, another program's output."""
    try:
        return path.is_fifo() or path.is_char_device() or path.is_socket()
    except OSError:
        return False


def read_first_line(path: Path) -> bytes | None:
    """The first line that is not blank; None if there is none or the file cannot be read."""
    reading = read_lines(path, FIRST_LINE_BUFFER_BYTES)
    try:
        return next((line for line in reading if line.strip()), None)
    except SourceError:
        return None
    finally:
        reading.close()


class _SessionLine(msgspec.Struct):
    """Of a transcript line, only whose it is."""

    sessionId: str | None = None


def session_id_of(path: Path) -> str | None:
    """The session that a transcript's first line names."""
    try:
        return msgspec.json.decode(read_first_line(path) or b"{}", type=_SessionLine).sessionId
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def subagent_transcripts(path: Path) -> list[Path]:
    """The transcripts of a session's subagents: in its own folder, or (older versions) beside it."""
    inside = sorted((path.parent / path.stem / "subagents").glob("agent-*.jsonl"))
    beside = [other for other in sorted(path.parent.glob("agent-*.jsonl")) if other != path]
    return inside + [other for other in beside if session_id_of(other) == path.stem]


# -- reading ----------------------------------------------------------------------------------------------


class RecordingInput:
    """One recording: the lines of its stdout, and the events that are known from beside it.

    `folder` is the recording's own, where it has one; `machine`: what the agents of this machine keep may be asked too;
    `cut` says, once it was read, why a part of it could not be.
    """

    def __init__(
        self,
        name: str,
        data: Iterable[bytes],
        after: Iterable[ev.Event] = (),
        folder: Path | None = None,
        use_local_transcripts: bool = False,
        problems: list[str] | None = None,
    ) -> None:
        self.name, self.lines, self.folder, self.use_local_transcripts = (
            name,
            data,
            folder,
            use_local_transcripts,
        )
        self.problems = [] if problems is None else problems
        self.extra_events = after if problems is None else chain(_problem_notices(problems), after)

    def read(self, agent: Agent | None = None, form: str | None = None) -> RunParser:
        """Fold the whole recording."""
        reading = RunParser(agent, form)
        reading.feed_lines(self.lines)
        reading.add_events(self.extra_events)
        reading.accumulator.add(reading.enrich(self.transcript_lines(reading)))
        return reading

    def events(self, agent: Agent | None = None, form: str | None = None) -> Iterator[ev.Event]:
        """The events of the recording, one by one."""
        reading = RunParser(agent, form)
        yield from reading.events(self.lines)
        yield from reading.interpret_stderr(self.extra_events)
        yield from reading.enrich(self.transcript_lines(reading))

    def transcript_lines(self, reading: RunParser) -> Iterator[bytes]:
        """The lines that the agent kept of the session: in the recording's folder, else where the agent keeps them."""
        if (
            reading.agent.transcripts.pattern is None or reading.header is not None
        ):  # a tape holds all that was known
            return iter(())
        own = self.folder / "sessions" if self.folder is not None else None
        if own is not None and own.is_dir():
            return read_transcripts(reading.transcript_pattern("*"), [str(own)])
        folders = (
            reading.agent.transcripts.folders(os.environ, str(Path.home()))
            if self.use_local_transcripts
            else []
        )
        return read_transcripts(reading.transcript_pattern(), folders)


def open_recording(source: Source, name: str = "stream") -> RecordingInput:
    """Anything that can be read, as an Input. `name` is what an open file or pipe is called in messages."""
    if isinstance(source, bytes | bytearray | memoryview):
        return RecordingInput("bytes", io.BytesIO(source))
    if isinstance(source, str | os.PathLike):
        if not os.fspath(source):  # else it would be the folder that we are in
            raise _source_error("''", "no such file: its name is empty")
        return _open_path(Path(source))
    if isinstance(source, io.TextIOBase):
        raise SourceError("a text stream cannot be read: open it in binary mode")
    if hasattr(source, "read"):
        cut: list[str] = []
        return RecordingInput(
            name, _stream_lines(source, name, cut), use_local_transcripts=True, problems=cut
        )
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
    cut: list[str] = []
    if is_folder(path):
        if not (path / "stdout").is_file():
            raise SourceError(
                f"{path}: a folder without stdout is not one recording; give a file in it"
            )
        return RecordingInput(
            _display_name(path),
            read_lines(path / "stdout", problems=cut),
            _stderr_and_exit_events(path),
            path,
            use_local_transcripts=True,
            problems=cut,
        )
    _refuse_binary(path)
    if path.suffix == ".jsonl" and not path.name.startswith("agent-"):
        return RecordingInput(
            _display_name(path),
            chain(read_lines(path, problems=cut), _subagent_lines(path)),
            use_local_transcripts=True,
            problems=cut,
        )
    return RecordingInput(
        _display_name(path),
        read_lines(path, problems=cut),
        use_local_transcripts=True,
        problems=cut,
    )


def _display_name(path: Path) -> str:
    """A path as text that can be written anywhere, also where its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")


def _refuse_binary(path: Path) -> None:
    """Say so at once when a file can be no recording. A pipe is left alone: what is read of it is gone."""
    if is_pipe(path):
        return
    data = read_lines(path, BINARY_CHECK_BYTES, [])
    try:
        head = b"".join(islice(data, 20))[:BINARY_CHECK_BYTES]
    finally:
        data.close()
    if is_binary(head):
        wanted = "expected JSON lines or a tape, plain or packed with gzip or zstd"
        raise SourceError(f"{path}: not a recording but binary data; {wanted}")


class _TimestampLine(msgspec.Struct):
    """Of a line of a file that an agent keeps, only its time, as it is written."""

    timestamp: str = ""


def read_transcripts(
    pattern: str | None, folders: Iterable[str], since: str = ""
) -> Iterator[bytes]:
    """The lines of the files below the folders that a pattern names. What cannot be read tells nothing.

    `since` is a time as such lines write it: of what is older only each file's first line is given, which says whose it is.
    """
    for folder in folders if pattern is not None else ():
        for path in sorted(Path(folder).glob(pattern or "")):
            try:
                yield from (
                    line
                    for number, line in enumerate(read_lines(path))
                    if not number or not since or _timestamp_of(line) >= since
                )
            except SourceError:
                continue


def _timestamp_of(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=_TimestampLine).timestamp
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _subagent_lines(path: Path) -> Iterator[bytes]:
    """The lines of the subagents of a session, if the file is a session's transcript."""
    for other in subagent_transcripts(path):
        yield from read_lines(other)


def _problem_notices(cut: list[str]) -> Iterator[ev.Event]:
    """What could not be read, known when the rest was."""
    yield from (ev.Notice(0, None, None, None, "cut", text) for text in cut)


def _stderr_and_exit_events(folder: Path) -> Iterator[ev.Event]:
    """What a recording's folder knows besides stdout: stderr, then the exit."""
    errors = folder / "stderr"
    if errors.is_file():
        for line in read_lines(errors):
            if line.strip():
                yield ev.Stderr(0, None, None, None, line.decode("utf-8", "replace").rstrip("\r\n"))
    code = folder / "exit_code"
    if code.is_file():
        text = b"".join(read_lines(code)).decode("utf-8", "replace").strip()
        try:
            if len(text) > MAX_EXIT_CODE_CHARS:
                raise ValueError
            yield ev.Exited(0, None, None, None, int(text))
        except ValueError:
            raise SourceError(f"{code}: expected a whole number, found {text[:40]!r}") from None
