"""Tokens, cost and context from what the agent reported. Pure: no prices, no clock, no files.

Unknown is None and stays None in a sum; it is never 0.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from .event import ModelUsage, Result
from .report import Context, Tokens

NANO = 1_000_000_000
ASSUMED_WINDOW = 200_000  # what most models of the recorded versions have (M4)
CHARACTERS = 4  # of a text that make a token, roughly (M8)
LEVELS = (("critical", 0.95), ("refresh", 0.80), ("warn", 0.70))  # parts of the window in use (M5)
COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h")
_counters = attrgetter(*COUNTERS)


def plus(first: int | None, second: int | None) -> int | None:
    """The sum, unknown if either part is."""
    return None if first is None or second is None else first + second


def total(parts: Iterable[int | None]) -> int | None:
    """The sum of all parts, unknown if one of them is or if there are none."""
    found = list(parts)
    if not found or None in found:
        return None
    return sum(found)  # type: ignore[arg-type]  # None was ruled out in the line above


def dollars(nano: int | None) -> float | None:
    """Dollars for people and JSON, from the exact integer inside."""
    return None if nano is None else nano / NANO


def tokens_of(shares: Iterable[Any]) -> Tokens:
    """The sum over anything that has the counters: requests, or models' shares."""
    columns = list(zip(*map(_counters, shares), strict=True))
    if not columns:
        return Tokens()
    sums = [total(column) for column in columns[:5]]
    return Tokens(sums[0], sums[1], sums[2], sums[3], sums[4], total(sums[:4]))


def cache_hit_rate(tokens: Tokens) -> float | None:
    """The part of the input that came from the cache; unknown when there was no input (M1)."""
    seen = total((tokens.input, tokens.cache_write, tokens.cache_read))
    return tokens.cache_read / seen if seen and tokens.cache_read is not None else None


class Booked(Struct):
    """What the results say of this run alone."""

    models: dict[str, ModelUsage] | None = None
    cost_nano: int | None = None
    session_nano: int | None = None
    usage_only: bool = False  # the models' figures could not be used: the tokens are those of `usage`
    earlier: bool = False  # the figures went on from earlier runs of the session
    warnings: list[str] = []


def own_part(results: list[Result], main: str | None) -> Booked:
    """This run's own part of the agent's account (M7), whether it counts per process or over a session."""
    last = results[-1]
    since = [result.models_since for result in results if result.models_since is not None]
    if since:
        models = _merge(since, last.models or {})
        booked = Booked(models, total(share.cost_nano for share in models.values()) if models else 0, last.cost_nano)
        booked.earlier = (last.cost_nano or 0) > (booked.cost_nano or 0) + NANO // 1_000_000
    else:
        booked = Booked(last.models, last.cost_nano, last.cost_nano if last.index is not None else None)
        if last.models and _went_on(last, main):
            booked = Booked({}, None, last.cost_nano, usage_only=True, earlier=True)
            booked.warnings.append("the figures go on from earlier runs of this session; this run's own part is its usage")
    booked.warnings += _disagreement(last)
    return booked


def _merge(shares: list[dict[str, ModelUsage]], latest: dict[str, ModelUsage]) -> dict[str, ModelUsage]:
    merged: dict[str, ModelUsage] = {}
    for models in shares:
        for name, share in models.items():
            before = merged.get(name)
            merged[name] = share if before is None else _added(before, share)
    return {name: _with_limits(share, latest.get(name)) for name, share in merged.items()}


def _added(first: ModelUsage, second: ModelUsage) -> ModelUsage:
    sums: Any = {name: plus(getattr(first, name), getattr(second, name)) for name in (*COUNTERS, "cost_nano")}
    return msgspec.structs.replace(second, **sums)


def _with_limits(share: ModelUsage, latest: ModelUsage | None) -> ModelUsage:
    if latest is None or share.context_window is not None:
        return share
    return msgspec.structs.replace(share, context_window=latest.context_window, max_output=latest.max_output)


def _went_on(result: Result, main: str | None) -> bool:
    """A lone result of a version that counts over sessions: does it hold more than its own turn used?

    The json format leaves out the part since the last result. One turn without subagents cannot
    have used more of the main model than its own usage, so the rest is from earlier runs.
    """
    if result.index != 0 or result.subagents != 0 or result.usage is None or not result.models:
        return False
    share = result.models.get(main_model(result.models, main) or "")
    used, booked = tokens_of([result.usage]).total, tokens_of([share]).total if share else None
    return bool(used) and booked is not None and used is not None and booked > used


def _disagreement(result: Result) -> list[str]:
    if not result.models or result.cost_nano is None:
        return []
    parts = total(share.cost_nano for share in result.models.values())
    if parts is None or abs(parts - result.cost_nano) <= len(result.models) + 1:  # each was rounded to a nano
        return []
    return [f"the models' costs add up to ${parts / NANO:.6f}, the reported total is ${result.cost_nano / NANO:.6f}"]


def plain(model: str) -> str:
    """A model's name without its window suffix: messages leave it out, the account keeps it."""
    return model.removesuffix("[1m]")


def main_model(models: dict[str, ModelUsage], name: str | None) -> str | None:
    """The key of the main model in an account: by name, else the one that worked most. Never simply the first (M4)."""
    if name is not None:
        if name in models:
            return name
        for key in models:
            if plain(key) == plain(name):
                return key
        return None
    return max(models, key=lambda key: _weight(models[key]), default=None)


def _weight(share: ModelUsage) -> tuple[int, int]:
    return tokens_of([share]).total or 0, share.cost_nano or 0


def context(used: int | None, limit: int | None, limit_source: str, source: str, peak: int | None, compactions: int) -> Context:
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


def overhead(used: int, prompt: str) -> int:
    """What a session's first request holds besides the prompt: system prompt, tools, project notes (M8)."""
    return max(0, used - -(-len(prompt) // CHARACTERS))


def level(fraction: float | None) -> str | None:
    """How urgent it is that a session gets a smaller context; None while there is no need (M5)."""
    return next((name for name, from_ in LEVELS if fraction is not None and fraction >= from_), None)


def hp_status(hp: float) -> str:
    """One word for how much room is left."""
    if hp > 50:
        return "Healthy"
    return "Wounded" if hp > 25 else "CRITICAL"
