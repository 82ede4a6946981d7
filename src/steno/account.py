"""What a run used: tokens, cost, models, context and time, from the agent's account and the requests seen.

The agent's own account comes first; requests that it does not cover are added from their messages, and
priced by whoever is asked for a price. Every figure says where it comes from. Pure.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from . import event as ev
from . import meter
from .fold import MILLISECOND, Fold
from .meter import Booked
from .report import Context, Cost, Model, Report, Tokens
from .told import larger, occupancy

ALIKE = 1000  # requests whose sizes are made up, to ask their price: a run has a few hundred at most


class Price(Protocol):
    """Nano-dollars of what a model was used for at a time; None when the price is not known."""

    def __call__(self, model: str, share: Any, at: datetime | None) -> int | None: ...


def free(model: str, share: Any, at: datetime | None) -> int:
    """The price of what runs on a server of one's own."""
    return 0


def count(fold: Fold, report: Report, price: Price | None) -> None:
    """Fill in every figure of the report."""
    report.requests = len(fold.requests) or sum(result.requests or 0 for result in fold.results) or fold.asked
    report.turns = _turns(fold.results)
    booked = _unless_empty(fold, meter.own_part(fold.results, report.model) if fold.results else _of_transcript(fold))
    late = _late(fold)
    report.tokens = _tokens(fold, booked, late, report.warnings)
    report.cache_hit_rate = meter.cache_hit_rate(report.tokens)
    report.models = _models(fold, booked, price)
    main = report.models.get(report.model or "")
    if main is not None and fold.window is not None:  # as its server told
        report.models[report.model or ""] = msgspec.structs.replace(main, context_window=fold.window)
    report.cost = Cost(0.0, "local") if fold.free else _cost(fold, booked, late, price, report)
    report.warnings += booked.warnings
    if report.cost.source == "reported" and report.cost.usd and not report.tokens.total:  # of no model's tokens (M7)
        what = "no tokens" if report.tokens.total == 0 else "tokens that cannot be read"
        report.warnings.append(f"the agent reports a cost of ${report.cost.usd:.6f} and {what}: what it paid for is not told")
    report.context = _context(fold, report.model)
    _durations(fold, report, booked)


def priced(requests: list[ev.Usage], price: Price | None) -> int | None:
    """What requests cost by the price table; unknown if one of them is. What is free is so whatever the model is called."""
    if price is free:
        return 0
    if price is None or not requests:
        return None
    return meter.total(price(request.model, request, request.at) if request.model else None for request in requests)


def _turns(results: list[ev.Result]) -> int | None:
    """The run's turns: each result counts its own, except before modelUsage existed, when the count went on."""
    if not results:
        return None
    if results[-1].models is None:
        return results[-1].turns
    return meter.total(result.turns for result in results)


def _of_transcript(fold: Fold) -> Booked:
    """A transcript's own running account, where it keeps one; its session is the whole run."""
    if fold.account is None:
        return Booked()
    return Booked(fold.account.models, fold.account.cost_nano, fold.account.cost_nano)


def _unless_empty(fold: Fold, booked: Booked) -> Booked:
    """An account that says 0 of everything, though requests were seen, is none: an interrupt can leave such a one."""
    told = meter.tokens_of((booked.models or {}).values()).total
    if booked.models is None or booked.usage_only or told or booked.cost_nano or not any(map(occupancy, fold.requests.values())):
        return booked
    why = "the agent's account is empty: tokens and cost are those of the requests seen, and their output is a lower bound"
    return Booked(session_nano=booked.session_nano, earlier=booked.earlier, warnings=[*booked.warnings, why])


def _late(fold: Fold) -> list[ev.Usage]:
    """Requests that no account covers: all of them without a result, else those after the last one."""
    if not fold.results:
        return list(fold.requests.values()) if fold.account is None else []
    last = fold.results[-1].line
    return [request for request in fold.requests.values() if request.line > last]


# -- tokens -------------------------------------------------------------------------------------------


