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
from ..prices import price
from ..reading import Reading
from ..report import Report, StenoError
from ..source import GZIP, ZSTD, lines, open_input
from .rows import Rows
from .values import Batch, number

HEAD = 1024  # bytes at the beginning of a file that tell it from others
TAIL = 256  # bytes before the place where the last reading ended
CHUNK = 1 << 20  # bytes read at once; a larger buffer than the file costs more than it saves
LEAST = 1 << 13


class Part(Struct, array_like=True):
    """A file, or what is new in it: where to begin, and what to remember from before."""

    path: str
    kind: str
    agent: str
    size: int
    mtime_ns: int
    inode: int
    done: int = 0
    lines: int = 0
    before: str | None = None  # the name that it was read under before, if this is the rest of it
    sums: bool = False  # only what adds up to the spend is wanted
    state: bytes | None = None


class Told(Struct, array_like=True):
    """What a part told, and where the next one begins."""

    part: Part
    batch: Batch | None
    done: int = 0
    lines: int = 0
    head: str = ""
    tail: str = ""
    state: bytes | None = None
    session: str | None = None
    run: str | None = None
    report: bytes | None = None
    trouble: str | None = None
    more: dict[str, str | int | None] = {}  # columns of the run that its report does not know


class State(Struct, array_like=True):
    """What the reader and the rows remember between two parts."""

    reader: bytes
    rows: bytes


_state = msgspec.msgpack.Decoder(State)


def read_part(part: Part) -> Told:
    """The rows of one part. What cannot be read is told, never raised; a mistake of ours costs this part alone."""
    try:
        if part.kind != "transcript":
            return _run(part, agents.named(part.agent or None))
        agent = agents.named(part.agent) or agents.CLAUDE
        return _spend(part, agent) if part.sums else _transcript(part, agent)
    except (OSError, StenoError) as problem:
        said = str(getattr(problem, "strerror", None) or problem)
        return Told(part, None, trouble=said.removeprefix(f"{part.path}: "))
    except Exception as problem:
        return Told(part, None, trouble=unforeseen(problem))


def unforeseen(problem: Exception) -> str:
    """What to say of a failure that nobody thought of: what it was, and where, so that it can be mended."""
    from traceback import extract_tb

    place = extract_tb(problem.__traceback__)[-1]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return f"not imported: internal error: {type(problem).__name__}: {problem} ({where})"


# -- transcripts -------------------------------------------------------------------------------------------------


