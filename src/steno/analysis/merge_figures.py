"""Add up the figures of several runs: the attempts of a task, or the runs in one stream. Pure."""

from collections.abc import Sequence

import msgspec

from ..report import Cost, ModelSummary, Report, Tokens
from ..units import NANO_PER_USD
from .usage import add_optional, cache_hit_rate, nano_to_usd, sum_optional

_TOKEN_FIELDS = ("input", "cache_write", "cache_read", "output", "reasoning", "total")


def merge_figures(merged: Report, reports: Sequence[Report]) -> None:
    """Set the figures of `merged` to the sums of those of the reports."""
    tokens = _sum_tokens(reports)
    merged.tokens = tokens
    merged.cache_hit_rate = cache_hit_rate(tokens)
    merged.cost = _sum_costs(reports)
    merged.models = _merge_models(reports)
    merged.cache_write_1h = sum_optional(report.cache_write_1h for report in reports)
    merged.web_searches = sum_optional(report.web_searches for report in reports)
    merged.web_fetches = sum_optional(report.web_fetches for report in reports)
    merged.requests = sum_optional(report.requests for report in reports)
    merged.turns = sum_optional(report.turns for report in reports)
    merged.duration_ms = sum_optional(report.duration_ms for report in reports)
    merged.duration_api_ms = sum_optional(report.duration_api_ms for report in reports)


def _sum_tokens(reports: Sequence[Report]) -> Tokens:
    """The sum; unknown if it is unknown for a run that made requests."""
    shares = [
        report.tokens for report in reports if report.requests or report.tokens.total is not None
    ]
    sums = (sum_optional(getattr(share, name) for share in shares) for name in _TOKEN_FIELDS)
    return Tokens(*sums)


def _sum_costs(reports: Sequence[Report]) -> Cost:
    """The sum; unknown if it is unknown for a run that made requests.

    The source is reported or local only if it is so for all runs.
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
