"""Read one file into rows: the new part of a transcript, or a whole recording.

The position reached in a transcript is stored with hashes of the bytes before it. A file that only
grew is read from there; one that was rewritten, truncated or replaced is read from the start.
"""

import io
import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..agents.base import default_scan_usage
from ..codec.decode import MAX_LINE_BYTES, decoder
from ..codec.documents import is_document_start
from ..codec.redact import redact
from ..errors import StenoError
from ..pricing import price
from ..recording.format import redact_origin
from ..recording.identify import read_first_line
from ..recording.lines import GZIP_MAGIC, ZSTD_MAGIC, limited_lines, read_lines
from ..recording.open import open_recording
from ..recording.parse import RunParser
from ..report import Report
from ..workspace.origin import host_name, repository_of, user_name
from .row_sink import LedgerRowSink
from .rows import RowBatch, fill_ids, stable_id
from .run_record import run_identity

HEAD_BYTES = 1024  # hashed at the start of a file
TAIL_BYTES = 256  # hashed before the position where the last reading ended
MAX_BUFFER_BYTES = 1 << 20  # a buffer larger than the file costs more than it saves
MIN_BUFFER_BYTES = 1 << 13


class SourcePart(Struct, array_like=True):
    """A file, or the new part of it: where to start, and the state from before."""

    path: str
    kind: str
    agent: str
    size: int
    mtime_ns: int
    inode: int
    start_offset: int = 0
    lines: int = 0
    previous_path: str | None = None  # its path at the earlier reading that this continues
    is_requests_only: bool = False  # read requests only: enough for the sums
    state: bytes | None = None
    is_own: bool = False  # in the folders of this user's agents
    is_named: bool = False  # by the user, not found in a folder


class PartResult(Struct, array_like=True):
    """The rows of a part, and the position where the next one starts."""

    part: SourcePart
    batch: RowBatch | None
    end_offset: int = 0
    lines: int = 0
    head: str = ""
    tail: str = ""
    state: bytes | None = None
    session: str | None = None
    run: str | None = None
    report: bytes | None = None
    problem: str | None = None
    run_columns: dict[str, str | int | None] = {}  # columns that a report doesn't know
    is_derived: bool = False  # the file names no run


class ResumeState(Struct, array_like=True):
    """State of the reader and of the rows between two parts."""

    reader: bytes
    rows: bytes


decode_resume_state = msgspec.msgpack.Decoder(ResumeState).decode
encode_resume_state = msgspec.msgpack.encode


def read_part(part: SourcePart) -> PartResult:
    """Return the rows of one part. Failures, also our own bugs, are reported in the result."""
    try:
        if part.kind != "transcript":
            return _read_run(part, agents.get_agent(part.agent or None))
        agent = agents.get_agent(part.agent) or agents.CLAUDE
        has_scan = agent.transcripts.scan_usage is not default_scan_usage
        read = _read_requests if part.is_requests_only and has_scan else _read_transcript
        result = read(part, agent)
        if result.batch is not None:
            if part.is_named and not part.start_offset and result.batch.is_empty:
                problem = f"nothing to import: no prompt, request or call of {agent.name} in it"
                return PartResult(part, None, problem=problem)
            _fill_origin(result.batch, part.is_own)
        return result
    except (OSError, StenoError) as error:
        text = str(getattr(error, "strerror", None) or error)
        return PartResult(part, None, problem=text.removeprefix(f"{part.path}: "))
    except Exception as error:
        return PartResult(part, None, problem=describe_internal_error(error))


def describe_internal_error(error: Exception) -> str:
    """Describe a bug in one line, with its place in the code."""
    from traceback import extract_tb

    frame = extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    return f"not imported: internal error: {type(error).__name__}: {error} ({place})"


# -- transcripts ---------------------------------------------------------------------------------


