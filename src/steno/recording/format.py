"""The format of recording files: a header line, then one record per line, all JSON.

A record is `[seconds since the start or null, code, data]`:

    out, err   bytes of stdout or stderr (a string; {"b64": ...} if they are not UTF-8)
    file, git  a file change seen on disk or by git: "created src/a.py"
    stop       steno stopped the agent: {"why": ..., "signal": ...}
    in         bytes sent to the agent's stdin while it ran
    left       a process that outlived the agent: "PID SIGNAL COMMAND", with - as the signal if it
               was left running
    note       a decision of steno with its reason: "resume: ..."; "superseded: ..." may follow the
               end: the result does not count, since the task was started again meanwhile
    alert      the context or a budget reached a level: {"kind": ..., "level": ..., "used": ...,
               "limit": ...}
    checked    the result of the JSON schema check: {"value": ...} or {"wrong": [...]}
    kept       lines of the agent's own transcript, read after it exited, or the totals of a resumed
               session, read before it starts
    exit       the exit code, negative for a signal, null if the process never started
    end        the recording was closed properly; without it, it is truncated

Version 1 stays readable forever.
"""

import os
import posixpath
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from .. import event as ev
from ..codec.decode import DECODE_ERRORS, MAX_LINE_BYTES, LineSplitter, decode_lenient, text_of
from ..report import RunOrigin

RECORDING_SCHEMA = "steno.tape/1"
BYTE_PAYLOAD_CODES = ("out", "err", "file", "git", "in", "left", "note", "alert", "checked", "kept")
MAX_CUT_STDERR_BYTES = 1 << 16  # kept of a line that was cut; messages show less
MAX_EXIT_CODE = 1 << 53  # the largest integer that JSON numbers hold exactly


class BackendInfo(Struct, frozen=True, kw_only=True):
    """The model server used instead of the vendor's.

    `local`: usage is free; `window`: the model's context window as reported by the server.
    """

    kind: str
    url: str
    local: bool = False
    window: int | None = None


class Header(Struct, kw_only=True):
    """What was started, without secrets. `started_at`: seconds since 1970, None if unknown.

    `backend` is set if the agent used another model server than its vendor's; `task`, `attempt` and
    `prompt` (its beginning) if the run is part of a task; `name` and `tags` if a user labelled the
    run; `origin` says where and for whom it was started. `played`: the agent was a replayed
    recording, whose times and ids belong to another run. `resumes`: the run continues an earlier
    session; None if unknown.
    """

    schema: str = RECORDING_SCHEMA
    agent: str | None = None
    agent_version: str | None = None
    run_id: str | None = None
    argv: list[str] | None = None
    cwd: str | None = None
    started_at: float | None = None
    task: str | None = None
    attempt: int | None = None
    prompt: str | None = None
    backend: BackendInfo | None = None
    played: bool = False
    resumes: bool | None = None
    name: str | None = None
    tags: dict[str, str] = {}
    origin: RunOrigin = RunOrigin()

    def id_namespace(self) -> str:
        """A prefix that makes the ids of a replayed recording unique to this run, else empty."""
        return self.run_id or "" if self.played else ""


def redact_header(header: Header) -> Header:
    """The header without secrets in what a user or a program wrote: not in ids and paths."""
    from ..codec.redact import redact, redact_argv, redact_value  # slow, not needed for reading

    backend = header.backend
    return replace(
        header,
        argv=header.argv and redact_argv(header.argv),
        prompt=header.prompt and redact(header.prompt),
        backend=backend and replace(backend, url=redact(backend.url)),
        name=header.name and redact(header.name),
        tags=header.tags and redact_value(header.tags),
        origin=redact_origin(header.origin),
    )


def redact_origin(origin: RunOrigin) -> RunOrigin:
    from ..codec.redact import redact

    return replace(
        origin,
        repository=origin.repository and redact(origin.repository),
        branch=origin.branch and redact(origin.branch),
    )


class Record(Struct, frozen=True):
    """One record. `offset_seconds`: time since the start, None if unknown."""

    offset_seconds: float | None
    code: str
    data: bytes = b""
    number: int | None = None


_header_decoder = msgspec.json.Decoder(Header)
_record_decoder = msgspec.json.Decoder(tuple[float | None, str, Any])


def parse_header(line: bytes) -> Header | None:
    """The header on the first line of a recording file; None if the line is not a header."""
    try:
        header = _header_decoder.decode(line)
    except DECODE_ERRORS:
        return None
    return header if header.schema == RECORDING_SCHEMA and b'"schema"' in line else None


def parse_record(line: bytes) -> Record | None:
    """The record on a line; None if the line is truncated or not a record."""
    try:
        offset_seconds, code, data = _record_decoder.decode(line)
        return Record(offset_seconds, code, *_parse_payload(data))
    except (*DECODE_ERRORS, ValueError):
        return None


