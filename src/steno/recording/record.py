"""The tape: the record of a run in one file, a header line and then its ticks. Append-only; the truth.

It holds any bytes, and a tape that is cut at any byte still plays and says so. `tick` is its format.
This module records and plays; it never interprets what the agent said.
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

READ_CHUNK_BYTES = 1 << 18  # bytes read at once of a tape that grows


class Recorder:
    """Writes a tape. Each tick is with the system before `write` returns: a crash of ours loses at most that one."""

    def __init__(self, path: str | os.PathLike[str], header: Header | None = None) -> None:
        header = header or Header()
        if header.argv is not None:
            header = msgspec.structs.replace(header, argv=redact_argv(header.argv))
        # A tape holds whatever the agent printed: readable by its owner only, and never over another tape.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._put(msgspec.json.encode(header) + b"\n")

    def write(self, tick: Record) -> None:
        """Append one tick."""
        self._put(encode_record(tick))

    def close(self) -> None:
        """Mark the tape as whole and close it. A second call does nothing."""
        if self._file >= 0:
            self._put(encode_record(Record(None, "end")))
            self.abandon()

    def abandon(self) -> None:
        """Close it as it is: whoever plays it is told that it was cut. A second call does nothing."""
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
    """A tape that was recorded: its header, its ticks, and whether it was cut."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            self.header = parse_header(file.readline())
        self.is_truncated = True  # until `ticks` has seen the end

    def records(self) -> Iterator[Record]:
        """Every whole tick, in order. Afterwards `cut` says whether the tape ended in order."""
        with self.path.open("rb") as file:
            file.readline()
            for line in file:
                tick = parse_record(line) if line.endswith(b"\n") else None
                if tick is None:
                    break
                if tick.code == "end":
                    self.is_truncated = False
                    return
                yield tick
        self.is_truncated = True


class RecordingFollower:
    """A tape that may still be written. What is only half there is left until it is whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = self.path.open("rb", buffering=0)
        line = self._file.readline()
        self.header = parse_header(line) if line.endswith(b"\n") else None
        self.is_ended = False  # its last tick was seen
        self._splitter = LineSplitter()

    def records(self) -> Iterator[Record]:
        """The whole ticks that came since the last time. One that cannot be read is passed over."""
        while not self.is_ended and (data := self._file.read(READ_CHUNK_BYTES)):
            for line in self._splitter.feed(data):
                tick = parse_record(line)
                if tick is not None and tick.code == "end":
                    self.is_ended = True
                    self._file.close()
                    return
                if tick is not None:
                    yield tick
