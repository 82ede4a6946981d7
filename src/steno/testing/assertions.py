"""`assert_report`: the rules of policies as assertions about the report of a run."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..checks.facts import RunFacts, read_facts
from ..checks.policy import Policy, load_policy, policy_from_values
from ..checks.rules import RuleFinding
from ..errors import StenoError
from ..pricing import price
from ..recording.open import open_path
from ..report import Report, TaskReport

# Short names of rules for tests.
SHORT_NAMES = {"tools": "require_tools", "files": "require_files", "contains": "require_text"}
MAX_LINES = 5


def assert_report(
    report: Report,
    *,
    verdict: str | Sequence[str] | None = "success",
    policy: str | os.PathLike[str] | None = None,
    **rules: Any,
) -> None:
    """Raise AssertionError if a report breaks a rule; the message has each rule with its evidence.

    `rules` are those of `steno check --list-rules`, such as `max_cost=1` or `allow_files=["src/"]`;
    `tools`, `files` and `contains` are short for `require_tools`, `require_files` and
    `require_text`. `verdict=None` accepts every verdict; `policy` is a file with further rules.
    Unknown rules and invalid values raise StenoError.
    """
    __tracebackhide__ = True
    values = {SHORT_NAMES.get(name, name): value for name, value in rules.items()}
    if verdict is not None:
        values = {"verdict": verdict, **values}
    findings = _check(report, policy_from_values(values))
    if policy is not None:
        findings += _check(report, load_policy(Path(policy)))
    if findings:
        raise AssertionError(failure_message(report, findings))


def _check(report: Report, policy: Policy) -> list[RuleFinding]:
    """The broken rules. The recording is read if a rule needs it, or to name lines as evidence."""
    needs_recording = policy.needs("calls") or policy.needs("patch")
    findings = [] if needs_recording else policy.check(RunFacts(report))
    if needs_recording or (findings and _has_recordings(report)):
        findings = policy.check(_read_facts(report, policy.needs("patch")))
    return findings


def _has_recordings(report: Report) -> bool:
    try:
        return bool(recordings_of(report))
    except StenoError:
        return False


def _read_facts(report: Report, with_patch: bool) -> RunFacts:
    """The calls of all attempts, from their recordings. StenoError if one is missing."""
    facts = RunFacts(report, [], 0 if with_patch else None)
    calls = facts.calls or []
    for path in recordings_of(report):
        found = read_facts(open_path(path), price=price, with_patch=with_patch)
        calls += found.calls or []
        facts.change_lines.update(found.change_lines)
        is_known = facts.changed_lines is not None and found.changed_lines is not None
        facts.changed_lines = (
            (facts.changed_lines or 0) + (found.changed_lines or 0) if is_known else None
        )
    facts.calls = calls
    return facts


def recordings_of(report: Report) -> list[Path]:
    """The recordings of a run, or of all attempts of a task. StenoError if one is missing."""
    paths = [] if report.source is None else [Path(report.source)]
    if isinstance(report, TaskReport) and paths:
        names = [attempt.run_id for attempt in report.attempts]
        paths = [paths[0].with_name(f"{name}.steno") for name in names if name]
    missing = [str(path) for path in paths if not path.exists()]
    if missing or not paths:
        where = missing[0] if missing else "the report has no source"
        raise StenoError(f"rules about calls or lines need the recording of the run: {where}")
    return paths


def failure_message(report: Report, findings: Sequence[RuleFinding]) -> str:
    """The broken rules with their evidence, and how the run ended."""
    count = len(findings)
    lines = [f"the report breaks {count} rule{'s' if count > 1 else ''}"]
    lines += [f"  {finding.rule}: {finding.message}{_evidence(finding)}" for finding in findings]
    tokens = "?" if report.tokens.total is None else f"{report.tokens.total:,}"
    cost = "unknown cost" if report.cost.usd is None else f"${report.cost.usd:.4f}"
    agent = " ".join(filter(None, (report.agent, report.agent_version)))
    reason = f": {report.reason}" if report.reason else ""
    lines.append(f"the run: {report.verdict}{reason} · {agent} · {tokens} tokens · {cost}")
    if report.source is not None:
        lines.append(f"to see it: steno show {report.source}")
    return "\n".join(lines)


def _evidence(finding: RuleFinding) -> str:
    numbers = [str(line) for line in finding.lines[:MAX_LINES]]
    if not numbers:
        return ""
    more = ", ..." if len(finding.lines) > MAX_LINES else ""
    return f" (line{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}{more})"
