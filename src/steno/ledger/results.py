"""Results of queries, with their JSON form."""

import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, field, to_builtins

from ..analysis.context import build_context, context_level, hp_and_status
from ..analysis.usage import cache_hit_rate, nano_to_usd, sum_optional
from ..report import Context, ContextOverhead, Cost, RunOrigin, Tokens, failure_reason
from .rows import utc_datetime, utc_iso
from .totals import UsageTotals

TimeFormatter = Callable[[int | None], str | None]  # milliseconds since 1970 to ISO 8601


# The columns of a list of runs: the fields of `RunSummary.as_json`, names of nested ones joined.
# Tags are not among them: each is a further text column.
RUN_COLUMN_TYPES: dict[str, type] = {
    **dict.fromkeys(("run_id", "session_id", "task_id"), str),
    "attempt": int,
    **dict.fromkeys(("why", "agent", "agent_version", "model", "project", "source"), str),
    **dict.fromkeys(("started_at", "ended_at"), datetime),
    "duration_ms": int,
    "verdict": str,
    "ok": bool,
    **dict.fromkeys(("error", "reason"), str),
    **dict.fromkeys(("exit_code", "turns", "requests"), int),
    **{f"tokens_{name}": int for name in Tokens.__struct_fields__},
    "cache_hit_rate": float,
    "cost_usd": float,
    "cost_source": str,
    **dict.fromkeys(("context_used", "context_limit", "context_peak"), int),
    **dict.fromkeys(("tools", "tool_errors", "files", "denials"), int),
    **dict.fromkeys(("prompt", "name"), str),
    **{f"origin_{name}": str for name in RunOrigin.__struct_fields__},
}


def decode_tags(text: str | None) -> dict[str, str]:
    """The labels in the column `tags`."""
    return msgspec.json.decode(text, type=dict[str, str]) if text else {}


class StoredFailure(Struct):
    """The part of a stored report that says why the run did not succeed."""

    verdict: str
    ok: bool = False
    error: str | None = None
    warnings: list[str] = field(default_factory=list)
    result: str | None = None
    text: str = ""


class RunSummary(Struct):
    """A run in a list."""

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
    name: str | None
    tags_json: str | None
    host: str | None
    user: str | None
    repository: str | None
    branch: str | None
    commit: str | None
    pull_request: str | None
    packed_report: bytes | None = None  # of a failed run without an error
    short_id: str = ""  # shortest unique prefix of the id
    task_prompt: str | None = None  # of a later attempt: what the task was started with

    @property
    def title(self) -> str:
        """Its name, else the prompt of its task or its own; empty if neither is known."""
        return (self.name or self.task_prompt or self.prompt or "").strip()

    @property
    def run_id(self) -> str:
        """The same as `id`, under its name in reports."""
        return self.id

    @property
    def session_id(self) -> str | None:
        """The agent's session; None if the agent reported none."""
        return self.session if self.session != self.id else None

    @property
    def cost(self) -> Cost:
        """Cost, and where the figure comes from."""
        return Cost(nano_to_usd(self.cost_nano), self.cost_source)

    @property
    def usd(self) -> float | None:
        """The cost in dollars; None if unknown."""
        return nano_to_usd(self.cost_nano)

    @property
    def tags(self) -> dict[str, str]:
        """The labels given with --tag."""
        return decode_tags(self.tags_json)

    @property
    def origin(self) -> RunOrigin:
        """Where and for whom it was started."""
        return RunOrigin(
            host=self.host,
            user=self.user,
            repository=self.repository,
            branch=self.branch,
            commit=self.commit,
            pull_request=self.pull_request,
        )

    @property
    def started(self) -> datetime | None:
        """Start time in UTC."""
        return utc_datetime(self.started_at)

    @property
    def ended(self) -> datetime | None:
        """End time in UTC."""
        return utc_datetime(self.ended_at)

    @property
    def state(self) -> str:
        """The verdict, or `running`."""
        return self.verdict or "running"

    @property
    def reason(self) -> str | None:
        """Why it did not succeed, on one line; None of a success, and while it is active."""
        if self.verdict is None:
            return None
        ok = bool(self.ok) and self.verdict == "success"
        outcome = StoredFailure(verdict=self.verdict, ok=ok, error=self.error)
        if self.packed_report is not None:
            with suppress(zlib.error, msgspec.MsgspecError):
                data = zlib.decompress(self.packed_report)
                outcome = msgspec.json.decode(data, type=StoredFailure)
        return failure_reason(outcome)

    @property
    def tokens(self) -> Tokens:
        """Tokens used."""
        parts = (self.input, self.cache_write, self.cache_read, self.output)
        return Tokens(*parts, self.reasoning, sum_optional(parts))

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """Return JSON values with the names of the report."""
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
            "reason": self.reason,
            "exit_code": self.exit_code,
            "turns": self.turns,
            "requests": self.requests,
            "tokens": to_builtins(self.tokens),
            "cache_hit_rate": cache_hit_rate(self.tokens),
            "cost": cost,
            "context": context,
            "tools": self.tools,
            "tool_errors": self.tool_errors,
            "files": self.files,
            "denials": self.denials,
            "prompt": self.prompt,
            "name": self.name,
            "tags": self.tags,
            "origin": to_builtins(self.origin),
        }


