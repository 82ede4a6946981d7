"""Writes and reads recording files: append-only, one file per run (see `format`).

A recording cut at any byte can still be read and is marked as truncated.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from ..codec.lines import LineSplitter
from ..codec.redact import redact_argv
from .format import Header, Record, encode_record, parse_header, parse_record

__all__ = ["Header", "Record", "Recorder", "RecordingFile", "RecordingFollower"]

READ_CHUNK_BYTES = 1 << 18  # when following an active recording


class Recorder:
    """Writes a recording. `write` returns after the system has the record: a crash loses one."""

    def __init__(self, path: str | os.PathLike[str], header: Header | None = None) -> None:
        header = header or Header()
        if header.argv is not None:
            header = msgspec.structs.replace(header, argv=redact_argv(header.argv))
        # The agent's output may contain secrets: readable by the owner only. Never overwrites.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
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


class RecordingFile:
    """A finished recording."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            self.header = parse_header(file.readline())
        self.is_truncated = True  # until `records` has seen the end

    def records(self) -> Iterator[Record]:
        """Every complete record. Afterwards `is_truncated` is known."""
        with self.path.open("rb") as file:
            file.readline()
            for line in file:
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
        line = self._file.readline()
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
