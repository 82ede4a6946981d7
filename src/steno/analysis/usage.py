"""Token counters: one request merged from several lines, sums, and the usage an agent reports.

Unknown is None and stays None in a sum; it is never 0. Pure: no prices, no clock, no files.
"""

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from ..event import CostState, ModelUsage, Result, TaskEnded, Usage
from ..report import Tokens
from ..units import NANO_PER_USD

TOKEN_COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h")
_get_counters = attrgetter(*TOKEN_COUNTERS)

# Warnings of a run whose agent counts over the session, without the totals before the run.
EARLIER_RUNS_LOWER_BOUND = (
    "reported figures include earlier runs of this session, whose totals are unknown; tokens and "
    "cost are computed from this run's requests (the output of subagents is a lower bound)"
)
EARLIER_RUNS_UPPER_BOUND = (
    "tokens and cost are an upper bound: the agent counts over the whole session "
    "and the totals of earlier runs are unknown"
)
BETWEEN_RUNS_UPPER_BOUND = (
    "tokens and cost are an upper bound: runs of this session between those shown are included"
)
EARLIER_RUNS_BOUNDS = (EARLIER_RUNS_LOWER_BOUND, EARLIER_RUNS_UPPER_BOUND)
OVER_SESSION_UPPER_BOUND = (
    "tokens are an upper bound and requests unknown: the agent counts over the whole "
    "session, which may have earlier runs and requests that its stream does not show"
)
# The totals of a run with one of these warnings may include earlier runs.
OVER_SESSION = (EARLIER_RUNS_UPPER_BOUND, OVER_SESSION_UPPER_BOUND)
# A reported session cost may exceed the run's own by this much through rounding.
_ROUNDING_NANO = NANO_PER_USD // 1_000_000


# -- one request -----------------------------------------------------------------------------------


def request_key(usage: Usage) -> str:
    """The key that all lines about one request share: its message id, else its line number."""
    return usage.message if usage.message is not None else f"line {usage.line}"


def merge_usage(known: Usage, update: Usage) -> Usage:
    """One request from two of its lines; the line number stays that of the first."""
    counters: Any = merge_counters(known, update)
    return msgspec.structs.replace(
        known,
        model=known.model or update.model,
        final=known.final or update.final,
        stop_reason=update.stop_reason or known.stop_reason,
        **counters,
    )


def last_request(event: TaskEnded, call: str, usage: ModelUsage, model: str | None) -> Usage:
    """The last request of a subagent, as its end reports it; `model` if it does not name one."""
    counters: Any = {name: getattr(usage, name) for name in TOKEN_COUNTERS}
    name = base_model_name(event.model) if event.model is not None else model
    return Usage(
        *(event.line, event.session, call, event.at),
        model=name,
        final=True,
        stop_reason="end_turn",
        **counters,
    )


def merge_counters(known: Any, update: Any) -> dict[str, int | None]:
    """The larger value of each token counter: within one request, counters only grow."""
    return {
        name: larger_count(getattr(known, name), getattr(update, name)) for name in TOKEN_COUNTERS
    }


def larger_count(known: int | None, update: int | None) -> int | None:
    """The larger of two counts; an unknown one loses."""
    if known is None or (update is not None and update > known):
        return update
    return known


def context_tokens(request: Any) -> int | None:
    """Tokens in the context window when the request was sent."""
    if request.input is None or request.cache_write is None or request.cache_read is None:
        return None
    total: int = request.input + request.cache_write + request.cache_read
    return total


def measured_requests(requests: Iterable[Usage]) -> list[Usage]:
    """The requests that have figures, or all if none has.

    One that was cut off may have none, though others of the run have theirs.
    """
    known = list(requests)
    measured = [one for one in known if one.final or any(map(is_known, _get_counters(one)))]
    return measured or known


def is_known(count: int | None) -> bool:
    return count is not None


# -- sums ------------------------------------------------------------------------------------------


