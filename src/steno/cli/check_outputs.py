"""Outputs of `steno check` for CI systems, and the step summary of `steno run`."""

import argparse
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from ..checks.policy import CheckResult
from ..checks.rules import RuleFinding
from ..errors import StenoError
from ..report import TaskReport
from .commands import STEP_SUMMARY
from .options import CommandParser
from .output_file import write_file
from .terminal import print_error, print_lines, write_bytes

STDOUT = "-"


class CheckOutputs(Struct, kw_only=True):
    """What to write. `is_requested`: by an option, not only by the environment."""

    junit: str | None
    sarif: str | None
    has_summary: bool
    with_annotations: bool
    is_requested: bool

    @property
    def uses_stdout(self) -> bool:
        return STDOUT in (self.junit, self.sarif)

    def print_page(self, lines: list[str]) -> None:
        """In GitHub Actions, text of an agent in it must not be taken for a workflow command."""
        if self.with_annotations:
            from ..export.github import without_commands

            print_lines(without_commands(lines, secrets.token_hex(16)))
        else:
            print_lines(lines)

    def write(self, results: Sequence[CheckResult], across: Sequence[RuleFinding]) -> None:
        """StenoError if a file that was asked for cannot be written."""
        if self.junit is not None:
            from ..export.junit import junit_xml

            _write(self.junit, junit_xml, results, across)
        if self.sarif is not None:
            from ..export.sarif import sarif_log

            _write(self.sarif, sarif_log, results, across)
        if self.with_annotations:
            from ..export.github import annotations

            print_lines(annotations(results, across))
        if self.has_summary:
            from ..export.github import step_summary

            _append_summary(step_summary("steno check", results, across), print_error)


def add_output_options(parser: CommandParser) -> None:
    outputs = parser.add_argument_group("outputs")
    outputs.add_argument("--junit", metavar="FILE", help="write JUnit XML; - is stdout")
    outputs.add_argument(
        "--sarif", metavar="FILE", help="write the findings as SARIF 2.1.0; - is stdout"
    )
    outputs.add_argument(
        "--github",
        action="store_true",
        help="print annotations and append to the step summary (default in GitHub Actions)",
    )


def outputs_from_options(options: argparse.Namespace) -> CheckOutputs:
    """StenoError if two documents would be written to stdout."""
    has_summary = bool(os.environ.get(STEP_SUMMARY))
    if options.github and not has_summary:
        raise StenoError(
            f"--github: {STEP_SUMMARY} is not set; outside GitHub Actions, set it to a file"
        )
    is_json = options.form == "json"
    documents = [options.junit, options.sarif].count(STDOUT) + is_json
    if documents > 1:
        raise StenoError("only one of --json, --junit - and --sarif - can write to stdout")
    return CheckOutputs(
        junit=options.junit,
        sarif=options.sarif,
        has_summary=has_summary,
        with_annotations=has_summary and not documents,
        is_requested=options.github or options.junit is not None or options.sarif is not None,
    )


def _write(
    target: str,
    build: Callable[[Sequence[CheckResult], Sequence[RuleFinding]], bytes],
    results: Sequence[CheckResult],
    across: Sequence[RuleFinding],
) -> None:
    data = build(results, across)
    if target == STDOUT:
        write_bytes(data)
    else:
        write_file(target, [data])


def write_run_summary(
    report: TaskReport, findings: Sequence[RuleFinding], warn: Callable[[str], None]
) -> None:
    """Append a run to the summary of the step."""
    from ..export.github import step_summary

    name = report.name or report.run_id or "not started"
    result = CheckResult(name, report, list(findings))
    _append_summary(step_summary("steno run", [result], by_verdict=True), warn)


def _append_summary(text: str, warn: Callable[[str], None]) -> None:
    """A summary that cannot be written is reported; the result of the check stays the same."""
    path = os.environ[STEP_SUMMARY]
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        warn(f"{STEP_SUMMARY}: {path}: cannot write: {error.strerror or error}")