class SessionSummary(Struct):
    """A session in a list, with the totals of its requests."""

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
    context_source: str | None
    host: str | None
    user: str | None
    repository: str | None
    branch: str | None
    overhead: str | None  # JSON
    context_limit_source: str | None
    untimed: int
    short_id: str = ""
    totals: UsageTotals = field(default_factory=UsageTotals)

    @property
    def session_id(self) -> str:
        """The same as `id`, under its name in reports."""
        return self.id

    @property
    def origin(self) -> RunOrigin:
        """Where and for whom it was started."""
        return RunOrigin(
            host=self.host, user=self.user, repository=self.repository, branch=self.branch
        )

    @property
    def first_active(self) -> datetime | None:
        """First activity in UTC."""
        return utc_datetime(self.first_at)

    @property
    def last_active(self) -> datetime | None:
        """Last activity in UTC."""
        return utc_datetime(self.last_at)

    @property
    def duration_ms(self) -> int | None:
        """Time from the first to the last activity."""
        if self.first_at is None or self.last_at is None:
            return None
        return self.last_at - self.first_at

    @property
    def context(self) -> Context:
        """Context usage after the last request."""
        source = self.context_source or "measured"
        limit_source = self.context_limit_source or "known"
        if self.context_limit is None:
            limit_source = "assumed"
        overhead = None
        if self.overhead is not None:
            overhead = msgspec.json.decode(self.overhead, type=ContextOverhead)
        return build_context(
            used=self.context_used,
            limit=self.context_limit,
            limit_source=limit_source,
            source=source,
            peak=self.context_peak,
            compactions=self.compactions,
            overhead=overhead,
        )

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """Return JSON values with the names of the report."""
        return {
            "session_id": self.id,
            "agent": self.agent,
            "agent_version": self.agent_version,
            "project": self.project,
            "model": self.model,
            "title": self.title,
            "first_at": iso(self.first_at),
            "last_at": iso(self.last_at),
            "duration_ms": self.duration_ms,
            "prompts": self.prompts,
            "turns": self.turns,
            **self.totals.as_json(),
            "context": to_builtins(self.context),
            "stop": self.stop,
            "origin": to_builtins(self.origin),
        }


class Note(Struct):
    """A user's note on a run or session."""

    at: int
    text: str

    @property
    def time(self) -> datetime | None:
        """Time of the note in UTC."""
        return utc_datetime(self.at)


MatchRanges = list[tuple[int, int]]  # start and end of each match in a text


class SearchHit(Struct):
    """A text that matches: the part around the first match, with the matches in it."""

    at: int | None
    session: str
    run: str | None
    project: str | None
    role: str  # prompt, answer, command or tool
    snippet: str
    marks: MatchRanges
    short_session_id: str = ""
    source: str | None = None  # of tool output: its file
    tool: str | None = None

    @property
    def time(self) -> datetime | None:
        """Time of the text in UTC."""
        return utc_datetime(self.at)

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """Return JSON values."""
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
    """Context usage of the main thread at one request."""

    at: int
    model: str
    used: int
    limit: int
    compacted: bool = False  # far smaller than at the request before

    @property
    def fraction(self) -> float:
        """Used part of the window."""
        return self.used / self.limit

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """Return JSON values."""
        hp, status = hp_and_status(self.fraction)
        return {
            "at": iso(self.at),
            "model": self.model,
            "used": self.used,
            "limit": self.limit,
            "fraction": self.fraction,
            "hp": hp,
            "status": status,
            "level": context_level(self.fraction),
            "compacted": self.compacted,
        }


class BudgetStatus(Struct):
    """A budget with the spending and forecast of its current period."""

    period: str
    project: str | None  # None: all projects
    limit_nano: int
    spent_nano: int
    unpriced: int
    since: int
    until: int
    elapsed_fraction: float  # of the period

    @property
    def exceeded(self) -> bool:
        """Whether more than the limit was spent."""
        return self.spent_nano > self.limit_nano

    @property
    def forecast_nano(self) -> int:
        """Spending at the end of the period at the current rate."""
        if self.elapsed_fraction <= 0:
            return self.spent_nano
        return max(self.spent_nano, round(self.spent_nano / self.elapsed_fraction))

    def as_json(self, iso: TimeFormatter = utc_iso) -> dict[str, Any]:
        """Return JSON values."""
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
    """One figure of two runs or sessions."""

    name: str
    kind: str  # text, number, money, span or percent
    first: Any
    second: Any

    @property
    def difference(self) -> Any:
        """Second minus first; None unless both are numbers."""
        known = isinstance(self.first, int | float) and isinstance(self.second, int | float)
        return self.second - self.first if known and self.kind != "text" else None

    @property
    def ratio(self) -> float | None:
        """Second divided by first."""
        return self.second / self.first if self.difference is not None and self.first else None

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "figure": self.name,
            "a": self.first,
            "b": self.second,
            "difference": self.difference,
            "ratio": self.ratio,
        }
