"""Measure reading a stream and start-up: steno and its peers.

Run as `python -m benchmarks.read`. Every measurement is a fresh process, and the
competitors alternate.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import Series, least, middle, ratio, rounds, run
from benchmarks.table import number, table
from benchmarks.work import MISSING

LABELS = {
    "lines": "iterate lines",
    "json": "json.loads per line",
    "bare": "bare msgspec, needed fields",
    "sdk": "claude-agent-sdk, json.loads + parse_message",
    "events": "steno.events",
    "report": "steno.read",
}
BIG = ("bare", "events", "report")
STARTS = 15
SMALL = 0.005
PASS, MODULE = "python -c pass", "python -m steno --help"
HELP, SHOW = "steno --help", "steno show (small stream)"


@dataclass(frozen=True)
class Stream:
    """A generated file and its totals."""

    path: str
    totals: dict[str, Any]

    def size(self) -> float:
        return float(self.totals["size"]) / 1e6

    def said(self) -> str:
        return f"{self.size():,.0f} MB / {self.totals['events']:,} events"


@dataclass(frozen=True)
class Measured:
    """All results of the benchmark; `large` is empty without a big stream."""

    medium: Stream
    big: Stream | None
    reading: dict[str, Series]
    large: dict[str, Series]
    starting: dict[str, Series]


# --- measuring


def generated(folder: str, name: str, megabytes: float) -> Stream:
    """Generated in another process, to keep this one small."""
    path = f"{folder}/{name}.jsonl"
    done = run([sys.executable, "-m", "benchmarks.generate", path, "--megabytes", str(megabytes)])
    if done.code:
        raise SystemExit("the generator failed")
    return Stream(path, done.figures())


def readings(
    names: tuple[str, ...], stream: Stream, small: Stream, count: int
) -> dict[str, Series]:
    """Run the readers alternating; the file is read before, to be in the page cache."""
    log(f"reading {stream.said()}, {count} rounds")
    command = [sys.executable, "-m", "benchmarks.work"]
    run([*command, "lines", stream.path, small.path])
    series = rounds(
        (Series(name, [*command, name, stream.path, small.path]) for name in names), count
    )
    for one in series.values():
        checked(one, stream)
    return series


def checked(series: Series, stream: Stream) -> None:
    """Exit if a reader did not find the totals of the generator."""
    wanted = {"lines": stream.totals["events"], "tokens": stream.totals["tokens"]}
    for done in series.runs:
        figures = done.figures()
        for name in wanted.keys() & figures.keys():
            agree(series.name, name, figures[name], wanted[name])
        if figures.get("events") == 0:
            raise SystemExit(f"WRONG: {series.name}: no events")


def agree(reader: str, what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise SystemExit(f"WRONG: {reader}: {what} are {got}, expected {wanted}")


def commands(small: Stream) -> Iterator[Series]:
    script = Path(sys.executable).parent / "steno"
    absent = "" if script.exists() else "not installed"
    yield Series(PASS, [sys.executable, "-c", "pass"])
    yield Series(MODULE, [sys.executable, "-m", "steno", "--help"], note=module_note())
    yield Series(HELP, [str(script), "--help"], note=absent)
    yield Series(SHOW, [str(script), "show", small.path], note=absent)


def module_note() -> str:
    probe = (
        f"import importlib.util as u; raise SystemExit(0 if u.find_spec('steno') else {MISSING})"
    )
    return "not installed" if run([sys.executable, "-c", probe]).code else ""


def starts(small: Stream) -> dict[str, Series]:
    """The first round fills the caches and is discarded."""
    log(f"starting up, {STARTS} rounds")
    series = rounds(commands(small), STARTS + 1)
    for one in series.values():
        one.runs = one.runs[1:]
    return series


def measured(megabytes: float, big_megabytes: float, count: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        small = generated(folder, "small", SMALL)
        starting = starts(small)
        medium = generated(folder, "medium", megabytes)
        reading = readings(tuple(LABELS), medium, small, count)
        os.remove(medium.path)
        big = generated(folder, "big", big_megabytes) if big_megabytes else None
        large = readings(BIG, big, small, count) if big else {}
        return Measured(medium, big, reading, large, starting)


# --- goals


def cpu(series: Series) -> list[float]:
    return series.inside("cpu")


def rss(series: Series | None) -> float | None:
    return middle(run.peak() for run in series.runs) if series else None


def gap(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def started(found: dict[str, Series], *names: str) -> float | None:
    """The CPU of the first measured command, relative to `python -c pass`."""
    base = [run.cpu for run in found[PASS].runs]
    ratios = (ratio([run.cpu for run in found[name].runs], base) for name in names)
    return next((one for one in ratios if one is not None), None)


def speed_goals(found: dict[str, Series]) -> list[Goal]:
    sdk, bare = (least(cpu(found[peer]), cpu(found["report"])) for peer in ("sdk", "bare"))
    return [
        Goal("report against claude-agent-sdk, speed", sdk, 2.5, "x", least=True),
        Goal("report against bare msgspec, speed", bare, 0.6, "x", least=True),
    ]


def memory_goals(found: Measured) -> list[Goal]:
    medium, big = rss(found.reading["events"]), rss(found.large.get("events"))
    goals = [Goal("events, peak memory on the medium stream", medium, 40, " MB")]
    if found.big is None:
        return goals
    return [
        *goals,
        Goal("events, peak memory on the big stream", big, 40, " MB"),
        Goal("events, peak memory, big less medium", gap(big, medium), 5, " MB"),
        Goal("report, peak memory on the big stream", rss(found.large.get("report")), 150, " MB"),
    ]


def start_goals(found: dict[str, Series]) -> list[Goal]:
    return [
        Goal("steno --help against python -c pass", started(found, HELP, MODULE), 3, "x"),
        Goal("steno show of a small stream against python -c pass", started(found, SHOW), 5, "x"),
    ]


def goals(found: Measured) -> list[Goal]:
    return [*speed_goals(found.reading), *memory_goals(found), *start_goals(found.starting)]


# --- showing


def reading_row(one: Series, size: float, found: dict[str, Series]) -> list[str]:
    name = LABELS[one.name]
    if one.note:
        return [name, one.note, *["–"] * 6]
    seconds = min(cpu(one), default=None)
    peers = [
        least(cpu(found[peer]), cpu(one)) if peer in found else None for peer in ("sdk", "bare")
    ]
    whole, wall = middle(run.cpu for run in one.runs), middle(one.inside("wall"))
    speed = size / seconds if seconds else None
    figures = [
        number(speed, 0),
        number(seconds, 3),
        number(wall, 3),
        number(whole, 3),
        number(rss(one), 1),
    ]
    return [name, *figures, *(number(peer, 2, "x") for peer in peers)]


def reading_table(stream: Stream, found: dict[str, Series]) -> str:
    head = [
        "reader",
        "MB per CPU s",
        "CPU s",
        "wall s",
        "process CPU s",
        "peak MB",
        "speed to SDK",
        "to bare",
    ]
    return table(head, [reading_row(one, stream.size(), found) for one in found.values()])


def start_row(one: Series, found: dict[str, Series]) -> list[str]:
    if one.note:
        return [one.name, one.note, *["–"] * 2]
    seconds, wall = middle(run.cpu for run in one.runs), middle(run.wall for run in one.runs)
    times = (number(value and value * 1000, 1) for value in (seconds, wall))
    return [one.name, *times, number(started(found, one.name), 2, "x")]


def start_table(found: dict[str, Series]) -> str:
    head = ["command", "CPU ms", "wall ms", "CPU to python -c pass"]
    return table(head, [start_row(one, found) for one in found.values()])


def versions() -> str:
    """Called last: the import would make this process larger during measurements."""
    from importlib.metadata import PackageNotFoundError, version

    def one(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} not installed"

    return ", ".join(
        [f"Python {platform.python_version()}", one("msgspec"), one("claude-agent-sdk")]
    )


def section(found: Measured, count: int) -> str:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    how = (
        f"{today}, {versions()}, {os.cpu_count()} CPUs; medians of {count} rounds, alternating,"
        " a fresh process for each measurement. `CPU s` and `wall s` are the reading alone;"
        " `process CPU s` includes start-up and imports. For reading, `CPU s` is the minimum over"
        " the rounds, and ratios use it: other load only adds to it. Start-up ratios are medians of"
        " the ratios per round."
    )
    parts = [
        how,
        table(["goal", "target", "measured", ""], [goal.cells() for goal in goals(found)]),
        f"Medium stream: {found.medium.said()}.",
        reading_table(found.medium, found.reading),
    ]
    if found.big:
        parts += [f"Big stream: {found.big.said()}.", reading_table(found.big, found.large)]
    return "\n\n".join([*parts, f"Start-up, medians of {STARTS}:", start_table(found.starting)])


def broken(found: Measured) -> list[str]:
    every = [*found.reading.values(), *found.large.values(), *found.starting.values()]
    return [f"{one.name}: {one.note}" for one in every if one.note.startswith("failed")]


def options() -> argparse.Namespace:
    made = parser("Measure reading and start-up: steno and its peers.", rounds=9)
    made.add_argument("--megabytes", type=float, default=100, help="size of the medium stream")
    made.add_argument("--big", type=float, default=1000, help="size of the big stream; 0: skip")
    return made.parse_args()


def main() -> int:
    given = options()
    found = measured(given.megabytes, given.big, given.rounds)
    failures = [f"FAILED {failure}" for failure in broken(found)]
    return finish(given, section(found, given.rounds), "read", goals(found), failures)


if __name__ == "__main__":
    sys.exit(main())
