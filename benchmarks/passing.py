"""Measure passing a stream through: `steno watch`, `cat`, `tee` and a plain loop.

Run as `python -m benchmarks.passing`. Every measurement is a fresh process between a sender and a
receiver that compares every byte; the competitors alternate.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import ENVIRONMENT, HOME, Run, least, megabytes, middle
from benchmarks.read import Stream, generated
from benchmarks.table import number, table

NAIVE = """\
import sys, json
for line in sys.stdin:
    json.loads(line)
    print(line, end='', flush=True)
"""
STENO = str(Path(sys.executable).parent / "steno")
CAT, TEE, LOOP = "cat", "tee FILE", "json.loads, print, flush"
QUIET, EVENTS, WATCH = "steno watch --quiet", "steno watch --quiet --json-events", "steno watch"
RECORD, DEAD, SLOW = (
    "steno watch --record",
    "steno watch --post-events (dead)",
    "steno watch --sync (slow)",
)
BULK, LINES = "all at once", "line by line"
RATE = 1000


@dataclass
class Passing:
    """The runs of a command between two pipes; `waits` are the delays that the receiver reports.

    `cut`: terminate it at the end of the stream, without waiting for its background work.
    """

    name: str
    command: Sequence[str]
    cut: bool = False
    runs: list[Run] = field(default_factory=list)

    def cpu(self) -> list[float]:
        return [run.cpu for run in self.runs]

    def waits(self, name: str) -> list[float]:
        return [float(run.figures()[name]) for run in self.runs]


def passed(one: Passing, sender: Sequence[str], taker: Sequence[str], folder: str) -> Run:
    """Pass a stream through a process. Its stderr goes to a file."""
    environment = {**ENVIRONMENT, "XDG_DATA_HOME": folder}
    start = time.perf_counter()
    with open(f"{folder}/stderr", "wb") as errors:
        first = subprocess.Popen(sender, stdout=subprocess.PIPE, cwd=HOME, env=environment)
        middle_ = subprocess.Popen(
            one.command,
            stdin=first.stdout,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=HOME,
            env=environment,
        )
        last = subprocess.Popen(
            taker, stdin=middle_.stdout, stdout=subprocess.PIPE, cwd=HOME, env=environment
        )
    for pipe in (first.stdout, middle_.stdout):
        assert pipe is not None
        pipe.close()
    output = last.communicate()[0].decode()
    wall = time.perf_counter() - start  # until the receiver has all of it
    if one.cut:
        middle_.terminate()
    _, status, used = os.wait4(middle_.pid, 0)
    middle_.returncode = os.waitstatus_to_exitcode(status)
    if (
        first.wait()
        or last.returncode
        or middle_.returncode not in ((0, -signal.SIGTERM) if one.cut else (0,))
    ):
        command = " ".join(one.command)
        raise SystemExit(
            f"WRONG: {command} did not pass every byte ({output or middle_.returncode})"
        )
    return Run(0, used.ru_utime + used.ru_stime, wall, megabytes(used.ru_maxrss), output)


def turns(
    series: Sequence[Passing], sender: Sequence[str], taker: Sequence[str], count: int, folder: str
) -> dict[str, Passing]:
    for _ in range(count):
        for one in series:
            one.runs.append(passed(one, sender, taker, folder))
            for recording in Path(folder).rglob("*.steno"):
                recording.unlink()
    return {one.name: one for one in series}


# --- commands


def bulk(stream: Stream, feed: str, count: int, folder: str) -> dict[str, Passing]:
    log(f"passing {stream.said()}, {feed}, {count} rounds")
    sender = (
        ["cat", stream.path]
        if feed == BULK
        else [sys.executable, "-m", "benchmarks.ends", "send", stream.path]
    )
    series = [
        Passing(CAT, ["cat"]),
        Passing(TEE, ["tee", f"{folder}/copy"]),
        Passing(LOOP, [sys.executable, "-c", NAIVE]),
        Passing(QUIET, [STENO, "watch", "--quiet"]),
        Passing(EVENTS, [STENO, "watch", "--quiet", "--json-events", os.devnull]),
        Passing(WATCH, [STENO, "watch"]),
    ]
    return turns(series, sender, ["cmp", "-", stream.path], count, folder)


def delays(stream: Stream, lines: int, count: int, folder: str) -> dict[str, Passing]:
    log(f"{RATE} lines per second, {lines} lines, {count} rounds")
    path = f"{folder}/housed.jsonl"
    sender = [
        sys.executable,
        "-m",
        "benchmarks.ends",
        "send",
        path,
        "--rate",
        str(RATE),
        "--count",
        str(lines),
    ]
    housed(stream, folder, lines)
    with undisturbed(), silent() as port:
        series = [
            Passing(CAT, ["cat"]),
            Passing(TEE, ["tee", f"{folder}/copy"]),
            Passing(LOOP, [sys.executable, "-c", NAIVE]),
            Passing(QUIET, [STENO, "watch", "--quiet"]),
            Passing(WATCH, [STENO, "watch"]),
            Passing(RECORD, [STENO, "watch", "--record"]),
            Passing(DEAD, [STENO, "watch", "--post-events", f"http://127.0.0.1:{port}/"]),
            # cmd: needs a placeholder; this one has no effect.
            Passing(SLOW, [STENO, "watch", "--sync", "cmd:env -u {name} sleep 15"], cut=True),
        ]
        return turns(
            series, sender, [sys.executable, "-m", "benchmarks.ends", "take"], count, folder
        )


def housed(stream: Stream, folder: str, lines: int) -> None:
    """Write the start of the stream for an existing folder, with files for `--sync` to copy."""
    home = os.path.realpath(folder) + "/project"
    with open(stream.path, "rb") as file, open(f"{folder}/housed.jsonl", "wb") as out:
        for line, _ in zip(file, range(lines), strict=False):
            own = line.replace(b'"/project', b'"' + home.encode())
            out.write(own)
            for name in re.findall(rb'"filePath":"([^"]+)"', own):
                path = Path(os.fsdecode(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("text\n")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Real-time priority, if permitted, against delays by other programs."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    yield
    os.sched_setscheduler(0, *before)


@contextmanager
def silent() -> Iterator[int]:
    """A port that accepts every connection and never answers."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:

        def accept() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