def add_optional(first: int | None, second: int | None) -> int | None:
    """The sum, unknown if either part is."""
    return None if first is None or second is None else first + second


def sum_optional(parts: Iterable[int | None]) -> int | None:
    """The sum, unknown if a part is unknown or there are no parts."""
    known = list(parts)
    if not known or None in known:
        return None
    return sum(known)  # type: ignore[arg-type]  # None was ruled out above


def nano_to_usd(nano: int | None) -> float | None:
    """Dollars for people and JSON, from the exact integer used inside."""
    return None if nano is None else nano / NANO_PER_USD


def sum_tokens(shares: Iterable[Any]) -> Tokens:
    """The sum over anything that has the token counters: requests, model shares."""
    columns = list(zip(*map(_get_counters, shares), strict=True))
    if not columns:
        return Tokens()
    input_, cache_write, cache_read, output, reasoning = map(sum_optional, columns[:5])
    return Tokens(
        input=input_,
        cache_write=cache_write,
        cache_read=cache_read,
        output=output,
        reasoning=reasoning,
        total=sum_optional((input_, cache_write, cache_read, output)),
    )


def cache_hit_rate(tokens: Tokens) -> float | None:
    """Share of the input that was read from the cache; unknown without input."""
    prompt_tokens = context_tokens(tokens)
    if not prompt_tokens or tokens.cache_read is None:
        return None
    return tokens.cache_read / prompt_tokens


# -- what the agent reports ------------------------------------------------------------------------


class ReportedUsage(Struct):
    """The agent's own figures, reduced to this run."""

    models: dict[str, ModelUsage] | None = None
    cost_nano: int | None = None
    session_cost_nano: int | None = None
    includes_earlier_runs: bool = False  # the agent's figures include earlier runs of the session
    warnings: list[str] = []


def needs_earlier_totals(results: Collection[Result], last: Result | None) -> bool:
    """Whether the figures may include earlier runs, without the part since the last result.

    Claude numbers its results since shortly before it continues the totals of a resumed session.
    """
    return bool(
        last is not None
        and last.models
        and last.index is not None
        and all(result.models_since is None for result in results)
    )


def reported_run_usage(
    results: Collection[Result],
    last: Result,
    requests: Iterable[Usage],
    main_model: str | None,
    earlier: CostState | None,
) -> ReportedUsage:
    """This run's part of the figures, whether the agent counts per process or per session.

    `requests` are those of this run as far as the stream shows them, `earlier` the totals of the
    session before it.
    """
    since = [result.models_since for result in results if result.models_since is not None]
    covered = [request for request in requests if request.line <= last.line]
    session_cost = last.cost_nano if last.index is not None else None
    if since:
        reported = _usage_since_last_result(since, last)
    elif not needs_earlier_totals(results, last):
        reported = ReportedUsage(last.models, last.cost_nano, session_cost)
    elif earlier is not None:
        reported = _usage_since_earlier(last, earlier)
        if earlier.line and not covered and not is_single_turn(last):
            reported.warnings.append(BETWEEN_RUNS_UPPER_BOUND)
    else:
        if _covers_all(last, covered):
            reported = ReportedUsage(last.models, last.cost_nano, session_cost)
        else:
            reported = _usage_of_unknown_part(results, last, covered, main_model)
    if last.models and last.cost_nano is not None:
        parts = sum_optional(share.cost_nano for share in last.models.values())
        tolerance = len(last.models) + 1  # each figure was rounded to a nano-dollar
        if parts is not None and abs(parts - last.cost_nano) > tolerance:
            reported.warnings.append(
                f"model costs add up to ${parts / NANO_PER_USD:.6f}, "
                f"but the reported total is ${last.cost_nano / NANO_PER_USD:.6f}"
            )
    return reported


