"""The hourly sums in `spend` and `tool_use`, and the totals of runs and sessions."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import astuple

from ..analysis.usage import cache_hit_rate, nano_to_usd
from ..report import Tokens
from ..units import HOUR_MS, MINUTE_MS
from .protocol import Row, Store
from .rows import ParsedToolCall


class SpendSums(Struct, gc=False):
    """The sum columns of `spend`."""

    requests: int = 0
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    reasoning: int = 0
    cache_write_1h: int = 0
    reported_nano: int = 0
    computed_nano: int = 0
    saved_nano: int = 0
    unpriced: int = 0
    unpriced_tokens: int = 0
    partial: int = 0


class ToolUseSums(Struct, gc=False):
    """The columns of `tool_use` after its key; all but `slowest_ms` are sums."""

    calls: int = 0
    errors: int = 0
    denied: int = 0
    open: int = 0
    timed: int = 0
    total_ms: int = 0
    slowest_ms: int = 0


SPEND_COLUMNS = ("session", "model", "hour", "agent", "project", *SpendSums.__struct_fields__)
ADD_TO_SPEND = "ON CONFLICT (session, model, hour) DO UPDATE SET " + ", ".join(
    f"{name} = spend.{name} + excluded.{name}" for name in SpendSums.__struct_fields__
)
DELETE_EMPTY_SPEND = "DELETE FROM spend WHERE hour = ? AND session = ? AND model = ?" + "".join(
    f" AND {name} = 0" for name in SpendSums.__struct_fields__
)
TOOL_USE_COLUMNS = ("hour", "agent", "project", "name", *ToolUseSums.__struct_fields__)
ADD_TO_TOOL_USE = "ON CONFLICT (hour, agent, project, name) DO UPDATE SET " + ", ".join(
    f"{name} = tool_use.{name} + excluded.{name}"
    if name != "slowest_ms"
    else f"{name} = CASE WHEN excluded.{name} > tool_use.{name} "
    f"THEN excluded.{name} ELSE tool_use.{name} END"
    for name in ToolUseSums.__struct_fields__
)

# Pending changes to the tables of sums.
SpendDeltas = dict[tuple[str, str, int], SpendSums]  # by session, model and hour
ToolUseDeltas = dict[tuple[int, str, str, str], ToolUseSums]  # by hour, agent, project and name


def add_requests(deltas: SpendDeltas, rows: Iterable[Row], sign: int = 1) -> None:
    """Add rows of `requests` to the pending sums, or subtract them with sign -1.

    One loop over plain rows: the speed of imports depends on it.
    """
    for row in rows:
        _, _, session, _, _, _, _, model, at, input_, write, read, output, *others = row
        reasoning, write_1h, cost, saved, source, count, _, _, partial = others
        key = (session, model, at // HOUR_MS)
        total = deltas.get(key)
        if total is None:
            total = deltas[key] = SpendSums()
        total.requests += sign * count
        total.input += sign * input_
        total.cache_write += sign * write
        total.cache_read += sign * read
        total.output += sign * output
        total.reasoning += sign * reasoning
        total.cache_write_1h += sign * write_1h
        total.saved_nano += sign * saved
        total.partial += sign * partial
        if cost is None:
            total.unpriced_tokens += sign * (input_ + write + read + output)
            total.unpriced += sign * count
        elif source == "reported":
            total.reported_nano += sign * cost
        elif source == "computed":
            total.computed_nano += sign * cost


def upsert_spend(store: Store, deltas: SpendDeltas, agent: str, projects: dict[str, str]) -> None:
    """Apply the pending sums, sorted; `projects` are those of the sessions, empty if unknown."""
    rows = [
        (session, model, hour, agent, projects.get(session, ""), *astuple(sums))
        for (session, model, hour), sums in sorted(deltas.items())
    ]
    store.upsert("spend", SPEND_COLUMNS, rows, ADD_TO_SPEND)
    emptied = [key for key, sums in deltas.items() if min(astuple(sums)) < 0]
    for session, model, hour in emptied:
        store.execute(DELETE_EMPTY_SPEND, (hour, session, model))


def add_call(
    deltas: ToolUseDeltas,
    agent: str,
    call: ParsedToolCall,
    projects: dict[str, str],
    sign: int = 1,
) -> None:
    """Add a tool call to the pending sums, or subtract it with sign -1."""
    key = (call.at // HOUR_MS, agent, projects.get(call.session, ""), call.name)
    total = deltas.get(key)
    if total is None:
        total = deltas[key] = ToolUseSums()
    total.calls += sign
    if call.denied:
        total.denied += sign
    elif call.ok is None:
        total.open += sign
    elif not call.ok:
        total.errors += sign
    if call.duration_ms is not None:
        total.timed += sign
        total.total_ms += sign * call.duration_ms
        if sign == 1 and call.duration_ms > total.slowest_ms:
            total.slowest_ms = call.duration_ms


def upsert_tool_use(store: Store, deltas: ToolUseDeltas) -> None:
    rows = [(*key, *astuple(sums)) for key, sums in sorted(deltas.items())]
    store.upsert("tool_use", TOOL_USE_COLUMNS, rows, ADD_TO_TOOL_USE)


def replace_on_conflict(columns: tuple[str, ...], key: str = "id") -> str:
    """Return the clause that replaces the existing row with the same key."""
    parts = [f"{name} = excluded.{name}" for name in columns if name != key]
    return f"ON CONFLICT ({key}) DO UPDATE SET {', '.join(parts)}"


BLOCK_HOURS = 5  # the window of a subscription's usage limit
BLOCK_MS = BLOCK_HOURS * HOUR_MS
TIME_GROUPINGS = ("day", "week", "month")
# Columns of runs and sessions by which usage is grouped; tags are those of runs alone.
ORIGIN_COLUMNS = {
    "host": "host",
    "user": "user_name",
    "repository": "repository",
    "branch": "branch",
}
GROUPINGS = (*TIME_GROUPINGS, "project", "model", "agent", "session", *ORIGIN_COLUMNS, "tag")


class UsageTotals(Struct):
    """Totals of any number of requests."""

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
    partial: int = 0  # requests and runs whose figures are a lower bound

    def plus(self, other: "UsageTotals") -> "UsageTotals":
        """Return the sum of both."""
        return sum_totals((self, other))

    @property
    def tokens(self) -> Tokens:
        """Token counters and their total; unknown if no request reported its usage."""
        total = self.input + self.cache_write + self.cache_read + self.output
        if not total and self.unpriced and self.unpriced >= self.requests:
            return Tokens()
        return Tokens(
            input=self.input,
            cache_write=self.cache_write,
            cache_read=self.cache_read,
            output=self.output,
            reasoning=self.reasoning,
            total=total,
        )

    @property
    def known_requests(self) -> int | None:
        """Number of requests, as far as they are listed; None if only totals are known."""
        return self.requests if self.requests or not self.tokens.total else None

    @property
    def cost_nano(self) -> int | None:
        """Cost of all priced requests; None if there are requests and none has a price."""
        known = self.reported_nano + self.computed_nano
        is_unpriced = self.unpriced or self.unpriced_tokens
        return None if is_unpriced and not known and self.requests <= self.unpriced else known

    @property
    def usd(self) -> float | None:
        """Cost in dollars."""
        return nano_to_usd(self.cost_nano)

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached part of the input."""
        return cache_hit_rate(self.tokens)

    @property
    def is_lower_bound(self) -> bool:
        """Whether a source of the figures says that it leaves something out."""
        return self.partial > 0

    def as_json(self) -> dict[str, Any]:
        """Return JSON values with the names of the report."""
        cost = {
            "usd": self.usd,
            "reported_usd": nano_to_usd(self.reported_nano),
            "computed_usd": nano_to_usd(self.computed_nano),
            "unpriced_requests": self.unpriced,
            "unpriced_tokens": self.unpriced_tokens if self.tokens.total is not None else None,
            "saved_usd": nano_to_usd(self.saved_nano),
        }
        return {
            "requests": self.known_requests,
            "is_lower_bound": self.is_lower_bound,
            "tokens": to_builtins(self.tokens),
            "cache_hit_rate": self.cache_hit_rate,
            "cost": cost,
        }