def _parse_payload(data: Any) -> tuple[bytes, int | None]:
    if isinstance(data, str):
        return data.encode("utf-8"), None
    if isinstance(data, int):
        if abs(data) > MAX_EXIT_CODE:
            raise ValueError("exit code out of range")
        return b"", data
    if isinstance(data, dict):
        if isinstance(data.get("b64"), str):
            from base64 import b64decode

            return b64decode(data["b64"], validate=True), None
        signal = data.get("signal")
        return str(data.get("why", "")).encode("utf-8"), signal if isinstance(signal, int) else None
    return b"", None


def encode_record(record: Record) -> bytes:
    """The record as a line with its newline."""
    payload: Any = None
    if record.code in BYTE_PAYLOAD_CODES:
        try:
            payload = record.data.decode("utf-8")
        except UnicodeDecodeError:
            from base64 import b64encode

            payload = {"b64": b64encode(record.data).decode("ascii")}
    elif record.code == "stop":
        payload = {"why": record.data.decode("utf-8"), "signal": record.number}
    elif record.code == "exit":
        payload = record.number
    return msgspec.json.encode((record.offset_seconds, record.code, payload)) + b"\n"


FILE_CHANGE_SOURCES = {"file": "filesystem", "git": "git"}  # by record code


class RecordDecoder:
    """The state of one recording file: header, unfinished lines, whether it was closed."""

    def __init__(self, header: Header | None = None) -> None:
        self.header = header
        # Set while records are read.
        self.stdout: LineSplitter | None = None if header is None else LineSplitter()
        self.transcript_chunks: list[bytes] = []
        self._stderr = LineSplitter()
        self._has_end = False
        self._is_damaged = False
        self._time_shift: timedelta | None = None  # from a replayed recording to this run
        self.ended_at: datetime | None = None  # the exit, else the last record
        self._has_exit = False

    @property
    def is_truncated(self) -> bool:
        """Whether a record was unreadable or the end is missing."""
        return self._is_damaged or not self._has_end

    def parse(self, line: bytes, final: bool) -> Record | None:
        """The record on a line; None if it is damaged or cut off."""
        record = None if final else parse_record(line)
        if record is None and line.strip():
            self._is_damaged = True
        return record

    def time_of(self, record: Record) -> datetime | None:
        """When the record was written, if the header knows the start."""
        if self.header is None or self.header.started_at is None or record.offset_seconds is None:
            return None
        try:
            seconds = self.header.started_at + record.offset_seconds
            return datetime.fromtimestamp(seconds, timezone.utc)
        except (OverflowError, OSError, ValueError):
            return None

    def advance_time(self, record: Record) -> datetime | None:
        """The time of the next record of the run."""
        at = self.time_of(record)
        if at is not None and not self._has_exit:
            self.ended_at = at
        self._has_exit = self._has_exit or record.code == "exit"
        return at

    def events(self, record: Record, at: datetime | None) -> list[ev.Event]:
        """The events of a record without stdout."""
        if record.code == "end":
            self._has_end = True
            return []
        if record.code == "err":
            return stderr_events(self._stderr.feed(record.data), at)
        if record.code == "kept":
            self.transcript_chunks.append(record.data)
            return []
        if record.code in FILE_CHANGE_SOURCES:
            cwd = self.header.cwd if self.header is not None else None
            return [_file_changed_event(record, at, cwd)]
        return record_to_events(record, at)

    def flush_stderr(self) -> list[ev.Event]:
        """The last line of stderr, if it has no newline."""
        return stderr_events([self._stderr.flush()], None)

    def shift_times(self, events: list[ev.Event], at: datetime | None) -> list[ev.Event]:
        """The events of a replayed recording, with its times moved to this run."""
        if self.header is None or not self.header.played or at is None:
            return events
        shifted = []
        for event in events:
            if event.at is not None and event.at != at:
                if self._time_shift is None:
                    self._time_shift = at - event.at
                event = replace(event, at=event.at + self._time_shift)
            shifted.append(event)
        return shifted


class SchemaCheckPayload(Struct):
    """The data of a `checked` record."""

    value: Raw = ev.NO_JSON
    wrong: list[str] = []


class AlertPayload(Struct, omit_defaults=True):
    """The data of an `alert` record."""

    kind: str = ""
    level: float = 0.0
    used: float = 0.0
    limit: float = 0.0
    is_assumed: bool = False
    is_passed: bool = False


def encode_alert(alert: ev.Alert) -> bytes:
    """The data of an `alert` record."""
    return msgspec.json.encode(
        AlertPayload(
            kind=alert.kind,
            level=alert.level,
            used=alert.used,
            limit=alert.limit,
            is_assumed=alert.is_assumed,
            is_passed=alert.is_passed,
        )
    )


def stderr_events(lines: list[bytes], at: datetime | None) -> list[ev.Event]:
    """The events of lines of stderr, with or without their newlines."""
    events: list[ev.Event] = []
    for line in lines:
        if len(line) >= MAX_LINE_BYTES:
            line = line[:MAX_CUT_STDERR_BYTES]
            events.append(line_cut_notice(at))
        if line.strip():
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            events.append(ev.Stderr(0, None, None, at, text))
    return events


def line_cut_notice(at: datetime | None) -> ev.Notice:
    """The event of a line that was cut to MAX_LINE_BYTES."""
    return ev.Notice(0, None, None, at, "line_cut")


