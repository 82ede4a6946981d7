"""Tokens, cost and context from what the agent reported. Pure: no prices, no clock, no files.

Unknown is None and stays None in a sum; it is never 0.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from ..event import ModelUsage, Result
from ..report import Context, Tokens

NANO_PER_USD = 1_000_000_000
ASSUMED_WINDOW = 200_000  # what most models of the recorded versions have (M4)
CHARS_PER_TOKEN = 4  # of a text that make a token, roughly (M8)
CONTEXT_LEVELS = (
    ("critical", 0.95),
    ("refresh", 0.80),
    ("warn", 0.70),
)  # parts of the window in use (M5)
TOKEN_COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h")
_get_counters = attrgetter(*TOKEN_COUNTERS)


def add_optional(first: int | None, second: int | None) -> int | None:
    """The sum, unknown if either part is."""
    return None if first is None or second is None else first + second


def sum_optional(parts: Iterable[int | None]) -> int | None:
    """The sum of all parts, unknown if one of them is or if there are none."""
    found = list(parts)
    if not found or None in found:
        return None
    return sum(found)  # type: ignore[arg-type]  # None was ruled out in the line above


def nano_to_usd(nano: int | None) -> float | None:
    """Dollars for people and JSON, from the exact integer inside."""
    return None if nano is None else nano / NANO_PER_USD


def sum_tokens(shares: Iterable[Any]) -> Tokens:
    """The sum over anything that has the counters: requests, or models' shares."""
    columns = list(zip(*map(_get_counters, shares), strict=True))
    if not columns:
        return Tokens()
    sums = [sum_optional(column) for column in columns[:5]]
    return Tokens(sums[0], sums[1], sums[2], sums[3], sums[4], sum_optional(sums[:4]))


def cache_hit_rate(tokens: Tokens) -> float | None:
    """The part of the input that came from the cache; unknown when there was no input (M1)."""
    seen = sum_optional((tokens.input, tokens.cache_write, tokens.cache_read))
    return tokens.cache_read / seen if seen and tokens.cache_read is not None else None


class ReportedUsage(Struct):
    """What the results say of this run alone."""

    models: dict[str, ModelUsage] | None = None
    cost_nano: int | None = None
    session_cost_nano: int | None = None
    usage_only: bool = (
        False  # the models' figures could not be used: the tokens are those of `usage`
    )
    includes_earlier_runs: bool = False  # the figures went on from earlier runs of the session
    warnings: list[str] = []


def reported_run_usage(results: list[Result], main: str | None) -> ReportedUsage:
    """This run's own part of the agent's account (M7), whether it counts per process or over a session."""
    last = results[-1]
    since = [result.models_since for result in results if result.models_since is not None]
    if since:
        models = _merge_model_usage(since, last.models or {})
        booked = ReportedUsage(
            models,
            sum_optional(share.cost_nano for share in models.values()) if models else 0,
            last.cost_nano,
        )
        booked.includes_earlier_runs = (last.cost_nano or 0) > (
            booked.cost_nano or 0
        ) + NANO_PER_USD // 1_000_000
    else:
        booked = ReportedUsage(
            last.models, last.cost_nano, last.cost_nano if last.index is not None else None
        )
        if last.models and _includes_earlier_runs(last, main):
            booked = ReportedUsage(
                {}, None, last.cost_nano, usage_only=True, includes_earlier_runs=True
            )
            booked.warnings.append(
                "the figures go on from earlier runs of this session; this run's own part is its usage"
            )
    booked.warnings += _cost_mismatch_warnings(last)
    return booked


def _merge_model_usage(
    shares: list[dict[str, ModelUsage]], latest: dict[str, ModelUsage]
) -> dict[str, ModelUsage]:
    merged: dict[str, ModelUsage] = {}
    for models in shares:
        for name, share in models.items():
            before = merged.get(name)
            merged[name] = share if before is None else _add_model_usage(before, share)
    return {name: _with_model_limits(share, latest.get(name)) for name, share in merged.items()}


def _add_model_usage(first: ModelUsage, second: ModelUsage) -> ModelUsage:
    sums: Any = {
        name: add_optional(getattr(first, name), getattr(second, name))
        for name in (*TOKEN_COUNTERS, "cost_nano")
    }
    return msgspec.structs.replace(second, **sums)


def _with_model_limits(share: ModelUsage, latest: ModelUsage | None) -> ModelUsage:
    if latest is None or share.context_window is not None:
        return share
    return msgspec.structs.replace(
        share, context_window=latest.context_window, max_output=latest.max_output
    )


def _includes_earlier_runs(result: Result, main: str | None) -> bool:
    """A lone result of a version that counts over sessions: does it hold more than its own turn used?

    The json format leaves out the part since the last result. One turn without subagents cannot
    have used more of the main model than its own usage, so the rest is from earlier runs.
    """
    if result.index != 0 or result.subagents != 0 or result.usage is None or not result.models:
        return False
    share = result.models.get(find_main_model(result.models, main) or "")
    used, booked = sum_tokens([result.usage]).total, sum_tokens([share]).total if share else None
    return bool(used) and booked is not None and used is not None and booked > used


def _cost_mismatch_warnings(result: Result) -> list[str]:
    if not result.models or result.cost_nano is None:
        return []
    parts = sum_optional(share.cost_nano for share in result.models.values())
    if (
        parts is None or abs(parts - result.cost_nano) <= len(result.models) + 1
    ):  # each was rounded to a nano
        return []
    return [
        f"the models' costs add up to ${parts / NANO_PER_USD:.6f}, the reported total is ${result.cost_nano / NANO_PER_USD:.6f}"
    ]


def base_model_name(model: str) -> str:
    """A model's name without its window suffix: messages leave it out, the account keeps it."""
    return model.removesuffix("[1m]")


def find_main_model(models: dict[str, ModelUsage], name: str | None) -> str | None:
    """The key of the main model in an account: by name, else the one that worked most. Never simply the first (M4)."""
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


def build_context(
    used: int | None,
    limit: int | None,
    limit_source: str,
    source: str,
    peak: int | None,
    compactions: int,
) -> Context:
    """Occupancy on every scale that people use (M5)."""
    if limit is None or limit <= 0:  # no window has no room at all
        limit, limit_source = ASSUMED_WINDOW, "assumed"
    if used is None:
        return Context(limit=limit, limit_source=limit_source, peak=peak, compactions=compactions)
    fraction = used / limit
    hp = min(100.0, max(0.0, 100 - fraction * 100))
    status = hp_status(hp)
    text = f"{hp:.0f}% HP [{used / 1000:.0f}k/{limit / 1000:.0f}k] — {status}"
    return Context(used, limit, fraction, hp, status, text, peak, source, limit_source, compactions)


def prompt_overhead(used: int, prompt: str) -> int:
    """What a session's first request holds besides the prompt: system prompt, tools, project notes (M8)."""
    return max(0, used - -(-len(prompt) // CHARS_PER_TOKEN))


def context_level(fraction: float | None) -> str | None:
    """How urgent it is that a session gets a smaller context; None while there is no need (M5)."""
    return next(
        (name for name, from_ in CONTEXT_LEVELS if fraction is not None and fraction >= from_), None
    )


def hp_status(hp: float) -> str:
    """One word for how much room is left."""
    if hp > 50:
        return "Healthy"
    return "Wounded" if hp > 25 else "CRITICAL"