def sum_totals(parts: Iterable[UsageTotals]) -> UsageTotals:
    """Return the sum of all parts."""
    return UsageTotals(*map(sum, zip(*map(astuple, parts), strict=True)))


class UsageRow(Struct):
    """One row of a usage report; `key` is None if unknown. Sessions have a project and title."""

    key: str | None
    totals: UsageTotals
    project: str | None = None
    title: str | None = None
    models: list["UsageRow"] = []  # by cost, highest first; none where the rows are models

    def as_json(self, by: str, breakdown: bool = False) -> dict[str, Any]:
        """Return JSON values; the first name is the grouping. `breakdown` adds each model."""
        more: dict[str, Any] = {}
        if by == "session":
            more = {"project": self.project, "title": self.title}
        if by != "model":
            more["models"] = [row.key for row in self.models]
        if breakdown:
            more["breakdown"] = [row.as_json("model") for row in self.models]
        return {by: self.key, **more, **self.totals.as_json()}


class BurnRate(Struct, frozen=True):
    """Spending per time; the cost is None if unknown."""

    usd_per_hour: float | None
    tokens_per_minute: float


class Projection(Struct, frozen=True):
    """Spending at the end of a block if the rate stays the same."""

    usd: float | None
    tokens: int


class UsageBlock(Struct):
    """Usage in the five hours after a first request, whose time is rounded down to the hour."""

    start: int
    row: UsageRow
    now: int
    first_at: int | None = None  # first request of the active block

    @property
    def end(self) -> int:
        """The instant at which it ends."""
        return self.start + BLOCK_MS

    @property
    def is_active(self) -> bool:
        """Whether it contains the present."""
        return self.start <= self.now < self.end

    @property
    def burn_rate(self) -> BurnRate:
        """Spending per time from the first request to now, or to the end of a past block."""
        first = self.start if self.first_at is None else self.first_at
        minutes = max(1.0, (min(self.now, self.end) - first) / MINUTE_MS)
        totals = self.row.totals
        usd_per_hour = None if totals.usd is None else totals.usd / minutes * 60
        return BurnRate(usd_per_hour, (totals.tokens.total or 0) / minutes)

    @property
    def projection(self) -> Projection:
        """Spending at the end of the block at the current rate."""
        minutes_left = max(0, self.end - self.now) / MINUTE_MS
        rate = self.burn_rate
        totals = self.row.totals
        usd = None
        if totals.usd is not None and rate.usd_per_hour is not None:
            usd = totals.usd + rate.usd_per_hour / 60 * minutes_left
        tokens = (totals.tokens.total or 0) + rate.tokens_per_minute * minutes_left
        return Projection(usd, round(tokens))

    def as_json(self, iso: Callable[[int | None], str | None]) -> dict[str, Any]:
        """Return JSON values; rate and projection are null for past blocks."""
        return {
            "block": iso(self.start),
            "end": iso(self.end),
            "active": self.is_active,
            "models": [row.key for row in self.row.models],
            **self.row.totals.as_json(),
            "burn_rate": to_builtins(self.burn_rate) if self.is_active else None,
            "projection": to_builtins(self.projection) if self.is_active else None,
        }


