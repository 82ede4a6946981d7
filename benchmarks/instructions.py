"""Count the instructions that each reader executes on one stream, independent of other load.

Run as `python -m benchmarks.instructions [--megabytes 20]`; needs valgrind. Start-up and imports
are counted separately and subtracted. Times are measured by `benchmarks.read`.
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
    """The instructions of a process that reads a stream; None if it failed."""
    work = [sys.executable, "-m", "benchmarks.work", reader, str(stream), str(small)]
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *work]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=HOME, env=ENVIRONMENT, check=False
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found[1]) if found and done.returncode == 0 else None


def reading(reader: str, stream: Path, small: Path) -> int | None:
    """The instructions of reading, without start-up."""
    whole, start = counted(reader, stream, small), counted(reader, small, small)
    return None if whole is None or start is None else whole - start


def table(counts: dict[str, int | None]) -> list[str]:
    """One line per reader and goal."""
    rows = [
        f"{label:30} {'not run' if counts[name] is None else f'{counts[name]:>15,}'}"
        for name, label in READERS.items()
    ]
    ours = counts["report"]
    for name, goal in GOALS.items():
        theirs = counts[name]
        if ours and theirs:
            found = theirs / ours
            relation = "at least" if found >= goal else "below"
            rows.append(f"report against {READERS[name]}: {found:.2f}x ({relation} {goal}x)")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=float, default=20)
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind not found in PATH; it is needed to count instructions", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        stream, small = Path(folder) / "stream", Path(folder) / "small"
        generate(stream, options.megabytes)
        generate(small, 0.005)
        print("\n".join(table({name: reading(name, stream, small) for name in READERS})))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
