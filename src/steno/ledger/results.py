"""Runs and sessions as lines of a list, with their JSON. Values only; it never asks."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from msgspec import Struct, field

from ..analysis.context import build_context, context_level, hp_percent, hp_status
from ..analysis.usage import cache_hit_rate, nano_to_usd, sum_optional
from ..report import Context, Cost, Tokens
from .totals import UsageTotals

TimeFormatter = Callable[
    [int | None], str | None
]  # milliseconds since 1970 as ISO 8601, in the zone that was asked for


UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc_datetime(at: int | None) -> datetime | None:
    """Milliseconds since 1970 as a time in UTC; None where no calendar has it."""
    try:
        return None if at is None else UNIX_EPOCH + timedelta(milliseconds=at)
    except OverflowError:  # an agent may claim any time
        return None


def utc_iso(at: int | None) -> str | None:
    """The same as ISO 8601."""
    found = utc_datetime(at)
    return (
        None
        if found is None
        else found.isoformat(timespec="milliseconds" if found.microsecond else "seconds")
    )


class RunSummary(Struct):
    """One run, as a line of a list."""

    id: str
    session: str | None
    task: str | None
    attempt: int | None
    why: str | None
    agent: str | None
    agent_version: str | None
    model: str | None
    project: str | None
    source: str | None
    started_at: int | None
    ended_at: int | None
    duration_ms: int | None
    verdict: str | None
    ok: int
    error: str | None
    exit_code: int | None
    turns: int | None
    requests: int | None
    input: int | None
    cache_write: int | None
    cache_read: int | None
    output: int | None
    reasoning: int | None
    cost_nano: int | None
    cost_source: str
    context_used: int | None
    context_limit: int | None
    context_peak: int | None
    tools: int
    tool_errors: int
    files: int
    denials: int
    prompt: str | None
    pid: int | None
    short_id: str = ""  # as much of the id as names it

    @property
    def run_id(self) -> str:
        """The name that it has in reports."""
        return self.id

    @property
    def session_id(self) -> str | None:
        """The agent's conversation; None where the agent told none."""
        return self.session if self.session != self.id else None

    @property
    def cost(self) -> Cost:
        """What it cost, and where that comes from."""
        return Cost(nano_to_usd(self.cost_nano), self.cost_source)

    @property
    def started(self) -> datetime | None:
        """When it began, in UTC."""
        return utc_datetime(self.started_at)

    @property
    def ended(self) -> datetime | None:
        """When it was over, in UTC."""
        return utc_datetime(self.ended_at)

    @property
    def state(self) -> str:
        """The verdict's word; a run without one is still running."""
        return self.verdict or "running"

    @property
    def tokens(self) -> Tokens:
        """What it used."""
        parts = (self.input, self.cache_write, self.cache_read, self.output)
        return Tokens(*parts, self.reasoning, sum_optional(parts))

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The run under the names of the report."""
        cost = {"usd": nano_to_usd(self.cost_nano), "source": self.cost_source}
        context = {
            "used": self.context_used,
            "limit": self.context_limit,
            "peak": self.context_peak,
        }
        return {
            "run_id": self.id,
            "session_id": self.session,
            "task_id": self.task,
            "attempt": self.attempt,
            "why": self.why,
            "agent": self.agent,
            "agent_version": self.agent_version,
            "model": self.model,
            "project": self.project,
            "source": self.source,
            "started_at": iso(self.started_at),
            "ended_at": iso(self.ended_at),
            "duration_ms": self.duration_ms,
            "verdict": self.verdict,
            "ok": bool(self.ok) if self.verdict is not None else None,
            "error": self.error,
            "exit_code": self.exit_code,
            "turns": self.turns,
            "requests": self.requests,
            "tokens": self.tokens,
            "cache_hit_rate": cache_hit_rate(self.tokens),
            "cost": cost,
            "context": context,
            "tools": self.tools,
            "tool_errors": self.tool_errors,
            "files": self.files,
            "denials": self.denials,
            "prompt": self.prompt,
        }


class SessionSummary(Struct):
    """One session, as a line of a list: what is known of it, and what its requests come to."""

    id: str
    agent: str
    agent_version: str | None
    project: str | None
    model: str | None
    title: str | None
    first_at: int | None
    last_at: int | None
    prompts: int
    turns: int | None
    context_used: int | None
    context_limit: int | None
    context_peak: int | None
    compactions: int
    reported_nano: int | None
    stop: str | None
    short_id: str = ""
    totals: UsageTotals = field(default_factory=UsageTotals)

    @property
    def session_id(self) -> str:
        """The name that it has in reports."""
        return self.id

    @property
    def first_active(self) -> datetime | None:
        """When it was at work first, in UTC."""
        return utc_datetime(self.first_at)

    @property
    def last_active(self) -> datetime | None:
        """When it was at work last, in UTC."""
        return utc_datetime(self.last_at)

    @property
    def context(self) -> Context:
        """How full its window was after its last request."""
        source = "unknown" if self.context_used is None else "measured"
        limited = "assumed" if self.context_limit is None else "known"
        return build_context(
            used=self.context_used,
            limit=self.context_limit,
            limit_source=limited,
            source=source,
            peak=self.context_peak,
            compactions=self.compactions,
        )

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The session under the names of the report."""
        return {
            "session_id": self.id,
            "agent": self.agent,
            "agent_version": self.agent_version,
            "project": self.project,
            "model": self.model,
            "title": self.title,
            "first_at": iso(self.first_at),
            "last_at": iso(self.last_at),
            "prompts": self.prompts,
            "turns": self.turns,
            **self.totals.as_json(),
            "context": self.context,
            "stop": self.stop,
        }


