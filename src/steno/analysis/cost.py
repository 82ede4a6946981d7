"""Tokens, cost, models and duration of a run, from the agent's figures and the requests seen.

The agent's own figures come first; requests they don't cover are added and priced with the given
price function. Every figure names its source. Pure.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from .. import event as ev
from ..report import Cost, ModelSummary, Report, Tokens
from .accumulator import MILLISECOND, Accumulator
from .context import context_usage
from .list_price import PriceLookup, contradiction, price_equal_requests
from .lower_bounds import count_of, warn_of_lower_bounds
from .merge_figures import merge_figures
from .run_parts import split_runs
from .usage import (
    OVER_SESSION_UPPER_BOUND,
    TOKEN_COUNTERS,
    ModelKeys,
    ReportedUsage,
    add_optional,
    cache_hit_rate,
    context_tokens,
    find_main_model,
    larger_count,
    measured_requests,
    nano_to_usd,
    reported_run_usage,
    sum_optional,
    sum_tokens,
    with_readable_tokens,
)


def zero_price(model: str, share: Any, at: datetime | None) -> int:
    """The price lookup for a local model server."""
    return 0


def fill_usage(run: Accumulator, report: Report, price: PriceLookup | None) -> None:
    """Fill in every figure of the report."""
    report.model = report.model or _main_model(run)
    parts = split_runs(run)
    if len(parts) < 2:
        _fill_figures(run, report, price)
    else:
        reports = [_report_of_part(part, report.model, price) for part in parts]
        merge_figures(report, reports)
        report.service_tier = reports[-1].service_tier
        report.warnings += dict.fromkeys(text for part in reports for text in part.warnings)
    warn_of_lower_bounds(run, report)
    report.context = context_usage(run, report.model)
    if run.last_result is not None:
        report.duration_ms = sum_optional(result.duration_ms for result in run.results)
    elif run.first_at is not None and run.last_at is not None:
        report.duration_ms = max(0, (run.last_at - run.first_at) // MILLISECOND)


def _main_model(run: Accumulator) -> str | None:
    """The main model of a result without messages."""
    last = run.last_result
    return find_main_model((last and last.models) or {}, None)


def _report_of_part(part: Accumulator, model: str | None, price: PriceLookup | None) -> Report:
    """The figures of one of several runs; `model` is that of the first one."""
    last = part.last_result
    known = part.requests[part.main_keys[0]].model if part.main_keys else _main_model(part)
    report = Report(model=known or (model if last is None or not last.models else None))
    _fill_figures(part, report, price)
    return report


def _fill_figures(run: Accumulator, report: Report, price: PriceLookup | None) -> None:
    """Fill in the tokens and the cost of one run."""
    last = run.last_result
    if last is not None:
        # Versions without modelUsage count turns cumulatively.
        is_cumulative = last.models is None
        report.turns = (
            last.turns if is_cumulative else sum_optional(result.turns for result in run.results)
        )
        report.web_searches = sum_optional(result.web_searches for result in run.results)
        report.web_fetches = sum_optional(result.web_fetches for result in run.results)
        report.service_tier = last.service_tier
    reported = _reported_usage(run, report.model)
    # Requests not in the agent's figures: those after the last result, or all without one.
    covered_until = -1 if last is None else last.line
    main_input, others = _sum_main_input(run.requests.values(), covered_until)
    uncovered = [request for request in others if request.line > covered_until]
    if run.cost_state is not None and not run.results:
        uncovered = []
    omitted = _omitted_requests(run, reported, main_input)
    if omitted:
        count = count_of(len(omitted), "request")
        size = sum_tokens(omitted).total or 0
        report.warnings.append(
            f"the agent's totals leave out {count} ({size:,} tokens); added from the stream"
        )
        uncovered = [*omitted, *uncovered]
    measured = main_input + _sum_input(others) - _sum_input(uncovered)
    report.tokens = _total_tokens(run, reported, uncovered, measured, report.warnings)
    report.requests = _count_requests(run, report)
    report.cache_write_1h = _hour_writes(run, reported, report.tokens.cache_write)
    report.cache_hit_rate = cache_hit_rate(report.tokens)
    report.models = _summarize_models(run, reported, uncovered, price)
    main = report.models.get(report.model or "")
    if main is not None and run.context_window is not None:  # the model server's comes first
        report.models[report.model or ""] = msgspec.structs.replace(
            main, context_window=run.context_window
        )
    report.cost = (
        Cost(0.0, "local") if run.is_free else _total_cost(run, reported, uncovered, price, report)
    )
    report.warnings += reported.warnings
    if report.cost.source == "reported" and report.cost.usd and not report.tokens.total:
        tokens = "no tokens" if report.tokens.total == 0 else "no readable token counts"
        report.warnings.append(f"the agent reports a cost of ${report.cost.usd:.6f} but {tokens}")
    difference = contradiction(report, price, run.first_at) if price is not None else None
    if difference is not None:
        report.warnings.append(difference)
    if last is not None and not reported.includes_earlier_runs:
        report.duration_api_ms = last.duration_api_ms


def price_requests(requests: list[ev.Usage], price: PriceLookup | None) -> int | None:
    """The cost of the requests by the price table; unknown if one of them is."""
    if price is zero_price:
        return 0  # also for requests without a model name
    if price is None or not requests:
        return None
    return sum_optional(
        price(request.model, request, request.at) if request.model else None for request in requests
    )


def _count_requests(run: Accumulator, report: Report) -> int | None:
    """The number of requests; unknown if a result shows their sum only, or nothing shows any."""
    total = report.tokens.total
    listed = max(len(run.requests), sum(result.requests or 0 for result in run.results))
    if run.last_result is not None and run.last_result.over_session and total:
        return None  # the totals include requests that the stream does not show
    if listed or run.unmeasured_requests:
        return listed or run.unmeasured_requests
    has_answers = (
        run.calls
        or run.texts
        or run.partial
        or report.lines.torn
        or any(not result.is_error for result in run.results)
    )
    if not total:
        return None if total is None and has_answers else 0
    usages = [result.usage for result in run.results if result.usage is not None]
    is_one_each = all(result.turns == 1 for result in run.results)
    return len(usages) if is_one_each and sum_tokens(usages).total == total else None


# -- the agent's figures ---------------------------------------------------------------------------


def _reported_usage(run: Accumulator, model: str | None) -> ReportedUsage:
    last = run.last_result
    if last is not None:
        reported = reported_run_usage(
            run.results, last, run.requests.values(), model, run.earlier_totals
        )
    elif run.cost_state is not None:  # a transcript's totals; its session is the whole run
        cost = run.cost_state.cost_nano
        session_cost = None if run.cost_state.of_run else cost
        reported = ReportedUsage(run.cost_state.models, cost, session_cost)
    else:
        reported = ReportedUsage()
    if last is not None and reported.models:
        reported = with_readable_tokens(reported, run.results, last, run.requests.values())
    # Totals of zero are ignored when requests were seen: an interrupt can leave such totals.
    if reported.models is None or reported.includes_earlier_runs or reported.cost_nano:
        return reported
    if sum_tokens(reported.models.values()).total:
        return reported
    if not any(map(context_tokens, run.requests.values())):
        return reported
    warning = (
        "the agent reported zero usage; tokens and cost are computed from its requests "
        "(output is a lower bound)"
    )
    return ReportedUsage(
        session_cost_nano=reported.session_cost_nano,
        includes_earlier_runs=reported.includes_earlier_runs,
        warnings=[*reported.warnings, warning],
    )


def _omitted_requests(run: Accumulator, reported: ReportedUsage, main_input: int) -> list[ev.Usage]:
    """Complete requests of the main thread that the agent's totals leave out.

    Claude 2.0 counts streamed answers only. After a failed stream it asks again without one; that
    answer is in the stream of events, with its final usage, and in no total. `main_input` is the
    input of the main thread's requests before the last result.
    """
    last = run.last_result
    if last is None or not reported.models or reported.includes_earlier_runs:
        return []
    usages = [result.usage for result in run.results if result.usage is not None]
    if main_input == _sum_input(usages):
        return []  # the usual case
    main = [
        request
        for request in run.requests.values()
        if request.parent is None and request.line <= last.line
    ]
    missing = _subtract_counters(_sum_counters(main), _sum_counters(usages))
    final = [request for request in main if request.final]
    exceeded = _exceeded_models(run.requests.values(), reported.models)
    for candidates in (final, *([request] for request in final)):
        is_missing = _sum_counters(candidates) == missing
        if is_missing and any(request.model in exceeded for request in candidates):
            return candidates
    return []


def _exceeded_models(
    requests: Iterable[ev.Usage], models: dict[str, ev.ModelUsage]
) -> set[str | None]:
    """The models of which more was seen than their share, so that some requests are left out."""
    keys = ModelKeys(models)
    seen: dict[str | None, list[ev.Usage]] = {}
    for request in requests:
        seen.setdefault(request.model, []).append(request)
    return {
        name
        for name, own in seen.items()
        if _exceeds_share(own, models.get(keys.find(name) or "") if name else None)
    }


def _exceeds_share(requests: list[ev.Usage], share: ev.ModelUsage | None) -> bool:
    if share is None:
        return True
    rest = _subtract_counters(_sum_counters([share]), _sum_counters(requests))
    output = sum(request.output or 0 for request in requests)
    return min(rest) < 0 or (share.output is not None and output > share.output)


def _sum_counters(shares: Iterable[Any]) -> tuple[int, int, int]:
    """The sums of input, cache writes and cache reads; an unknown counter counts as 0."""
    new = write = read = 0
    for share in shares:
        new += share.input or 0
        write += share.cache_write or 0
        read += share.cache_read or 0
    return new, write, read


def _subtract_counters(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one - other for one, other in zip(first, second, strict=True))


# -- tokens ----------------------------------------------------------------------------------------


def _total_tokens(
    run: Accumulator,
    reported: ReportedUsage,
    uncovered: list[ev.Usage],
    measured: int,
    warnings: list[str],
) -> Tokens:
    """The sum of the agent's figures and the requests that they do not cover.

    `measured` is the input of the requests that they should cover.
    """
    usages: list[Any] = [result.usage for result in run.results if result.usage is not None]
    if reported.models is None and (run.requests or not run.results):
        tokens = _tokens_from_requests(run, warnings)
        if tokens.total is not None or not usages:
            return tokens
    last = run.last_result
    if last is not None and last.terminal_reason == "loop_detected":
        warnings.append(
            "tokens, cost and requests are a lower bound: the agent leaves out the requests that "
            "its loop detection cancelled"
        )
    if last is not None and last.over_session:
        warnings.append(OVER_SESSION_UPPER_BOUND)
    elif reported.models is None and last is not None and (last.turns or 1) > 1:
        warnings.append(
            "tokens are uncertain: versions without totals per model report "
            "their last request only, or count requests twice"
        )
    # The agent's figures per model, or per result where those are missing or too low.
    shares: list[Any] = list((reported.models or {}).values())
    if not shares:
        shares = usages
    else:
        by_model = sum_tokens(shares).total
        by_usage = sum_tokens(usages).total
        if by_model is not None and by_usage is not None and by_model < by_usage:
            fewer = f"fewer tokens ({by_model:,}) than usage ({by_usage:,})"
            warnings.append(f"modelUsage reports {fewer}; using usage")
            shares = usages
    # Interrupted or failed requests can be missing from the agent's figures.
    covered = context_tokens(sum_tokens(shares)) or 0
    if measured > covered:
        missing = f"{measured - covered:,} input tokens"
        warnings.append(f"the agent's totals leave out some requests ({missing})")
    return sum_tokens([*shares, *uncovered])


def _hour_writes(run: Accumulator, reported: ReportedUsage, cache_write: int | None) -> int | None:
    """Cache writes for an hour. Most versions report them in the usage of a result only."""
    shares: list[Any] = [result.usage for result in run.results if result.usage is not None]
    if not shares:
        shares = list(run.requests.values())
    models = list((reported.models or {}).values())
    sums = (sum_optional(share.cache_write_1h for share in part) for part in (shares, models))
    known = [count for count in sums if count is not None]
    return min(max(known), cache_write) if known and cache_write is not None else None


def _sum_input(requests: Iterable[Any]) -> int:
    """The input of all requests, cached or not; one with an unknown counter counts as 0."""
    total = 0
    for request in requests:
        new = request.input
        write = request.cache_write
        read = request.cache_read
        if new is not None and write is not None and read is not None:
            total += new + write + read
    return total


def _sum_main_input(requests: Iterable[ev.Usage], until: int) -> tuple[int, list[ev.Usage]]:
    """The input of the main thread's requests up to a line, as `_sum_input`; the other requests."""
    total = 0
    others = []
    for request in requests:  # once: there may be thousands
        new = request.input
        write = request.cache_write
        read = request.cache_read
        if request.parent is not None or request.line > until:
            others.append(request)
        elif new is not None and write is not None and read is not None:
            total += new + write + read
    return total, others


