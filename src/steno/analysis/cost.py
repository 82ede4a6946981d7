"""What a run used: tokens, cost, models, context and time, from the agent's account and the requests seen.

The agent's own account comes first; requests that it does not cover are added from their messages, and
priced by whoever is asked for a price. Every figure says where it comes from. Pure.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from .. import event as ev
from ..report import Context, Cost, ModelSummary, Report, Tokens
from . import usage as meter
from .accumulator import MILLISECOND, Accumulator, context_tokens, larger_count
from .usage import ReportedUsage

MAX_EQUAL_REQUESTS = (
    1000  # requests whose sizes are made up, to ask their price: a run has a few hundred at most
)


class PriceLookup(Protocol):
    """Nano-dollars of what a model was used for at a time; None when the price is not known."""

    def __call__(self, model: str, share: Any, at: datetime | None) -> int | None: ...


def zero_price(model: str, share: Any, at: datetime | None) -> int:
    """The price of what runs on a server of one's own."""
    return 0


def fill_usage(fold: Accumulator, report: Report, price: PriceLookup | None) -> None:
    """Fill in every figure of the report."""
    report.requests = (
        len(fold.requests)
        or sum(result.requests or 0 for result in fold.results)
        or fold.unmeasured_requests
    )
    report.turns = _count_turns(fold.results)
    booked = _discard_empty_usage(
        fold,
        meter.reported_run_usage(fold.results, report.model)
        if fold.results
        else _transcript_usage(fold),
    )
    late = _uncovered_requests(fold)
    report.tokens = _total_tokens(fold, booked, late, report.warnings)
    report.cache_hit_rate = meter.cache_hit_rate(report.tokens)
    report.models = _summarize_models(fold, booked, price)
    main = report.models.get(report.model or "")
    if main is not None and fold.context_window is not None:  # as its server told
        report.models[report.model or ""] = msgspec.structs.replace(
            main, context_window=fold.context_window
        )
    report.cost = (
        Cost(0.0, "local") if fold.is_free else _total_cost(fold, booked, late, price, report)
    )
    report.warnings += booked.warnings
    if (
        report.cost.source == "reported" and report.cost.usd and not report.tokens.total
    ):  # of no model's tokens (M7)
        what = "no tokens" if report.tokens.total == 0 else "tokens that cannot be read"
        report.warnings.append(
            f"the agent reports a cost of ${report.cost.usd:.6f} and {what}: what it paid for is not told"
        )
    report.context = _context_usage(fold, report.model)
    _fill_durations(fold, report, booked)


def price_requests(requests: list[ev.Usage], price: PriceLookup | None) -> int | None:
    """What requests cost by the price table; unknown if one of them is. What is free is so whatever the model is called."""
    if price is zero_price:
        return 0
    if price is None or not requests:
        return None
    return meter.sum_optional(
        price(request.model, request, request.at) if request.model else None for request in requests
    )


def _count_turns(results: list[ev.Result]) -> int | None:
    """The run's turns: each result counts its own, except before modelUsage existed, when the count went on."""
    if not results:
        return None
    if results[-1].models is None:
        return results[-1].turns
    return meter.sum_optional(result.turns for result in results)


def _transcript_usage(fold: Accumulator) -> ReportedUsage:
    """A transcript's own running account, where it keeps one; its session is the whole run."""
    if fold.cost_state is None:
        return ReportedUsage()
    return ReportedUsage(
        fold.cost_state.models, fold.cost_state.cost_nano, fold.cost_state.cost_nano
    )


def _discard_empty_usage(fold: Accumulator, booked: ReportedUsage) -> ReportedUsage:
    """An account that says 0 of everything, though requests were seen, is none: an interrupt can leave such a one."""
    told = meter.sum_tokens((booked.models or {}).values()).total
    if (
        booked.models is None
        or booked.usage_only
        or told
        or booked.cost_nano
        or not any(map(context_tokens, fold.requests.values()))
    ):
        return booked
    why = "the agent's account is empty: tokens and cost are those of the requests seen, and their output is a lower bound"
    return ReportedUsage(
        session_cost_nano=booked.session_cost_nano,
        includes_earlier_runs=booked.includes_earlier_runs,
        warnings=[*booked.warnings, why],
    )


def _uncovered_requests(fold: Accumulator) -> list[ev.Usage]:
    """Requests that no account covers: all of them without a result, else those after the last one."""
    if not fold.results:
        return list(fold.requests.values()) if fold.cost_state is None else []
    last = fold.results[-1].line
    return [request for request in fold.requests.values() if request.line > last]


# -- tokens -------------------------------------------------------------------------------------------


