"""Money: the price of what a model was used for. The only place that knows prices; never guesses one.

The table is genai-prices, bundled with that package and dated; it is imported when the first price is asked for,
because its import costs more than a report. What the user writes in `prices.toml` (or the file that STENO_PRICES
names) goes before it:

    [models."my-model"]        # dollars for a million tokens; cache prices that are left out follow from input
    input = 3.0
    output = 15.0
    cache_read = 0.3
    cache_write = 3.75
    cache_write_1h = 6.0
"""

import os
from datetime import date, datetime, timezone
from functools import cache
from typing import Any

from msgspec import Struct

from .report import StenoError

NANO = 1_000_000_000
# Whose price holds for a model, by how its name begins: the same model costs something else with each reseller.
PROVIDERS = {
    "claude": "anthropic",
    "gemini": "google",
    **dict.fromkeys(("gpt-", "o1", "o3", "o4", "codex", "chatgpt"), "openai"),
    "grok": "x-ai",
    "deepseek": "deepseek",
}
FINE = 1_000_000  # rates are kept in millionths of a nano-dollar, so that sums of whole tokens stay whole
KINDS = ("input", "cache_write", "cache_read", "output", "cache_write_1h")


class Rates(Struct, frozen=True):
    """What one token costs, in millionths of a nano-dollar. From `tier` input tokens on, other prices hold."""

    input: int
    cache_write: int
    cache_read: int
    output: int
    cache_write_1h: int
    tier: int | None = None


def price(model: str, share: Any, at: datetime | None) -> int | None:
    """Nano-dollars for the counters of `share` on `model` at that time; None when it cannot be known."""
    counters = (share.input, share.cache_write, share.cache_read, share.output)
    if None in counters:
        return None
    if not any(counters):
        return 0
    known = rates(model, at)
    if known is None:
        return None
    cost = cost_of(known, share)
    return _by_table(model, share, at) if cost is None else cost


def cost_of(known: Rates, share: Any) -> int | None:
    """Nano-dollars at these rates; None if the request is so large that others hold."""
    write, read = share.cache_write, share.cache_read
    if known.tier is not None and share.input + write + read > known.tier:
        return None
    hour = share.cache_write_1h or 0
    if hour > write:
        hour = write
    total = share.input * known.input + (write - hour) * known.cache_write + hour * known.cache_write_1h
    return _rounded(total + read * known.cache_read + share.output * known.output)


def ready() -> None:
    """Load the table now, where it will be needed and there is nothing better to do."""
    _entry("")


def saving(known: Rates, cache_read: int) -> int:
    """Nano-dollars that reading tokens from the cache saved against sending them anew."""
    return _rounded(cache_read * (known.input - known.cache_read))


def rates(model: str, at: datetime | None) -> Rates | None:
    """What a token of each kind costs on that day; None for a model without a known price."""
    return _rates(model.removesuffix("[1m]"), at.date() if at is not None else None)


def _rounded(fine: int) -> int:
    whole, rest = divmod(fine, FINE)
    if not rest:
        return whole
    return whole + (rest * 2 > FINE or (rest * 2 == FINE and whole % 2 == 1))


@cache  # a model and a day each: a few thousand at most
def _rates(model: str, day: date | None) -> Rates | None:
    if model in own_prices():
        return own_prices()[model]
    entry = _entry(model)
    if entry is None:
        return None
    at = datetime.now(timezone.utc) if day is None else datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
    return _probed(model, _Same(entry.get_prices(at)), at)


# -- the user's own ----------------------------------------------------------------------------------------------


@cache
def own_prices() -> dict[str, Rates]:
    """The prices of the user's own file, by model. StenoError where the file cannot be read."""
    from pathlib import Path

    given = os.environ.get("STENO_PRICES")
    if given is None:
        from platformdirs import user_config_dir

        given = str(Path(user_config_dir("steno", appauthor=False)) / "prices.toml")
        if not Path(given).is_file():
            return {}
    return read_prices(given) if given else {}