def _read_transcript(part: SourcePart, agent: Agent) -> PartResult:
    parser = RunParser(agent, "stream")
    sink = _new_sink(part, agent)
    if part.state is not None:
        state = decode_resume_state(part.state)
        parser.restore(state.reader, part.lines)
        sink.restore(state.rows)
    with _open_buffered(part) as file:
        if _is_read_whole(part, file):
            parser = RunParser(agent)  # a document needs more than lines
            parser.feed_sink((read_lines(Path(part.path)),), sink)
            batch = sink.batch()
            return PartResult(
                part=part,
                batch=batch,
                end_offset=part.size,
                lines=parser.lines.read,
                session=_session_id_of(batch, part),
            )
        file.seek(part.start_offset)
        parser.feed_sink((_lines(part, file),), sink)
        end_offset, is_cut = _find_last_complete_line(file)
        head, tail = fingerprint(file, end_offset)
    state_bytes = encode_resume_state(ResumeState(parser.state(), sink.state()))
    batch = sink.batch()
    return PartResult(
        part=part,
        batch=batch,
        end_offset=end_offset,
        lines=parser.lines.read - is_cut,
        head=head,
        tail=tail,
        state=state_bytes,
        session=_session_id_of(batch, part),
    )


def _read_requests(part: SourcePart, agent: Agent) -> PartResult:
    """Read only the requests of a transcript."""
    sink = _new_sink(part, agent)
    if part.state is not None:
        sink.restore(decode_resume_state(part.state).rows)
    with _open_buffered(part) as file:
        if _is_read_whole(part, file):
            lines = read_lines(Path(part.path))
            if _is_document(part):
                kinds = (ev.Started, ev.Usage, ev.UserMessage)
                events = RunParser(agent).events(lines)
                sink.add(event for event in events if isinstance(event, kinds))
            else:
                sink.add(agent.transcripts.scan_usage(lines))
            return PartResult(part, sink.batch(), part.size)
        file.seek(part.start_offset)
        sink.add(agent.transcripts.scan_usage(_lines(part, file)))
        end_offset, _ = _find_last_complete_line(file)
        head, tail = fingerprint(file, end_offset)
    return PartResult(
        part=part,
        batch=sink.batch(),
        end_offset=end_offset,
        lines=part.lines,
        head=head,
        tail=tail,
        state=encode_resume_state(ResumeState(b"", sink.state())),
    )


def _fill_origin(batch: RowBatch, is_own: bool) -> None:
    """Add what transcripts don't say: the repository of their folder, and whose they are."""
    for session in batch.sessions.values():
        session.repository = session.repository or repository_of(session.project or "")
        if is_own:
            session.host = host_name()
            session.user_name = user_name(os.environ)


