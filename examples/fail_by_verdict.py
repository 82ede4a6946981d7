"""Fail a CI job by how the agent's run really ended, not by the agent's exit code.

    python examples/fail_by_verdict.py RECORDING [WORD...]

Exits 0 when the run is ok or its verdict is one of the given words, else 1; the reason goes to stderr.
A recording is one run: a file, a tape, or a folder that holds `stdout`. One that cannot be read exits 2.
"""

import sys

import steno


def main(words: list[str]) -> int:
    """Judge one recording."""
    if not words:
        sys.stderr.write("usage: fail_by_verdict.py RECORDING [WORD...]\n")
        return 2
    source, *accepted = words
    try:
        report = steno.read(source)
    except steno.SourceError as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    if report.ok or report.verdict in accepted:
        return 0
    sys.stderr.write(f"{source}: {report.verdict}\n")
    for reason in filter(None, (report.error, *report.warnings, report.hint)):
        sys.stderr.write(f"  {reason}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
