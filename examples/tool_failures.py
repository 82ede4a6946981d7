"""Print every tool call that failed or was refused, and how often each tool did.

    python examples/tool_failures.py RECORDING...

A recording is a file, a tape, or a folder that holds `stdout`. Of any other folder, every folder below it that holds
`stdout` is one. What cannot be read is told on stderr, and the exit code is 2 then.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import steno


def recordings(words: list[str]) -> Iterator[Path]:
    """What there is to read."""
    for path in map(Path, words):
        below = sorted(found.parent for found in path.rglob("stdout")) if path.is_dir() else []
        yield from below or [path]


def main(words: list[str]) -> int:
    """Go through the recordings, one line for each failed call."""
    if not words:
        sys.stderr.write("usage: tool_failures.py RECORDING...\n")
        return 2
    calls: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    code = 0
    for source in recordings(words):
        try:
            report = steno.read(source)
        except steno.SourceError as problem:
            sys.stderr.write(f"{problem}\n")
            code = 2
            continue
        for tool in report.tools:
            calls[tool.name] += 1
            if tool.ok is not False:
                continue
            failed[tool.name] += 1
            reason = (tool.error or "no reason given").splitlines()[0]
            sys.stdout.write(
                f"{tool.name:12} {'refused' if tool.denied else 'failed':8} {reason[:80]}\n"
            )
    for name, count in failed.most_common():
        sys.stdout.write(f"{name}: {count} of {calls[name]} calls\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