def _tokens_from_requests(run: Accumulator, warnings: list[str]) -> Tokens:
    requests = list(run.requests.values())
    if not requests:
        return Tokens()
    completed = measured_requests(_with_final_output(run, requests))
    if len(completed) < len(requests):
        count = f"{len(requests) - len(completed)} of {len(requests)} requests"
        warnings.append(f"tokens and cost are a lower bound: no usage for {count}")
    unfinished = sum(1 for request in requests if not request.final and request.output is not None)
    if unfinished and not run.results:
        warnings.append(
            "output tokens are a lower bound: "
            f"no final count for {unfinished} of {len(requests)} requests"
        )
    return sum_tokens(completed)


def _with_final_output(run: Accumulator, requests: list[ev.Usage]) -> list[ev.Usage]:
    """In versions without modelUsage, a result's usage is its last request's, with final output."""
    usage = run.last_result.usage if run.last_result is not None else None
    latest = run.main_request
    if usage is None or latest is None:
        return requests
    if (usage.input, usage.cache_write, usage.cache_read) != (
        latest.input,
        latest.cache_write,
        latest.cache_read,
    ):
        return requests
    complete = msgspec.structs.replace(latest, output=larger_count(latest.output, usage.output))
    return [complete if request is latest else request for request in requests]


# -- cost ------------------------------------------------------------------------------------------