# --- goals


@dataclass(frozen=True)
class Measured:
    """All results of the benchmark."""

    stream: Stream
    feeds: dict[str, dict[str, Passing]]
    delays: dict[str, Passing]


def cost_goals(found: Measured) -> list[Goal]:
    goals = []
    for feed, series in found.feeds.items():
        for name in (QUIET, WATCH):
            own = series[name].cpu()
            goals.append(
                Goal(f"{name}, {feed}: CPU against cat", least(own, series[CAT].cpu()), 6, "x")
            )
            goals.append(
                Goal(
                    f"{name}, {feed}: CPU against the loop",
                    least(own, series[LOOP].cpu()),
                    0.33,
                    "x",
                )
            )
    return goals


def memory_goals(found: Measured) -> list[Goal]:
    series = found.feeds[BULK]
    limits = {QUIET: 40, EVENTS: 40, WATCH: 150}
    return [
        Goal(f"{name}: peak memory", peak(series[name]), limit, " MB")
        for name, limit in limits.items()
    ]


def delay_goals(found: Measured) -> list[Goal]:
    goals = []
    for name in (QUIET, WATCH, RECORD, DEAD, SLOW):
        for part, limit in (("p50", 15), ("p99", 150)):
            goals.append(
                Goal(f"{name}: {part} above cat", above(found.delays, name, part), limit, " µs")
            )
    return goals


def above(series: dict[str, Passing], name: str, part: str) -> float:
    """The difference between its minimum and that of `cat`: other load only adds to both."""
    return min(series[name].waits(part)) - min(series[CAT].waits(part))


def peak(one: Passing) -> float | None:
    return middle(run.rss for run in one.runs)


def goals(found: Measured) -> list[Goal]:
    return [*cost_goals(found), *memory_goals(found), *delay_goals(found)]


# --- showing


def cost_row(one: Passing, series: dict[str, Passing]) -> list[str]:
    wall = middle(run.wall for run in one.runs)
    ratios = [least(one.cpu(), series[peer].cpu()) for peer in (CAT, LOOP)]
    figures = [number(min(one.cpu()), 2), number(wall, 2), number(peak(one), 1)]
    return [one.name, *figures, *(number(value, 2, "x") for value in ratios)]


def cost_table(series: dict[str, Passing]) -> str:
    head = ["command", "CPU s", "wall s", "peak MB", "CPU to cat", "to the loop"]
    return table(head, [cost_row(one, series) for one in series.values()])


def delay_row(one: Passing, series: dict[str, Passing]) -> list[str]:
    own = [
        number(of(one.waits(part)), 0) for part in ("p50", "p99", "worst") for of in (min, middle)
    ]
    return [one.name, *own, *(number(above(series, one.name, part), 0) for part in ("p50", "p99"))]


def delay_table(series: dict[str, Passing]) -> str:
    columns = [f"{part} µs, {of}" for part in ("p50", "p99", "worst") for of in ("least", "median")]
    head = ["command", *columns, "p50 above cat", "p99 above cat"]
    return table(head, [delay_row(one, series) for one in series.values()])


def section(found: Measured, lines: int) -> str:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    passed_on, sent = (len(series[CAT].runs) for series in (found.feeds[BULK], found.delays))
    how = (
        f"{today}, {os.cpu_count()} CPUs; {passed_on} rounds ({sent} for delays), alternating, real"
        " pipes on both sides, every byte compared. CPU and peak memory cover the whole process"
        " including its start. CPU and delays above cat are minima over the rounds: other load only"
        " adds to them. Wall time and memory are medians."
    )
    parts = [
        how,
        table(["goal", "target", "measured", ""], [goal.cells() for goal in goals(found)]),
    ]
    for feed, series in found.feeds.items():
        parts += [f"{found.stream.said()}, {feed}:", cost_table(series)]
    delay_title = (
        f"Delay from sending to receiving, {RATE:,} lines per second, {lines:,} lines, all three"
        " processes with real-time priority if permitted:"
    )
    parts += [delay_title, delay_table(found.delays)]
    return "\n\n".join(parts)


def options() -> argparse.Namespace:
    made = parser(
        "Measure passing a stream through: steno watch, cat, tee and a plain loop.", rounds=5
    )
    made.add_argument("--megabytes", type=float, default=1000)
    made.add_argument("--lines", type=int, default=3000, help="lines for the delays")
    made.add_argument("--delay-rounds", type=int, default=9)
    return made.parse_args()


def main() -> int:
    given = options()
    with tempfile.TemporaryDirectory() as folder:
        stream = generated(folder, "stream", given.megabytes)
        waits = delays(stream, given.lines, given.delay_rounds, folder)
        feeds = {feed: bulk(stream, feed, given.rounds, folder) for feed in (BULK, LINES)}
    found = Measured(stream, feeds, waits)
    return finish(given, section(found, given.lines), "passing", goals(found))


if __name__ == "__main__":
    sys.exit(main())
