"""The hourly sums in `spend` and `tool_use`, and the totals of runs and sessions."""

from collections.abc import Iterable
from operator import add
from typing import Any, Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple

from ..analysis.usage import cache_hit_rate, nano_to_usd
from ..report import Tokens
from .protocol import Row, Store
from .rows import HOUR_MS, ParsedToolCall, RequestRow


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


class ToolUseSums(Struct, gc=False):
    """The sum columns of `tool_use`."""

    calls: int = 0
    errors: int = 0
    denied: int = 0
    open: int = 0
    timed: int = 0
    total_ms: int = 0


SPEND_KEY_COLUMNS = ("session", "model", "hour")
SPEND_SUM_COLUMNS = SpendSums.__struct_fields__
TOOL_USE_KEY_COLUMNS = ("hour", "agent", "project", "name")
TOOL_USE_SUM_COLUMNS = ToolUseSums.__struct_fields__

Sums = TypeVar("Sums", bound=Struct)


class SumDeltas(Generic[Sums]):
    """Pending changes to a table of sums, by key."""

    def __init__(self) -> None:
        self.by_key: dict[Row, Sums] = {}

    def add(self, key: Row, delta: Sums, sign: int = 1) -> None:
        """Add a delta to a key, or subtract it with sign -1."""
        figures = astuple(delta) if sign == 1 else tuple(-figure for figure in astuple(delta))
        total = self.by_key.get(key)
        if total is not None:
            figures = tuple(map(add, astuple(total), figures))
        self.by_key[key] = type(delta)(*figures)

    def rows(self) -> list[Row]:
        """Return key and sums as rows, in the order of the keys."""
        return [(*key, *astuple(self.by_key[key])) for key in sorted(self.by_key)]


# -- spend ---------------------------------------------------------------------------------------


def spend_delta(row: RequestRow) -> SpendSums:
    """Return what one row of `requests` adds to `spend`."""
    is_request = row.kind == "request"
    cost = row.cost_nano
    tokens = row.input + row.cache_write + row.cache_read + row.output
    return SpendSums(
        requests=int(is_request),
        input=row.input,
        cache_write=row.cache_write,
        cache_read=row.cache_read,
        output=row.output,
        reasoning=row.reasoning,
        cache_write_1h=row.cache_write_1h,
        reported_nano=cost if cost is not None and row.source == "reported" else 0,
        computed_nano=cost if cost is not None and row.source == "computed" else 0,
        saved_nano=row.saved_nano,
        unpriced=int(cost is None and is_request),
        unpriced_tokens=tokens if cost is None else 0,
    )


