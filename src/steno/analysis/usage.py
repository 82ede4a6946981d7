"""Token counters: one request merged from several lines, sums, and the usage an agent reports.

Unknown is None and stays None in a sum; it is never 0. Pure: no prices, no clock, no files.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from ..event import NANO_PER_USD, ModelUsage, Result, Usage
from ..report import Tokens

TOKEN_COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h")
_get_counters = attrgetter(*TOKEN_COUNTERS)

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
    usage_only: bool = False  # model figures are unusable; take the tokens from `usage`
    includes_earlier_runs: bool = False  # the agent's figures include earlier runs of the session
    warnings: list[str] = []


def reported_run_usage(results: list[Result], main_model: str | None) -> ReportedUsage:
    """This run's part of the figures, whether the agent counts per process or per session."""
    last = results[-1]
    since = [result.models_since for result in results if result.models_since is not None]
    if since:
        reported = _usage_since_last_result(since, last)
    elif last.models and _includes_earlier_runs(last, main_model):
        reported = ReportedUsage(
            models={},
            session_cost_nano=last.cost_nano,
            usage_only=True,
            includes_earlier_runs=True,
            warnings=[
                "reported figures include earlier runs of this session; "
                "this run's part is taken from its usage"
            ],
        )
    else:
        session_cost = last.cost_nano if last.index is not None else None
        reported = ReportedUsage(last.models, last.cost_nano, session_cost)
    if last.models and last.cost_nano is not None:
        parts = sum_optional(share.cost_nano for share in last.models.values())
        tolerance = len(last.models) + 1  # each figure was rounded to a nano-dollar
        if parts is not None and abs(parts - last.cost_nano) > tolerance:
            reported.warnings.append(
                f"model costs add up to ${parts / NANO_PER_USD:.6f}, "
                f"but the reported total is ${last.cost_nano / NANO_PER_USD:.6f}"
            )
    return reported


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
        for name in (*TOKEN_COUNTERS, "cost_nano")
    }
    return msgspec.structs.replace(second, **sums)


def _includes_earlier_runs(result: Result, main_model: str | None) -> bool:
    """Whether a single result of a version that counts per session exceeds its own turn.

    The json format omits the part since the previous result. One turn without subagents cannot use
    more of the main model than its own usage, so the rest comes from earlier runs.
    """
    if result.index != 0 or result.subagents != 0 or result.usage is None or not result.models:
        return False
    share = result.models.get(find_main_model(result.models, main_model) or "")
    if share is None:
        return False
    turn_tokens = sum_tokens([result.usage]).total
    model_tokens = sum_tokens([share]).total
    return bool(turn_tokens) and model_tokens is not None and model_tokens > (turn_tokens or 0)


# -- models ----------------------------------------------------------------------------------------


def base_model_name(model: str) -> str:
    """The model's name without its window suffix, which messages omit and totals include."""
    return model.removesuffix("[1m]")


def find_main_model(models: dict[str, ModelUsage], name: str | None) -> str | None:
    """The main model's key: by name, else the most used one; the first may be a helper model."""
    if name is not None:
        if name in models:
            return name
        for key in models:
            if base_model_name(key) == base_model_name(name):
                return key
        return None
    return max(models, key=lambda key: _usage_weight(models[key]), default=None)


def _usage_weight(share: ModelUsage) -> tuple[int, int]:
    return sum_tokens([share]).total or 0, share.cost_nano or 0
