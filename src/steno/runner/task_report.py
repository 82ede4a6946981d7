"""Merge the reports of a task's attempts into one. Pure."""

from collections.abc import Sequence

import msgspec

from ..analysis.merge_figures import merge_figures
from ..report import Attempt, ChangedFile, Report, TaskReport, ToolCallCounts


def merge_reports(
    reports: Sequence[Report], reasons: Sequence[str], task: str | None, final_attempt: int = -1
) -> TaskReport:
    """The task's report: verdict and text of `final_attempt`, sums and lists of all attempts.

    `reasons` are the decisions after the attempts.
    """
    last = reports[final_attempt]
    merged = TaskReport(**{name: getattr(last, name) for name in Report.__struct_fields__})
    merged.task_id = task
    merged.attempts = [
        Attempt(
            run_id=report.run_id,
            session_id=report.session_id,
            verdict=report.verdict,
            tokens=report.tokens,
            cost=report.cost,
            turns=report.turns,
            duration_ms=report.duration_ms,
            why=why,
            agent=report.agent,
        )
        for report, why in zip(reports, reasons, strict=True)
    ]
    if len(reports) > 1:
        merge_figures(merged, reports)
        start_times = (report.started_at for report in reports if report.started_at is not None)
        merged.started_at = next(start_times, None)
        _merge_lists(merged, reports)
        earlier = [report for report in reports if report is not last]
        merged.warnings = [*_orphan_warnings(earlier), *last.warnings]
    return merged


def _merge_lists(merged: TaskReport, reports: Sequence[Report]) -> None:
    merged.tools = [tool for report in reports for tool in report.tools]
    merged.tool_counts = _merge_tool_counts(reports)
    merged.files = _merge_files(reports)
    merged.denials = [denial for report in reports for denial in report.denials]
    merged.retries = [retry for report in reports for retry in report.retries]
    merged.subagents = [agent for report in reports for agent in report.subagents]


def _orphan_warnings(reports: Sequence[Report]) -> list[str]:
    """Orphans of earlier attempts still exist; their other warnings no longer apply."""
    warnings = (warning for report in reports for warning in report.warnings)
    return [warning for warning in warnings if warning.startswith("orphan:")]


def _merge_tool_counts(reports: Sequence[Report]) -> dict[str, ToolCallCounts]:
    merged: dict[str, ToolCallCounts] = {}
    for report in reports:
        for name, counts in report.tool_counts.items():
            total = merged.setdefault(name, ToolCallCounts())
            total.calls += counts.calls
            total.errors += counts.errors
    return merged


def _merge_files(reports: Sequence[Report]) -> list[ChangedFile]:
    """One entry per file: a created file stays `created` after later changes, unless deleted."""
    merged: dict[str, ChangedFile] = {}
    for report in reports:
        for file in report.files:
            entry = merged.get(file.absolute)
            if entry is None:
                merged[file.absolute] = msgspec.structs.replace(file, tools=list(file.tools))
                continue
            entry.tools += file.tools
            if "deleted" in (file.change, entry.change):
                entry.change = file.change
    return list(merged.values())
