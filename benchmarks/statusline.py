"""Measure the CPU time of one status line: steno and ccusage.

Run as `python -m benchmarks.statusline [--rounds 15]`. Both read the JSON that Claude Code 2.1.325
wrote to its status line, in a home with a ledger or transcripts of some thousand requests.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.peers import NPM, TOP, Home
from benchmarks.transcripts import generate

STATUS = TOP / "tests" / "cli" / "statusline" / "2.1.325-subscription.json"
GOAL_MS = 60.0
MEGABYTES, FILES = 10.0, 40


def cpu_ms(command: list[str], environment: dict[str, str], rounds: int) -> list[float]:
    """The CPU time of each run in milliseconds, children included; the first run is not counted."""
    times = []
    for _ in range(rounds + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command,
            input=STATUS.read_bytes(),
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        times.append(spent * 1000)
    return times[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        generate(home.projects(), MEGABYTES, FILES)
        environment = home.environment()
        steno = [sys.executable, "-m", "steno"]
        subprocess.run([*steno, "usage"], env=environment, stdout=subprocess.DEVNULL, check=True)
        commands = {"steno statusline": [*steno, "statusline"]}
        program = NPM / "node_modules" / ".bin" / "ccusage"
        if program.exists():
            commands["ccusage statusline"] = [str(program), "statusline", "--offline"]
            commands["ccusage statusline, no cache"] = [
                *commands["ccusage statusline"],
                "--no-cache",
            ]
        found = {name: cpu_ms(command, environment, rounds) for name, command in commands.items()}
    for name, times in found.items():
        print(f"{name:30} median {median(times):7.1f} ms   lowest {min(times):7.1f} ms")
    if "ccusage statusline" not in found:
        print("ccusage: not installed; run: python -m benchmarks.peers")
    ours = median(found["steno statusline"])
    relation = "below" if ours < GOAL_MS else "NOT below"
    print(f"CPU time of steno statusline: {ours:.1f} ms ({relation} {GOAL_MS:.0f} ms)")
    return 0 if ours < GOAL_MS else 1


if __name__ == "__main__":
    os.chdir(TOP)
    raise SystemExit(main())