def _total_tokens(
    fold: Accumulator, booked: ReportedUsage, late: list[ev.Usage], warnings: list[str]
) -> Tokens:
    usages: list[Any] = [result.usage for result in fold.results if result.usage is not None]
    if booked.models is None and (fold.requests or not fold.results):
        seen = _tokens_from_requests(fold, warnings)
        if seen.total is not None or not usages:
            return seen
    shares: list[Any] = list((booked.models or {}).values())
    told, used = meter.sum_tokens(shares).total, meter.sum_tokens(usages).total
    if fold.results and fold.results[-1].over_session:
        warnings.append(
            "tokens are an upper bound: the agent counts over the whole session, and what it had before is unknown"
        )
    elif booked.models is None and (fold.results[-1].turns or 1) > 1:
        warnings.append(
            "this version tells the usage of its last request only: tokens are a lower bound"
        )
    if booked.usage_only or not shares:
        shares = usages
    elif told is not None and used is not None and told < used:
        warnings.append(
            f"modelUsage counts fewer tokens ({told:,}) than usage ({used:,}): usage is taken"
        )
        shares = usages
    _warn_missing_requests(fold, shares, late, warnings)
    return meter.sum_tokens([*shares, *late])


def _warn_missing_requests(
    fold: Accumulator, shares: list[Any], late: list[ev.Usage], warnings: list[str]
) -> None:
    """An interrupted or failed request can be missing from the agent's own account."""
    told = meter.sum_tokens(shares)
    booked = meter.sum_optional((told.input, told.cache_write, told.cache_read)) or 0
    seen = sum([context_tokens(request) or 0 for request in fold.requests.values()])
    seen -= sum([context_tokens(request) or 0 for request in late])
    if seen > booked:
        warnings.append(
            f"requests were seen that the agent's account leaves out ({seen - booked:,} tokens of input)"
        )


def _tokens_from_requests(fold: Accumulator, warnings: list[str]) -> Tokens:
    requests = [_with_final_output(fold, request) for request in fold.requests.values()]
    if not requests:
        return Tokens()
    open_ = sum(1 for request in requests if not request.final and request.output is not None)
    if open_ and not fold.results:
        warnings.append(
            f"output tokens are a lower bound: {open_} of {len(requests)} requests never told their final count"
        )
    return meter.sum_tokens(requests)


def _with_final_output(fold: Accumulator, request: ev.Usage) -> ev.Usage:
    """Before modelUsage existed, a result's usage was its last request's: its output is the final one."""
    usage = fold.results[-1].usage if fold.results else None
    if usage is None or request is not fold.main_request:
        return request
    if (usage.input, usage.cache_write, usage.cache_read) != (
        request.input,
        request.cache_write,
        request.cache_read,
    ):
        return request
    return msgspec.structs.replace(request, output=larger_count(request.output, usage.output))


# -- money ----------------------------------------------------------------------------------------------


def _summarize_models(
    fold: Accumulator, booked: ReportedUsage, price: PriceLookup | None
) -> dict[str, ModelSummary]:
    if booked.models or booked.usage_only:
        costs = {
            name: 0 if fold.is_free else share.cost_nano
            for name, share in (booked.models or {}).items()
        }
        return {
            name: _model_summary(share, meter.nano_to_usd(costs[name]))
            for name, share in (booked.models or {}).items()
        }
    own = booked.cost_nano is None or fold.is_free
    by_name: dict[str, list[ev.Usage]] = {}
    for request in fold.requests.values():
        by_name.setdefault(request.model or "unknown", []).append(request)
    return {
        name: _model_summary(
            meter.sum_tokens(requests),
            meter.nano_to_usd(price_requests(requests, price)) if own else None,
        )
        for name, requests in by_name.items()
    }


def _model_summary(share: Any, cost: float | None) -> ModelSummary:
    window, longest = getattr(share, "context_window", None), getattr(share, "max_output", None)
    return ModelSummary(
        share.input, share.cache_write, share.cache_read, share.output, cost, window, longest
    )


def _total_cost(
    fold: Accumulator,
    booked: ReportedUsage,
    late: list[ev.Usage],
    price: PriceLookup | None,
    report: Report,
) -> Cost:
    """What the agent reported of this run; what it did not report is computed (M7)."""
    session = meter.nano_to_usd(booked.session_cost_nano)
    if booked.usage_only:
        return _computed_cost(_price_usage(fold.results[-1], report.model, price), session)
    rest = price_requests(late, price)
    if not fold.results and fold.cost_state is None:
        return _computed_cost(rest, session)
    if booked.cost_nano is None:
        after = set(map(id, late))
        covered = [request for request in fold.requests.values() if id(request) not in after]
        own = (
            price_requests(covered, price)
            if _has_every_request(booked, covered)
            else _price_models(fold, booked, report, price)
        )
        return _computed_cost(meter.add_optional(own, rest) if late else own, session)
    if not late:
        return Cost(meter.nano_to_usd(booked.cost_nano), "reported", session)
    if rest is None:
        what = "1 request" if len(late) == 1 else f"{len(late)} requests"
        report.warnings.append(
            f"{what} after the last result without a known price: not in the cost"
        )
        return Cost(meter.nano_to_usd(booked.cost_nano), "reported", session)
    return _computed_cost(meter.add_optional(booked.cost_nano, rest), session)


