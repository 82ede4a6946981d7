"""Compare three shortcuts for "did it succeed?" with the verdict, over a folder of recordings.

    python examples/shortcuts.py tests/recordings/claude

The shortcuts: the exit code is 0; the last result's `subtype` is "success"; the last result's `is_error` is not
true. Printed is how many runs each calls a success, and what the verdict says of those that it should not.
"""

import sys
from collections import Counter
from pathlib import Path

import steno


def opinions(folder: Path) -> dict[str, bool]:
    """What each shortcut says of one recording: a success or not."""
    last = code = None
    for event in steno.events(folder):
        kind = type(event).__name__
        if kind == "Result":
            last = event
        elif kind == "Exited":
            code = getattr(event, "code", None)
    return {
        "exit code 0": code == 0,
        "subtype success": getattr(last, "subtype", None) == "success",
        "is_error not true": last is not None and not getattr(last, "is_error", False),
    }


def main(words: list[str]) -> int:
    """Count agreement and disagreement over all recordings below the given folder."""
    folders = sorted(path.parent for word in words for path in Path(word).rglob("stdout"))
    if not folders:
        sys.stderr.write(
            "usage: shortcuts.py FOLDER... (each with folders below it that hold stdout)\n"
        )
        return 2
    called: Counter[str] = Counter()
    wrong: dict[str, Counter[str]] = {}
    for folder in folders:
        try:
            verdict, said = steno.read(folder).verdict, opinions(folder)
        except steno.SourceError as problem:
            sys.stderr.write(f"{problem}\n")
            continue
        for shortcut, success in said.items():
            called[shortcut] += success
            if success and verdict != "success":
                wrong.setdefault(shortcut, Counter())[verdict] += 1
    sys.stdout.write(f"{len(folders)} recordings\n")
    for shortcut, count in called.items():
        misses = wrong.get(shortcut, Counter())
        sys.stdout.write(
            f"{shortcut}: {count} called a success, {misses.total()} of them are not\n"
        )
        sys.stdout.write("".join(f"  {times:4} {word}\n" for word, times in misses.most_common()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
