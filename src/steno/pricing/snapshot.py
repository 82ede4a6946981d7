"""The price table of genai-prices. Importing it takes 200 ms, so it is loaded only on a cache miss."""

from datetime import date, datetime, timedelta, timezone
from importlib.metadata import version
from typing import Any

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot

from .rates import NANO_PER_USD, RATE_SCALE, PricePeriod, Rates

# Whose price holds for a model, by how its name begins: the same model costs something else with each reseller.
PROVIDERS = {
    "claude": "anthropic",
    "gemini": "google",
    **dict.fromkeys(("gpt-", "o1", "o3", "o4", "codex", "chatgpt"), "openai"),
    "grok": "x-ai",
    "deepseek": "deepseek",
}


def table_info(today: date) -> tuple[str, date | None]:
    """The version of the table, and the latest day until today on which one of its prices changed."""
    found = [
        day
        for provider in get_snapshot().providers
        for model in provider.models
        for day in _price_change_days(model)
    ]
    return version("genai-prices"), max((day for day in found if day <= today), default=None)


def price_periods(model: str) -> list[PricePeriod]:
    """What a model cost, and from when on; the oldest first. None at all: the table does not know the model."""
    entry = _table_entry(model)
    if entry is None:
        return []
    starts = _price_change_days(entry)
    first = min(starts, default=date(2026, 1, 1)) - timedelta(days=1)
    return [
        PricePeriod(None, _probe_rates(model, entry, first)),
        *(PricePeriod(day, _probe_rates(model, entry, day)) for day in starts),
    ]


def table_price(model: str, share: Any, at: datetime | None) -> int | None:
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
    return _calculate_price(model, parts, at)


def _price_change_days(entry: Any) -> list[date]:
    """The days on which prices of a model changed."""
    dated = entry.prices if isinstance(entry.prices, list) else []
    found = {getattr(price.constraint, "start_date", None) for price in dated}
    return sorted(day for day in found if day is not None)


def _provider(model: str) -> str:
    """Who sells a model; Anthropic, whose table knows no other names, where the name does not say."""
    return next(
        (provider for words, provider in PROVIDERS.items() if model.startswith(words)), "anthropic"
    )


def _table_entry(model: str) -> Any:
    """The table's entry of a model, or None."""
    try:
        return calc_price(
            Usage(input_tokens=1), model_ref=model, provider_id=_provider(model)
        ).model
    except (LookupError, ValueError):
        return None


def _probe_rates(model: str, entry: Any, day: date) -> Rates | None:
    """The rates behind an entry at noon, by asking for a number of tokens of each kind alone, below its tiers."""
    at = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
    tiers = [
        price.tiers[0].start
        for price in vars(entry.get_prices(at)).values()
        if getattr(price, "tiers", None)
    ]
    some = min(10_000, *tiers) if tiers else 10_000
    alone: dict[str, dict[str, int]] = {
        "input": {"input_tokens": some},
        "cache_write": {"input_tokens": some, "cache_write_tokens": some},
        "cache_read": {"input_tokens": some, "cache_read_tokens": some},
        "output": {"output_tokens": some},
        "cache_write_1h": {
            "input_tokens": some,
            "cache_write_tokens": some,
            "cache_write_1h_tokens": some,
        },
    }
    parts = {kind: _calculate_price(model, parts, at) for kind, parts in alone.items()}
    whole = {kind: part * RATE_SCALE // some for kind, part in parts.items() if part is not None}
    return Rates(**whole, tier=min(tiers, default=None)) if len(whole) == len(alone) else None


def _calculate_price(model: str, parts: dict[str, int], at: datetime | None) -> int | None:
    try:
        found = calc_price(
            Usage(**parts),
            model_ref=model,
            provider_id=_provider(model),
            genai_request_timestamp=at,
        )
    except (LookupError, ValueError):
        return None
    return round(found.total_price * NANO_PER_USD)
