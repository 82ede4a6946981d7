"""Run commands in fresh processes, alternating, and measure the cost of each.

Linux includes the parent's memory at the start in the peak memory of a child. So this process
imports little, and the peak that a reader reports itself is preferred.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.work import MISSING

HOME = Path(__file__).resolve().parent.parent
# Without stored bytecode, the compiler would be measured.
UNWANTED = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in UNWANTED}


@dataclass(frozen=True)
class Run:
    """A finished process: exit code, total cost and output."""

    code: int
    cpu: float
    wall: float
    rss: float
    printed: str

    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = json.loads(self.printed)
        return figures

    def peak(self) -> float:
        """Peak memory in MB: as the reader reports it, else that of the process."""
        return float(self.figures().get("peak", self.rss))


@dataclass
class Series:
    """The runs of a command; `note` is the reason if there are none."""

    name: str
    command: Sequence[str]
    runs: list[Run] = field(default_factory=list)
    note: str = ""

    def take(self) -> None:
        """Add a run, unless an earlier one failed."""
        if self.note:
            return
        done = run(self.command)
        self.note = {0: "", MISSING: "not installed"}.get(
            done.code, f"failed (exit code {done.code})"
        )
        self.runs = [] if self.note else [*self.runs, done]

    def inside(self, name: str) -> list[float]:
        """A figure that the process reported, per run."""
        return [float(run.figures()[name]) for run in self.runs]


def megabytes(peak: int) -> float:
    """Convert ru_maxrss, which is in kilobytes, on macOS in bytes."""
    return peak / ((1 << 20) if sys.platform == "darwin" else (1 << 10))


def run(command: Sequence[str]) -> Run:
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=HOME, env=ENVIRONMENT
    )
    assert process.stdout is not None
    with process.stdout as out:
        printed = out.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    return Run(
        process.returncode, used.ru_utime + used.ru_stime, wall, megabytes(used.ru_maxrss), printed
    )


def rounds(series: Iterable[Series], count: int) -> dict[str, Series]:
    """Run every command once per round, so that other load affects all of them."""
    by_name = {one.name: one for one in series}
    for one in by_name.values():
        run(one.command)  # the first start writes bytecode and fills the system's caches
    for _ in range(count):
        for one in by_name.values():
            one.take()
    return by_name


def middle(values: Iterable[float]) -> float | None:
    """The median; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def least(over: list[float], under: list[float]) -> float | None:
    """The ratio of the minima: other load only adds to the time of a computation."""
    return min(over) / min(under) if over and under else None


def ratio(over: list[float], under: list[float]) -> float | None:
    """The median of the ratios per round, independent of speed changes between rounds."""
    pairs = zip(over, under, strict=True) if over and under else ()
    return middle(one / other for one, other in pairs)
