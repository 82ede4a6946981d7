"""Prices of model usage, from genai-prices and the user's own file.

The table comes with the genai-prices package. Importing it costs more than most reports, so its
answers are cached on disk, and it is imported only for models not in the cache. Prices in
the user's `prices.toml` (or the file that STENO_PRICES names) take precedence:

    [models."my-model"]        # dollars per million tokens; cache prices default to the input price
    input = 3.0
    output = 15.0
    cache_read = 0.3
    cache_write = 3.75
    cache_write_1h = 6.0
"""

import os
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct, json

from .errors import StenoError
from .private_files import cache_path, write_cache_file
from .units import NANO_PER_USD

RATE_SCALE = 1_000_000  # rates are in millionths of a nano-dollar, so that all sums are integers
LONG_CONTEXT_SUFFIX = "[1m]"  # of a model's name, with a window of a million tokens
TOKEN_KINDS = ("input", "cache_write", "cache_read", "output", "cache_write_1h")


class Rates(Struct, frozen=True):
    """Price of one token, in millionths of a nano-dollar, up to `tier` input tokens."""

    input: int
    cache_write: int
    cache_read: int
    output: int
    cache_write_1h: int
    tier: int | None = None


class PricePeriod(Struct, frozen=True):
    """Rates from a day on (None: from the beginning); `rates` is None if unknown."""

    start: date | None
    rates: Rates | None


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

    if not load_cached_periods():
        import genai_prices  # noqa: F401  # imported for its side effect: it is loaded


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
    periods = load_cached_periods().get(model)
    if periods is None:
        periods = price_periods(model)
        store_periods(model, periods)
    return periods


# -- the user's prices ---------------------------------------------------------------------------


@cache
def user_prices() -> dict[str, Rates]:
    """Return the user's prices by model. StenoError if the file can't be read."""
    path = os.environ.get("STENO_PRICES")
    if path is None:
        from platformdirs import user_config_dir

        path = str(Path(user_config_dir("steno", appauthor=False)) / "prices.toml")
        if not Path(path).is_file():
            return {}
    return read_prices(path) if path else {}


def read_prices(path: str) -> dict[str, Rates]:
    import tomllib

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


# -- the cache on disk -----------------------------------------------------------------------------


CACHE_FILE_NAME = "prices-1.json"  # the number changes with the format
MAX_CACHED_MODELS = 500  # agents may report any name
MAX_MODEL_NAME_CHARS = 200


class PriceCache(Struct):
    table: str  # fingerprint of the table that the prices come from
    models: dict[str, list[PricePeriod]] = {}


@cache
def load_cached_periods() -> dict[str, list[PricePeriod]]:
    """Return the cached prices by model; empty if they come from another table."""
    with suppress(OSError, DecodeError, RuntimeError):  # missing, damaged, no home folder
        cached = json.decode(cache_path(CACHE_FILE_NAME).read_bytes(), type=PriceCache)
        if cached.table == _table_fingerprint():
            return cached.models
    return {}


def store_periods(model: str, periods: list[PricePeriod]) -> None:
    from .codec.redact import redact

    models = load_cached_periods()
    if (
        len(model) > MAX_MODEL_NAME_CHARS
        or len(models) >= MAX_CACHED_MODELS
        or not model.isascii()
        or redact(model) != model
        or not _table_fingerprint()
    ):
        return
    models[model] = periods
    with suppress(OSError, RuntimeError):
        data = json.encode(PriceCache(_table_fingerprint(), models))
        write_cache_file(cache_path(CACHE_FILE_NAME), data)


@cache
def _table_fingerprint() -> str:
    """Return path, size and time of the installed table; empty if it can't be found."""
    from importlib.util import find_spec

    with suppress(OSError, ImportError):
        spec = find_spec("genai_prices")
        for folder in (spec and spec.submodule_search_locations) or ():
            file = Path(folder, "data.py")
            stat = file.stat()
            return f"{file} {stat.st_size} {stat.st_mtime_ns}"
    return ""


