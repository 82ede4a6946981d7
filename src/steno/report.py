"""The report of a run, its verdicts and exit codes. Pure values."""

import posixpath
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

import msgspec
from msgspec import Struct, field

from .errors import RunFailed


def resolve_path(path: str, root: str | None) -> tuple[str, str, bool]:
    """The path relative to `root` if it is below it, the absolute path, and whether it is below.

    Compares whole names: `/proj2` is not below `/proj`. The disk is not accessed.
    """
    absolute = path
    if absolute[:1] != "/" or "//" in absolute or "/." in absolute:
        absolute = posixpath.normpath(posixpath.join(root or "", absolute))
    start = "" if root is None else root.rstrip("/") + "/"
    inside = bool(root) and absolute.startswith(start)
    return (absolute[len(start) :] if inside else absolute), absolute, inside


SCHEMA = "steno.report/1"

# All verdicts, as a type: a type checker reports those that a `match` leaves out.
Verdict = Literal[
    "success",
    "max_turns",
    "max_budget",
    "rate_limit",
    "auth",
    "billing",
    "api",
    "network",
    "invalid_request",
    "context_full",
    "refused",
    "permission",
    "interactive",
    "background_task",
    "stopped",
    "policy",
    "empty",
    "no_result",
    "stalled",
    "timeout",
    "interrupted",
    "killed",
    "subprocess",
    "not_found",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

# Exit codes of `steno run`. 2 is a usage error, which is not a verdict.
EXIT_CODES = {
    "success": 0,
    **dict.fromkeys(("api", "network", "invalid_request", "refused", "subprocess"), 1),
    **dict.fromkeys(("max_turns", "max_budget", "context_full", "interactive"), 3),
    **dict.fromkeys(("background_task", "permission", "stopped", "policy"), 3),
    **dict.fromkeys(("empty", "no_result"), 3),
    "rate_limit": 75,
    **dict.fromkeys(("auth", "billing"), 77),
    **dict.fromkeys(("timeout", "stalled"), 124),
    "not_found": 127,
    "interrupted": 130,
    "killed": 137,
}

# A warning with one of these prefixes makes `ok` false.
ADVISORY_PREFIXES = ("interactive-hang:", "background-task:", "permission:", "policy:")


# From tool, input, folder and reason of a denied call to the rule that would have allowed it.
AllowRule = Callable[[str, Any, str | None, str | None], str | None]


class HintTemplates(Struct, frozen=True):
    """Command-line templates of one agent for hints; empty if it has no such option.

    Values for {session} and {prompt} in `resume` and for {rules} in `allow` are already quoted.
    """

    resume: str = ""
    turns: str = ""
    allow: str = ""
    stream: str = ""


class AgentProfile(Protocol):
    """What the analysis needs to know of an agent."""

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> Callable[[str], int | None]: ...

    @property
    def allow_rule(self) -> AllowRule: ...

    @property
    def hints(self) -> HintTemplates: ...

    @property
    def classify_exit(self) -> Callable[[int, Sequence[str]], tuple[str, str] | None]: ...

    @property
    def totals_omit_subagents(self) -> bool: ...


class Tokens(Struct, frozen=True, gc=False):
    """Four disjoint counters and their sum; `reasoning` is part of `output`."""

    input: int | None = None
    cache_write: int | None = None
    cache_read: int | None = None
    output: int | None = None
    reasoning: int | None = None
    total: int | None = None


class Cost(Struct, frozen=True, gc=False):
    """The run's own cost in dollars, its source, and the session's cost so far if known."""

    usd: float | None = None
    source: str = "unknown"
    session_usd: float | None = None


class ModelSummary(Struct, frozen=True, gc=False):
    """One model's share of the run."""

    input: int | None = None
    cache_write: int | None = None
    cache_read: int | None = None
    output: int | None = None
    cost_usd: float | None = None
    context_window: int | None = None
    max_output: int | None = None
    web_searches: int | None = None


class ContextOverhead(Struct, frozen=True, gc=False):
    """Tokens in the context before the first prompt, by the agent's own count."""

    system_prompt: int | None = None
    tools: int | None = None
    memory_files: int | None = None
    agents: int | None = None
    skills: int | None = None
    other: int | None = None


class Context(Struct, frozen=True, gc=False):
    """The main thread's context window after its last request."""

    used: int | None = None
    limit: int | None = None
    fraction: float | None = None
    hp: float | None = None
    status: str | None = None
    text: str = "HP unknown"
    peak: int | None = None
    source: str = "unknown"
    limit_source: str = "assumed"
    compactions: int = 0
    overhead: ContextOverhead | None = None


class ToolCallSummary(Struct, gc=False):
    """One tool call with its result. `ok` is None without a result."""

    id: str
    name: str
    kind: str
    ok: bool | None = None
    error: str | None = None
    denied: bool = False
    started_at: datetime | None = None
    duration_ms: int | None = None
    parent: str | None = None
    background: bool = False


class ToolCallCounts(Struct, gc=False):
    """Calls and errors of one tool."""

    calls: int = 0
    errors: int = 0


class ChangedFile(Struct, gc=False):
    """One file the run changed. `path` is relative to the run's folder if the file is inside it."""

    path: str
    absolute: str
    change: str
    inside: bool
    tools: list[str] = field(default_factory=list)
    source: str = "tool"


class DeniedCall(Struct, gc=False):
    """A denied call, and the rule that would allow it."""

    tool: str | None
    id: str | None
    input: Any = None
    reason: str | None = None
    allow_rule: str | None = None


class Subagent(Struct, gc=False):
    """A subagent, identified by the call that started it. The run's total includes its tokens.

    `is_lower_bound`: the stream shows only a part of its tokens.
    """

    id: str
    type: str | None = None
    description: str | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: float | None = None
    status: str | None = None
    is_lower_bound: bool = False


class BackgroundTask(Struct, gc=False):
    """Background work. `status`: "running" until its end was reported; "ended" without outcome."""

    id: str
    kind: str | None = None
    description: str | None = None
    status: str = "running"


class RequestRetry(Struct, frozen=True, gc=False):
    """One failed request that the agent retried."""

    attempt: int | None = None
    status: int | None = None
    error: str | None = None
    delay_ms: int | None = None


class RateLimitStatus(Struct, frozen=True, gc=False):
    """The last reported state of a usage limit. `resets_at`: seconds since 1970."""

    status: str | None = None
    resets_at: int | None = None
    kind: str | None = None
    utilization: float | None = None


class AgentSetup(Struct, frozen=True, gc=False):
    """The names of what the agent had loaded at the start."""

    skills: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    slash_commands: tuple[str, ...] = ()


class RunOrigin(Struct, frozen=True, gc=False):
    """Where and for whom a run was started."""

    host: str | None = None
    user: str | None = None
    repository: str | None = None
    branch: str | None = None
    commit: str | None = None
    pull_request: str | None = None

    def fill(self, other: "RunOrigin") -> "RunOrigin":
        """This origin, with what it doesn't know taken from the other."""
        names = (name for name in self.__struct_fields__ if getattr(self, name) is None)
        return msgspec.structs.replace(self, **{name: getattr(other, name) for name in names})


class LineCounts(Struct, gc=False):
    """Counts of the input lines by kind."""

    read: int = 0
    blank: int = 0
    malformed: int = 0
    not_object: int = 0
    unknown: int = 0
    torn: bool = False


class Report(Struct, kw_only=True):
    """What happened in one run. Same names as in `steno show --json`; None means unknown."""

    schema: str = SCHEMA
    source: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    model: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    name: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    origin: RunOrigin = RunOrigin()
    setup: AgentSetup = AgentSetup()
    cwd: str | None = None
    api_key_source: str | None = None
    verdict: Verdict = "no_result"
    ok: bool = False
    succeeded: bool = False
    error: str | None = None
    error_category: str | None = None
    hint: str | None = None
    evidence: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    text: str = ""
    result: str | None = None
    structured_output: Any = None
    subtype: str | None = None
    terminal_reason: str | None = None
    stop_reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    complete: bool = False
    turns: int | None = None
    requests: int | None = 0
    started_at: datetime | None = None
    duration_ms: int | None = None
    duration_api_ms: int | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cache_hit_rate: float | None = None
    cache_write_1h: int | None = None
    web_searches: int | None = None
    web_fetches: int | None = None
    service_tier: str | None = None
    cost: Cost = field(default_factory=Cost)
    models: dict[str, ModelSummary] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    tools: list[ToolCallSummary] = field(default_factory=list)
    tool_counts: dict[str, ToolCallCounts] = field(default_factory=dict)
    files: list[ChangedFile] = field(default_factory=list)
    denials: list[DeniedCall] = field(default_factory=list)
    subagents: list[Subagent] = field(default_factory=list)
    background: list[BackgroundTask] = field(default_factory=list)
    retries: list[RequestRetry] = field(default_factory=list)
    limits: RateLimitStatus = field(default_factory=RateLimitStatus)
    lines: LineCounts = field(default_factory=LineCounts)

    def raise_for_verdict(self) -> "Report":
        """Return the report if `ok`, else raise RunFailed."""
        if not self.ok:
            raise RunFailed(self)
        return self

    def to_json(self) -> bytes:
        """The report as one line of JSON, without a newline."""
        return msgspec.json.encode(self)


class Attempt(Struct):
    """One run of a task, and the decision after it (`why`)."""

    run_id: str | None
    session_id: str | None
    verdict: Verdict
    tokens: Tokens
    cost: Cost
    turns: int | None
    duration_ms: int | None
    why: str
    agent: str | None = None


class TaskReport(Report, kw_only=True):
    """The report of a task with one or more attempts.

    Verdict, text, result, session and context are those of the last attempt; tokens, cost, models,
    tools, files, denials and retries add up all attempts.
    """

    task_id: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
