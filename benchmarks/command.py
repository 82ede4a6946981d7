"""Options, goals and exit codes of the benchmark commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import number, save


@dataclass(frozen=True)
class Goal:
    """A figure and its limit; `least`: the limit is a minimum."""

    text: str
    figure: float | None
    limit: float
    unit: str
    least: bool = False

    def met(self) -> bool:
        if self.figure is None:
            return False
        return self.figure >= self.limit if self.least else self.figure <= self.limit

    def cells(self) -> list[str]:
        target = f"{'≥' if self.least else '≤'} {self.limit:g}{self.unit}"
        verdict = "not measured" if self.figure is None else "met" if self.met() else "not met"
        return [self.text, target, number(self.figure, 2, self.unit), verdict]


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parser(description: str, rounds: int) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--rounds", type=int, default=rounds)
    result.add_argument("--out", type=Path, help="Markdown page to put the tables into")
    result.add_argument(
        "--strict", action="store_true", help="exit 1 when a goal is missed or not measured"
    )
    return result


def finish(
    options: argparse.Namespace,
    text: str,
    name: str,
    goals: Iterable[Goal],
    faults: Iterable[str] = (),
) -> int:
    """Print the result, save it with --out, and return the exit code."""
    print(text)
    if options.out:
        save(options.out, text, name)
    errors = list(faults)
    for fault in errors:
        log(fault)
    missed = options.strict and not all(goal.met() for goal in goals)
    return 1 if errors or missed else 0
