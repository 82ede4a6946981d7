"""Money and time as integers, so that sums are exact: nano-dollars and milliseconds."""

NANO_PER_USD = 1_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
