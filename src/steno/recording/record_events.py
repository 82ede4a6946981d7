"""Records of a recording file to events: their times, stderr, file changes, the end. Pure.

The records with stdout are handed to the parser of the agent's lines.
"""

import posixpath
from datetime import datetime, timedelta, timezone

from msgspec import Raw, Struct
from msgspec.structs import replace

from .. import event as ev
from ..codec.decode import DECODE_ERRORS, decode_lenient
from ..codec.lines import LineSplitter
from .format import Header, Record, parse_record

FILE_CHANGE_SOURCES = {"file": "filesystem", "git": "git"}  # by record code


class RecordDecoder:
    """The state of one recording file: header, unfinished lines, whether it was closed."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.stdout: LineSplitter | None = None  # set while records are read
        self.transcript_chunks: list[bytes] = []
        self._stderr = LineSplitter()
        self._has_end = False
        self._is_damaged = False
        self._time_shift: timedelta | None = None  # from a replayed recording to this run

    @property
    def is_truncated(self) -> bool:
        """Whether a record was unreadable or the end is missing."""
        return self._is_damaged or not self._has_end

    def begin(self, header: Header) -> None:
        self.header = header
        self.stdout = LineSplitter()
        self._has_end = False

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

    def events(self, record: Record, at: datetime | None) -> list[ev.Event]:
        """The events of a record without stdout."""
        if record.code == "end":
            self._has_end = True
            return []
        if record.code == "err":
            return _stderr_events(self._stderr.feed(record.data), at)
        if record.code == "kept":
            self.transcript_chunks.append(record.data)
            return []
        if record.code in FILE_CHANGE_SOURCES:
            cwd = self.header.cwd if self.header is not None else None
            return [_file_changed_event(record, at, cwd)]
        return record_to_events(record, at)

    def flush_stderr(self) -> list[ev.Event]:
        """The last line of stderr, if it has no newline."""
        return _stderr_events([self._stderr.flush()], None)

    def shift_times(self, events: list[ev.Event], at: datetime | None) -> list[ev.Event]:
        """The events of a replayed recording, with its times moved to this run."""
        if self.header is None or not self.header.played or at is None:
            return events
        return [self._shift_time(event, at) for event in events]

    def _shift_time(self, event: ev.Event, at: datetime) -> ev.Event:
        if event.at is None or event.at == at:
            return event
        if self._time_shift is None:
            self._time_shift = at - event.at
        return replace(event, at=event.at + self._time_shift)


class SchemaCheckPayload(Struct):
    """The data of a `checked` record."""

    value: Raw = ev.NO_JSON
    wrong: list[str] = []


def _stderr_events(lines: list[bytes], at: datetime | None) -> list[ev.Event]:
    return [
        ev.Stderr(0, None, None, at, line.decode("utf-8", "replace").rstrip("\r"))
        for line in lines
        if line.strip()
    ]


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
        return []
    if record.code == "checked":
        try:
            payload = decode_lenient(record.data, SchemaCheckPayload)
            return [ev.SchemaChecked(0, None, None, at, payload.value, tuple(payload.wrong))]
        except DECODE_ERRORS:
            pass  # not JSON: unknown, see below
    if record.code == "file":
        return [_file_changed_event(record, at)]
    return [ev.Unknown(0, None, None, at, f"record {record.code}", record.data)]


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
