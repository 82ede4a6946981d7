"""Token rates and the periods they are valid for. Values only."""

from datetime import date

from msgspec import Struct

from ..event import NANO_PER_USD as NANO_PER_USD

RATE_SCALE = 1_000_000  # rates are kept in millionths of a nano-dollar, so that sums of whole tokens stay whole


class Rates(Struct, frozen=True):
    """What one token costs, in millionths of a nano-dollar. From `tier` input tokens on, other prices hold."""

    input: int
    cache_write: int
    cache_read: int
    output: int
    cache_write_1h: int
    tier: int | None = None


class PricePeriod(Struct, frozen=True):
    """What holds from a day on (None: from the beginning); `rates` None: no price is known."""

    start: date | None
    rates: Rates | None