def with_readable_tokens(
    reported: ReportedUsage, results: Collection[Result], last: Result, requests: Iterable[Usage]
) -> ReportedUsage:
    """The figures, with tokens from other sources if a version renamed a key of its totals."""
    models = reported.models or {}
    if sum_tokens(models.values()).total is not None:
        return reported
    covered = [request for request in requests if request.line <= last.line]
    shares = _shares_of_requests(results, covered, find_main_model(models, None))
    if not sum_tokens(shares.values()).total:
        return reported
    warning = (
        "the totals per model have no readable token counts; tokens are those of the results and "
        "of the requests seen (those of subagents and helpers are a lower bound)"
    )
    return msgspec.structs.replace(reported, models=shares, warnings=[*reported.warnings, warning])


def _usage_since_earlier(last: Result, earlier: CostState) -> ReportedUsage:
    """The difference to the totals before this run; all of them if they did not continue."""
    before = earlier.models or {}
    models = {
        name: _subtract_model_usage(share, before[name]) if name in before else share
        for name, share in (last.models or {}).items()
    }
    if any(
        count is not None and count < 0 for share in models.values() for count in _counts(share)
    ):
        return ReportedUsage(last.models, last.cost_nano, last.cost_nano)
    cost = None
    if last.cost_nano is not None and earlier.cost_nano is not None:
        cost = max(0, last.cost_nano - earlier.cost_nano)
    return ReportedUsage(
        models={name: share for name, share in models.items() if any(_counts(share))},
        cost_nano=cost,
        session_cost_nano=last.cost_nano,
        includes_earlier_runs=bool(before),
    )


def _counts(share: ModelUsage) -> tuple[int | None, ...]:
    return (*_get_counters(share), share.cost_nano)


def _subtract_model_usage(share: ModelUsage, before: ModelUsage) -> ModelUsage:
    differences: Any = {}
    for name in (*TOKEN_COUNTERS, "cost_nano"):
        total = getattr(share, name)
        known = getattr(before, name)
        differences[name] = None if total is None or known is None else total - known
    for name in ("reasoning", "cache_write_1h"):  # not in the totals of every version
        differences[name] = max(0, differences[name] or 0)
    return msgspec.structs.replace(share, **differences)


def _covers_all(last: Result, requests: list[Usage]) -> bool:
    """Whether the requests of this run make up the figures, so that no earlier run is included."""
    total = sum_tokens((last.models or {}).values())
    if requests:
        seen = sum_tokens(requests)
        return (context_tokens(total) or 0) <= (context_tokens(seen) or 0)
    if last.index != 0 or last.usage is None:
        return not total.total
    return (total.total or 0) <= (sum_tokens([last.usage]).total or 0)


def _usage_of_unknown_part(
    results: Collection[Result], last: Result, requests: list[Usage], main_model: str | None
) -> ReportedUsage:
    """What is known of this run if the figures include an unknown part of earlier runs."""
    reported = ReportedUsage(
        models={}, session_cost_nano=last.cost_nano, includes_earlier_runs=True
    )
    name = find_main_model(last.models or {}, main_model)
    if last.usage is not None and is_single_turn(last) and name is not None:
        share = (last.models or {})[name]
        own = msgspec.structs.replace(
            last.usage, context_window=share.context_window, max_output=share.max_output
        )
        reported.models = {name: own}
        reported.warnings.append(
            "reported figures include earlier runs of this session; "
            "this run's part is taken from its usage"
        )
    elif requests:
        reported.models = _shares_of_requests(results, requests, name)
        reported.warnings.append(EARLIER_RUNS_LOWER_BOUND)
    else:
        reported.models = last.models
        reported.cost_nano = last.cost_nano
        reported.warnings.append(EARLIER_RUNS_UPPER_BOUND)
    return reported