def record_to_events(record: Record, at: datetime | None) -> list[ev.Event]:
    """The events of a record that does not depend on those before it."""
    text = record.data.decode("utf-8", "replace")
    if record.code == "exit":
        return [ev.Exited(0, None, None, at, record.number)]
    if record.code == "stop":
        return [ev.StopRequested(0, None, None, at, text, record.number)]
    if record.code in ("left", "note"):
        return [ev.Notice(0, None, None, at, record.code, text)]
    if record.code == "in":
        return [ev.UserMessage(0, None, None, at, "sent", _sent_text(record.data))]
    if record.code == "checked":
        try:
            payload = decode_lenient(record.data, SchemaCheckPayload)
            return [ev.SchemaChecked(0, None, None, at, payload.value, tuple(payload.wrong))]
        except DECODE_ERRORS:
            pass  # not JSON: unknown, see below
    if record.code == "alert":
        try:
            alert = decode_lenient(record.data, AlertPayload)
            return [ev.Alert(0, None, None, at, **msgspec.structs.asdict(alert))]
        except DECODE_ERRORS:
            pass  # not JSON: unknown, see below
    if record.code == "file":
        return [_file_changed_event(record, at)]
    return [ev.Unknown(0, None, None, at, f"record {record.code}", record.data)]


class SentContent(Struct, frozen=True):
    content: Raw = ev.NO_JSON


class SentMessage(Struct):
    """The data of an `in` record, for agents that take messages as JSON."""

    message: SentContent = SentContent()


def _sent_text(data: bytes) -> str:
    """The text of a message to the agent: that in its JSON, else the bytes as they are."""
    try:
        content = decode_lenient(data, SentMessage).message.content
    except DECODE_ERRORS:
        content = ev.NO_JSON
    if content is ev.NO_JSON:
        return data.decode("utf-8", "replace").strip()
    return text_of(content)


def _file_changed_event(
    record: Record, at: datetime | None, cwd: str | None = None
) -> ev.FileChanged:
    """A file change; the recorded path is relative to the folder the agent was started in."""
    change, _, path = record.data.decode("utf-8", "backslashreplace").partition(" ")
    return ev.FileChanged(
        line=0,
        session=None,
        parent=None,
        at=at,
        path=posixpath.join(cwd or "", path),
        change=change,
        source=FILE_CHANGE_SOURCES[record.code],
    )


__all__ = ["Header", "Record", "Recorder", "RecordingFile", "RecordingFollower"]

READ_CHUNK_BYTES = 1 << 18  # when following an active recording


def create_recording(path: str | os.PathLike[str]) -> int:
    """Create an empty file for the agent's output, which may contain secrets: mode 0600.

    An existing file is never overwritten.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)


class Recorder:
    """Writes a recording. `write` returns after the system has the record: a crash loses one."""

    def __init__(self, path: str | os.PathLike[str], header: Header | None = None) -> None:
        header = redact_header(header or Header())
        self._file = create_recording(path)
        self._put(msgspec.json.encode(header) + b"\n")

    def write(self, record: Record) -> None:
        self._put(encode_record(record))

    def close(self) -> None:
        """Mark the recording as complete and close it. A second call does nothing."""
        if self._file >= 0:
            self._put(encode_record(Record(None, "end")))
            self.abandon()

    def abandon(self) -> None:
        """Close it without the end mark, so that it counts as truncated."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._file, line) :]

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def mark_superseded(path: str | os.PathLike[str], reason: str) -> None:
    """Add to a closed recording that its result does not count."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        note = f"{ev.SUPERSEDED_NOTE}: {reason}"
        os.write(file, encode_record(Record(None, "note", note.encode())))
    finally:
        os.close(file)


class RecordingFile:
    """A finished recording."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            self.header = parse_header(file.readline(MAX_LINE_BYTES))
        self.is_truncated = True  # until `records` has seen the end

    def records(self) -> Iterator[Record]:
        """Every complete record. Afterwards `is_truncated` is known."""
        with self.path.open("rb") as file:
            file.readline(MAX_LINE_BYTES)
            for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""):
                record = parse_record(line) if line.endswith(b"\n") else None
                if record is None:
                    break
                if record.code == "end":
                    self.is_truncated = False
                    return
                yield record
        self.is_truncated = True


class RecordingFollower:
    """A recording that may still be written. An incomplete line is kept until the rest arrives."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path.open("rb", buffering=0)
        line = self._file.readline(MAX_LINE_BYTES)
        self.header = parse_header(line) if line.endswith(b"\n") else None
        self.is_ended = False
        self._splitter = LineSplitter()

    def records(self) -> Iterator[Record]:
        """The complete records since the last call; unreadable ones are skipped."""
        while not self.is_ended and (data := self._file.read(READ_CHUNK_BYTES)):
            for line in self._splitter.feed(data):
                record = parse_record(line)
                if record is not None and record.code == "end":
                    self.is_ended = True
                    self._file.close()
                    return
                if record is not None:
                    yield record
