"""Compare three shortcuts for "did it succeed?" with the verdict, over a folder of recordings.

    python examples/shortcuts.py tests/recordings/claude

The shortcuts: the exit code is 0; the last result's `subtype` is "success"; the last result's
`is_error` is not true. Prints how many runs each calls a success, and the verdicts of those that
were none.
"""

import sys
from collections import Counter
from pathlib import Path

import steno


def apply_shortcuts(folder: Path) -> dict[str, bool]:
    """Return whether each shortcut calls a recording a success."""
    result = None
    exit_code = None
    for event in steno.events(folder):
        kind = type(event).__name__
        if kind == "Result":
            result = event
        elif kind == "Exited":
            exit_code = getattr(event, "code", None)
    return {
        "exit code 0": exit_code == 0,
        "subtype success": getattr(result, "subtype", None) == "success",
        "is_error not true": result is not None and not getattr(result, "is_error", False),
    }


def main(argv: list[str]) -> int:
    folders = sorted(path.parent for name in argv for path in Path(name).rglob("stdout"))
    if not folders:
        sys.stderr.write(
            "usage: shortcuts.py FOLDER... (with recordings below: folders with stdout)\n"
        )
        return 2
    called: Counter[str] = Counter()
    wrong: dict[str, Counter[str]] = {}
    for folder in folders:
        try:
            verdict = steno.read(folder).verdict
            successes = apply_shortcuts(folder)
        except steno.SourceError as error:
            sys.stderr.write(f"{error}\n")
            continue
        for shortcut, success in successes.items():
            called[shortcut] += success
            if success and verdict != "success":
                wrong.setdefault(shortcut, Counter())[verdict] += 1
    sys.stdout.write(f"{len(folders)} recordings\n")
    for shortcut, count in called.items():
        misses = wrong.get(shortcut, Counter())
        sys.stdout.write(
            f"{shortcut}: {count} called a success, {misses.total()} of them are not\n"
        )
        sys.stdout.write(
            "".join(f"  {times:4} {verdict}\n" for verdict, times in misses.most_common())
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
