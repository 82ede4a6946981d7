"""Prices from the genai-prices table: the periods of a model's rates, cached on disk."""

import os
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from msgspec import DecodeError, Struct, json

from ..codec.redact import redact
from ..event import NANO_PER_USD as NANO_PER_USD

RATE_SCALE = 1_000_000  # rates are in millionths of a nano-dollar, so that all sums are integers


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


# The provider of a model by prefix of its name: each reseller has its own prices.
PROVIDERS = {
    "claude": "anthropic",
    "gemini": "google",
    **dict.fromkeys(("gpt-", "o1", "o3", "o4", "codex", "chatgpt"), "openai"),
    "grok": "x-ai",
    "deepseek": "deepseek",
}


def table_info(today: date) -> tuple[str, date | None]:
    """Return the version of the table and the date of its latest price change until today."""
    days = [
        day
        for provider in get_snapshot().providers
        for model in provider.models
        for day in _price_change_days(model)
    ]
    return version("genai-prices"), max((day for day in days if day <= today), default=None)


def price_periods(model: str) -> list[PricePeriod]:
    """Return the rates of a model, oldest first; empty if the table doesn't know it."""
    entry = _table_entry(model)
    if entry is None:
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


def _table_entry(model: str) -> Any:
    try:
        return calc_price(
            Usage(input_tokens=1), model_ref=model, provider_id=_provider(model)
        ).model
    except (LookupError, ValueError):
        return None


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
        cached = json.decode(_cache_path().read_bytes(), type=PriceCache)
        if cached.table == _table_fingerprint():
            return cached.models
    return {}


def store_periods(model: str, periods: list[PricePeriod]) -> None:
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
        path = _cache_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{CACHE_FILE_NAME}.{os.getpid()}")
        temporary.write_bytes(json.encode(PriceCache(_table_fingerprint(), models)))
        temporary.replace(path)


def _cache_path() -> Path:
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("steno", appauthor=False)) / CACHE_FILE_NAME


@cache
def _table_fingerprint() -> str:
    """Return path, size and time of the installed table; empty if it can't be found."""
    with suppress(OSError, ImportError):
        spec = find_spec("genai_prices")
        for folder in (spec and spec.submodule_search_locations) or ():
            file = Path(folder, "data.py")
            stat = file.stat()
            return f"{file} {stat.st_size} {stat.st_mtime_ns}"
    return ""
