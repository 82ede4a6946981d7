"""Outputs of `show`, `check` and `run` for CI systems: test reports, findings, GitHub Actions."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import StenoError
from .ci_log import print_commands
from .commands import STEP_SUMMARY
from .options import CommandParser
from .terminal import print_error, write_bytes

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from ..checks.policy import CheckResult
    from ..checks.rules import RuleFinding

STDOUT = "-"
DOCUMENTS = {
    "junit": "write JUnit XML",
    "sarif": "write the findings as SARIF 2.1.0",
    "markdown": "write a summary in Markdown",
}


class ReportOutputs(Struct, kw_only=True):
    """What to write, each document by its name in DOCUMENTS.

    `is_requested`: by an option, not only by the environment. `has_page`: a page for people is
    printed to stdout, so that annotations may follow it.
    """

    title: str
    documents: dict[str, str]
    has_summary: bool
    is_requested: bool
    has_page: bool = True

    @property
    def is_active(self) -> bool:
        return self.is_requested or self.has_summary

    @property
    def uses_stdout(self) -> bool:
        return STDOUT in self.documents.values()

    def write(
        self,
        results: "Sequence[CheckResult]",
        across: "Sequence[RuleFinding]" = (),
        warn: Callable[[str], None] = print_error,
    ) -> None:
        """StenoError if a file that was asked for cannot be written."""
        if self.has_summary:
            from ..export.github import annotations, step_summary

            if self.has_page:
                print_commands(sys.stdout, annotations(results, across))
            _append_summary(step_summary(self.title, results, across), warn)
        for name, target in self.documents.items():
            _write(target, _build(name, self.title, results, across))

    def write_task(self, result: "CheckResult", warn: Callable[[str], None]) -> None:
        """Write the result of `steno run`, whose exit code stays that of the verdict.

        Annotations go to stderr, which GitHub reads as well: stdout has the answer.
        """
        try:
            self.write([result], warn=warn)
        except StenoError as error:
            warn(str(error))
        if self.has_summary and sys.stderr is not None:
            from ..export.github import annotations

            print_commands(sys.stderr, annotations([result], []))


def add_output_options(parser: CommandParser, to_stdout: bool = True) -> None:
    """--junit, --sarif, --markdown and --github."""
    outputs = parser.add_argument_group("outputs for CI")
    note = "; - is stdout" if to_stdout else ""
    for name, text in DOCUMENTS.items():
        outputs.add_argument(f"--{name}", metavar="FILE", help=text + note)
    outputs.add_argument(
        "--github",
        action="store_true",
        help="print annotations and append to the step summary (default in GitHub Actions)",
    )


def add_otel_options(parser: CommandParser, title: str = "telemetry") -> "_ArgumentGroup":
    """--otel and --otel-content, which are settings of `steno run`, in a group of options."""
    group = parser.add_argument_group(title)
    group.add_argument(
        "--otel",
        metavar="[=URL]",
        help="send spans and metrics to an OpenTelemetry collector, as `steno run` does",
    )
    group.add_argument(
        "--otel-content", action="store_true", help="also send prompts, answers, tool contents"
    )
    return group


def outputs_from_options(
    options: argparse.Namespace, title: str, stdout_option: str | None
) -> ReportOutputs:
    """StenoError if two documents would be written to stdout, or a folder does not exist.

    `stdout_option` is the option that writes another document to stdout, such as --json.
    """
    has_summary = bool(os.environ.get(STEP_SUMMARY))
    if options.github and not has_summary:
        raise StenoError(
            f"--github: {STEP_SUMMARY} is not set; outside GitHub Actions, set it to a file"
        )
    documents = {name: value for name in DOCUMENTS if (value := getattr(options, name))}
    on_stdout = [f"--{name} -" for name, target in documents.items() if target == STDOUT]
    on_stdout += [] if stdout_option is None else [stdout_option]
    if len(on_stdout) > 1:
        raise StenoError(f"only one of {' and '.join(on_stdout)} can write to stdout")
    for target in documents.values():
        if not Path(target).parent.is_dir():  # known before an agent runs
            raise StenoError(f"{target}: cannot write: No such file or directory")
    return ReportOutputs(
        title=title,
        documents=documents,
        has_summary=has_summary,
        is_requested=options.github or bool(documents),
        has_page=not on_stdout,
    )


def _build(
    name: str, title: str, results: "Sequence[CheckResult]", across: "Sequence[RuleFinding]"
) -> bytes:
    if name == "junit":
        from ..export.junit import junit_xml

        return junit_xml(results, across)
    if name == "sarif":
        from ..export.sarif import sarif_log

        return sarif_log(results, across)
    from ..export.github import step_summary

    return step_summary(title, results, across).encode("utf-8", "replace")


def _write(target: str, data: bytes) -> None:
    if target == STDOUT:
        write_bytes(data)
    else:
        from .output_file import write_file

        write_file(target, [data])


def _append_summary(text: str, warn: Callable[[str], None]) -> None:
    """A summary that cannot be written is reported; the result of the check stays the same."""
    path = os.environ[STEP_SUMMARY]
    try:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        warn(f"{STEP_SUMMARY}: {path}: cannot write: {error.strerror or error}")