def _tokens(fold: Fold, booked: Booked, late: list[ev.Usage], warnings: list[str]) -> Tokens:
    usages: list[Any] = [result.usage for result in fold.results if result.usage is not None]
    if booked.models is None and (fold.requests or not fold.results):
        seen = _from_requests(fold, warnings)
        if seen.total is not None or not usages:
            return seen
    shares: list[Any] = list((booked.models or {}).values())
    told, used = meter.tokens_of(shares).total, meter.tokens_of(usages).total
    if fold.results and fold.results[-1].over_session:
        warnings.append("tokens are an upper bound: the agent counts over the whole session, and what it had before is unknown")
    elif booked.models is None and (fold.results[-1].turns or 1) > 1:
        warnings.append("this version tells the usage of its last request only: tokens are a lower bound")
    if booked.usage_only or not shares:
        shares = usages
    elif told is not None and used is not None and told < used:
        warnings.append(f"modelUsage counts fewer tokens ({told:,}) than usage ({used:,}): usage is taken")
        shares = usages
    _warn_of_gap(fold, shares, late, warnings)
    return meter.tokens_of([*shares, *late])


def _warn_of_gap(fold: Fold, shares: list[Any], late: list[ev.Usage], warnings: list[str]) -> None:
    """An interrupted or failed request can be missing from the agent's own account."""
    told = meter.tokens_of(shares)
    booked = meter.total((told.input, told.cache_write, told.cache_read)) or 0
    seen = sum([occupancy(request) or 0 for request in fold.requests.values()])
    seen -= sum([occupancy(request) or 0 for request in late])
    if seen > booked:
        warnings.append(f"requests were seen that the agent's account leaves out ({seen - booked:,} tokens of input)")


def _from_requests(fold: Fold, warnings: list[str]) -> Tokens:
    requests = [_with_last_output(fold, request) for request in fold.requests.values()]
    if not requests:
        return Tokens()
    open_ = sum(1 for request in requests if not request.final and request.output is not None)
    if open_ and not fold.results:
        warnings.append(f"output tokens are a lower bound: {open_} of {len(requests)} requests never told their final count")
    return meter.tokens_of(requests)


def _with_last_output(fold: Fold, request: ev.Usage) -> ev.Usage:
    """Before modelUsage existed, a result's usage was its last request's: its output is the final one."""
    usage = fold.results[-1].usage if fold.results else None
    if usage is None or request is not fold.main:
        return request
    if (usage.input, usage.cache_write, usage.cache_read) != (request.input, request.cache_write, request.cache_read):
        return request
    return msgspec.structs.replace(request, output=larger(request.output, usage.output))


# -- money ----------------------------------------------------------------------------------------------


def _models(fold: Fold, booked: Booked, price: Price | None) -> dict[str, Model]:
    if booked.models or booked.usage_only:
        costs = {name: 0 if fold.free else share.cost_nano for name, share in (booked.models or {}).items()}
        return {name: _model(share, meter.dollars(costs[name])) for name, share in (booked.models or {}).items()}
    own = booked.cost_nano is None or fold.free
    by_name: dict[str, list[ev.Usage]] = {}
    for request in fold.requests.values():
        by_name.setdefault(request.model or "unknown", []).append(request)
    return {
        name: _model(meter.tokens_of(requests), meter.dollars(priced(requests, price)) if own else None)
        for name, requests in by_name.items()
    }


def _model(share: Any, cost: float | None) -> Model:
    window, longest = getattr(share, "context_window", None), getattr(share, "max_output", None)
    return Model(share.input, share.cache_write, share.cache_read, share.output, cost, window, longest)


def _cost(fold: Fold, booked: Booked, late: list[ev.Usage], price: Price | None, report: Report) -> Cost:
    """What the agent reported of this run; what it did not report is computed (M7)."""
    session = meter.dollars(booked.session_nano)
    if booked.usage_only:
        return _computed(_usage_price(fold.results[-1], report.model, price), session)
    rest = priced(late, price)
    if not fold.results and fold.account is None:
        return _computed(rest, session)
    if booked.cost_nano is None:
        after = set(map(id, late))
        covered = [request for request in fold.requests.values() if id(request) not in after]
        own = priced(covered, price) if _one_by_one(booked, covered) else _models_price(fold, booked, report, price)
        return _computed(meter.plus(own, rest) if late else own, session)
    if not late:
        return Cost(meter.dollars(booked.cost_nano), "reported", session)
    if rest is None:
        what = "1 request" if len(late) == 1 else f"{len(late)} requests"
        report.warnings.append(f"{what} after the last result without a known price: not in the cost")
        return Cost(meter.dollars(booked.cost_nano), "reported", session)
    return _computed(meter.plus(booked.cost_nano, rest), session)