def _summarize_models(
    run: Accumulator,
    reported: ReportedUsage,
    uncovered: list[ev.Usage],
    price: PriceLookup | None,
) -> dict[str, ModelSummary]:
    shares: dict[str, tuple[Any, int | None]]  # with their cost
    if reported.models:
        models = _add_requests(reported.models, uncovered, price) if uncovered else reported.models
        shares = {name: (share, share.cost_nano) for name, share in models.items()}
    else:
        by_model: dict[str, list[ev.Usage]] = {}
        for request in measured_requests(run.requests.values()):
            by_model.setdefault(request.model or "unknown", []).append(request)
        is_computed = reported.cost_nano is None
        shares = {
            name: (sum_tokens(requests), price_requests(requests, price) if is_computed else None)
            for name, requests in by_model.items()
        }
    return {
        name: ModelSummary(
            input=share.input,
            cache_write=share.cache_write,
            cache_read=share.cache_read,
            output=share.output,
            cost_usd=nano_to_usd(0 if run.is_free else cost),
            context_window=getattr(share, "context_window", None),
            max_output=getattr(share, "max_output", None),
            web_searches=getattr(share, "web_searches", None),
        )
        for name, (share, cost) in shares.items()
    }


def _add_requests(
    models: dict[str, ev.ModelUsage], requests: list[ev.Usage], price: PriceLookup | None
) -> dict[str, ev.ModelUsage]:
    """The agent's figures per model with requests that they don't include."""
    shares = dict(models)
    keys = ModelKeys(models)
    for request in requests:
        name = keys.find_or_add(request.model or "unknown")
        share = shares.get(name)
        cost = price_requests([request], price)
        counters: Any = {counter: getattr(request, counter) for counter in TOKEN_COUNTERS}
        if share is None:
            shares[name] = ev.ModelUsage(**counters, cost_nano=cost)
            continue
        sums: Any = {
            counter: add_optional(getattr(share, counter), count or 0)
            for counter, count in counters.items()
        }
        if share.cost_nano is not None and cost is not None:
            sums["cost_nano"] = share.cost_nano + cost
        shares[name] = msgspec.structs.replace(share, **sums)
    return shares


