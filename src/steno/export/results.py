"""The result of a run for outputs: what it breaks, or without rules, its verdict."""

from collections.abc import Sequence

from ..analysis.redact_report import redact_report
from ..checks.policy import CheckResult
from ..checks.rules import RuleFinding, make_finding
from ..report import ADVISORY_PREFIXES, Report
from ..views.summary import verdict_reason


def result_of(name: str, report: Report, broken: Sequence[RuleFinding] = ()) -> CheckResult:
    """A run that must be `ok`, with the rules of a policy that it breaks; without secrets.

    A run that is not `ok` because of broken rules alone has no finding for its verdict.
    """
    is_explained = report.ok or (broken and report.verdict in ("success", "policy"))
    findings = [] if is_explained else [verdict_finding(report)]
    return CheckResult(name, redact_report(report), [*findings, *broken])


def verdict_finding(report: Report) -> RuleFinding:
    """The verdict of a failed run as a finding; of a successful one, the warning."""
    rule: str = report.verdict
    message = verdict_reason(report)
    if rule == "success":  # a warning made it not `ok`
        warnings = [text for text in report.warnings if text.startswith(ADVISORY_PREFIXES)]
        rule, _, message = "; ".join(warnings).partition(": ")
    return make_finding(rule, message, report.verdict, lines=report.evidence)


def broken_rules(result: CheckResult) -> list[RuleFinding]:
    """The findings that are not the verdict itself."""
    return [finding for finding in result.findings if finding.rule != result.report.verdict]
