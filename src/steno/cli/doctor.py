"""`steno doctor`: whether this machine will do, and how to mend what will not. It looks and prints; it mends nothing."""

import argparse
import os
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ..runner.doctor import CheckContext, Finding, run_checks
from ..views.layout import PageStyle
from ..views.sanitize import clean, pad
from .options import CommandParser
from .terminal import detect_style, print_json, print_lines

EXIT_PROBLEM_FOUND = 1
LEVEL_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("WRONG", "red")}
EXAMPLES = """examples:
  steno doctor                what is there, what is wrong, and what to do about it
  steno doctor --json | jq '.findings[] | select(.level == "problem")'

It looks at the settings, at the agents (program, version, sign-in, transcripts), at the ledger and what its last runs did
not understand, at the age of the price table, and at the disk. Of a sign-in it tells the name of the variable or file and
never what is in it. The exit code is 1 when something is wrong, else 0; a note is not wrong.
"""


def run(words: list[str]) -> int:
    """Carry out `steno doctor` and return its exit code."""
    options = _parse_args(words)
    today = datetime.now(timezone.utc).date()
    found = run_checks(CheckContext(os.environ, Path.cwd(), today, options.ledger))
    wrong = [finding for finding in found if finding.level == "problem"]
    if options.form == "json":
        print_json(
            msgspec.json.encode({"schema": "steno.doctor/1", "ok": not wrong, "findings": found})
        )
    else:
        print_lines([line for finding in found for line in _finding_lines(finding, detect_style())])
        print_lines([f"{len(wrong)} wrong" if wrong else "nothing is wrong"])
    return EXIT_PROBLEM_FOUND if wrong else 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "doctor", "Tell whether this machine will do, and how to mend what will not.", EXAMPLES
    )
    parser.add_argument(
        "--json", dest="form", action="store_const", const="json", help="one JSON object"
    )
    parser.add_ledger(can_import=False)
    return parser.parse_args(words)


def _finding_lines(finding: Finding, seen: PageStyle) -> list[str]:
    mark, colour = LEVEL_MARKS[finding.level]
    lines = [f"{seen.paint(pad(mark, 5), colour)}  {pad(finding.check, 9)} {clean(finding.what)}"]
    return lines if finding.remedy is None else [*lines, f"{' ' * 17}-> {clean(finding.remedy)}"]
