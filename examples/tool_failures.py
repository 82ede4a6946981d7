"""Print every tool call that failed or was refused, and how often each tool did.

    python examples/tool_failures.py RECORDING...

A recording is whatever `steno show` can read.
"""

import sys
from collections import Counter

import steno


def main(words: list[str]) -> int:
    """Go through the recordings, one line for each failed call."""
    calls: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for source in words:
        for tool in steno.read(source).tools:
            calls[tool.name] += 1
            if tool.ok is not False:
                continue
            failed[tool.name] += 1
            reason = (tool.error or "no reason given").splitlines()[0]
            sys.stdout.write(f"{tool.name:12} {'refused' if tool.denied else 'failed':8} {reason[:80]}\n")
    for name, count in failed.most_common():
        sys.stdout.write(f"{name}: {count} of {calls[name]} calls\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