class WastedCost(Struct):
    """Cost of failed runs: neither they nor their tasks succeeded."""

    runs: int = 0
    cost_nano: int = 0
    unpriced: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; the cost is null if runs failed and none has a price."""
        known = self.runs > self.unpriced or not self.runs
        return {
            "runs": self.runs,
            "usd": nano_to_usd(self.cost_nano) if known else None,
            "unpriced_runs": self.unpriced,
        }


class ContextPeak(Struct):
    """The largest context, and its session."""

    used: int
    limit: int | None
    session: str


class UsageReport(Struct):
    """A usage report."""

    by: str
    rows: list[UsageRow]
    total: UsageTotals
    wasted: WastedCost = field(default_factory=WastedCost)
    peak_context: ContextPeak | None = None
    unpriced: list[UsageRow] = []  # by model
    runs_without_usage: int = 0  # not included in any row
    left_off: int = 0  # sessions without a row because of a limit


class DeniedRule(Struct):
    """A rule that would have allowed denied calls of a tool, and how often it was missing."""

    tool: str | None
    rule: str | None  # None: no rule would allow it
    calls: int
    sessions: int
    last_at: int
    reason: str | None


class ToolCallStats(Struct):
    """Call statistics of one tool, or of all tools."""

    calls: int = 0
    errors: int = 0
    denied: int = 0
    open: int = 0
    timed: int = 0
    total_ms: int = 0
    slowest_ms: int | None = None
    name: str | None = None

    def plus(self, other: "ToolCallStats") -> "ToolCallStats":
        """Return the sum of both, with the name of the first."""
        slowest = max(
            (one.slowest_ms for one in (self, other) if one.slowest_ms is not None), default=None
        )
        counts = {name: getattr(self, name) + getattr(other, name) for name in TOOL_COUNT_FIELDS}
        return ToolCallStats(**counts, slowest_ms=slowest, name=self.name)

    @property
    def error_rate(self) -> float | None:
        """Failed part of the calls with a result; denied calls don't count."""
        answered = self.calls - self.denied - self.open
        return self.errors / answered if answered > 0 else None

    @property
    def mean_ms(self) -> float | None:
        """Mean duration of the calls whose duration is known."""
        return self.total_ms / self.timed if self.timed else None

    def as_json(self) -> dict[str, Any]:
        """Return JSON values without the tool's name."""
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
