"""The findings of checked runs as SARIF 2.1.0, for code scanning and editors."""

from collections.abc import Iterable, Sequence
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
    entries += [_result(finding, rule_ids) for finding in across]
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
    return {"id": rule_id, "shortDescription": {"text": text}}


def _result(
    finding: RuleFinding, rule_ids: list[str], result: CheckResult | None = None
) -> dict[str, Any]:
    properties: dict[str, Any] = {"lines": finding.lines}
    if result is not None:
        report = result.report
        names = {"run": result.name, "run_id": report.run_id, "session_id": report.session_id}
        properties |= {name: clean(value) for name, value in names.items() if value is not None}
        properties["verdict"] = report.verdict
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_ids.index(finding.rule),
        "level": "error",
        "message": {"text": clean_lines(redact(finding.message))},
        "locations": _locations(finding.paths),
        "properties": properties,
    }


def _locations(paths: Iterable[str]) -> list[dict[str, Any]]:
    return [{"physicalLocation": {"artifactLocation": {"uri": file_uri(path)}}} for path in paths]


def file_uri(path: str) -> str:
    """A reference relative to the run's folder; a file outside it has an absolute one."""
    uri = quote(path.encode("utf-8", "surrogatepass"))
    return f"file://{uri}" if path.startswith("/") else uri
