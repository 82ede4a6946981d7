"""Measure what grows with one stream, with the machine and with the number of runs.

Run as `python -m benchmarks.scale`. CPU of fresh processes where it can be told apart, else of this
one. The agents are shell scripts that print a recorded stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import HOME
from benchmarks.table import table

SESSION = "11111111-2222-4333-8444-555555555555"
RECORDING = HOME / "tests/recordings/claude/2.1.325/simple_success/stdout"
REFUSED = "Claude requested permissions to use Bash, but you haven't granted it yet."
# It waits until the pipe has a writer, and then for its end: no bytes to share with the others.
AGENT = "#!/bin/sh\n: > {folder}/started.$$\nread -r go < {folder}/go\nexec cat {recording}\n"
RUN_SECONDS = 300.0  # the longest wait for all agents


def results(count: int) -> Iterator[str]:
    """As many results, each with its own id."""
    line = {"type": "result", "subtype": "success", "is_error": False, "session_id": SESSION}
    for number in range(count):
        yield json.dumps({**line, "result": "ok", "num_turns": 1, "uuid": f"u{number}"})


def refusals(count: int) -> Iterator[str]:
    """One message with as many calls, and one with their results, all refused."""
    calls = [
        {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
        for number in range(count)
    ]
    ends = [
        {"type": "tool_result", "tool_use_id": call["id"], "is_error": True, "content": REFUSED}
        for call in calls
    ]
    for role, content in (("assistant", calls), ("user", ends)):
        message = {"id": "m", "role": role, "model": "claude-opus-4-5", "content": content}
        yield json.dumps({"type": role, "session_id": SESSION, "message": message})


def garbage(count: int) -> Iterator[str]:
    return (f"log line {number}, no JSON" for number in range(count))


def read_cpu(lines: Iterator[str], folder: str) -> float:
    import steno

    path = Path(folder, "stream")
    path.write_text("".join(f"{line}\n" for line in lines))
    began = time.process_time()
    steno.read(path, agent="claude")
    return time.process_time() - began


def growth(make: Callable[[int], Iterator[str]], count: int, folder: str) -> tuple[float, float]:
    """CPU of reading, and how many times that of a tenth."""
    small = read_cpu(make(count // 10), folder)
    large = read_cpu(make(count), folder)
    return large, large / small


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
    goals = []
    with tempfile.TemporaryDirectory() as folder:
        read_cpu(results(10), folder)  # loads the modules
        for name, make in (("results in one stream", results), ("refused calls", refusals)):
            cpu, factor = growth(make, given.lines, folder)
            log(f"{name}: {cpu:.2f} s")
            goals.append(Goal(f"{given.lines:,} {name}: CPU against a tenth", factor, 15, "x"))
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
    command = parser("Measure what grows with a stream, a machine and the number of runs.", 1)
    command.add_argument("--lines", type=int, default=10_000)
    command.add_argument("--processes", type=int, default=1_500)
    command.add_argument("--runs", type=int, default=500)
    given = command.parse_args()
    goals = measured(given)
    rows = [goal.cells() for goal in goals]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    how = f"{today}, {os.cpu_count()} CPUs. Reading and the end of a run: CPU of one measurement."
    verdicts = table(["goal", "target", "measured", ""], rows)
    text = "\n\n".join(["## Long streams, many processes, many runs", how, verdicts])
    return finish(given, text, "scale", goals, [])


if __name__ == "__main__":
    sys.exit(main())
