"""Add up the cost of a folder of recordings, by model. Unknown costs are counted, not taken for 0.

    python examples/sum_cost.py FOLDER

Every folder below FOLDER that contains `stdout` is one recording, and so is every `.jsonl` file.
`steno show FOLDER` finds more kinds; this is the short version.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import steno


def recordings(root: Path) -> Iterator[Path]:
    """The recordings below a folder. A subagent's transcript is read with its session."""
    yield from sorted(path.parent for path in root.rglob("stdout"))
    for path in sorted(root.rglob("*.jsonl")):
        if not path.name.startswith("agent-"):
            yield path


def main(argv: list[str]) -> int:
    if len(argv) != 1 or not Path(argv[0]).is_dir():
        sys.stderr.write("usage: sum_cost.py FOLDER\n")
        return 2
    by_model: Counter[str] = Counter()
    count = 0
    unknown = 0
    total = 0  # in nano-dollars: whole numbers add up exactly
    for path in recordings(Path(argv[0])):
        try:
            report = steno.read(path)
        except steno.SourceError as error:
            sys.stderr.write(f"{error}\n")
            continue
        count += 1
        if report.cost.usd is None:
            unknown += 1
            continue
        total += round(report.cost.usd * 1e9)
        for name, model in report.models.items():
            if model.cost_usd is not None:
                by_model[name] += round(model.cost_usd * 1e9)
    if not count:
        sys.stderr.write(f"{argv[0]}: no recordings below this folder\n")
        return 2
    by_model["not reported by model"] = total - by_model.total()
    for name, nano in by_model.most_common():
        if nano:
            sys.stdout.write(f"{name:32} ${nano / 1e9:10.6f}\n")
    sys.stdout.write(f"{count} recordings, {unknown} of unknown cost: ${total / 1e9:.6f}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
