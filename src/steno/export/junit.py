"""Checked runs as JUnit XML, for the test reports of CI systems: a run is a test case."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..checks.policy import CheckResult
from ..checks.rules import RuleFinding
from ..codec.redact import redact
from ..report import Report, first_line
from ..views.check import ACROSS_NAME
from ..views.formatting import clean_lines

XML_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'
_NOT_XML = re.compile("[\ufffe\uffff]")  # what `clean_lines` keeps, but XML 1.0 forbids


def junit_xml(results: Sequence[CheckResult], across: Sequence[RuleFinding]) -> bytes:
    """The document. Findings over all runs together are one more test case.

    Each run has a suite of its own: the schemas allow properties only there.
    """
    root = Element("testsuites", {"name": "steno"})
    for result, name in zip(results, _case_names(results), strict=True):
        _add_run(root, result, _xml_text(name))
    if across:
        suite = SubElement(root, "testsuite", _suite_names(ACROSS_NAME, is_failed=True))
        case = SubElement(suite, "testcase", {"name": ACROSS_NAME, "classname": "steno"})
        _add_failures(case, across)
    failures = sum(not result.ok for result in results) + bool(across)
    counts = {"tests": str(len(root)), "failures": str(failures), "errors": "0"}
    root.attrib.update({**counts, **_time_of(result.report for result in results)})
    indent(root)
    return XML_DECLARATION + tostring(root, encoding="unicode").encode() + b"\n"


def _suite_names(name: str, is_failed: bool) -> dict[str, str]:
    counts = {"tests": "1", "failures": str(int(is_failed)), "errors": "0", "skipped": "0"}
    return {"name": name, **counts}


def _case_names(results: Sequence[CheckResult]) -> list[str]:
    """The names given by users; where several runs share one, with what tells them apart."""
    names = [result.report.name or result.name for result in results]
    uses = Counter(names)
    return [
        f"{name} ({result.name})" if uses[name] > 1 and name != result.name else name
        for name, result in zip(names, results, strict=True)
    ]


def _add_run(root: Element, result: CheckResult, name: str) -> None:
    report = result.report
    time = _time_of([report])
    suite = SubElement(root, "testsuite", {**_suite_names(name, not result.ok), **time})
    properties = SubElement(suite, "properties")
    for key, value in _properties(report).items():
        if value is not None:
            SubElement(properties, "property", {"name": key, "value": _xml_text(str(value))})
    names = {"name": name, "classname": f"steno.{_xml_text(report.agent or 'unknown')}"}
    _add_failures(SubElement(suite, "testcase", {**names, **time}), result.findings)


def _time_of(reports: Iterable[Report]) -> dict[str, str]:
    """The attribute for the duration in seconds; none if a duration is unknown."""
    durations = [report.duration_ms for report in reports]
    known = [duration for duration in durations if duration is not None]
    return {"time": f"{sum(known) / 1000:.3f}"} if len(known) == len(durations) else {}


def _properties(report: Report) -> dict[str, object]:
    tokens = report.tokens
    return {
        "verdict": report.verdict,
        "reason": report.reason,
        "agent": report.agent,
        "model": report.model,
        "session_id": report.session_id,
        "run_id": report.run_id,
        "cost_usd": report.cost.usd,
        "cost_source": report.cost.source,
        "tokens": tokens.total,
        "tokens_input": tokens.input,
        "tokens_cache_write": tokens.cache_write,
        "tokens_cache_read": tokens.cache_read,
        "tokens_output": tokens.output,
        "turns": report.turns,
        "context_peak": report.context.peak,
    }


def _add_failures(case: Element, findings: Iterable[RuleFinding]) -> None:
    for finding in findings:
        message = _xml_text(finding.message)
        names = {"type": finding.rule, "message": first_line(message)}
        SubElement(case, "failure", names).text = "\n".join([message, *_evidence(finding)])


def _evidence(finding: RuleFinding) -> list[str]:
    lines = [f"lines of the recording: {', '.join(map(str, finding.lines))}"]
    paths = [f"file: {_xml_text(path)}" for path in finding.paths]
    return (lines if finding.lines else []) + paths


def _xml_text(text: str) -> str:
    """The text without secrets, and with what XML cannot represent escaped."""
    return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", clean_lines(redact(text)))
