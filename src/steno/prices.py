"""Money: the price of what a model was used for. The only place that knows prices; never guesses one.

The table is genai-prices, bundled with that package and dated; it is imported when the first price is
asked for, because its import costs more than a report.
"""

from datetime import datetime
from typing import Any

NANO = 1_000_000_000
PROVIDER = "anthropic"


def price(model: str, share: Any, at: datetime | None) -> int | None:
    """Nano-dollars for the counters of `share` on `model` at that time; None when it cannot be known."""
    counters = (share.input, share.cache_write, share.cache_read, share.output)
    if None in counters:
        return None
    if not any(counters):
        return 0
    hour = share.cache_write_1h or 0
    parts = {
        "input_tokens": share.input + share.cache_write + share.cache_read,
        "cache_write_tokens": share.cache_write,
        "cache_read_tokens": share.cache_read,
        "output_tokens": share.output,
    }
    return _calculate(model.removesuffix("[1m]"), parts, hour, at)


def _calculate(model: str, parts: dict[str, int], hour: int, at: datetime | None) -> int | None:
    from genai_prices import Usage, calc_price

    if hour:
        parts = {**parts, "cache_write_1h_tokens": hour}
    try:
        found = calc_price(Usage(**parts), model_ref=model, provider_id=PROVIDER, genai_request_timestamp=at)
    except (LookupError, ValueError):
        return None
    return round(found.total_price * NANO)
