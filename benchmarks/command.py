"""What the command lines of the benchmarks share: options, goals, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import number, save


@dataclass(frozen=True)
class Goal:
    """A figure beside what was asked of it."""

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
        asked = f"{'≥' if self.least else '≤'} {self.limit:g}{self.unit}"
        verdict = "not measured" if self.figure is None else "met" if self.met() else "not met"
        return [self.text, asked, number(self.figure, 2, self.unit), verdict]


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parser(what: str, rounds: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=what)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--out", type=Path, help="Markdown page to put the tables into")
    made.add_argument(
        "--strict", action="store_true", help="exit 1 when a goal is missed or not measured"
    )
    return made


def finish(
    given: argparse.Namespace,
    text: str,
    name: str,
    goals: Iterable[Goal],
    faults: Iterable[str] = (),
) -> int:
    """Show what was found and put it into the page; the exit code."""
    print(text)
    if given.out:
        save(given.out, text, name)
    told = list(faults)
    for fault in told:
        tell(fault)
    missed = given.strict and not all(goal.met() for goal in goals)
    return 1 if told or missed else 0
