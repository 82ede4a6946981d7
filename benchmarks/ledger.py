"""Measure reports over many transcripts and over a large ledger: steno and ccusage.

Run as `python -m benchmarks.ledger`. Every measurement is a fresh process including its start-up,
the competitors alternate, and each answer is compared with the totals of the generators.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.accuracy import STENO, steno_totals
from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import Run, megabytes, middle, ratio, run
from benchmarks.peers import (
    CCUSAGE,
    Command,
    Figures,
    Home,
    ccusage_totals,
    figures,
    native,
    wrapper,
)
from benchmarks.table import number, table

PEER, NPM = "ccusage (native)", "ccusage (by npm)"
FIRST, SECOND, BARE = (
    "steno usage, first: import and report",
    "steno usage, second",
    "steno usage --no-ledger",
)
MILLION = "steno usage --no-import, a million requests"
DAILY = ("daily", "--json", "--offline")
PAUSE = 0.05  # seconds between two samples of the memory
QUERIES = 9


@dataclass
class Task:
    """A command, its preparation and its runs; `note` is the reason if there are none."""

    name: str
    command: Command
    home: Home
    totals: Callable[[dict[str, Any]], Figures]
    before: Callable[[], None] = lambda: None
    note: str = ""
    runs: list[Run] = field(default_factory=list)
    answer: Figures | None = None

    def take(self) -> None:
        if self.note:
            return
        self.before()
        done = watched(self.command, self.home)
        if done.code:
            self.note = f"failed (exit code {done.code})"
            return
        self.runs.append(done)
        self.answer = self.totals(done.figures())

    def walls(self) -> list[float]:
        return [run.wall for run in self.runs]


@dataclass(frozen=True)
class Measured:
    """All results of the benchmark."""

    truth: dict[str, Any]
    tasks: dict[str, Task]
    million: Task | None
    wanted: Figures | None


# --- a process and its descendants


def family(pid: int) -> Iterator[int]:
    """The process and its descendants."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield from family(int(child))


def resident(pid: int) -> int:
    """Bytes in memory now; 0 for an ended process."""
    try:
        pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(pid))
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def watch(pid: int, done: threading.Event, peak: list[int]) -> None:
    while not done.wait(PAUSE):
        peak[0] = max(peak[0], resident(pid))


def watched(command: Command, home: Home) -> Run:
    """Run one fresh process; its memory is the peak of the sum over its descendants."""
    start = time.perf_counter()
    argv = [str(part) for part in command]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=home.path,
        env=environment(home),
    )
    assert process.stdout is not None
    done, peak = threading.Event(), [0]
    sampler = threading.Thread(target=watch, args=(process.pid, done, peak))
    sampler.start()
    with process.stdout as out:
        printed = out.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    done.set()
    sampler.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    rss = max(megabytes(used.ru_maxrss), peak[0] / (1 << 20))
    return Run(process.returncode, used.ru_utime + used.ru_stime, wall, rss, printed)


def environment(home: Home) -> dict[str, str]:
    return {**home.environment(), "STENO_LEDGER": str(ledger(home))}


# --- commands


def ledger(home: Home) -> Path:
    return home.path / "ledger.db"


def forget(home: Home) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{ledger(home)}{end}").unlink(missing_ok=True)


def peer(name: str, program: Path | None, home: Home) -> Task:
    there = program is not None and program.exists()
    return Task(
        name, [program or "", *DAILY], home, ccusage_totals, note="" if there else "not installed"
    )


def tasks(home: Home) -> Iterator[Task]:
    """In the order of a round: the second report uses what the first one imported."""
    yield peer(PEER, native(), home)
    yield peer(NPM, wrapper(), home)
    yield Task(FIRST, [*STENO, "usage", "--json"], home, steno_totals, lambda: forget(home))
    yield Task(SECOND, [*STENO, "usage", "--json"], home, steno_totals)
    yield Task(
        BARE, [*STENO, "usage", "--no-ledger", home.projects(), "--json"], home, steno_totals
    )


def written(module: str, *arguments: str | Path) -> dict[str, Any]:
    """The totals of a generator, which runs in another process to keep this one small."""
    done = run([sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)])
    if done.code:
        raise SystemExit(f"benchmarks.{module} failed")
    return done.figures()


def true(totals: dict[str, Any]) -> Figures:
    tokens = totals["tokens"]
    return figures(
        (tokens[name] for name in ("input", "cache_write", "cache_read", "output")),
        totals["cost_usd"],
    )


def over_transcripts(home: Home, count: int) -> dict[str, Task]:
    found = {task.name: task for task in tasks(home)}
    for number_of_round in range(count + 1):
        for task in found.values():
            task.take()
        if number_of_round == 0:  # the first round fills the caches and is discarded
            for task in found.values():
                task.runs.clear()
    return found


def over_ledger(home: Home, sessions: int) -> tuple[Task, Figures]:
    log(f"writing a ledger of {sessions * 200:,} requests")
    totals = written("million", ledger(home), "--sessions", str(sessions))
    task = Task(MILLION, [*STENO, "usage", "--json", "--no-import"], home, steno_totals)
    for _ in range(QUERIES):
        task.take()
    return task, true(totals)


