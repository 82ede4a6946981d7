"""Fail a CI job by the verdict of the agent's run, not by the agent's exit code.

    python examples/fail_by_verdict.py RECORDING [VERDICT...]

Exits with 0 if the run is ok or its verdict is one of those given, else with 1 and the reason on
stderr. A recording is one run: a file, or a folder that contains `stdout`. Exits with 2 if it
cannot be read.
"""

import sys

import steno


def main(argv: list[str]) -> int:
    if not argv:
        sys.stderr.write("usage: fail_by_verdict.py RECORDING [VERDICT...]\n")
        return 2
    source, *accepted = argv
    try:
        report = steno.read(source)
    except steno.SourceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if report.ok or report.verdict in accepted:
        return 0
    sys.stderr.write(f"{source}: {report.verdict}\n")
    for reason in filter(None, (report.error, *report.warnings, report.hint)):
        sys.stderr.write(f"  {reason}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