def _new_sink(part: SourcePart, agent: Agent) -> LedgerRowSink:
    return LedgerRowSink(agent, Path(part.path).stem, part.mtime_ns // 1_000_000)


def _open_buffered(part: SourcePart) -> "io.BufferedReader[io.FileIO]":
    new_bytes = part.size - part.start_offset
    return io.BufferedReader(
        io.FileIO(part.path), min(MAX_BUFFER_BYTES, new_bytes + MIN_BUFFER_BYTES)
    )


def _lines(part: SourcePart, file: "io.BufferedReader[io.FileIO]") -> Iterable[bytes]:
    """The new lines of a part."""
    return limited_lines(file) if part.size - part.start_offset > MAX_LINE_BYTES else file


def _is_read_whole(part: SourcePart, file: "io.BufferedReader[io.FileIO]") -> bool:
    """Whether there is no position to continue from: in an archive, or a document."""
    if os.pread(file.fileno(), 4, 0).startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        return True
    return not part.start_offset and _is_document(part)


def _is_document(part: SourcePart) -> bool:
    """Whether the file is a document of many lines, or an array, instead of objects on lines."""
    first = (read_first_line(Path(part.path)) or b"").removeprefix(b"\xef\xbb\xbf").strip()
    return first.startswith(b"[") or (first.startswith(b"{") and is_document_start(first))


def _session_id_of(batch: RowBatch, part: SourcePart) -> str:
    """Return the session of a transcript: its file name, or for a subagent's the first found."""
    name = Path(part.path).stem
    return name if name in batch.sessions or not batch.sessions else next(iter(batch.sessions))


def _find_last_complete_line(file: "io.BufferedReader[io.FileIO]") -> tuple[int, bool]:
    """Return the end of the last complete line, and whether an incomplete one follows.

    The file must have been read to its end. An incomplete line is left for the next import.
    """
    end = file.tell()
    line_start = end
    newline = -1
    size = TAIL_BYTES
    while line_start and newline < 0:
        block_start = max(0, line_start - size)
        newline = os.pread(file.fileno(), line_start - block_start, block_start).rfind(b"\n")
        line_start = block_start + newline + 1
        size = min(2 * size, MAX_BUFFER_BYTES)
    length = end - line_start
    if not length:
        return end, False
    if length < MAX_LINE_BYTES and _is_json_object(os.pread(file.fileno(), length, line_start)):
        return end, False
    return line_start, True


def _is_json_object(line: bytes) -> bool:
    try:
        decoder(dict[str, msgspec.Raw]).decode(line)
        return True
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def fingerprint(file: "io.BufferedReader[io.FileIO]", length: int) -> tuple[str, str]:
    """Return hashes of the start and the end of the first `length` bytes."""
    head_size = min(HEAD_BYTES, length)
    tail_start = max(0, length - TAIL_BYTES)
    head = os.pread(file.fileno(), head_size, 0)
    tail = os.pread(file.fileno(), min(TAIL_BYTES, length), tail_start)
    return f"{head_size}:{_hash(head)}", _hash(tail)


def matches_fingerprint(path: str, length: int, head: str, tail: str) -> bool:
    """Whether the first `length` bytes of a file are the same as at the last reading."""
    head_size = int(head.partition(":")[0] or 0)
    try:
        with io.FileIO(path) as file:
            if os.fstat(file.fileno()).st_size < length:
                return False
            if f"{head_size}:{_hash(file.read(head_size))}" != head:
                return False
            file.seek(max(0, length - TAIL_BYTES))
            return _hash(file.read(min(TAIL_BYTES, length))) == tail
    except OSError:
        return False


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


# -- recordings ----------------------------------------------------------------------------------


def _read_run(part: SourcePart, agent: Agent | None) -> PartResult:
    """Read a recording once, for its report and its rows."""
    recording = open_recording(part.path)
    parser = RunParser(agent)
    sink = LedgerRowSink(parser.agent, "", part.mtime_ns // 1_000_000)
    for events in parser.batches(recording.lines):
        sink.agent = parser.agent
        sink.start_folder = parser.accumulator.start_folder
        sink.id_namespace = parser.header.id_namespace() if parser.header is not None else ""
        sink.add(events)
        parser.accumulator.add(events)
    parser.add_events(recording.extra_events)
    enriched = parser.enrich(recording.transcript_lines(parser))
    parser.accumulator.add(enriched)
    sink.add(enriched)
    report = parser.report(recording.name, price)
    report.origin = redact_origin(report.origin)
    batch = sink.batch()
    is_derived = report.run_id is None
    report.run_id = report.run_id or _derive_run_id(report, batch, part)
    fill_ids(batch, report.run_id, report.session_id or report.run_id)
    return PartResult(
        part=part,
        batch=batch,
        end_offset=part.size,
        lines=parser.lines.read,
        session=report.session_id or report.run_id,
        run=report.run_id,
        report=msgspec.json.encode(report),
        run_columns=_task_columns(parser),
        is_derived=is_derived,
    )


def _task_columns(parser: RunParser) -> dict[str, str | int | None]:
    """Return what a recording says about the task of its run."""
    header = parser.header
    if header is None or header.task is None:
        return {}
    _, _, decision = parser.accumulator.facts.last_note.partition(": ")
    return {
        "task": header.task,
        "attempt": header.attempt,
        "prompt": header.prompt and redact(header.prompt),
        "why": redact(decision) or None,
    }


def _derive_run_id(report: Report, batch: RowBatch, part: SourcePart) -> str:
    """Return the id of a run without one, from its session and first request: equal for copies.

    Without any request, from its result, else from its content and path.
    """
    if batch.requests:
        return f"{stable_id('run', report.session_id, batch.requests[0].id):016x}"
    identity = run_identity(report, batch.id_namespace)
    if identity is not None:
        return identity
    path = Path(part.path)
    with io.FileIO(path / "stdout" if path.is_dir() else path) as file:
        content = _hash(file.read(MAX_BUFFER_BYTES))
    return f"{stable_id('run', report.session_id, content, part.path):016x}"


def decode_report(data: bytes) -> Report:
    return msgspec.json.decode(data, type=Report)