def read_prices(path: str) -> dict[str, Rates]:
    """The prices in a file, checked."""
    import tomllib
    from pathlib import Path

    try:
        models = tomllib.loads(Path(path).read_text("utf-8")).get("models", {})
    except (OSError, ValueError) as problem:
        raise StenoError(f"{path}: the prices cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if not isinstance(models, dict):
        raise StenoError(f'{path}: expected tables such as [models."name"], found models = ...')
    return {name: _own(path, name, given) for name, given in models.items()}


def _own(path: str, name: str, given: Any) -> Rates:
    if not isinstance(given, dict):
        raise StenoError(f'{path}: models."{name}": expected a table with input and output in dollars for a million tokens')
    for key, value in given.items():
        if key not in KINDS:
            raise StenoError(f'{path}: models."{name}".{key}: not a kind of token; known: {", ".join(KINDS)}')
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise StenoError(f'{path}: models."{name}".{key}: expected dollars for a million tokens, found {value!r}')
    if "input" not in given or "output" not in given:
        raise StenoError(f'{path}: models."{name}": input and output are needed')
    full = {"cache_read": given["input"], "cache_write": given["input"], **given}
    full.setdefault("cache_write_1h", full["cache_write"])
    return Rates(**{kind: round(value * 1000 * FINE) for kind, value in full.items()})


# -- the table ---------------------------------------------------------------------------------------------------


class _Same:
    """A price of the table, told apart from others by being the same object: prices change a few times in a year."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __hash__(self) -> int:
        return id(self.given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.given is other.given


def table(today: date) -> tuple[str, date | None]:
    """The version of the table, and the latest day until today on which one of its prices changed."""
    from importlib.metadata import version

    from genai_prices.data_snapshot import get_snapshot

    dated = [model.prices for provider in get_snapshot().providers for model in provider.models]
    found = [getattr(price.constraint, "start_date", None) for prices in dated if isinstance(prices, list) for price in prices]
    return version("genai-prices"), max((day for day in found if day is not None and day <= today), default=None)


def _provider(model: str) -> str:
    """Who sells a model; Anthropic, whose table knows no other names, where the name does not say."""
    return next((provider for words, provider in PROVIDERS.items() if model.startswith(words)), "anthropic")


@cache
def _entry(model: str) -> Any:
    """The table's entry of a model, or None."""
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(input_tokens=1), model_ref=model, provider_id=_provider(model)).model
    except (LookupError, ValueError):
        return None


_seen: dict[tuple[str, _Same], Rates | None] = {}


def _probed(model: str, known: _Same, at: datetime) -> Rates | None:
    """The rates behind an entry, by asking the table for a million tokens of each kind alone, below its tiers."""
    if (model, known) not in _seen:
        tiers = [price.tiers[0].start for price in vars(known.given).values() if getattr(price, "tiers", None)]
        some = min(10_000, *tiers) if tiers else 10_000
        alone: dict[str, dict[str, int]] = {
            "input": {"input_tokens": some},
            "cache_write": {"input_tokens": some, "cache_write_tokens": some},
            "cache_read": {"input_tokens": some, "cache_read_tokens": some},
            "output": {"output_tokens": some},
            "cache_write_1h": {"input_tokens": some, "cache_write_tokens": some, "cache_write_1h_tokens": some},
        }
        parts = {kind: _asked(model, parts, at) for kind, parts in alone.items()}
        whole = {kind: part * FINE // some for kind, part in parts.items() if part is not None}
        _seen[model, known] = Rates(**whole, tier=min(tiers, default=None)) if len(whole) == len(alone) else None
    return _seen[model, known]


def _by_table(model: str, share: Any, at: datetime | None) -> int | None:
    """The table's own figure: for requests so large that other prices hold."""
    parts = {
        "input_tokens": share.input + share.cache_write + share.cache_read,
        "cache_write_tokens": share.cache_write,
        "cache_read_tokens": share.cache_read,
        "output_tokens": share.output,
    }
    hour = share.cache_write_1h or 0
    if hour:
        parts["cache_write_1h_tokens"] = hour
    return _asked(model.removesuffix("[1m]"), parts, at)


def _asked(model: str, parts: dict[str, int], at: datetime | None) -> int | None:
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(**parts), model_ref=model, provider_id=_provider(model), genai_request_timestamp=at)
    except (LookupError, ValueError):
        return None
    return round(found.total_price * NANO)
