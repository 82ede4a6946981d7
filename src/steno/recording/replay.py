"""A recording played again: the same bytes at the same times, the same exit, the same answer to signals.

It reads a tape, a recording's folder or what an agent printed, and hands out what is due. It never interprets a line, and
never writes, waits or ends by itself: whoever plays gives it the means.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import msgspec

from .. import agents
from ..codec.decode import DECODE_ERRORS
from ..errors import SourceError
from .format import Header, Record, parse_header, parse_record
from .open import is_folder, read_lines

SIGNAL_NUMBERS = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGTERM": 15}

MAX_AGENT_DETECTION_LINES = 1000  # lines that are looked at to tell whose they are: warnings may stand before the first of the agent

WriteOutput = Callable[[str, bytes], None]  # "out" or "err", and what is written there
WaitForSignal = Callable[
    [float], int | None
]  # so many seconds at most; a signal that came in the meantime


class RecordingTiming(msgspec.Struct):
    """The first line of `timing.jsonl`: how long the run took, and the signals that it was sent."""

    wall_s: float | None = None
    signals: list[dict[str, float | str | bool]] = []


def _detect_agent_name(data: Iterable[bytes]) -> str | None:
    """The name of the agent that one of these lines is of."""
    return next(
        (agent.name for line in data if (agent := agents.detect_agent(line)) is not None), None
    )


class ReplaySource:
    """Something that can be played. `agent` is the name of whoever is on it. SourceError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_folder = is_folder(path)
        if self._is_folder and not (path / "stdout").is_file():
            raise SourceError(
                f"{path}: a folder without stdout is no recording; give a tape, or the folder of one run"
            )
        with closing(read_lines(self._stdout_path)) as data:
            first = next(data, b"")
            self.header: Header | None = None if self._is_folder else parse_header(first)
            self.agent = (
                self.header.agent
                if self.header is not None
                else _detect_agent_name(chain((first,), islice(data, MAX_AGENT_DETECTION_LINES)))
            )

    @property
    def is_unrecognized(self) -> bool:
        """Whether nothing tells that this was printed by an agent: neither its form nor a line of it."""
        return self.header is None and not self._is_folder and self.agent is None

    @property
    def _stdout_path(self) -> Path:
        return self.path / "stdout" if self._is_folder else self.path

    @cached_property
    def _signal_positions(self) -> dict[int, int]:
        """After which tick each signal was sent, the last one last."""
        ticks = enumerate(self.records(only_stops=True))
        found = [
            (tick.number, index)
            for index, tick in ticks
            if tick.code == "stop" and tick.number is not None
        ]
        return dict(sorted(dict(found).items(), key=lambda stop: stop[1]))

    @property
    def ignored_signals(self) -> set[int]:
        """The signals that the agent was sent and did not heed: another one had to follow."""
        return set(list(self._signal_positions)[:-1])

    @property
    def answered_signals(self) -> dict[int, int]:
        """The signal that it answered, and after which tick its answer begins."""
        return dict(list(self._signal_positions.items())[-1:])

    def records(self, only_stops: bool = False) -> Iterator[Record]:
        """What is played, in order. `only_stops`: the others may come empty; it is faster."""
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
            tick = parse_record(line) if line.endswith(b"\n") else None
            if tick is None:
                return  # cut: it ends here
            yield tick

    def _stdout_records(self, times: list[float]) -> Iterator[Record]:
        for index, line in enumerate(read_lines(self._stdout_path)):
            yield Record(times[index] if index < len(times) else None, "out", line)

    # -- folders -------------------------------------------------------------------------------------------------

    def _folder_records(self) -> Iterator[Record]:
        timing, times = self._read_timing()
        stops = [
            (float(sent["t"]), SIGNAL_NUMBERS[str(sent["sig"])])
            for sent in timing.signals
            if sent.get("sig") in SIGNAL_NUMBERS and "t" in sent
        ]
        for tick in chain(
            self._stdout_records(times), self._stderr_and_exit_records(timing.wall_s)
        ):
            while stops and tick.offset_seconds is not None and tick.offset_seconds >= stops[0][0]:
                yield Record(stops[0][0], "stop", b"", stops.pop(0)[1])
            yield tick

    def _stderr_and_exit_records(self, wall: float | None) -> Iterator[Record]:
        """What stands beside stdout. When stderr was written is not known: before the end."""
        errors, code = self.path / "stderr", self.path / "exit_code"
        if errors.is_file():
            for line in read_lines(errors):
                yield Record(None, "err", line)
        if code.is_file():
            text = b"".join(read_lines(code)).decode("utf-8", "replace").strip()
            try:
                yield Record(wall, "exit", number=int(text))
            except ValueError:
                raise SourceError(f"{code}: expected a whole number, found {text[:40]!r}") from None

    def _read_timing(self) -> tuple[RecordingTiming, list[float]]:
        path = self.path / "timing.jsonl"
        if not path.is_file():
            return RecordingTiming(), []
        head, *rest = [*read_lines(path)] or [b"{}"]
        try:
            return msgspec.json.decode(head, type=RecordingTiming), [
                row[0] for row in map(_parse_timing_row, rest)
            ]
        except DECODE_ERRORS:
            raise SourceError(
                f"{path}: expected an object, then [seconds, bytes] for each line of stdout"
            ) from None


