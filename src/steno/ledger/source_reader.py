"""One file into rows: the new part of a transcript, a recording or a tape as a whole. It reads; it never writes.

What was read before is remembered as a place in the file, with a hash of the bytes before it: a file that was rewritten,
truncated or replaced is told by them and read anew; one that only grew is read on from there.
"""

import io
import os
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import agents
from ..agents import Agent
from ..errors import StenoError
from ..pricing import price
from ..recording.open import GZIP_MAGIC, ZSTD_MAGIC, open_recording, read_lines
from ..recording.parse import RunParser
from ..report import Report
from .row_sink import LedgerRowSink
from .rows import RowBatch, stable_id

HEAD_BYTES = 1024  # bytes at the beginning of a file that tell it from others
TAIL_BYTES = 256  # bytes before the place where the last reading ended
MAX_BUFFER_BYTES = (
    1 << 20
)  # bytes read at once; a larger buffer than the file costs more than it saves
MIN_BUFFER_BYTES = 1 << 13


class SourcePart(Struct, array_like=True):
    """A file, or what is new in it: where to begin, and what to remember from before."""

    path: str
    kind: str
    agent: str
    size: int
    mtime_ns: int
    inode: int
    start_offset: int = 0
    lines: int = 0
    previous_path: str | None = (
        None  # the name that it was read under before, if this is the rest of it
    )
    is_requests_only: bool = False  # only what adds up to the spend is wanted
    state: bytes | None = None


class PartResult(Struct, array_like=True):
    """What a part told, and where the next one begins."""

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
    run_columns: dict[
        str, str | int | None
    ] = {}  # columns of the run that its report does not know


class ResumeState(Struct, array_like=True):
    """What the reader and the rows remember between two parts."""

    reader: bytes
    rows: bytes


_resume_state_decoder = msgspec.msgpack.Decoder(ResumeState)


def read_part(part: SourcePart) -> PartResult:
    """The rows of one part. What cannot be read is told, never raised; a mistake of ours costs this part alone."""
    try:
        if part.kind != "transcript":
            return _read_run(part, agents.get_agent(part.agent or None))
        agent = agents.get_agent(part.agent) or agents.CLAUDE
        return (
            _read_requests(part, agent) if part.is_requests_only else _read_transcript(part, agent)
        )
    except (OSError, StenoError) as problem:
        said = str(getattr(problem, "strerror", None) or problem)
        return PartResult(part, None, problem=said.removeprefix(f"{part.path}: "))
    except Exception as problem:
        return PartResult(part, None, problem=describe_internal_error(problem))


