"""What the total of a run has beyond its requests. Pure."""

from collections.abc import Iterable, Sequence

from .rows import RequestRow
from .witnesses import (
    COUNTERS,
    TOKEN_COLUMNS,
    Adjustment,
    Joined,
    RunTotal,
    Share,
    sum_rows,
)


def settle_costs(total: RunTotal, requests: Sequence[RequestRow], joined: Joined) -> None:
    """Where the agent charges less than the price list, its own total is shared by the prices."""
    if total.cost_source == "local":
        joined.costs |= dict.fromkeys((request.id for request in requests), 0)
        return
    if total.cost_source != "reported":
        return
    costs = {request.id: request.cost_nano or 0 for request in requests}
    computed = sum(costs.values())
    reported = total.total.cost_nano
    if reported is not None and computed > reported and not _has_more(total, requests):
        costs = _shared(costs, reported)
    joined.costs |= costs


def _has_more(total: RunTotal, requests: Iterable[RequestRow]) -> bool:
    """Whether the requests have more tokens than the total, which then leaves some of them out."""
    sums = sum_rows(requests)
    return any(
        (limit := getattr(total.total, name)) is not None and sums[name] > limit
        for name in TOKEN_COLUMNS
    )


def _shared(costs: dict[int, int], total: int) -> dict[int, int]:
    """The total in proportion to the costs; the parts add up exactly."""
    whole = sum(costs.values())
    shares: dict[int, int] = {}
    seen = given = 0
    for id_, cost in sorted(costs.items()):
        seen += cost
        shares[id_] = total * seen // whole - given
        given += shares[id_]
    return shares


def adjust_run(
    total: RunTotal, requests: Sequence[RequestRow], costs: dict[int, int]
) -> list[Adjustment]:
    """What a run's total has beyond its requests, per model."""
    place = Adjustment(total.run, total.main_model or "", total.ended_at)
    share, models = total.total, total.models
    if total.is_uncertain and requests:
        share, models = Share(cost_nano=share.cost_nano), {}
    parts = split_difference(share, models, requests, costs, place)
    if not parts and (total.is_partial or _missing_requests(total, requests)):
        model = total.main_model or next(iter(total.models), "unknown")
        if requests:
            model = requests[-1].model
        parts = [Adjustment(total.run, model, total.ended_at)]
    for part in parts[:1]:
        part.requests = _missing_requests(total, requests)
        part.is_partial = total.is_partial
    if total.total.cost_nano is not None:
        for part in parts:
            part.cost_nano = part.cost_nano or 0
    return parts


def _missing_requests(total: RunTotal, requests: Sequence[RequestRow]) -> int:
    return max(0, (total.requests or 0) - sum(row.requests for row in requests))


def split_difference(
    total: Share,
    models: dict[str, Share],
    requests: Sequence[RequestRow],
    costs: dict[int, int],
    place: Adjustment,
) -> list[Adjustment]:
    """The difference of a total and the requests that it includes; the main model's comes first.

    The models' own differences, as far as the total has them; what is left belongs to the main one.
    `place` has the run, the main model if it is known, and the time.
    """
    by_model: dict[str, list[RequestRow]] = {}
    for request in requests:
        by_model.setdefault(request.model, []).append(request)
    if len(models) == 1 and len(by_model) == 1:
        # One model: the service may call it differently than the request did.
        models = dict(zip(by_model, models.values(), strict=True))
    main = _main_model(place.model, models, by_model)
    left = _missing_tokens(total, models, requests)
    known_cost = sum(costs.get(row.id, row.cost_nano or 0) for row in requests)
    cost_left = None if total.cost_nano is None else max(0, total.cost_nano - known_cost)
    parts = {main: Adjustment(place.run, main, place.at)}
    for model in sorted(models, key=lambda name: (name != main, name)):
        part = parts.setdefault(model, Adjustment(place.run, model, place.at))
        own = by_model.get(model, [])
        sums = sum_rows(own)
        for name in COUNTERS:
            missing = max(0, (getattr(models[model], name) or 0) - sums[name])
            setattr(part, name, min(missing, left[name]))
            left[name] -= getattr(part, name)
        cost = models[model].cost_nano
        if cost_left is not None and cost is not None:
            own_cost = sum(costs.get(row.id, row.cost_nano or 0) for row in own)
            part.cost_nano = min(max(0, cost - own_cost), cost_left)
            cost_left -= part.cost_nano
    for name in COUNTERS:
        setattr(parts[main], name, getattr(parts[main], name) + left[name])
    if cost_left:
        parts[main].cost_nano = (parts[main].cost_nano or 0) + cost_left
    return [part for part in parts.values() if part.changes_a_sum]


def _main_model(named: str, models: dict[str, Share], by_model: dict[str, list[RequestRow]]) -> str:
    """The run's model, else the most used one."""
    if named and (named in models or not models):
        return named
    most_used = max(models, key=lambda name: (weight_of(models[name]), name), default=None)
    return most_used or next(iter(by_model), "unknown")


def weight_of(share: Share) -> int:
    return sum(getattr(share, name) or 0 for name in TOKEN_COLUMNS)


def _missing_tokens(
    total: Share, models: dict[str, Share], requests: Iterable[RequestRow]
) -> dict[str, int]:
    """What the total has beyond the requests; of an unknown counter, what the models have."""
    sums = sum_rows(requests)
    missing: dict[str, int] = {}
    for name in COUNTERS:
        whole = getattr(total, name)
        if whole is None:
            whole = sum(getattr(share, name) or 0 for share in models.values())
        missing[name] = max(0, whole - sums[name])
    return missing
