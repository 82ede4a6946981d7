"""Print every tool call that failed or was denied, and the number per tool.

    python examples/tool_failures.py RECORDING...

A recording is a file, or a folder that contains `stdout`; other folders are searched for such
folders. Files that cannot be read are reported on stderr, and the exit code is 2 then.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import steno


def recordings(names: list[str]) -> Iterator[Path]:
    for path in map(Path, names):
        below = sorted(file.parent for file in path.rglob("stdout")) if path.is_dir() else []
        yield from below or [path]


def main(argv: list[str]) -> int:
    if not argv:
        sys.stderr.write("usage: tool_failures.py RECORDING...\n")
        return 2
    calls: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    code = 0
    for source in recordings(argv):
        try:
            report = steno.read(source)
        except steno.SourceError as error:
            sys.stderr.write(f"{error}\n")
            code = 2
            continue
        for tool in report.tools:
            calls[tool.name] += 1
            if tool.ok is not False:
                continue
            failed[tool.name] += 1
            reason = (tool.error or "no reason given").splitlines()[0]
            status = "denied" if tool.denied else "failed"
            sys.stdout.write(f"{tool.name:12} {status:8} {reason[:80]}\n")
    for name, count in failed.most_common():
        sys.stdout.write(f"{name}: {count} of {calls[name]} calls\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
