"""Measure what grows with one stream, with the machine and with the number of runs.

Run as `python -m benchmarks.scale`. CPU of fresh processes where it can be told apart, else of this
one. The agents are shell scripts that print a recorded stream.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import HOME
from benchmarks.shapes import RECORDED, SHAPES, recording, stream
from benchmarks.table import table

RECORDING = HOME / "tests/recordings/claude/2.1.325/simple_success/stdout"
# It waits until the pipe has a writer, and then for its end: no bytes to share with the others.
AGENT = "#!/bin/sh\n: > {folder}/started.$$\nread -r go < {folder}/go\nexec cat {recording}\n"
RUN_SECONDS = 300.0  # the longest wait for all agents
# For four times the lines: garbage collection adds to 4x, and what grows with the square takes 16x.
MAX_FACTOR = 7


def garbage(count: int) -> bytes:
    return b"".join(b"log line %d, no JSON\n" % number for number in range(count))


def read_cpu(data: bytes, folder: str, agent: str | None = "claude") -> float:
    import steno

    path = Path(folder, "stream")
    path.write_bytes(data)
    gc.collect()
    began = time.process_time()
    steno.read(path, agent=agent)
    return time.process_time() - began


def growth(make: Callable[[int], bytes], count: int, folder: str, rounds: int) -> float:
    """The CPU of reading, in units of that of a quarter; minima of the rounds."""
    small = make(count // 4)
    large = make(count)
    # A recording names its agent.
    agent = None if b'"steno.recording/1"' in small[:100] else "claude"
    cpu = [min(read_cpu(data, folder, agent) for _ in range(rounds)) for data in (small, large)]
    return cpu[1] / cpu[0]


def growths(count: int, folder: str, rounds: int) -> list[Goal]:
    makers = {name: partial(stream, shape) for name, shape in SHAPES.items()}
    makers |= {name: partial(recording, records) for name, records in RECORDED.items()}
    goals = []
    for name, make in makers.items():
        factor = growth(make, count, folder, rounds)
        log(f"{name}: {factor:.1f}x")
        goals.append(Goal(f"{count:,} {name}: CPU against a quarter", factor, MAX_FACTOR, "x"))
    return goals


def exit_cpu(others: int) -> float:
    """Milliseconds of CPU per run of `true` while as many other processes exist."""
    from steno.process import ProcessCommand, ProcessLoop

    processes = [subprocess.Popen(["sleep", "600"]) for _ in range(others)]
    try:
        with ProcessLoop() as loop:
            began = time.process_time()
            for _ in range(5):
                loop.start(ProcessCommand(("true",)), lambda record: None)
                loop.run()
            return (time.process_time() - began) / 5 * 1000
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_all(count: int, folder: str) -> dict[str, float]:
    """As many `arun` at once, which end together."""
    import steno

    os.environ["XDG_DATA_HOME"] = folder
    os.mkfifo(f"{folder}/go")
    program = Path(folder, "agent")
    program.write_text(AGENT.format(folder=folder, recording=RECORDING))
    program.chmod(0o755)

    async def run() -> dict[str, float]:
        before = len(os.listdir("/proc/self/fd"))
        tasks = [
            asyncio.create_task(steno.arun("x", program=program, cwd=folder, attempts=1))
            for _ in range(count)
        ]
        until = time.monotonic() + RUN_SECONDS
        while len(list(Path(folder).glob("started.*"))) < count:
            if time.monotonic() > until or any(task.done() for task in tasks):
                raise SystemExit("WRONG: not all agents started")
            await asyncio.sleep(0.1)
        descriptors = (len(os.listdir("/proc/self/fd")) - before) / count
        go = os.open(f"{folder}/go", os.O_WRONLY)
        await asyncio.sleep(1)  # all have opened it
        cpu = time.process_time()
        began = time.monotonic()
        os.close(go)
        await asyncio.gather(*tasks)
        seconds = time.monotonic() - began
        return {
            "seconds": seconds,
            "cpu": (time.process_time() - cpu) / count * 1000,
            "fds": descriptors,
        }

    return asyncio.run(run())


def measured(given: argparse.Namespace) -> list[Goal]:
    with tempfile.TemporaryDirectory() as folder:
        read_cpu(stream(SHAPES["turns"], 10), folder)  # loads the modules
        goals = growths(given.lines, folder, given.rounds)
        goals.append(
            Goal("a million lines of garbage: CPU", read_cpu(garbage(10**6), folder), 5, " s")
        )
        alone, beside = exit_cpu(0), exit_cpu(given.processes)
        text = f"end of a run beside {given.processes:,} processes: CPU more than alone"
        goals.append(Goal(text, beside - alone, 10, " ms"))
        # In a fresh process: what was read before would only slow down its garbage collections.
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            figures = fresh.submit(run_all, given.runs, folder).result()
        text = f"{given.runs} runs that end together"
        goals.append(Goal(f"{text}: seconds to the last report", figures["seconds"], 2, " s"))
        goals.append(Goal(f"{text}: CPU per run", figures["cpu"], 10, " ms"))
        goals.append(Goal(f"{text}: open files per run", figures["fds"], 8, ""))
    return goals


def main() -> int:
    command = parser("Measure what grows with a stream, a machine and the number of runs.", 2)
    command.add_argument("--lines", type=int, default=40_000, help="of each shape of a stream")
    command.add_argument("--processes", type=int, default=1_500)
    command.add_argument("--runs", type=int, default=500)
    given = command.parse_args()
    goals = measured(given)
    rows = [goal.cells() for goal in goals]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    how = (
        f"{today}, {os.cpu_count()} CPUs. Reading: minima of {given.rounds} rounds; four times the "
        "lines cost 4x if the work grows with them. The end of a run: CPU of one measurement."
    )
    verdicts = table(["goal", "target", "measured", ""], rows)
    text = "\n\n".join(["## Long streams, many processes, many runs", how, verdicts])
    return finish(given, text, "scale", goals, [])


if __name__ == "__main__":
    sys.exit(main())