def is_single_turn(result: Result) -> bool:
    """Whether the usage of the only result covers the run: one turn without subagents.

    After the agent's own budget stop, the usage is 0 whatever was used.
    """
    if result.index != 0 or result.subagents != 0 or result.usage is None:
        return False
    tokens = sum_tokens([result.usage]).total
    has_failed = result.api_status is not None or result.terminal_reason == "api_error"
    return bool(tokens) or (tokens == 0 and has_failed)


def _shares_of_requests(
    results: Collection[Result], requests: list[Usage], main_model: str | None
) -> dict[str, ModelUsage]:
    """The usage per model: of the main thread by the results, of subagents by their requests."""
    shares: dict[str, ModelUsage] = {}
    main = [request for request in requests if request.parent is None]
    usages = [result.usage for result in results if result.usage is not None]
    models = {request.model for request in main}
    parts: list[tuple[str, Any]] = []
    if usages and len(models) == 1 and sum_tokens(usages).total:
        name = main_model or models.pop() or "unknown"
        parts += [(name, usage) for usage in usages]
        requests = [request for request in requests if request.parent is not None]
    for request in requests:
        own = request.model or "unknown"
        if main_model is not None and base_model_name(main_model) == own:
            own = main_model
        parts.append((own, request))
    for key, part in parts:
        counters: Any = dict(zip(TOKEN_COUNTERS, _get_counters(part), strict=True))
        share = ModelUsage(**{counter: value or 0 for counter, value in counters.items()})
        shares[key] = _add_model_usage(shares[key], share) if key in shares else share
    return shares


def _usage_since_last_result(since: list[dict[str, ModelUsage]], last: Result) -> ReportedUsage:
    models: dict[str, ModelUsage] = {}
    for shares in since:
        for name, share in shares.items():
            before = models.get(name)
            models[name] = share if before is None else _add_model_usage(before, share)
    for name, latest in (last.models or {}).items():
        if name in models and models[name].context_window is None:
            models[name] = msgspec.structs.replace(
                models[name], context_window=latest.context_window, max_output=latest.max_output
            )
    cost = sum_optional(share.cost_nano for share in models.values()) if models else 0
    return ReportedUsage(
        models=models,
        cost_nano=cost,
        session_cost_nano=last.cost_nano,
        includes_earlier_runs=(last.cost_nano or 0) > (cost or 0) + _ROUNDING_NANO,
    )


def _add_model_usage(first: ModelUsage, second: ModelUsage) -> ModelUsage:
    sums: Any = {
        name: add_optional(getattr(first, name), getattr(second, name))
        for name in (*TOKEN_COUNTERS, "cost_nano", "web_searches")
    }
    return msgspec.structs.replace(second, **sums)


# -- models ----------------------------------------------------------------------------------------


def base_model_name(model: str) -> str:
    """The model's name without its window suffix, which messages omit and totals include."""
    return model.removesuffix("[1m]")


class ModelKeys:
    """Finds the key of a model by its name, with the window suffix or without."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys: set[str] = set()
        self._by_base_name: dict[str, str] = {}  # the first one of each
        for key in keys:
            self._add(key)

    def find(self, name: str) -> str | None:
        """The key; None if there is none."""
        return name if name in self._keys else self._by_base_name.get(base_model_name(name))

    def find_or_add(self, name: str) -> str:
        """The key; the name itself becomes one if there is none."""
        key = self.find(name)
        if key is None:
            self._add(name)
        return name if key is None else key

    def _add(self, key: str) -> None:
        self._keys.add(key)
        self._by_base_name.setdefault(base_model_name(key), key)


def find_main_model(models: dict[str, ModelUsage], name: str | None) -> str | None:
    """The main model's key: by name, else the one with the most output.

    The first may be a helper model, which may also have the most input.
    """
    if name is not None:
        return name if name in models else ModelKeys(models).find(name)
    return max(models, key=lambda key: _usage_weight(models[key]), default=None)


def _usage_weight(share: ModelUsage) -> tuple[int, int, int]:
    return share.output or 0, sum_tokens([share]).total or 0, share.cost_nano or 0
