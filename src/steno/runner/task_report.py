"""Merge the reports of a task's attempts into one. Pure."""

from collections.abc import Sequence

import msgspec

from ..analysis.usage import add_optional, nano_to_usd, sum_optional
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
from ..units import NANO_PER_USD

_TOKEN_FIELDS = ("input", "cache_write", "cache_read", "output", "reasoning", "total")


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
        _merge_figures(merged, reports)
        _merge_lists(merged, reports)
        earlier = [report for report in reports if report is not last]
        merged.warnings = [*_orphan_warnings(earlier), *last.warnings]
    return merged


def _merge_figures(merged: TaskReport, reports: Sequence[Report]) -> None:
    tokens = _sum_tokens(reports)
    merged.tokens = tokens
    prompt_tokens = sum_optional((tokens.input, tokens.cache_write, tokens.cache_read))
    if prompt_tokens and tokens.cache_read is not None:
        merged.cache_hit_rate = tokens.cache_read / prompt_tokens
    else:
        merged.cache_hit_rate = None
    merged.cost = _sum_costs(reports)
    merged.models = _merge_models(reports)
    merged.cache_write_1h = sum_optional(report.cache_write_1h for report in reports)
    merged.web_searches = sum_optional(report.web_searches for report in reports)
    merged.web_fetches = sum_optional(report.web_fetches for report in reports)
    merged.requests = sum_optional(report.requests for report in reports)
    merged.turns = sum_optional(report.turns for report in reports)
    merged.duration_ms = sum_optional(report.duration_ms for report in reports)
    merged.duration_api_ms = sum_optional(report.duration_api_ms for report in reports)
    start_times = (report.started_at for report in reports if report.started_at is not None)
    merged.started_at = next(start_times, None)


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


def _sum_tokens(reports: Sequence[Report]) -> Tokens:
    """The sum; unknown if it is unknown for an attempt that made requests."""
    shares = [
        report.tokens for report in reports if report.requests or report.tokens.total is not None
    ]
    sums = (sum_optional(getattr(share, name) for share in shares) for name in _TOKEN_FIELDS)
    return Tokens(*sums)


def _sum_costs(reports: Sequence[Report]) -> Cost:
    """The sum; unknown if it is unknown for an attempt that made requests.

    The source is reported or local only if it is so for all attempts.
    """
    costs = [report.cost for report in reports if report.requests or report.cost.usd]
    last = reports[-1].cost
    if not costs:
        return Cost(last.usd, last.source, last.session_usd)
    if any(cost.usd is None for cost in costs):
        return Cost(None, "unknown", last.session_usd)
    nano = sum(round((cost.usd or 0.0) * NANO_PER_USD) for cost in costs)
    sources = {cost.source for cost in costs} - {"local"}  # local cost is 0
    if not sources:
        return Cost(nano_to_usd(nano), "local", last.session_usd)
    source = "reported" if sources == {"reported"} else "computed"
    return Cost(nano_to_usd(nano), source, last.session_usd)


def _merge_models(reports: Sequence[Report]) -> dict[str, ModelSummary]:
    models: dict[str, ModelSummary] = {}
    for report in reports:
        for name, model in report.models.items():
            models[name] = _merge_model_usage(models[name], model) if name in models else model
    return models


def _merge_model_usage(first: ModelSummary, second: ModelSummary) -> ModelSummary:
    nanos = (
        None if model.cost_usd is None else round(model.cost_usd * NANO_PER_USD)
        for model in (first, second)
    )
    return msgspec.structs.replace(
        second,
        input=add_optional(first.input, second.input),
        cache_write=add_optional(first.cache_write, second.cache_write),
        cache_read=add_optional(first.cache_read, second.cache_read),
        output=add_optional(first.output, second.output),
        cost_usd=nano_to_usd(add_optional(*nanos)),
    )


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
