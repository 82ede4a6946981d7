"""The findings of checked runs as SARIF 2.1.0, for code scanning and editors."""

import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec

from .. import __version__
from ..checks.across import ACROSS_RULES
from ..checks.policy import CheckResult
from ..checks.rules import RULES, RuleFinding
from ..codec.redact import redact
from ..views.formatting import clean, clean_lines

SARIF_VERSION = "2.1.0"
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(results: Sequence[CheckResult], across: Sequence[RuleFinding]) -> bytes:
    """The log: one result for each broken rule of each run, and those over all runs together."""
    findings = [finding for result in results for finding in result.findings] + list(across)
    rule_ids = list(dict.fromkeys(finding.rule for finding in findings))
    entries = [
        _result(finding, rule_ids, result) for result in results for finding in result.findings
    ]
    entries += [_across_result(finding, rule_ids, results) for finding in across]
    driver = {"name": "steno", "version": __version__, "rules": list(map(_rule, rule_ids))}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": entries}
    log = {"$schema": SCHEMA_URI, "version": SARIF_VERSION, "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log)) + b"\n"


def _rule(rule_id: str) -> dict[str, Any]:
    """The description of a rule; without rules, findings are named after verdicts."""
    if rule_id in RULES:
        text = RULES[rule_id].summary
    elif rule_id.removeprefix("across.") in ACROSS_RULES:
        text = ACROSS_RULES[rule_id.removeprefix("across.")].summary
    else:
        text = f"verdict {rule_id}"
    # GitHub asks for all three.
    return {
        "id": rule_id,
        **{key: {"text": text} for key in ("shortDescription", "fullDescription", "help")},
    }


def _result(finding: RuleFinding, rule_ids: list[str], result: CheckResult) -> dict[str, Any]:
    report = result.report
    names = {"run": result.name, "run_id": report.run_id, "session_id": report.session_id}
    properties = {name: clean(value) for name, value in names.items() if value is not None}
    properties["verdict"] = report.verdict
    if report.reason is not None:
        properties["reason"] = clean(redact(report.reason))
    return _entry(finding, rule_ids, _locations(finding, result), properties)


def _across_result(
    finding: RuleFinding, rule_ids: list[str], results: Sequence[CheckResult]
) -> dict[str, Any]:
    """A finding about all runs together has the place of the first one."""
    return _entry(finding, rule_ids, [_location(_recording(results[0]))] if results else [], {})


def _entry(
    finding: RuleFinding,
    rule_ids: list[str],
    locations: list[dict[str, Any]],
    properties: dict[str, str],
) -> dict[str, Any]:
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_ids.index(finding.rule),
        "level": "error",
        "message": {"text": clean_lines(redact(finding.message))},
        "locations": locations,
        "properties": {"lines": finding.lines, **properties},
    }


def _locations(finding: RuleFinding, result: CheckResult) -> list[dict[str, Any]]:
    """The files of the run, else its recording: GitHub refuses a result without a place.

    It takes relative paths, and absolute ones only below the checkout.
    """
    folder = PurePosixPath(relative_path(result.report.cwd or "") or "")
    paths = [str(folder / path) for path in finding.paths if not path.startswith("/")]
    if paths:
        return [_location(path) for path in paths]
    return [_location(_recording(result), min(finding.lines, default=1))]


def _location(path: str, line: int = 1) -> dict[str, Any]:
    artifact = {"uri": relative_uri(path)}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}


def _recording(result: CheckResult) -> str:
    """The path of the recording from the current folder; elsewhere, its name."""
    source = result.report.source or result.name
    return relative_path(source) or PurePosixPath(source).name or "recording"


def relative_path(path: str) -> str | None:
    """The path from the current folder; None if it is not below it."""
    relative = os.path.relpath(path) if path else ""
    return None if relative in ("", ".") or relative.startswith("..") else relative


def relative_uri(path: str) -> str:
    return quote(path.encode("utf-8", "surrogatepass"))