def _parse_timing_row(line: bytes) -> tuple[float, int]:
    return msgspec.json.decode(line, type=tuple[float, int])


class Player:
    """Plays a recording once. `speed` 2 is twice as fast, 0 as fast as it can be."""

    def __init__(
        self, recording: ReplaySource, speed: float, write: WriteOutput, wait: WaitForSignal
    ) -> None:
        self._recording, self._speed, self._write, self._wait = recording, speed, write, wait
        self._started_at = time.monotonic()  # when the recording's time was 0
        self._skip_until = (
            -1
        )  # ticks up to this one are passed over: a signal came, and the answer stands behind it
        self._is_mid_line = False  # the last line that was played has no end yet
        self._skipped_mid_line = False  # the last line that was passed over has none
        self._has_skipped = False

    def play(self) -> int | None:
        """Play it to its end and return the exit code, negative for a signal; None if the recording has none."""
        for index, tick in enumerate(self._recording.records()):
            if index > self._skip_until:
                self._wait_until_due(tick, index)
            if index <= self._skip_until:
                self._skip_record(tick, index)
            elif tick.code == "exit":
                return 127 if tick.number is None else tick.number
            elif tick.code in ("out", "err"):
                self._put(tick)
        return None

    def _wait_until_due(self, tick: Record, index: int) -> None:
        """Wait until a tick is due, or for a signal that the agent answered: then its answer comes next."""
        due = (
            self._started_at + tick.offset_seconds / self._speed
            if self._speed and tick.offset_seconds is not None
            else 0.0
        )
        while True:
            left = max(0.0, due - time.monotonic())
            number = self._wait(left)
            if number is not None and self._recording.answered_signals.get(number, -1) >= index:
                self._skip_until = self._recording.answered_signals[number]
                return
            if number is None and due <= time.monotonic():
                return

    def _skip_record(self, tick: Record, index: int) -> None:
        if tick.code == "out":
            self._has_skipped, self._skipped_mid_line = True, not tick.data.endswith(b"\n")
        if index == self._skip_until and self._speed and tick.offset_seconds is not None:
            self._started_at = time.monotonic() - tick.offset_seconds / self._speed

    def _put(self, tick: Record) -> None:
        data = tick.data
        if tick.code == "out" and self._has_skipped:
            data = (b"\n" if self._is_mid_line else b"") + (
                data.partition(b"\n")[2] if self._skipped_mid_line else data
            )
            self._has_skipped = self._skipped_mid_line and b"\n" not in tick.data
        self._write(tick.code, data)
        if tick.code == "out" and data:
            self._is_mid_line = not data.endswith(b"\n")
