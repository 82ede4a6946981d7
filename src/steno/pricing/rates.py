"""Token rates and the periods they are valid for."""

from datetime import date

from msgspec import Struct

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
