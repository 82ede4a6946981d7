"""Measure following many runs in one process: steno and claude-agent-sdk.

Run as `python -m benchmarks.concurrent`. Every run is a process that writes lines with the current
time at a steady rate. Every measurement is a fresh process, and the competitors alternate.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import Series, middle, ratio, rounds
from benchmarks.table import number, table

LABELS = {
    "steno": "steno: process, recording, events, running report",
    "booked": "steno run: the same, with ledger rows",
    "library": "steno.stream: the same by the public API",
    "sdk": "claude-agent-sdk, transport",
    "parsed": "claude-agent-sdk, transport + parse_message",
}


def measured(given: argparse.Namespace) -> dict[str, Series]:
    log(f"following {given.runs} runs, {given.rounds} rounds")
    sizes = ["--runs", str(given.runs), "--seconds", str(given.seconds), "--rate", str(given.rate)]
    command = [sys.executable, "-m", "benchmarks.crowd"]
    return rounds((Series(name, [*command, name, *sizes]) for name in LABELS), given.rounds)


def checked(found: dict[str, Series], given: argparse.Namespace) -> None:
    """Exit if a follower did not receive the lines that were written."""
    written = given.runs * given.seconds * given.rate
    for one in found.values():
        for received in one.inside("events"):
            # On a busy machine the writers themselves fall behind.
            if abs(received - written) > written * 0.2:
                raise SystemExit(
                    f"WRONG: {one.name} received {received:,.0f} of {written:,.0f} lines"
                )


def each(one: Series) -> list[float]:
    """Microseconds of CPU per line."""
    return [
        cpu / events * 1e6
        for cpu, events in zip(one.inside("cpu"), one.inside("events"), strict=True)
    ]


def figure(one: Series, name: str) -> float | None:
    return middle(one.inside(name))


def goals(found: dict[str, Series]) -> list[Goal]:
    return [
        Goal(
            "CPU against the transport of claude-agent-sdk",
            ratio(each(found["steno"]), each(found["sdk"])),
            0.33,
            "x",
        ),
        Goal("steno.stream: from the last line to the last report", tail(found), 2.0, " s"),
    ]


def tail(found: dict[str, Series]) -> float | None:
    return middle(found["library"].inside("tail"))


def row(one: Series, found: dict[str, Series], given: argparse.Namespace) -> list[str]:
    if one.note:
        return [LABELS[one.name], one.note, *["–"] * 5]
    cpu = middle(each(one))
    share = None if cpu is None else cpu * given.runs * given.rate / 1e4
    figures = [number(cpu, 1), number(share, 0, " %"), number(figure(one, "kilobytes"), 0)]
    late = [number(figure(one, name), 1) for name in ("middle", "late")]
    return [LABELS[one.name], *figures, *late, number(ratio(each(one), each(found["sdk"])), 2, "x")]


def section(found: dict[str, Series], given: argparse.Namespace) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        peer = f"claude-agent-sdk {version('claude-agent-sdk')}"
    except PackageNotFoundError:
        peer = "claude-agent-sdk not installed"
    today = time.strftime("%Y-%m-%d", time.gmtime())
    how = (
        f"{today}, Python {platform.python_version()}, {peer}, {os.cpu_count()} CPUs, shared with"
        f" the writers; medians of {given.rounds} rounds of {given.seconds:g} s, alternating, a"
        f" fresh process for each. {given.runs} runs with {given.rate} lines per second each, of"
        " 800 bytes. CPU and delay are measured while all of them write."
    )
    head = [
        "follower",
        "µs of CPU per line",
        "of a core",
        "KB per run",
        "delay p50 ms",
        "p99 ms",
        "CPU to SDK",
    ]
    rows = [row(one, found, given) for one in found.values()]
    verdicts = table(["goal", "target", "measured", ""], [goal.cells() for goal in goals(found)])
    return "\n\n".join(["## Many runs in one process", how, verdicts, table(head, rows)])


def options() -> argparse.Namespace:
    made = parser("Measure following many runs at once: steno and claude-agent-sdk.", rounds=3)
    made.add_argument("--runs", type=int, default=200)
    made.add_argument("--rate", type=int, default=50, help="lines per second and run")
    made.add_argument("--seconds", type=float, default=10)
    return made.parse_args()


def main() -> int:
    given = options()
    found = measured(given)
    checked(found, given)
    failures = [
        f"FAILED {one.name}: {one.note}" for one in found.values() if one.note.startswith("failed")
    ]
    return finish(given, section(found, given), "concurrent", goals(found), failures)


if __name__ == "__main__":
    sys.exit(main())