def _computed(nano: int | None, session: float | None) -> Cost:
    return Cost(meter.dollars(nano), "unknown" if nano is None else "computed", session)


def _one_by_one(booked: Booked, covered: list[ev.Usage]) -> bool:
    """Whether the requests that were seen are all that the account is of."""
    if booked.models is None:
        return bool(covered)
    told = meter.tokens_of(booked.models.values()).total
    return told is not None and meter.tokens_of(covered).total == told and all(request.model for request in covered)


def _models_price(fold: Fold, booked: Booked, report: Report, price: Price | None) -> int | None:
    """What the agent's account would have cost, where it names no price itself."""
    last = fold.results[-1] if fold.results else None
    if not booked.models or price is None:
        return _usage_price(last, report.model, price) if last is not None and not booked.models else None
    at = last.at if last is not None else fold.first_at
    main = meter.main_model(booked.models, report.model)
    whole = {name: price(name, share, at) for name, share in booked.models.items()}
    if (
        main is not None
        and (alike := _alike(booked.models[main], report.requests, lambda part: price(main, part, at))) is not None
    ):
        known = whole[main]
        if known is not None and abs(alike - known) > report.requests:  # more than was rounded
            whole[main] = alike
            report.warnings.append("the price depends on each request's size, which is not told: computed as if all were alike")
    return meter.total(whole.values())


def _alike(share: ev.ModelUsage, many: int, price: Callable[[ev.ModelUsage], int | None]) -> int | None:
    """What so many requests of one size would cost that add up to this share; None where that cannot be said."""
    counters = {name: getattr(share, name) for name in ("input", "cache_write", "cache_read", "output")}
    if not 1 < many <= ALIKE or None in counters.values():
        return None
    parts = [{name: count * (n + 1) // many - count * n // many for name, count in counters.items()} for n in range(many)]
    return meter.total(price(ev.ModelUsage(**part)) for part in parts)


def _usage_price(last: ev.Result, model: str | None, price: Price | None) -> int | None:
    name = meter.main_model(last.models or {}, model) or model
    if price is None or name is None or last.usage is None:
        return None
    return price(name, last.usage, last.at)


# -- context and time -------------------------------------------------------------------------------------


def _context(fold: Fold, model: str | None) -> Context:
    last = fold.results[-1] if fold.results else None
    limit, limit_source = _limit(fold, last.models or {} if last is not None else {}, model)
    used, source = None, "measured"
    if fold.main is not None:
        used = occupancy(fold.main)
    elif fold.compacted is not None:
        used = fold.compacted.after
    if fold.peak < 0 and fold.compacted is None and last is not None and last.usage is not None:  # no request told its size
        used = meter.total((last.usage.input, last.usage.cache_write, last.usage.cache_read)) or None
        source = "measured" if last.turns == 1 else "upper_bound"
    return meter.context(used, limit, limit_source, source, None if fold.peak < 0 else fold.peak, fold.compactions)


def _limit(fold: Fold, models: dict[str, ev.ModelUsage], model: str | None) -> tuple[int | None, str]:
    """The window of the model that answered last; of the one that was announced, where that one is not accounted for.

    A model server that was asked knows it best: an agent guesses the windows of models that are not its maker's.
    """
    if fold.window is not None and fold.window > 0:
        return fold.window, "reported"
    answered = fold.main.model if fold.main is not None else None
    key = meter.main_model(models, answered or model) or meter.main_model(models, model)
    share = models.get(key or "")
    told = (
        share.context_window if share is not None else None,
        fold.started.context_window if fold.started is not None else None,
    )
    for window in told:
        if window is not None and window > 0:
            return window, "reported"
    known = fold.dialect.window(model or key or "")
    return (known, "known") if known is not None else (None, "assumed")


def _durations(fold: Fold, report: Report, booked: Booked) -> None:
    if fold.results:
        report.duration_ms = meter.total(result.duration_ms for result in fold.results)
        report.duration_api_ms = None if booked.earlier else fold.results[-1].duration_api_ms
    elif fold.first_at is not None and fold.last_at is not None:
        report.duration_ms = max(0, (fold.last_at - fold.first_at) // MILLISECOND)
