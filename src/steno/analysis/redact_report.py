"""A report without secrets, as the ledger stores it and pages show it. Pure."""

from typing import Any, TypeVar

import msgspec

from ..codec.redact import redact, redact_truncated, redact_value
from ..report import Report
from .accumulator import MAX_TOOL_ERROR_CHARS
from .facts import TRUNCATION_SUFFIX

ReportT = TypeVar("ReportT", bound=Report)


def redact_report(report: ReportT) -> ReportT:
    """A copy in which every recognised secret is masked."""
    return msgspec.convert(redacted_values(report), type(report))


def redacted_values(report: Report) -> dict[str, Any]:
    """The same as plain values; partial secrets at the end of truncated texts are removed too."""
    values: dict[str, Any] = redact_value(msgspec.to_builtins(report))
    error = report.error
    if error is not None and error.endswith(TRUNCATION_SUFFIX):
        error = redact_truncated(error.removesuffix(TRUNCATION_SUFFIX)) + TRUNCATION_SUFFIX
    else:
        error = error and redact(error)
    values["error"] = error
    for tool, tool_values in zip(report.tools, values["tools"], strict=True):
        if tool.error is not None and len(tool.error) >= MAX_TOOL_ERROR_CHARS:
            tool_values["error"] = redact_truncated(tool.error)
    return values
