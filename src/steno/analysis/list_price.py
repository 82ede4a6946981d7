"""Compare the cost that an agent reports with the price list. Pure.

The agent's figure counts, but its program may have wrong prices: Claude Code 2.1.63 charges
claude-sonnet-4-6 like a larger model, and older versions charge cache writes for an hour like those
for five minutes.
"""

from datetime import datetime
from typing import Any, Protocol

from msgspec.structs import replace

from ..event import ModelUsage
from ..report import ModelSummary, Report
from ..units import NANO_PER_USD
from .usage import ModelKeys, nano_to_usd, sum_optional

TOLERANCE = 0.1  # of the list price: rounding, and requests that a stream does not show
WEB_SEARCH_NANO = NANO_PER_USD // 100  # Anthropic's price of one
MAX_EQUAL_REQUESTS = 1000  # upper limit for pricing a run as equal requests; runs have hundreds


class PriceLookup(Protocol):
    """Returns the cost of a model's usage at a time in nano-dollars; None if unknown."""

    def __call__(self, model: str, share: Any, at: datetime | None) -> int | None: ...


def contradiction(report: Report, price: PriceLookup, at: datetime | None) -> str | None:
    """Both figures, if the reported cost differs from the list price of the reported tokens."""
    if report.cost.source != "reported" or report.cost.usd is None or not report.models:
        return None
    main = ModelKeys(report.models).find(report.model or "") or next(iter(report.models))
    shares = {name: _usage_of(model) for name, model in report.models.items()}
    shares[main] = replace(shares[main], cache_write_1h=report.cache_write_1h or 0)
    searches = report.web_searches or sum(m.web_searches or 0 for m in report.models.values())
    whole = sum_optional(price(name, share, at) for name, share in shares.items())
    # Some prices depend on the size of the request.
    count = report.requests or report.turns or 1
    split = sum_optional(
        price_equal_requests(share, count if name == main else 1, name, price, at)
        for name, share in shares.items()
    )
    listed = [
        (nano_to_usd(cost + WEB_SEARCH_NANO * searches) or 0.0)
        for cost in (whole, split)
        if cost is not None
    ]
    if not listed or any(abs(report.cost.usd - usd) <= TOLERANCE * usd for usd in listed):
        return None
    return (
        f"the agent reports a cost of ${report.cost.usd:.6f}, "
        f"but its tokens cost ${listed[-1]:.6f} by the price list"
    )


def _usage_of(model: ModelSummary) -> ModelUsage:
    return ModelUsage(model.input, model.cache_write, model.cache_read, model.output)


def price_equal_requests(
    share: ModelUsage, count: int, model: str, price: PriceLookup, at: datetime | None
) -> int | None:
    """The cost of the share split into `count` equal requests; None if it cannot be split."""
    names = ("input", "cache_write", "cache_read", "output", "cache_write_1h")
    counters = {name: getattr(share, name) for name in names}
    if counters["cache_write_1h"] is None:
        counters["cache_write_1h"] = 0
    if not 1 <= count <= MAX_EQUAL_REQUESTS or None in counters.values():
        return None
    parts = [
        {name: total * (n + 1) // count - total * n // count for name, total in counters.items()}
        for n in range(count)
    ]
    return sum_optional(price(model, ModelUsage(**part), at) for part in parts)