# -- the price table: its import takes 200 ms ------------------------------------------------------

# The provider of a model by prefix of its name: each reseller has its own prices.
PROVIDERS = {
    "claude": "anthropic",
    "gemini": "google",
    **dict.fromkeys(("gpt-", "o1", "o3", "o4", "codex", "chatgpt"), "openai"),
    "grok": "x-ai",
    "deepseek": "deepseek",
}


def price_table_info(today: date) -> tuple[str, date | None]:
    """Return the version of the table and the date of its latest price change until today."""
    from importlib.metadata import version

    from genai_prices.data_snapshot import get_snapshot

    days = [
        day
        for provider in get_snapshot().providers
        for model in provider.models
        for day in _price_change_days(model)
    ]
    return version("genai-prices"), max((day for day in days if day <= today), default=None)


def price_periods(model: str) -> list[PricePeriod]:
    """Return the rates of a model, oldest first; empty if the table doesn't know it."""
    from genai_prices import Usage, calc_price

    probe = Usage(input_tokens=1)
    try:
        entry = calc_price(probe, model_ref=model, provider_id=_provider(model)).model
    except (LookupError, ValueError):
        return []
    starts = _price_change_days(entry)
    first = min(starts, default=date(2026, 1, 1)) - timedelta(days=1)
    return [
        PricePeriod(None, _probe_rates(model, entry, first)),
        *(PricePeriod(day, _probe_rates(model, entry, day)) for day in starts),
    ]


def table_price(model: str, usage: Any, at: datetime | None) -> int | None:
    """Return the table's own price, for requests above the tier that our rates cover."""
    tokens = {
        "input_tokens": usage.input + usage.cache_write + usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "cache_read_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
    write_1h = usage.cache_write_1h or 0
    if write_1h:
        tokens["cache_write_1h_tokens"] = write_1h
    return _calculate_price(model, tokens, at)


def _price_change_days(entry: Any) -> list[date]:
    dated = entry.prices if isinstance(entry.prices, list) else []
    days = {getattr(price.constraint, "start_date", None) for price in dated}
    return sorted(day for day in days if day is not None)


def _provider(model: str) -> str:
    """Return the provider of a model; Anthropic, which has no entry for other names, if unknown."""
    for prefix, provider in PROVIDERS.items():
        if model.startswith(prefix):
            return provider
    return "anthropic"


def _probe_rates(model: str, entry: Any, day: date) -> Rates | None:
    """Derive the rates from prices for tokens of each kind alone, below all tiers, at noon."""
    at = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
    tiers = [
        price.tiers[0].start
        for price in vars(entry.get_prices(at)).values()
        if getattr(price, "tiers", None)
    ]
    count = min(10_000, *tiers) if tiers else 10_000
    tokens_by_kind: dict[str, dict[str, int]] = {
        "input": {"input_tokens": count},
        "cache_write": {"input_tokens": count, "cache_write_tokens": count},
        "cache_read": {"input_tokens": count, "cache_read_tokens": count},
        "output": {"output_tokens": count},
        "cache_write_1h": {
            "input_tokens": count,
            "cache_write_tokens": count,
            "cache_write_1h_tokens": count,
        },
    }
    rates = {}
    for kind, tokens in tokens_by_kind.items():
        price = _calculate_price(model, tokens, at)
        if price is None:
            return None
        rates[kind] = price * RATE_SCALE // count
    return Rates(**rates, tier=min(tiers, default=None))


def _calculate_price(model: str, tokens: dict[str, int], at: datetime | None) -> int | None:
    from genai_prices import Usage, calc_price

    try:
        result = calc_price(
            Usage(**tokens),
            model_ref=model,
            provider_id=_provider(model),
            genai_request_timestamp=at,
        )
    except (LookupError, ValueError):
        return None
    return round(result.total_price * NANO_PER_USD)