def describe_internal_error(problem: Exception) -> str:
    """What to say of a failure that nobody thought of: what it was, and where, so that it can be mended."""
    from traceback import extract_tb

    place = extract_tb(problem.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return f"not imported: internal error: {type(problem).__name__}: {problem} ({where})"


# -- transcripts -------------------------------------------------------------------------------------------------


def _read_transcript(part: SourcePart, agent: Agent) -> PartResult:
    reading, rows = (
        RunParser(agent, "stream"),
        LedgerRowSink(agent, Path(part.path).stem, part.mtime_ns // 1_000_000),
    )
    if part.state is not None:
        kept = _resume_state_decoder.decode(part.state)
        reading.restore(kept.reader, part.lines)
        rows.restore(kept.rows)
    with io.BufferedReader(
        io.FileIO(part.path),
        min(MAX_BUFFER_BYTES, part.size - part.start_offset + MIN_BUFFER_BYTES),
    ) as file:
        if os.pread(file.fileno(), 4, 0).startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            return _read_compressed(part, reading, rows)
        file.seek(part.start_offset)
        reading.feed_sink((file,), rows)
        done, torn = _find_last_complete_line(file)
        head, tail = fingerprint(file, done)
    state = msgspec.msgpack.encode(ResumeState(reading.state(), rows.state()))
    batch = rows.batch(not part.start_offset)
    return PartResult(
        part, batch, done, reading.lines.read - torn, head, tail, state, _session_id_of(batch, part)
    )


def _session_id_of(batch: RowBatch, part: SourcePart) -> str:
    """The session that a transcript is of: its name says it, and of a subagent's its lines do."""
    name = Path(part.path).stem
    return name if name in batch.sessions or not batch.sessions else next(iter(batch.sessions))


def _read_requests(part: SourcePart, agent: Agent) -> PartResult:
    """Only the requests of a transcript."""
    rows = LedgerRowSink(agent, Path(part.path).stem, part.mtime_ns // 1_000_000)
    if part.state is not None:
        rows.restore(_resume_state_decoder.decode(part.state).rows)
    with io.BufferedReader(
        io.FileIO(part.path),
        min(MAX_BUFFER_BYTES, part.size - part.start_offset + MIN_BUFFER_BYTES),
    ) as file:
        if os.pread(file.fileno(), 4, 0).startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            rows.add(agent.transcripts.scan_usage(read_lines(Path(part.path))))
            return PartResult(part, rows.batch(), part.size)
        file.seek(part.start_offset)
        rows.add(agent.transcripts.scan_usage(file))
        done, _ = _find_last_complete_line(file)
        head, tail = fingerprint(file, done)
    state = msgspec.msgpack.encode(ResumeState(b"", rows.state()))
    return PartResult(part, rows.batch(not part.start_offset), done, part.lines, head, tail, state)


def _read_compressed(part: SourcePart, reading: RunParser, rows: LedgerRowSink) -> PartResult:
    """A transcript that was packed away: it grows no more, and has no place to go on from."""
    reading.feed_sink((read_lines(Path(part.path)),), rows)
    batch = rows.batch()
    return PartResult(
        part, batch, part.size, reading.lines.read, session=_session_id_of(batch, part)
    )


def _find_last_complete_line(file: "io.BufferedReader[io.FileIO]") -> tuple[int, bool]:
    """Where the last whole line of a file ends that was read to its end; whether a cut one follows, which is left for later."""
    end, cut = file.tell(), b""
    while len(cut) < end and b"\n" not in cut:
        start = max(0, end - len(cut) - (len(cut) or TAIL_BYTES))
        file.seek(start)
        cut = file.read(end - start)
    cut = cut[cut.rfind(b"\n") + 1 :]
    if not cut or _is_json_object(cut):
        return end, False
    return end - len(cut), True


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def fingerprint(file: "io.BufferedReader[io.FileIO]", done: int) -> tuple[str, str]:
    """What tells these first `done` bytes of a file from those of another: hashes of their beginning and their end."""
    size, number = min(HEAD_BYTES, done), file.fileno()
    head = f"{size}:{_hash(os.pread(number, size, 0))}"
    return head, _hash(os.pread(number, min(TAIL_BYTES, done), max(0, done - TAIL_BYTES)))


def matches_fingerprint(path: str, done: int, head: str, tail: str) -> bool:
    """Whether the first `done` bytes of a file are those that were read before."""
    size = int(head.partition(":")[0] or 0)
    try:
        with io.FileIO(path) as file:
            if os.fstat(file.fileno()).st_size < done:
                return False
            begun = f"{size}:{_hash(file.read(size))}" == head
            file.seek(max(0, done - TAIL_BYTES))
            return begun and _hash(file.read(min(TAIL_BYTES, done))) == tail
    except OSError:
        return False


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


# -- runs --------------------------------------------------------------------------------------------------------


def _read_run(part: SourcePart, agent: Agent | None) -> PartResult:
    """A recording or a tape: its report and its rows, from one reading."""
    given = open_recording(part.path)
    reading = RunParser(agent)
    rows = LedgerRowSink(reading.agent, "", part.mtime_ns // 1_000_000)
    for events in reading.batches(given.lines):
        rows.agent, rows.start_folder = reading.agent, reading.accumulator.start_folder
        rows.id_namespace = reading.header.id_namespace() if reading.header is not None else ""
        rows.add(events)
        reading.accumulator.add(events)
    reading.add_events(given.extra_events)
    kept = reading.enrich(given.transcript_lines(reading))
    reading.accumulator.add(kept)
    rows.add(kept)
    report = reading.report(given.name, price)
    batch = rows.batch()
    report.run_id = report.run_id or _derive_run_id(report, batch, part)
    for request in batch.requests:
        request.run, request.session = (
            report.run_id,
            request.session or report.session_id or report.run_id,
        )
    _fill_ids(batch, report)
    session, told, more = (
        report.session_id or report.run_id,
        msgspec.json.encode(report),
        _task_columns(reading),
    )
    return PartResult(
        part,
        batch,
        part.size,
        reading.lines.read,
        session=session,
        run=report.run_id,
        report=told,
        run_columns=more,
    )


def _task_columns(reading: RunParser) -> dict[str, str | int | None]:
    """What a tape knows of the task that its run was part of."""
    tape, decided = reading.header, reading.accumulator.last_note.partition(": ")[2]
    if tape is None or tape.task is None:
        return {}
    return {
        "task": tape.task,
        "attempt": tape.attempt,
        "prompt": tape.prompt,
        "why": decided or None,
    }


def _derive_run_id(report: Report, batch: RowBatch, part: SourcePart) -> str:
    """The name of a run that nobody named: made of its session and its first request, so that a copy has the same.

    One that asked nothing of a model is told by its bytes and its place.
    """
    if batch.requests:
        return f"{stable_id('run', report.session_id, batch.requests[0].id):016x}"
    with io.FileIO(_stdout_path(part.path)) as file:
        return f"{stable_id('run', report.session_id, _hash(file.read(MAX_BUFFER_BYTES)), part.path):016x}"


def _stdout_path(path: str) -> str:
    inside = os.path.join(path, "stdout")  # noqa: PTH118
    return inside if os.path.isdir(path) else path  # noqa: PTH112


def _fill_ids(batch: RowBatch, report: Report) -> None:
    """Put the run's and the session's name into rows that were made before it was known."""
    run, session = report.run_id, report.session_id or report.run_id or ""
    for rows in (batch.changes, batch.denials, batch.texts):
        rows[:] = [(row[0], row[1] or session, run, *row[3:]) for row in rows]
    batch.calls = [(*row[:3], row[3] or session, run, *row[5:]) for row in batch.calls]
    if "" in batch.sessions:
        batch.sessions.setdefault(session, batch.sessions.pop(""))


def decode_report(data: bytes) -> Report:
    """A report that came from another process."""
    return msgspec.json.decode(data, type=Report)