def _total_cost(
    run: Accumulator,
    reported: ReportedUsage,
    uncovered: list[ev.Usage],
    price: PriceLookup | None,
    report: Report,
) -> Cost:
    """The cost the agent reported for this run; what it did not report is computed."""
    session = nano_to_usd(reported.session_cost_nano)
    extra = price_requests(uncovered, price) if uncovered else None
    if not run.results and run.cost_state is None:
        return _computed_cost(extra, session)
    if reported.cost_nano is None:
        covered_cost = _price_covered(run, reported, uncovered, price, report)
        total = add_optional(covered_cost, extra) if uncovered else covered_cost
        return _computed_cost(total, session)
    if not uncovered:
        return Cost(nano_to_usd(reported.cost_nano), "reported", session)
    if extra is None:
        count = count_of(len(uncovered), "request")
        report.warnings.append(f"cost excludes {count} outside the agent's totals (unknown price)")
        return Cost(nano_to_usd(reported.cost_nano), "reported", session)
    return _computed_cost(reported.cost_nano + extra, session)


def _computed_cost(nano: int | None, session: float | None) -> Cost:
    return Cost(nano_to_usd(nano), "unknown" if nano is None else "computed", session)


def _price_covered(
    run: Accumulator,
    reported: ReportedUsage,
    uncovered: list[ev.Usage],
    price: PriceLookup | None,
    report: Report,
) -> int | None:
    """The computed cost of what the agent's figures cover."""
    later = set(map(id, uncovered))
    covered = [request for request in run.requests.values() if id(request) not in later]
    has_costs = any(share.cost_nano is not None for share in (reported.models or {}).values())
    if not has_costs and _has_every_request(reported, covered):
        return price_requests(covered, price)
    return _price_models(run, reported, report, price)


