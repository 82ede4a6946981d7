"""Sums over requests and calls. Whole numbers and nano-dollars, so that they can be added exactly. It never asks."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import astuple

from ..analysis.usage import cache_hit_rate, nano_to_usd
from ..report import Tokens

TIME_GROUPINGS = ("day", "week", "month")
GROUPINGS = (*TIME_GROUPINGS, "project", "model", "agent", "session")


class UsageTotals(Struct):
    """What any number of requests come to."""

    requests: int = 0
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    reasoning: int = 0
    reported_nano: int = 0
    computed_nano: int = 0
    saved_nano: int = 0
    unpriced: int = 0
    unpriced_tokens: int = 0

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Both together."""
        return sum_totals((self, other))

    @property
    def tokens(self) -> Tokens:
        """The four counters and their sum; unknown where something was asked and nothing told what that used."""
        total = self.input + self.cache_write + self.cache_read + self.output
        if not total and self.unpriced and self.unpriced >= self.requests:
            return Tokens()
        return Tokens(
            self.input, self.cache_write, self.cache_read, self.output, self.reasoning, total
        )

    @property
    def cost_nano(self) -> int | None:
        """All that has a price; None where nothing has one and something should."""
        known = self.reported_nano + self.computed_nano
        return None if self.unpriced and not known and self.requests <= self.unpriced else known

    @property
    def usd(self) -> float | None:
        """The same in dollars."""
        return nano_to_usd(self.cost_nano)

    @property
    def cache_hit_rate(self) -> float | None:
        """The part of the input that came from the cache."""
        return cache_hit_rate(self.tokens)

    def as_json(self) -> dict[str, Any]:
        """The sums under the names of the report."""
        cost = {
            "usd": self.usd,
            "reported_usd": nano_to_usd(self.reported_nano),
            "computed_usd": nano_to_usd(self.computed_nano),
            "unpriced_requests": self.unpriced,
            "unpriced_tokens": self.unpriced_tokens if self.tokens.total is not None else None,
            "saved_usd": nano_to_usd(self.saved_nano),
        }
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "cache_hit_rate": self.cache_hit_rate,
            "cost": cost,
        }


def sum_totals(parts: Iterable[UsageTotals]) -> UsageTotals:
    """All of them added up."""
    return UsageTotals(*map(sum, zip(*map(astuple, parts), strict=True)))


class UsageRow(Struct):
    """One line of a report: what it is about (None: not known), and its sums. A session also has its project and title."""

    key: str | None
    totals: UsageTotals
    project: str | None = None
    title: str | None = None

    def as_json(self, by: str) -> dict[str, Any]:
        """The line as a row; its first name is what it was grouped by."""
        more = {"project": self.project, "title": self.title} if by == "session" else {}
        return {by: self.key, **more, **self.totals.as_json()}


class WastedCost(Struct):
    """What runs cost that did not succeed."""

    runs: int = 0
    cost_nano: int = 0
    unpriced: int = 0

    def as_json(self) -> dict[str, Any]:
        """Null where runs failed and none of them has a price."""
        known = self.runs > self.unpriced or not self.runs
        return {
            "runs": self.runs,
            "usd": nano_to_usd(self.cost_nano) if known else None,
            "unpriced_runs": self.unpriced,
        }


class ContextPeak(Struct):
    """The fullest that a context was, and whose it was."""

    used: int
    limit: int | None
    session: str


class UsageReport(Struct):
    """The answer to `report`."""

    by: str
    rows: list[UsageRow]
    total: UsageTotals
    wasted: WastedCost = field(default_factory=WastedCost)
    peak_context: ContextPeak | None = None
    unpriced: list[UsageRow] = []  # by model
    runs_without_usage: int = 0  # runs that say nothing of what they used: they are in no line


class ToolCallStats(Struct):
    """What became of the calls of one tool, or of all."""

    calls: int = 0
    errors: int = 0
    denied: int = 0
    open: int = 0
    timed: int = 0
    total_ms: int = 0
    slowest_ms: int | None = None
    name: str | None = None

    def plus(self, other: "ToolCallStats") -> "ToolCallStats":
        """Both together, under the first one's name."""
        slowest = max(
            (one.slowest_ms for one in (self, other) if one.slowest_ms is not None), default=None
        )
        counts = {name: getattr(self, name) + getattr(other, name) for name in TOOL_COUNT_FIELDS}
        return ToolCallStats(**counts, slowest_ms=slowest, name=self.name)

    @property
    def error_rate(self) -> float | None:
        """The part of the calls with an answer that failed; refused ones are no failures of the tool."""
        answered = self.calls - self.denied - self.open
        return self.errors / answered if answered > 0 else None

    @property
    def mean_ms(self) -> float | None:
        """How long a call took, of those whose time is known."""
        return self.total_ms / self.timed if self.timed else None

    def as_json(self) -> dict[str, Any]:
        """The sums as a row, without the tool's name."""
        return {
            "calls": self.calls,
            "errors": self.errors,
            "error_rate": self.error_rate,
            "denied": self.denied,
            "open": self.open,
            "mean_ms": self.mean_ms,
            "slowest_ms": self.slowest_ms,
        }


TOOL_COUNT_FIELDS = ("calls", "errors", "denied", "open", "timed", "total_ms")
