"""Counts the instructions that each reader executes on one stream: the same figures on a busy machine and a quiet one.

Run as `python -m benchmarks.instructions [--megabytes 20]`; needs valgrind. It counts, and never times anything: the
clock's table is `benchmarks.read`. What a reader costs before it reads (start, imports) is counted apart and taken off.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.generate import generate
from benchmarks.measure import ENVIRONMENT, HOME

READERS = {
    "bare": "bare msgspec, needed fields",
    "sdk": "claude-agent-sdk",
    "events": "steno.events",
    "report": "steno.read",
}
GOALS = {"bare": 0.6, "sdk": 2.5}


def counted(reader: str, stream: Path, small: Path) -> int | None:
    """The instructions of one process that reads one stream; None if it could not be run."""
    work = [sys.executable, "-m", "benchmarks.work", reader, str(stream), str(small)]
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *work]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=HOME, env=ENVIRONMENT, check=False
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found[1]) if found and done.returncode == 0 else None


def reading(reader: str, stream: Path, small: Path) -> int | None:
    """The instructions of the reading alone."""
    whole, start = counted(reader, stream, small), counted(reader, small, small)
    return None if whole is None or start is None else whole - start


def table(counts: dict[str, int | None]) -> list[str]:
    """A line for each reader, and one for each goal."""
    rows = [
        f"{label:30} {'not run' if counts[name] is None else f'{counts[name]:>15,}'}"
        for name, label in READERS.items()
    ]
    ours = counts["report"]
    for name, goal in GOALS.items():
        theirs = counts[name]
        if ours and theirs:
            found = theirs / ours
            rows.append(
                f"report against {READERS[name]}: {found:.2f}x ({'at least' if found >= goal else 'below'} {goal}x)"
            )
    return rows


def main() -> int:
    """Print the table; 1 where valgrind is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=float, default=20)
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed: it counts the instructions", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        stream, small = Path(folder) / "stream", Path(folder) / "small"
        generate(stream, options.megabytes)
        generate(small, 0.005)
        print("\n".join(table({name: reading(name, stream, small) for name in READERS})))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