def add_request(
    sums: SumDeltas[SpendSums], row: RequestRow, projects: dict[str, str], sign: int = 1
) -> None:
    """Add a row of `requests` to the pending sums, or subtract it with sign -1."""
    projects.setdefault(row.session, "")
    sums.add((row.session, row.model, row.at // HOUR_MS), spend_delta(row), sign)


def add_new_requests(sums: SumDeltas[SpendSums], rows: Iterable[Row]) -> None:
    """Add rows of kind `request`, as `add_request` does, in one loop: imports depend on it."""
    by_key = sums.by_key
    for row in rows:
        _, _, session, _, _, _, _, model, at, input_, write, read, output, *others = row
        reasoning, write_1h, cost, saved, source = others
        key = (session, model, at // HOUR_MS)
        total = by_key.get(key)
        if total is None:
            total = by_key[key] = SpendSums()
        total.requests += 1
        total.input += input_
        total.cache_write += write
        total.cache_read += read
        total.output += output
        total.reasoning += reasoning
        total.cache_write_1h += write_1h
        total.saved_nano += saved
        if cost is None:
            total.unpriced += 1
            total.unpriced_tokens += input_ + write + read + output
        elif source == "reported":
            total.reported_nano += cost
        else:
            total.computed_nano += cost


def upsert_spend(
    store: Store, sums: SumDeltas[SpendSums], agent: str, projects: dict[str, str]
) -> None:
    rows = [
        (session, model, hour, agent, projects[session], *figures)
        for session, model, hour, *figures in sums.rows()
    ]
    store.upsert(
        "spend",
        (*SPEND_KEY_COLUMNS, "agent", "project", *SPEND_SUM_COLUMNS),
        rows,
        add_on_conflict("spend", SPEND_KEY_COLUMNS, SPEND_SUM_COLUMNS),
    )


# -- tool_use ------------------------------------------------------------------------------------


def tool_use_delta(call: ParsedToolCall) -> ToolUseSums:
    """Return what one tool call adds to `tool_use`."""
    return ToolUseSums(
        calls=1,
        errors=int(call.ok is not None and not call.ok and not call.denied),
        denied=int(call.denied),
        open=int(call.ok is None and not call.denied),
        timed=int(call.duration_ms is not None),
        total_ms=call.duration_ms or 0,
    )


def tool_use_key(agent: str, call: ParsedToolCall, projects: dict[str, str]) -> Row:
    return (call.at // HOUR_MS, agent, projects.get(call.session, ""), call.name)


def upsert_tool_use(store: Store, sums: SumDeltas[ToolUseSums], slowest_ms: dict[Row, int]) -> None:
    rows = [
        (hour, agent, project, name, *figures, slowest_ms.get((hour, agent, project, name), 0))
        for hour, agent, project, name, *figures in sums.rows()
    ]
    store.upsert(
        "tool_use",
        (*TOOL_USE_KEY_COLUMNS, *TOOL_USE_SUM_COLUMNS, "slowest_ms"),
        rows,
        add_on_conflict("tool_use", TOOL_USE_KEY_COLUMNS, TOOL_USE_SUM_COLUMNS, ("slowest_ms",)),
    )


# -- conflicts -----------------------------------------------------------------------------------


def add_on_conflict(
    table: str, key: tuple[str, ...], sums: tuple[str, ...], maxima: tuple[str, ...] = ()
) -> str:
    """Return the clause that adds `sums` to the existing row and keeps the larger of `maxima`."""
    parts = [f"{name} = {table}.{name} + excluded.{name}" for name in sums]
    for name in maxima:
        old, new = f"{table}.{name}", f"excluded.{name}"
        parts.append(f"{name} = CASE WHEN {new} > {old} THEN {new} ELSE {old} END")
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(parts)}"


def replace_on_conflict(columns: tuple[str, ...], key: str = "id") -> str:
    """Return the clause that replaces the existing row with the same key."""
    parts = [f"{name} = excluded.{name}" for name in columns if name != key]
    return f"ON CONFLICT ({key}) DO UPDATE SET {', '.join(parts)}"


TIME_GROUPINGS = ("day", "week", "month")
GROUPINGS = (*TIME_GROUPINGS, "project", "model", "agent", "session")


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
            self.input, self.cache_write, self.cache_read, self.output, self.reasoning, total
        )

    @property
    def cost_nano(self) -> int | None:
        """Cost of all priced requests; None if there are requests and none has a price."""
        known = self.reported_nano + self.computed_nano
        return None if self.unpriced and not known and self.requests <= self.unpriced else known

    @property
    def usd(self) -> float | None:
        """Cost in dollars."""
        return nano_to_usd(self.cost_nano)

    @property
    def cache_hit_rate(self) -> float | None:
        """Cached part of the input."""
        return cache_hit_rate(self.tokens)

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
            "requests": self.requests,
            "tokens": self.tokens,
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

    def as_json(self, by: str) -> dict[str, Any]:
        """Return JSON values; the first name is the grouping."""
        more = {"project": self.project, "title": self.title} if by == "session" else {}
        return {by: self.key, **more, **self.totals.as_json()}


class WastedCost(Struct):
    """Cost of runs that did not succeed."""

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
