"""Prices of model usage, from genai-prices and the user's own file.

The table comes with the genai-prices package. Importing it costs more than most reports, so its
answers are cached (`price_cache`), and it is imported only for models not in the cache. Prices in
the user's `prices.toml` (or the file that STENO_PRICES names) take precedence:

    [models."my-model"]        # dollars per million tokens; cache prices default to the input price
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

LONG_CONTEXT_SUFFIX = "[1m]"  # of a model's name, with a window of a million tokens
TOKEN_KINDS = ("input", "cache_write", "cache_read", "output", "cache_write_1h")


def price(model: str, share: Any, at: datetime | None) -> int | None:
    """Return nano-dollars for the token counters of `share`; None if the price is unknown."""
    counters = (share.input, share.cache_write, share.cache_read, share.output)
    if None in counters:
        return None
    if not any(counters):
        return 0
    known_rates = rates(model, at)
    if known_rates is None:
        return None
    cost = cost_of(known_rates, share)
    if cost is None:
        from .snapshot import table_price

        return table_price(model.removesuffix(LONG_CONTEXT_SUFFIX), share, at)
    return cost


def cost_of(rates: Rates, usage: Any) -> int | None:
    """Return nano-dollars; None if the request is above the tier that the rates cover."""
    write = usage.cache_write
    read = usage.cache_read
    if rates.tier is not None and usage.input + write + read > rates.tier:
        return None
    write_1h = usage.cache_write_1h or 0
    if write_1h > write:
        write_1h = write
    return _round_to_nano(
        usage.input * rates.input
        + (write - write_1h) * rates.cache_write
        + write_1h * rates.cache_write_1h
        + read * rates.cache_read
        + usage.output * rates.output
    )


def preload() -> None:
    """Import the table during idle time, unless cached prices make it unlikely to be needed."""
    from .price_cache import load_cached_periods

    if not load_cached_periods():
        import genai_prices  # noqa: F401  # imported for its side effect: it is loaded


def price_table_info(today: date) -> tuple[str, date | None]:
    """Return the version of the table and the date of its latest price change until today."""
    from .snapshot import table_info

    return table_info(today)


def cache_saving(rates: Rates, cache_read: int) -> int:
    """Return the nano-dollars saved by reading tokens from the cache."""
    return _round_to_nano(cache_read * (rates.input - rates.cache_read))


def rates(model: str, at: datetime | None) -> Rates | None:
    """Return the rates on a day (default: today); None for a model without a known price."""
    base_name = model.removesuffix(LONG_CONTEXT_SUFFIX)
    return _rates_on_day(base_name, at.date() if at is not None else None)


def _round_to_nano(scaled: int) -> int:
    """Divide by RATE_SCALE, rounding half to even."""
    whole, rest = divmod(scaled, RATE_SCALE)
    if not rest:
        return whole
    return whole + (rest * 2 > RATE_SCALE or (rest * 2 == RATE_SCALE and whole % 2 == 1))


@cache  # one entry per model and day: a few thousand at most
def _rates_on_day(model: str, day: date | None) -> Rates | None:
    if model in user_prices():
        return user_prices()[model]
    day = day or datetime.now(timezone.utc).date()
    for period in reversed(_periods(model)):
        if period.start is None or period.start <= day:
            return period.rates
    return None


@cache
def _periods(model: str) -> list[PricePeriod]:
    from .price_cache import load_cached_periods, store_periods

    periods = load_cached_periods().get(model)
    if periods is None:
        from .snapshot import price_periods

        periods = price_periods(model)
        store_periods(model, periods)
    return periods


# -- the user's prices ---------------------------------------------------------------------------


@cache
def user_prices() -> dict[str, Rates]:
    """Return the user's prices by model. StenoError if the file can't be read."""
    from pathlib import Path

    path = os.environ.get("STENO_PRICES")
    if path is None:
        from platformdirs import user_config_dir

        path = str(Path(user_config_dir("steno", appauthor=False)) / "prices.toml")
        if not Path(path).is_file():
            return {}
    return read_prices(path) if path else {}


def read_prices(path: str) -> dict[str, Rates]:
    import tomllib
    from pathlib import Path

    try:
        models = tomllib.loads(Path(path).read_text("utf-8")).get("models", {})
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StenoError(f"{path}: cannot read prices: {reason}") from None
    if not isinstance(models, dict):
        raise StenoError(f'{path}: expected tables such as [models."name"], found models = ...')
    return {name: _parse_rates(path, name, table) for name, table in models.items()}


def _parse_rates(path: str, name: str, table: Any) -> Rates:
    location = f'{path}: models."{name}"'
    if not isinstance(table, dict):
        raise StenoError(
            f"{location}: expected a table with input and output in dollars per million tokens"
        )
    for key, value in table.items():
        if key not in TOKEN_KINDS:
            raise StenoError(
                f"{location}.{key}: unknown key; expected one of {', '.join(TOKEN_KINDS)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise StenoError(
                f"{location}.{key}: expected dollars per million tokens, found {value!r}"
            )
    if "input" not in table or "output" not in table:
        raise StenoError(f"{location}: input and output are required")
    complete = {"cache_read": table["input"], "cache_write": table["input"], **table}
    complete.setdefault("cache_write_1h", complete["cache_write"])
    return Rates(**{kind: round(value * 1000 * RATE_SCALE) for kind, value in complete.items()})