class Note(Struct):
    """What somebody wrote beside a run or a session."""

    at: int
    text: str

    @property
    def time(self) -> datetime | None:
        """When, in UTC."""
        return utc_datetime(self.at)


MatchRanges = list[tuple[int, int]]  # where hits stand in a text: from, up to


class SearchHit(Struct):
    """A text that was found: a piece of it around the first hit, and where the hits stand in that piece."""

    at: int | None
    session: str
    run: str | None
    project: str | None
    role: str  # prompt, answer or tool
    snippet: str
    marks: MatchRanges
    short_session_id: str = ""
    source: str | None = None  # of a tool's output: the file it stands in
    tool: str | None = None

    @property
    def time(self) -> datetime | None:
        """When it was said, in UTC."""
        return utc_datetime(self.at)

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The hit as a row."""
        return {
            "at": iso(self.at),
            "session_id": self.session,
            "run_id": self.run,
            "project": self.project,
            "role": self.role,
            "tool": self.tool,
            "snippet": self.snippet,
            "marks": self.marks,
            "source": self.source,
        }


class ContextSample(Struct):
    """How full the window of the main thread was at one request."""

    at: int
    model: str
    used: int
    limit: int
    compacted: bool = False  # it holds far less than the one before

    @property
    def fraction(self) -> float:
        """The part of the window that is in use."""
        return self.used / self.limit

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The point as a row."""
        hp = hp_percent(self.fraction)
        return {
            "at": iso(self.at),
            "model": self.model,
            "used": self.used,
            "limit": self.limit,
            "fraction": self.fraction,
            "hp": hp,
            "status": hp_status(hp),
            "level": context_level(self.fraction),
            "compacted": self.compacted,
        }


class BudgetStatus(Struct):
    """A limit, what was spent of it in the present period, and where that leads."""

    period: str
    project: str | None  # None: all projects
    limit_nano: int
    spent_nano: int
    unpriced: int
    since: int
    until: int
    elapsed_fraction: float  # the part of the period that is over

    @property
    def exceeded(self) -> bool:
        """More was spent than was meant to be."""
        return self.spent_nano > self.limit_nano

    @property
    def forecast_nano(self) -> int:
        """What it will be at the end of the period, if it goes on like this."""
        return (
            max(self.spent_nano, round(self.spent_nano / self.elapsed_fraction))
            if self.elapsed_fraction > 0
            else self.spent_nano
        )

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """The budget as a row."""
        return {
            "period": self.period,
            "project": self.project,
            "limit_usd": nano_to_usd(self.limit_nano),
            "spent_usd": nano_to_usd(self.spent_nano),
            "left_usd": nano_to_usd(self.limit_nano - self.spent_nano),
            "forecast_usd": nano_to_usd(self.forecast_nano),
            "unpriced_requests": self.unpriced,
            "exceeded": self.exceeded,
            "since": iso(self.since),
            "until": iso(self.until),
        }


class ComparedFigure(Struct):
    """One figure of two runs or sessions, side by side."""

    name: str
    kind: str  # how it is written: text, number, money, span, percent
    first: Any
    second: Any

    @property
    def difference(self) -> Any:
        """The second less the first, where both are numbers."""
        known = isinstance(self.first, int | float) and isinstance(self.second, int | float)
        return self.second - self.first if known and self.kind != "text" else None

    @property
    def ratio(self) -> float | None:
        """The second in parts of the first."""
        return self.second / self.first if self.difference is not None and self.first else None

    def as_json(self) -> dict[str, Any]:
        """The figure as a row."""
        return {
            "figure": self.name,
            "a": self.first,
            "b": self.second,
            "difference": self.difference,
            "ratio": self.ratio,
        }