def new_home(folder: str, name: str) -> Home:
    home = Home(Path(folder) / name)
    home.projects().mkdir(parents=True)
    return home


def measured(size: float, files: int, sessions: int, count: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        home = new_home(folder, "tree")
        log(f"writing {size:,.0f} MB of transcripts")
        truth = written(
            "transcripts", home.projects(), "--megabytes", str(size), "--files", str(files)
        )
        log(f"reading them, {count} rounds")
        found = over_transcripts(home, count)
        million, wanted = (
            over_ledger(new_home(folder, "million"), sessions) if sessions else (None, None)
        )
        return Measured(truth, found, million, wanted)


# --- judging


def fits(said: Figures | None, truth: Figures) -> bool:
    """Whether all four counters are equal, and the cost to the cent."""
    if said is None or said.usd is None or truth.usd is None:
        return False
    return Figures(said.input, said.cache_write, said.cache_read, said.output) == Figures(
        truth.input, truth.cache_write, truth.cache_read, truth.output
    ) and (abs(said.usd - truth.usd) < 0.01)


def judged(found: Measured) -> Iterator[tuple[Task, Figures]]:
    for task in found.tasks.values():
        yield task, true(found.truth)
    if found.million and found.wanted:
        yield found.million, found.wanted


def wrong(found: Measured) -> list[str]:
    """Failures and wrong totals of steno; differences of peers are only shown."""
    mine = [(task, truth) for task, truth in judged(found) if task.name.startswith("steno")]
    return [
        f"{task.name}: {task.note or f'{task.answer}, written: {truth}'}"
        for task, truth in mine
        if not fits(task.answer, truth)
    ]


def compared(found: Measured, name: str) -> float | None:
    return ratio(found.tasks[name].walls(), found.tasks[PEER].walls())


def query_times(task: Task | None) -> list[float]:
    answers = (run.figures().get("query_ms") for run in task.runs) if task else ()
    return [float(answer) for answer in answers if answer is not None]


def goals(found: Measured) -> list[Goal]:
    memory = middle(run.rss for run in found.tasks[FIRST].runs)
    return [
        Goal("first report (import) against ccusage, wall time", compared(found, FIRST), 1.5, "x"),
        Goal("second report against ccusage, wall time", compared(found, SECOND), 0.1, "x"),
        Goal("report without a ledger against ccusage, wall time", compared(found, BARE), 0.6, "x"),
        Goal("peak memory of the import", memory, 200, " MB"),
        Goal("query time over a million requests", middle(query_times(found.million)), 50, " ms"),
    ]


# --- showing


def task_row(task: Task, truth: Figures, others: list[float]) -> list[str]:
    if task.note:
        return [task.name, task.note, *["–"] * 4]
    wall, cpu, rss = (
        middle(getattr(run, name) for run in task.runs) for name in ("wall", "cpu", "rss")
    )
    against = ratio(task.walls(), others) if len(others) == len(task.runs) else None
    totals = "exact" if fits(task.answer, truth) else "differ"
    return [
        task.name,
        number(wall, 3),
        number(cpu, 3),
        number(rss, 0),
        number(against, 2, "x"),
        totals,
    ]


def task_table(found: Measured) -> str:
    head = ["command", "wall s", "CPU s", "peak MB", "wall to ccusage", "totals"]
    others = found.tasks[PEER].walls()
    return table(head, [task_row(task, truth, others) for task, truth in judged(found)])


def section(found: Measured, count: int) -> str:
    today, truth = time.strftime("%Y-%m-%d", time.gmtime()), found.truth
    how = (
        f"{today}, Python {platform.python_version()}, {CCUSAGE.replace('@', ' ')},"
        f" {os.cpu_count()} CPUs; medians of {count} rounds ({QUERIES} for the last row),"
        " alternating, a fresh process for each measurement, start-up included. Peak memory is the"
        " sum over a command's processes. Ratios are medians of the ratios per round."
    )
    tree = (
        f"Transcripts: {truth['size'] / 1e6:,.0f} MB / {truth['files']:,} files /"
        f" {truth['lines']:,} lines / {truth['tokens']['requests']:,} requests,"
        f" {truth['forks']} forks, {truth['subagents']} subagents."
    )
    rows = [goal.cells() for goal in goals(found)]
    parts = [how, table(["goal", "target", "measured", ""], rows), tree, task_table(found)]
    return "\n\n".join(["## Reports over transcripts and over a ledger", *parts])


def options() -> argparse.Namespace:
    made = parser("Measure reports over transcripts and a ledger: steno and ccusage.", rounds=3)
    made.add_argument("--megabytes", type=float, default=1000, help="size of the transcripts")
    made.add_argument("--files", type=int, default=2_000)
    made.add_argument(
        "--sessions",
        type=int,
        default=5_000,
        help="sessions of the large ledger, 200 requests each; 0: skip",
    )
    return made.parse_args()


def main() -> int:
    given = options()
    found = measured(given.megabytes, given.files, given.sessions, given.rounds)
    faults = [f"WRONG {fault}" for fault in wrong(found)]
    return finish(given, section(found, given.rounds), "ledger", goals(found), faults)


if __name__ == "__main__":
    sys.exit(main())
