"""The price table of genai-prices. Its import takes 200 ms: only on a cache miss."""

from datetime import date, datetime, timedelta, timezone
from importlib.metadata import version
from typing import Any

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot

from .rates import NANO_PER_USD, RATE_SCALE, PricePeriod, Rates

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
