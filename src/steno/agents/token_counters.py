"""Token arithmetic for agents whose counters overlap. An unknown part makes a sum unknown. Pure."""

from collections.abc import Iterable, Sequence

from ..event import ModelUsage, Usage


def subtract_counters(total: int | None, *parts: int | None) -> int | None:
    """A total without some of its parts, at least 0; unknown if one of them is."""
    rest = total
    for part in parts:
        if rest is None or part is None:
            return None
        rest -= part
    return None if rest is None else max(0, rest)


def uncached_input(total: int | None, cached: int | None, written: int | None = 0) -> int | None:
    """The input that was neither read from nor written to the cache; `total` includes both."""
    return subtract_counters(total, cached, written)


def add_counters(*parts: int | None) -> int | None:
    """The sum of counters; unknown if one of them is."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def sum_usage(requests: Iterable[Usage | ModelUsage]) -> ModelUsage:
    """The requests added up; cache writes, which these agents do not report, are 0."""
    parts = list(requests)
    return ModelUsage(
        input=add_counters(*(part.input for part in parts)),
        cache_write=0,
        cache_read=add_counters(*(part.cache_read for part in parts)),
        output=add_counters(*(part.output for part in parts)),
        reasoning=add_counters(*(part.reasoning for part in parts)),
    )


def sum_usage_by_model(requests: Sequence[Usage], models: Iterable[str]) -> dict[str, ModelUsage]:
    """Each model's share of the requests."""
    return {
        model: sum_usage(request for request in requests if request.model == model)
        for model in models
    }