def _computed_cost(nano: int | None, session: float | None) -> Cost:
    return Cost(meter.nano_to_usd(nano), "unknown" if nano is None else "computed", session)


def _has_every_request(booked: ReportedUsage, covered: list[ev.Usage]) -> bool:
    """Whether the requests that were seen are all that the account is of."""
    if booked.models is None:
        return bool(covered)
    told = meter.sum_tokens(booked.models.values()).total
    return (
        told is not None
        and meter.sum_tokens(covered).total == told
        and all(request.model for request in covered)
    )


def _price_models(
    fold: Accumulator, booked: ReportedUsage, report: Report, price: PriceLookup | None
) -> int | None:
    """What the agent's account would have cost, where it names no price itself."""
    last = fold.results[-1] if fold.results else None
    if not booked.models or price is None:
        return (
            _price_usage(last, report.model, price)
            if last is not None and not booked.models
            else None
        )
    at = last.at if last is not None else fold.first_at
    main = meter.find_main_model(booked.models, report.model)
    whole = {name: price(name, share, at) for name, share in booked.models.items()}
    if (
        main is not None
        and (
            alike := _price_equal_requests(
                booked.models[main], report.requests, lambda part: price(main, part, at)
            )
        )
        is not None
    ):
        known = whole[main]
        if known is not None and abs(alike - known) > report.requests:  # more than was rounded
            whole[main] = alike
            report.warnings.append(
                "the price depends on each request's size, which is not told: computed as if all were alike"
            )
    return meter.sum_optional(whole.values())


def _price_equal_requests(
    share: ev.ModelUsage, many: int, price: Callable[[ev.ModelUsage], int | None]
) -> int | None:
    """What so many requests of one size would cost that add up to this share; None where that cannot be said."""
    counters = {
        name: getattr(share, name) for name in ("input", "cache_write", "cache_read", "output")
    }
    if not 1 < many <= MAX_EQUAL_REQUESTS or None in counters.values():
        return None
    parts = [
        {name: count * (n + 1) // many - count * n // many for name, count in counters.items()}
        for n in range(many)
    ]
    return meter.sum_optional(price(ev.ModelUsage(**part)) for part in parts)


def _price_usage(last: ev.Result, model: str | None, price: PriceLookup | None) -> int | None:
    name = meter.find_main_model(last.models or {}, model) or model
    if price is None or name is None or last.usage is None:
        return None
    return price(name, last.usage, last.at)


# -- context and time -------------------------------------------------------------------------------------


def _context_usage(fold: Accumulator, model: str | None) -> Context:
    last = fold.results[-1] if fold.results else None
    limit, limit_source = _context_limit(fold, last.models or {} if last is not None else {}, model)
    used, source = None, "measured"
    if fold.main_request is not None:
        used = context_tokens(fold.main_request)
    elif fold.last_compaction is not None:
        used = fold.last_compaction.after
    if (
        fold.context_peak < 0
        and fold.last_compaction is None
        and last is not None
        and last.usage is not None
    ):  # no request told its size
        used = (
            meter.sum_optional((last.usage.input, last.usage.cache_write, last.usage.cache_read))
            or None
        )
        source = "measured" if last.turns == 1 else "upper_bound"
    return meter.build_context(
        used,
        limit,
        limit_source,
        source,
        None if fold.context_peak < 0 else fold.context_peak,
        fold.compactions,
    )


def _context_limit(
    fold: Accumulator, models: dict[str, ev.ModelUsage], model: str | None
) -> tuple[int | None, str]:
    """The window of the model that answered last; of the one that was announced, where that one is not accounted for.

    A model server that was asked knows it best: an agent guesses the windows of models that are not its maker's.
    """
    if fold.context_window is not None and fold.context_window > 0:
        return fold.context_window, "reported"
    answered = fold.main_request.model if fold.main_request is not None else None
    key = meter.find_main_model(models, answered or model) or meter.find_main_model(models, model)
    share = models.get(key or "")
    told = (
        share.context_window if share is not None else None,
        fold.started.context_window if fold.started is not None else None,
    )
    for window in told:
        if window is not None and window > 0:
            return window, "reported"
    known = fold.agent.context_window(model or key or "")
    return (known, "known") if known is not None else (None, "assumed")


def _fill_durations(fold: Accumulator, report: Report, booked: ReportedUsage) -> None:
    if fold.results:
        report.duration_ms = meter.sum_optional(result.duration_ms for result in fold.results)
        report.duration_api_ms = (
            None if booked.includes_earlier_runs else fold.results[-1].duration_api_ms
        )
    elif fold.first_at is not None and fold.last_at is not None:
        report.duration_ms = max(0, (fold.last_at - fold.first_at) // MILLISECOND)