def _transcript(part: Part, agent: Agent) -> Told:
    reading, rows = Reading(agent, "stream"), Rows(agent, Path(part.path).stem, part.mtime_ns // 1_000_000)
    if part.state is not None:
        kept = _state.decode(part.state)
        reading.go_on(kept.reader, part.lines)
        rows.go_on(kept.rows)
    with io.BufferedReader(io.FileIO(part.path), min(CHUNK, part.size - part.done + LEAST)) as file:
        if os.pread(file.fileno(), 4, 0).startswith((GZIP, ZSTD)):
            return _packed(part, reading, rows)
        file.seek(part.done)
        reading.tell((file,), rows)
        done, torn = _whole(file)
        head, tail = marks(file, done)
    state = msgspec.msgpack.encode(State(reading.state(), rows.state()))
    batch = rows.batch(not part.done)
    return Told(part, batch, done, reading.lines.read - torn, head, tail, state, _session_of(batch, part))


def _session_of(batch: Batch, part: Part) -> str:
    """The session that a transcript is of: its name says it, and of a subagent's its lines do."""
    name = Path(part.path).stem
    return name if name in batch.sessions or not batch.sessions else next(iter(batch.sessions))


def _spend(part: Part, agent: Agent) -> Told:
    """Only the requests of a transcript."""
    rows = Rows(agent, Path(part.path).stem, part.mtime_ns // 1_000_000)
    if part.state is not None:
        rows.go_on(_state.decode(part.state).rows)
    with io.BufferedReader(io.FileIO(part.path), min(CHUNK, part.size - part.done + LEAST)) as file:
        if os.pread(file.fileno(), 4, 0).startswith((GZIP, ZSTD)):
            rows.add(agent.usages(lines(Path(part.path))))
            return Told(part, rows.batch(), part.size)
        file.seek(part.done)
        rows.add(agent.usages(file))
        done, _ = _whole(file)
        head, tail = marks(file, done)
    state = msgspec.msgpack.encode(State(b"", rows.state()))
    return Told(part, rows.batch(not part.done), done, part.lines, head, tail, state)


def _packed(part: Part, reading: Reading, rows: Rows) -> Told:
    """A transcript that was packed away: it grows no more, and has no place to go on from."""
    reading.tell((lines(Path(part.path)),), rows)
    batch = rows.batch()
    return Told(part, batch, part.size, reading.lines.read, session=_session_of(batch, part))


def _whole(file: "io.BufferedReader[io.FileIO]") -> tuple[int, bool]:
    """Where the last whole line of a file ends that was read to its end; whether a cut one follows, which is left for later."""
    end, cut = file.tell(), b""
    while len(cut) < end and b"\n" not in cut:
        start = max(0, end - len(cut) - (len(cut) or TAIL))
        file.seek(start)
        cut = file.read(end - start)
    cut = cut[cut.rfind(b"\n") + 1 :]
    if not cut or _is_object(cut):
        return end, False
    return end - len(cut), True


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def marks(file: "io.BufferedReader[io.FileIO]", done: int) -> tuple[str, str]:
    """What tells these first `done` bytes of a file from those of another: hashes of their beginning and their end."""
    size, number = min(HEAD, done), file.fileno()
    head = f"{size}:{_hash(os.pread(number, size, 0))}"
    return head, _hash(os.pread(number, min(TAIL, done), max(0, done - TAIL)))


def same(path: str, done: int, head: str, tail: str) -> bool:
    """Whether the first `done` bytes of a file are those that were read before."""
    size = int(head.partition(":")[0] or 0)
    try:
        with io.FileIO(path) as file:
            if os.fstat(file.fileno()).st_size < done:
                return False
            begun = f"{size}:{_hash(file.read(size))}" == head
            file.seek(max(0, done - TAIL))
            return begun and _hash(file.read(min(TAIL, done))) == tail
    except OSError:
        return False


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


# -- runs --------------------------------------------------------------------------------------------------------


def _run(part: Part, agent: Agent | None) -> Told:
    """A recording or a tape: its report and its rows, from one reading."""
    given = open_input(part.path)
    reading = Reading(agent)
    rows = Rows(reading.agent, "", part.mtime_ns // 1_000_000)
    for events in reading.batches(given.data):
        rows.agent, rows.place = reading.agent, reading.fold.place
        rows.own = reading.tape.own() if reading.tape is not None else ""
        rows.add(events)
        reading.fold.add(events)
    reading.take_events(given.after)
    kept = reading.beside(given.kept(reading))
    reading.fold.add(kept)
    rows.add(kept)
    report = reading.report(given.name, price)
    batch = rows.batch()
    report.run_id = report.run_id or _run_id(report, batch, part)
    for request in batch.requests:
        request.run, request.session = report.run_id, request.session or report.session_id or report.run_id
    _name(batch, report)
    session, told, more = report.session_id or report.run_id, msgspec.json.encode(report), _beyond(reading)
    return Told(part, batch, part.size, reading.lines.read, session=session, run=report.run_id, report=told, more=more)


def _beyond(reading: Reading) -> dict[str, str | int | None]:
    """What a tape knows of the task that its run was part of."""
    tape, decided = reading.tape, reading.fold.noted.partition(": ")[2]
    if tape is None or tape.task is None:
        return {}
    return {"task": tape.task, "attempt": tape.attempt, "prompt": tape.prompt, "why": decided or None}


def _run_id(report: Report, batch: Batch, part: Part) -> str:
    """The name of a run that nobody named: made of its session and its first request, so that a copy has the same.

    One that asked nothing of a model is told by its bytes and its place.
    """
    if batch.requests:
        return f"{number('run', report.session_id, batch.requests[0].id):016x}"
    with io.FileIO(_stdout(part.path)) as file:
        return f"{number('run', report.session_id, _hash(file.read(CHUNK)), part.path):016x}"


def _stdout(path: str) -> str:
    inside = os.path.join(path, "stdout")  # noqa: PTH118
    return inside if os.path.isdir(path) else path  # noqa: PTH112


def _name(batch: Batch, report: Report) -> None:
    """Put the run's and the session's name into rows that were made before it was known."""
    run, session = report.run_id, report.session_id or report.run_id or ""
    for rows in (batch.changes, batch.denials, batch.texts):
        rows[:] = [(row[0], row[1] or session, run, *row[3:]) for row in rows]
    batch.calls = [(*row[:3], row[3] or session, run, *row[5:]) for row in batch.calls]
    if "" in batch.sessions:
        batch.sessions.setdefault(session, batch.sessions.pop(""))


def unpacked(data: bytes) -> Report:
    """A report that came from another process."""
    return msgspec.json.decode(data, type=Report)
