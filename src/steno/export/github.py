"""Checked runs for GitHub Actions: annotations, and the summary of a step in Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from ..checks.policy import CheckResult
from ..checks.rules import RuleFinding
from ..codec.redact import redact
from ..report import ChangedFile, Report
from ..views.check import ACROSS_NAME
from ..views.formatting import (
    clean_lines,
    format_compact,
    format_count,
    format_duration,
    format_money,
    format_percent,
)
from ..views.summary import verdict_reason
from .markdown import code_span, escape_markdown
from .results import broken_rules

# GitHub drops a summary of more than 1 MiB, and shows ten annotations of a kind per step.
MAX_SUMMARY_RUNS = 100
MAX_SUMMARY_FINDINGS = 200
MAX_FILES_NAMED = 20
MAX_CELL_CHARS = 300
MAX_PATH_CHARS = 40  # of a run's name, so that the figures fit on the page
# The long text comes last; figures are right-aligned.
RUN_COLUMNS = (
    *("run", "verdict", "cost", "tokens", "context", "time", "files", "findings", "reason"),
)
FINDING_COLUMNS = ("run", "rule", "finding", "lines")
TEXT_COLUMNS = ("run", "verdict", "reason", "rule", "finding", "lines")


# -- annotations ---------------------------------------------------------------------------------


def annotations(results: Sequence[CheckResult], across: Iterable[RuleFinding]) -> Iterator[str]:
    """A workflow command for each broken rule, and for each failed run that breaks none."""
    for result in results:
        for finding in result.findings:
            yield from _errors(finding, result.name)
        if result.ok and not result.report.ok:
            reason = f"{result.report.verdict}: {verdict_reason(result.report)}"
            yield _command("warning", {"title": result.name}, reason)
    for finding in across:
        yield from _errors(finding, ACROSS_NAME)


def _errors(finding: RuleFinding, name: str) -> Iterator[str]:
    """One for each file, so that GitHub shows it in the diff."""
    properties = {"title": f"{finding.rule} ({name})"}
    for path in finding.paths:
        yield _command("error", {"file": path, **properties}, finding.message)
    if not finding.paths:
        yield _command("error", properties, finding.message)


def _command(name: str, properties: dict[str, str], message: str) -> str:
    values = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    return f"::{name} {values}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    text = clean_lines(redact(text))
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


# -- summary -------------------------------------------------------------------------------------


def step_summary(
    title: str, results: Sequence[CheckResult], across: Sequence[RuleFinding] = ()
) -> str:
    """The runs, what they break, and the changed files of a single run."""
    heading = escape_markdown(f"{title}: {_headline(results)}")
    parts = [f"### {_mark(results, across)} {heading}"]
    # Failed runs first: a long list is cut at its end.
    shown = sorted(results, key=lambda result: result.ok)[:MAX_SUMMARY_RUNS]
    parts.append(_table(RUN_COLUMNS, map(_run_cells, shown)))
    if len(shown) < len(results):
        parts.append(f"{len(results) - len(shown)} more runs are not shown.")
    parts += _finding_parts(results, across)
    if len(results) == 1:
        parts += _detail_parts(results[0].report)
    return "\n\n".join(parts) + "\n\n"


def _headline(results: Sequence[CheckResult]) -> str:
    if len(results) == 1:
        verdict = results[0].report.verdict
        findings = len(broken_rules(results[0]))
        return f"{verdict}, {format_count(findings, 'finding')}" if findings else verdict
    failed = sum(not result.ok for result in results)
    return f"{format_count(len(results), 'run')}, {failed} failed"


def _mark(results: Sequence[CheckResult], across: Sequence[RuleFinding]) -> str:
    if across or not all(result.ok for result in results):
        return "❌"
    return "✅" if all(result.report.ok for result in results) else "⚠️"


def _run_cells(result: CheckResult) -> list[str]:
    report = result.report
    return [
        _short_name(result.name),
        report.verdict,
        format_money(report.cost.usd),
        format_compact(report.tokens.total),
        format_percent(report.context.fraction),
        format_duration(report.duration_ms),
        str(len(report.files)),
        str(len(broken_rules(result))),
        verdict_reason(report),
    ]


def _short_name(name: str) -> str:
    """A name; of a long path, only its last two parts."""
    if len(name) <= MAX_PATH_CHARS or name.count("/") < 2:
        return name
    return "…/" + "/".join(name.rstrip("/").split("/")[-2:])


def _finding_parts(results: Sequence[CheckResult], across: Sequence[RuleFinding]) -> list[str]:
    named = [(result.name, finding) for result in results for finding in broken_rules(result)]
    named = [(ACROSS_NAME, finding) for finding in across] + named
    if not named:
        return []
    rows = (
        [_short_name(name), finding.rule, finding.message, ", ".join(map(str, finding.lines))]
        for name, finding in named[:MAX_SUMMARY_FINDINGS]
    )
    parts = [_table(FINDING_COLUMNS, rows)]
    if len(named) > MAX_SUMMARY_FINDINGS:
        parts.append(f"{len(named) - MAX_SUMMARY_FINDINGS} more findings are not shown.")
    return parts


def _detail_parts(report: Report) -> list[str]:
    parts = [f"Next: {code_span(redact(report.hint))}"] if report.hint else []
    if report.files:
        parts.append("Changed files:")
        parts.append("\n".join(map(_file_item, report.files[:MAX_FILES_NAMED])))
    if len(report.files) > MAX_FILES_NAMED:
        parts.append(f"{len(report.files) - MAX_FILES_NAMED} more files are not shown.")
    return parts


def _file_item(file: ChangedFile) -> str:
    return f"- {code_span(redact(file.path))} ({escape_markdown(file.change)})"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---" if name in TEXT_COLUMNS else "---:" for name in columns]
    lines = [columns, rule, *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    text = redact(text)
    cut = text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"
    return escape_markdown(cut)
