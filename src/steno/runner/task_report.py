"""The reports of a task's attempts as one report (S). Pure."""

from collections.abc import Sequence

import msgspec

from ..analysis.usage import add_optional, cache_hit_rate, nano_to_usd, sum_optional
from ..pricing import NANO_PER_USD
from ..report import (
    Attempt,
    ChangedFile,
    Cost,
    ModelSummary,
    Report,
    TaskReport,
    Tokens,
    ToolCallCounts,
)

_TOKEN_FIELDS = ("input", "cache_write", "cache_read", "output", "reasoning", "total")


def build_attempt(report: Report, why: str) -> Attempt:
    """One attempt's line in the list."""
    whose = (report.run_id, report.session_id, report.verdict)
    return Attempt(
        *whose, report.tokens, report.cost, report.turns, report.duration_ms, why, report.agent
    )


def merge_reports(
    reports: Sequence[Report], reasons: Sequence[str], task: str | None, final_attempt: int = -1
) -> TaskReport:
    """The task's report. The last attempt, or `teller`, says how it ended; what was spent and done is all of it."""
    last = reports[final_attempt]
    found = TaskReport(**{name: getattr(last, name) for name in Report.__struct_fields__})
    found.task_id, found.attempts = (
        task,
        [build_attempt(report, why) for report, why in zip(reports, reasons, strict=True)],
    )
    if len(reports) == 1:
        return found
    found.tokens = _sum_tokens(reports)
    found.cache_hit_rate = cache_hit_rate(found.tokens)
    found.cost = _sum_costs(reports)
    found.models = _merge_models(reports)
    found.requests = sum(report.requests for report in reports)
    found.turns = sum_optional(report.turns for report in reports)
    found.duration_ms = sum_optional(report.duration_ms for report in reports)
    found.duration_api_ms = sum_optional(report.duration_api_ms for report in reports)
    found.started_at = next(
        (report.started_at for report in reports if report.started_at is not None), None
    )
    found.tools = [tool for report in reports for tool in report.tools]
    found.tool_counts = _merge_tool_counts(reports)
    found.files = _merge_files(reports)
    found.denials = [denial for report in reports for denial in report.denials]
    found.retries = [retry for report in reports for retry in report.retries]
    found.subagents = [agent for report in reports for agent in report.subagents]
    found.warnings = [
        *_orphan_warnings([report for report in reports if report is not last]),
        *last.warnings,
    ]
    return found


def _orphan_warnings(reports: Sequence[Report]) -> list[str]:
    """What an earlier attempt left behind is left still; its other warnings are about an end that was mended."""
    return [
        warning
        for report in reports
        for warning in report.warnings
        if warning.startswith("orphan:")
    ]


def _sum_tokens(reports: Sequence[Report]) -> Tokens:
    """The sum; unknown if an attempt that asked a model does not know its part."""
    given = [
        report.tokens for report in reports if report.requests or report.tokens.total is not None
    ]
    return Tokens(
        *(sum_optional(getattr(share, name) for share in given) for name in _TOKEN_FIELDS)
    )


def _sum_costs(reports: Sequence[Report]) -> Cost:
    """The sum of the attempts' own parts; unknown if one that asked a model is; reported or local only if all are."""
    spent = [report.cost for report in reports if report.requests or report.cost.usd]
    session = reports[-1].cost.session_usd
    if not spent:
        return Cost(reports[-1].cost.usd, reports[-1].cost.source, session)
    if any(cost.usd is None for cost in spent):
        return Cost(None, "unknown", session)
    nano = sum(round((cost.usd or 0.0) * NANO_PER_USD) for cost in spent)
    sources = {cost.source for cost in spent} - {"local"}  # what costs nothing changes no sum
    source = "local" if not sources else "reported" if sources == {"reported"} else "computed"
    return Cost(nano_to_usd(nano), source, session)


def _merge_models(reports: Sequence[Report]) -> dict[str, ModelSummary]:
    found: dict[str, ModelSummary] = {}
    for report in reports:
        for name, model in report.models.items():
            found[name] = _merge_model_usage(found[name], model) if name in found else model
    return found


def _merge_model_usage(one: ModelSummary, other: ModelSummary) -> ModelSummary:
    nanos = (
        None if model.cost_usd is None else round(model.cost_usd * NANO_PER_USD)
        for model in (one, other)
    )
    return msgspec.structs.replace(
        other,
        input=add_optional(one.input, other.input),
        cache_write=add_optional(one.cache_write, other.cache_write),
        cache_read=add_optional(one.cache_read, other.cache_read),
        output=add_optional(one.output, other.output),
        cost_usd=nano_to_usd(add_optional(*nanos)),
    )


def _merge_tool_counts(reports: Sequence[Report]) -> dict[str, ToolCallCounts]:
    found: dict[str, ToolCallCounts] = {}
    for report in reports:
        for name, count in report.tool_counts.items():
            known = found.setdefault(name, ToolCallCounts())
            known.calls += count.calls
            known.errors += count.errors
    return found


def _merge_files(reports: Sequence[Report]) -> list[ChangedFile]:
    """Each file once: created stays created, whatever later attempts did to it, unless it is gone."""
    found: dict[str, ChangedFile] = {}
    for report in reports:
        for file in report.files:
            known = found.get(file.absolute)
            if known is None:
                found[file.absolute] = msgspec.structs.replace(file, tools=list(file.tools))
                continue
            known.tools += file.tools
            if "deleted" in (file.change, known.change):
                known.change = file.change
    return list(found.values())
