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

from . import agents
from .decode import MISFIT
from .report import SourceError
from .source import is_folder, lines
from .tick import Header, Tick, read_header, read_tick

SIGNALS = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGTERM": 15}

LOOKED_AT = 1000  # lines that are looked at to tell whose they are: warnings may stand before the first of the agent

Write = Callable[[str, bytes], None]  # "out" or "err", and what is written there
Wait = Callable[[float], int | None]  # so many seconds at most; a signal that came in the meantime


class Timing(msgspec.Struct):
    """The first line of `timing.jsonl`: how long the run took, and the signals that it was sent."""

    wall_s: float | None = None
    signals: list[dict[str, float | str | bool]] = []


def _whose(data: Iterable[bytes]) -> str | None:
    """The name of the agent that one of these lines is of."""
    return next((agent.name for line in data if (agent := agents.sniff(line)) is not None), None)


class Recording:
    """Something that can be played. `agent` is the name of whoever is on it. SourceError if it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = is_folder(path)
        if self._folder and not (path / "stdout").is_file():
            raise SourceError(f"{path}: a folder without stdout is no recording; give a tape, or the folder of one run")
        with closing(lines(self._stdout)) as data:
            first = next(data, b"")
            self.header: Header | None = None if self._folder else read_header(first)
            self.agent = self.header.agent if self.header is not None else _whose(chain((first,), islice(data, LOOKED_AT)))

    @property
    def strange(self) -> bool:
        """Whether nothing tells that this was printed by an agent: neither its form nor a line of it."""
        return self.header is None and not self._folder and self.agent is None

    @property
    def _stdout(self) -> Path:
        return self.path / "stdout" if self._folder else self.path

    @cached_property
    def _stops(self) -> dict[int, int]:
        """After which tick each signal was sent, the last one last."""
        ticks = enumerate(self.ticks(only_stops=True))
        found = [(tick.number, index) for index, tick in ticks if tick.code == "stop" and tick.number is not None]
        return dict(sorted(dict(found).items(), key=lambda stop: stop[1]))

    @property
    def deaf(self) -> set[int]:
        """The signals that the agent was sent and did not heed: another one had to follow."""
        return set(list(self._stops)[:-1])

    @property
    def answers(self) -> dict[int, int]:
        """The signal that it answered, and after which tick its answer begins."""
        return dict(list(self._stops.items())[-1:])

    def ticks(self, only_stops: bool = False) -> Iterator[Tick]:
        """What is played, in order. `only_stops`: the others may come empty; it is faster."""
        if self.header is not None:
            return self._of_tape(only_stops)
        return self._of_folder() if self._folder else self._printed([])

    def _of_tape(self, only_stops: bool) -> Iterator[Tick]:
        rest = iter(lines(self.path))
        next(rest, None)
        for line in rest:
            if only_stops and b'"stop"' not in line[:64]:
                yield Tick(None, "")
                continue
            tick = read_tick(line) if line.endswith(b"\n") else None
            if tick is None:
                return  # cut: it ends here
            yield tick

    def _printed(self, times: list[float]) -> Iterator[Tick]:
        for index, line in enumerate(lines(self._stdout)):
            yield Tick(times[index] if index < len(times) else None, "out", line)

    # -- folders -------------------------------------------------------------------------------------------------

    def _of_folder(self) -> Iterator[Tick]:
        timing, times = self._timing()
        stops = [
            (float(sent["t"]), SIGNALS[str(sent["sig"])]) for sent in timing.signals if sent.get("sig") in SIGNALS and "t" in sent
        ]
        for tick in chain(self._printed(times), self._rest(timing.wall_s)):
            while stops and tick.after is not None and tick.after >= stops[0][0]:
                yield Tick(stops[0][0], "stop", b"", stops.pop(0)[1])
            yield tick

    def _rest(self, wall: float | None) -> Iterator[Tick]:
        """What stands beside stdout. When stderr was written is not known: before the end."""
        errors, code = self.path / "stderr", self.path / "exit_code"
        if errors.is_file():
            for line in lines(errors):
                yield Tick(None, "err", line)
        if code.is_file():
            text = b"".join(lines(code)).decode("utf-8", "replace").strip()
            try:
                yield Tick(wall, "exit", number=int(text))
            except ValueError:
                raise SourceError(f"{code}: expected a whole number, found {text[:40]!r}") from None

    def _timing(self) -> tuple[Timing, list[float]]:
        path = self.path / "timing.jsonl"
        if not path.is_file():
            return Timing(), []
        head, *rest = [*lines(path)] or [b"{}"]
        try:
            return msgspec.json.decode(head, type=Timing), [row[0] for row in map(_row, rest)]
        except MISFIT:
            raise SourceError(f"{path}: expected an object, then [seconds, bytes] for each line of stdout") from None


def _row(line: bytes) -> tuple[float, int]:
    return msgspec.json.decode(line, type=tuple[float, int])


class Player:
    """Plays a recording once. `speed` 2 is twice as fast, 0 as fast as it can be."""

    def __init__(self, recording: Recording, speed: float, write: Write, wait: Wait) -> None:
        self._recording, self._speed, self._write, self._wait = recording, speed, write, wait
        self._zero = time.monotonic()  # when the recording's time was 0
        self._skip = -1  # ticks up to this one are passed over: a signal came, and the answer stands behind it
        self._torn = False  # the last line that was played has no end yet
        self._missed = False  # the last line that was passed over has none
        self._skipped = False

    def play(self) -> int | None:
        """Play it to its end and return the exit code, negative for a signal; None if the recording has none."""
        for index, tick in enumerate(self._recording.ticks()):
            if index > self._skip:
                self._await(tick, index)
            if index <= self._skip:
                self._pass(tick, index)
            elif tick.code == "exit":
                return 127 if tick.number is None else tick.number
            elif tick.code in ("out", "err"):
                self._put(tick)
        return None

    def _await(self, tick: Tick, index: int) -> None:
        """Wait until a tick is due, or for a signal that the agent answered: then its answer comes next."""
        due = self._zero + tick.after / self._speed if self._speed and tick.after is not None else 0.0
        while True:
            left = max(0.0, due - time.monotonic())
            number = self._wait(left)
            if number is not None and self._recording.answers.get(number, -1) >= index:
                self._skip = self._recording.answers[number]
                return
            if number is None and due <= time.monotonic():
                return

    def _pass(self, tick: Tick, index: int) -> None:
        if tick.code == "out":
            self._skipped, self._missed = True, not tick.data.endswith(b"\n")
        if index == self._skip and self._speed and tick.after is not None:
            self._zero = time.monotonic() - tick.after / self._speed

    def _put(self, tick: Tick) -> None:
        data = tick.data
        if tick.code == "out" and self._skipped:
            data = (b"\n" if self._torn else b"") + (data.partition(b"\n")[2] if self._missed else data)
            self._skipped = self._missed and b"\n" not in tick.data
        self._write(tick.code, data)
        if tick.code == "out" and data:
            self._torn = not data.endswith(b"\n")
