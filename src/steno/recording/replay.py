"""Replays a recording: the same bytes at the same times, the same exit and reaction to signals.

Output and waiting are functions of the caller; lines are never interpreted.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from itertools import chain
from pathlib import Path

import msgspec

from ..codec.decode import DECODE_ERRORS
from ..errors import SourceError
from .format import Header, Record, parse_header, parse_record
from .identify import identify
from .lines import read_lines
from .open import is_folder, read_folder_exit_code

SIGNAL_NUMBERS = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGTERM": 15}


WriteOutput = Callable[[str, bytes], None]  # "out" or "err", data
WaitForSignal = Callable[[float], int | None]  # timeout in seconds -> signal received, if any


class RecordingTiming(msgspec.Struct):
    """The first line of `timing.jsonl`: duration of the run, and signals sent to it."""

    wall_s: float | None = None
    signals: list[dict[str, float | str | bool]] = []


class ReplaySource:
    """A recording to replay. `agent` is the name of the recorded agent. Raises SourceError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_folder = is_folder(path)
        self._stdout_path = path / "stdout" if self._is_folder else path
        if self._is_folder and not (path / "stdout").is_file():
            raise SourceError(
                f"{path}: a folder without stdout is not a recording; "
                "name a recording file or the folder of one run"
            )
        with closing(read_lines(self._stdout_path)) as lines:
            first = next(lines, b"")
        self.header: Header | None = None if self._is_folder else parse_header(first)
        found = identify(self._stdout_path, given=True)
        self.agent = (found.agent or None) if found is not None else None

    @property
    def is_unrecognized(self) -> bool:
        """Whether neither the format nor a line shows that an agent printed this."""
        return self.header is None and not self._is_folder and self.agent is None

    @cached_property
    def _signal_positions(self) -> dict[int, int]:
        """The index of the last record before each signal, sorted by index."""
        stops = {
            record.number: index
            for index, record in enumerate(self.records(only_stops=True))
            if record.code == "stop" and record.number is not None
        }
        return dict(sorted(stops.items(), key=lambda stop: stop[1]))

    @property
    def ignored_signals(self) -> set[int]:
        """The signals that the agent ignored: another one had to follow."""
        return set(list(self._signal_positions)[:-1])

    @property
    def answered_signals(self) -> dict[int, int]:
        """The signal that the agent reacted to, with the record before its reaction."""
        return dict(list(self._signal_positions.items())[-1:])

    def records(self, only_stops: bool = False) -> Iterator[Record]:
        """The records in order. `only_stops`: the other records are empty, which is faster."""
        if self.header is not None:
            return self._file_records(only_stops)
        return self._folder_records() if self._is_folder else self._stdout_records([])

    def _file_records(self, only_stops: bool) -> Iterator[Record]:
        rest = iter(read_lines(self.path))
        next(rest, None)
        for line in rest:
            if only_stops and b'"stop"' not in line[:64]:
                yield Record(None, "")
                continue
            record = parse_record(line) if line.endswith(b"\n") else None
            if record is None:
                return  # truncated
            yield record

    def _stdout_records(self, times: list[float]) -> Iterator[Record]:
        for index, line in enumerate(read_lines(self._stdout_path)):
            yield Record(times[index] if index < len(times) else None, "out", line)

    # -- folders -----------------------------------------------------------------------------------

    def _folder_records(self) -> Iterator[Record]:
        timing, times = self._read_timing()
        stops = [
            (float(sent["t"]), SIGNAL_NUMBERS[str(sent["sig"])])
            for sent in timing.signals
            if sent.get("sig") in SIGNAL_NUMBERS and "t" in sent
        ]
        records = chain(self._stdout_records(times), self._stderr_and_exit_records(timing.wall_s))
        for record in records:
            offset = record.offset_seconds
            while stops and offset is not None and offset >= stops[0][0]:
                sent_at, number = stops.pop(0)
                yield Record(sent_at, "stop", b"", number)
            yield record

    def _stderr_and_exit_records(self, wall: float | None) -> Iterator[Record]:
        """Stderr, whose times are unknown, then the exit."""
        stderr = self.path / "stderr"
        for line in read_lines(stderr) if stderr.is_file() else ():
            yield Record(None, "err", line)
        code = read_folder_exit_code(self.path)
        if code is not None:
            yield Record(wall, "exit", number=code)

    def _read_timing(self) -> tuple[RecordingTiming, list[float]]:
        path = self.path / "timing.jsonl"
        if not path.is_file():
            return RecordingTiming(), []
        head, *rest = [*read_lines(path)] or [b"{}"]
        try:
            timing = msgspec.json.decode(head, type=RecordingTiming)
            rows = [msgspec.json.decode(line, type=tuple[float, int]) for line in rest]
        except DECODE_ERRORS:
            raise SourceError(
                f"{path}: expected an object, then [seconds, bytes] for each line of stdout"
            ) from None
        return timing, [seconds for seconds, _ in rows]


class Player:
    """Replays a recording once. `speed`: 2 is twice as fast, 0 is without delays."""

    def __init__(
        self, recording: ReplaySource, speed: float, write: WriteOutput, wait: WaitForSignal
    ) -> None:
        self._recording = recording
        self._speed = speed
        self._write = write
        self._wait = wait
        self._started_at = time.monotonic()  # the recording's time 0
        self._skip_until = -1  # index of the last record to skip after a signal
        self._is_mid_line = False  # the last output has no newline yet
        self._skipped_mid_line = False  # nor has the last skipped record
        self._has_skipped = False

    def play(self) -> int | None:
        """Replay to the end. Returns the exit code, negative for a signal; None without one."""
        for index, record in enumerate(self._recording.records()):
            if index > self._skip_until:
                self._wait_until_due(record, index)
            if index <= self._skip_until:
                self._skip_record(record, index)
            elif record.code == "exit":
                return 127 if record.number is None else record.number
            elif record.code in ("out", "err"):
                self._put(record)
        return None

    def _wait_until_due(self, record: Record, index: int) -> None:
        """Wait until the record is due, or skip to the agent's reaction if a signal arrives."""
        due = 0.0
        if self._speed and record.offset_seconds is not None:
            due = self._started_at + record.offset_seconds / self._speed
        while True:
            number = self._wait(max(0.0, due - time.monotonic()))
            if number is not None and self._recording.answered_signals.get(number, -1) >= index:
                self._skip_until = self._recording.answered_signals[number]
                return
            if number is None and due <= time.monotonic():
                return

    def _skip_record(self, record: Record, index: int) -> None:
        if record.code == "out":
            self._has_skipped = True
            self._skipped_mid_line = not record.data.endswith(b"\n")
        if index == self._skip_until and self._speed and record.offset_seconds is not None:
            self._started_at = time.monotonic() - record.offset_seconds / self._speed

    def _put(self, record: Record) -> None:
        data = record.data
        if record.code == "out" and self._has_skipped:
            if self._skipped_mid_line:
                data = data.partition(b"\n")[2]
            if self._is_mid_line:
                data = b"\n" + data
            self._has_skipped = self._skipped_mid_line and b"\n" not in record.data
        self._write(record.code, data)
        if record.code == "out" and data:
            self._is_mid_line = not data.endswith(b"\n")