def _has_every_request(reported: ReportedUsage, covered: list[ev.Usage]) -> bool:
    """Whether the requests seen make up all of the agent's figures."""
    if reported.models is None:
        return bool(covered)
    total = sum_tokens(reported.models.values()).total
    return (
        total is not None
        and sum_tokens(covered).total == total
        and all(request.model for request in covered)
    )


def _price_models(
    run: Accumulator, reported: ReportedUsage, report: Report, price: PriceLookup | None
) -> int | None:
    """The computed cost of the agent's figures per model."""
    last = run.last_result
    if not reported.models:
        return _price_usage(last, report.model, price) if last is not None else None
    if price is None:
        return None
    at = last.at if last is not None else run.first_at
    # A cost that the agent reports for one of its models counts; it may not know the others.
    costs = {
        name: price(name, share, at) if share.cost_nano is None else share.cost_nano
        for name, share in reported.models.items()
    }
    main = find_main_model(reported.models, report.model)
    if main is not None and reported.models[main].cost_nano is None:
        whole = costs[main]
        count = report.requests or 0
        share = reported.models[main]
        split = price_equal_requests(share, count, main, price, at) if count > 1 else None
        # A larger difference than rounding means that the price depends on the request size.
        if whole is not None and split is not None and abs(split - whole) > count:
            costs[main] = split
            report.warnings.append(
                "tiered price, request sizes unknown: computed as if all requests were equal"
            )
    return sum_optional(costs.values())


def _price_usage(last: ev.Result, model: str | None, price: PriceLookup | None) -> int | None:
    name = find_main_model(last.models or {}, model) or model
    if price is None or name is None or last.usage is None:
        return None
    return price(name, last.usage, last.at)
