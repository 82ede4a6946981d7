"""Money: the price of what a model was used for. The only place that knows prices; never guesses one.

The table is genai-prices, bundled with that package and dated (`snapshot`). Its import costs more than a report, so what it
says of a model is kept in the user's cache (`kept`), and it is imported for a model that was never asked for before.
What the user writes in `prices.toml` (or the file that STENO_PRICES names) goes before it:

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

from ..errors import StenoError
from .rates import NANO_PER_USD, RATE_SCALE, PricePeriod, Rates

__all__ = [
    "NANO_PER_USD",
    "Rates",
    "cache_saving",
    "cost_of",
    "preload",
    "price",
    "price_table_info",
    "rates",
    "read_prices",
    "user_prices",
]

TOKEN_KINDS = ("input", "cache_write", "cache_read", "output", "cache_write_1h")


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
    if cost is None:
        from .snapshot import table_price

        return table_price(model.removesuffix("[1m]"), share, at)
    return cost


def cost_of(known: Rates, share: Any) -> int | None:
    """Nano-dollars at these rates; None if the request is so large that others hold."""
    write, read = share.cache_write, share.cache_read
    if known.tier is not None and share.input + write + read > known.tier:
        return None
    hour = share.cache_write_1h or 0
    if hour > write:
        hour = write
    total = (
        share.input * known.input + (write - hour) * known.cache_write + hour * known.cache_write_1h
    )
    return _round_to_nano(total + read * known.cache_read + share.output * known.output)


def preload() -> None:
    """Load the table now, where it may be needed and there is nothing better to do: not where prices of models are kept."""
    from .price_cache import load_cached_periods

    if not load_cached_periods():
        import genai_prices  # noqa: F401


def price_table_info(today: date) -> tuple[str, date | None]:
    """The version of the table, and the latest day until today on which one of its prices changed."""
    from .snapshot import table_info

    return table_info(today)


def cache_saving(known: Rates, cache_read: int) -> int:
    """Nano-dollars that reading tokens from the cache saved against sending them anew."""
    return _round_to_nano(cache_read * (known.input - known.cache_read))


def rates(model: str, at: datetime | None) -> Rates | None:
    """What a token of each kind costs on that day; None for a model without a known price."""
    return _rates_on_day(model.removesuffix("[1m]"), at.date() if at is not None else None)


def _round_to_nano(fine: int) -> int:
    whole, rest = divmod(fine, RATE_SCALE)
    if not rest:
        return whole
    return whole + (rest * 2 > RATE_SCALE or (rest * 2 == RATE_SCALE and whole % 2 == 1))


@cache  # a model and a day each: a few thousand at most
def _rates_on_day(model: str, day: date | None) -> Rates | None:
    if model in user_prices():
        return user_prices()[model]
    day = day or datetime.now(timezone.utc).date()
    return next(
        (
            period.rates
            for period in reversed(_periods(model))
            if period.start is None or period.start <= day
        ),
        None,
    )


@cache
def _periods(model: str) -> list[PricePeriod]:
    from .price_cache import load_cached_periods, store_periods

    found = load_cached_periods().get(model)
    if found is None:
        from .snapshot import price_periods

        found = price_periods(model)
        store_periods(model, found)
    return found


# -- the user's own ----------------------------------------------------------------------------------------------


@cache
def user_prices() -> dict[str, Rates]:
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
        raise StenoError(
            f"{path}: the prices cannot be read: {getattr(problem, 'strerror', None) or problem}"
        ) from None
    if not isinstance(models, dict):
        raise StenoError(f'{path}: expected tables such as [models."name"], found models = ...')
    return {name: _parse_rates(path, name, given) for name, given in models.items()}


def _parse_rates(path: str, name: str, given: Any) -> Rates:
    if not isinstance(given, dict):
        raise StenoError(
            f'{path}: models."{name}": expected a table with input and output in dollars for a million tokens'
        )
    for key, value in given.items():
        if key not in TOKEN_KINDS:
            raise StenoError(
                f'{path}: models."{name}".{key}: not a kind of token; known: {", ".join(TOKEN_KINDS)}'
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise StenoError(
                f'{path}: models."{name}".{key}: expected dollars for a million tokens, found {value!r}'
            )
    if "input" not in given or "output" not in given:
        raise StenoError(f'{path}: models."{name}": input and output are needed')
    full = {"cache_read": given["input"], "cache_write": given["input"], **given}
    full.setdefault("cache_write_1h", full["cache_write"])
    return Rates(**{kind: round(value * 1000 * RATE_SCALE) for kind, value in full.items()})
