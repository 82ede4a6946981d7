"""Add up what a folder of recordings cost, and how much of it is known by model. Unknown is counted, never taken for 0.

    python examples/sum_cost.py FOLDER

Every folder below FOLDER that holds `stdout` is one recording, and so is every `.jsonl` file in a folder that
does not. `steno show FOLDER` finds more kinds; this is the short version.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import steno


def recordings(root: Path) -> Iterator[Path]:
    """What there is to read below a folder. A subagent's own transcript is read with its session."""
    yield from sorted(path.parent for path in root.rglob("stdout"))
    for path in sorted(root.rglob("*.jsonl")):
        if not path.name.startswith("agent-"):
            yield path


def main(words: list[str]) -> int:
    """Read every recording once; print one line per model, then the sum of the runs' own costs."""
    if len(words) != 1 or not Path(words[0]).is_dir():
        sys.stderr.write("usage: sum_cost.py FOLDER\n")
        return 2
    by_model: Counter[str] = Counter()
    read = unknown = whole = 0  # sums in whole nano-dollars: they add up exactly
    for path in recordings(Path(words[0])):
        try:
            report = steno.read(path)
        except steno.SourceError as problem:
            sys.stderr.write(f"{problem}\n")
            continue
        read += 1
        if report.cost.usd is None:
            unknown += 1
            continue
        whole += round(report.cost.usd * 1e9)
        for name, model in report.models.items():
            if model.cost_usd is not None:
                by_model[name] += round(model.cost_usd * 1e9)
    if not read:
        sys.stderr.write(f"{words[0]}: no recordings are below it\n")
        return 2
    by_model["not told by model"] = whole - by_model.total()
    for name, nano in by_model.most_common():
        if nano:
            sys.stdout.write(f"{name:32} ${nano / 1e9:10.6f}\n")
    sys.stdout.write(f"{read} recordings, {unknown} of unknown cost: ${whole / 1e9:.6f}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
