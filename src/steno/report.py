"""The report of a run, its verdicts and exit codes. Pure values."""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

import msgspec
from msgspec import Struct, field

from .codec.colours import strip_tag
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

VERDICT_MEANINGS: dict[str, str] = {
    "success": "the run finished, and the agent reports success",
    "max_turns": "turn limit reached before the work was finished",
    "max_budget": "budget reached before the work was finished",
    "rate_limit": "rate or usage limit reached",
    "auth": "API key or login rejected",
    "billing": "out of credit, or a payment is due",
    "api": "the model service returned an error",
    "network": "the model service could not be reached",
    "invalid_request": "the model service rejected the request as invalid",
    "context_full": "the conversation no longer fits the model's context window",
    "refused": "the model declined the request",
    "permission": "calls were denied, and the work stopped there",
    "interactive": "the run ended with an unanswered question",
    "background_task": "the run ended before its background work finished",
    "stopped": "a hook or the agent's own loop detection stopped the run",
    "policy": "a rule of a policy was broken; steno stopped the run",
    "empty": "the agent reported success without an answer",
    "no_result": "the recording ends without a complete result",
    "stalled": "no output for too long; steno stopped the run",
    "timeout": "time limit reached; steno stopped the run",
    "interrupted": "interrupted (Ctrl-C)",
    "killed": "the agent's process was killed",
    "subprocess": "the agent's process failed",
    "not_found": "the agent's program was not found",
}

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
ADVISORY_VERDICTS = ("interactive", "background_task", "permission")  # explained by such a warning


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
    def guesses_window(self) -> Callable[[str, int], bool]: ...

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
    """Background work. `status`: "running" until its end was reported; "ended" without facts."""

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


class FailureFacts(Protocol):
    """What the reason of a failure is made of."""

    @property
    def verdict(self) -> str: ...

    @property
    def ok(self) -> bool: ...

    @property
    def error(self) -> str | None: ...

    @property
    def warnings(self) -> Sequence[str]: ...

    @property
    def result(self) -> str | None: ...

    @property
    def text(self) -> str: ...


def failure_reason(facts: FailureFacts) -> str | None:
    """Why a run did not succeed, on one line; None if it did.

    Its error, the question it left open, the warning behind the verdict, or the verdict's meaning.
    """
    if facts.ok:
        return None
    error = strip_tag(facts.error or "").strip()
    text = error or _open_question(facts) or advisory_reason(facts)
    text = text or VERDICT_MEANINGS.get(facts.verdict, "unknown verdict")
    return first_line(text)


def first_line(text: str) -> str:
    """The first line that says something: not one of separators only."""
    lines = text.splitlines()
    return next((line for line in lines if any(map(str.isalnum, line))), text[:1]).strip()


def _open_question(facts: FailureFacts) -> str:
    last = (facts.result or facts.text).strip().rpartition("\n")[2]
    return f"asks: {last}" if facts.verdict == "interactive" and last.endswith("?") else ""


def advisory(facts: FailureFacts) -> str | None:
    """The warning behind the verdict, which the reason replaces."""
    if (facts.error or "").strip() or facts.verdict not in ADVISORY_VERDICTS:
        return None
    return next((text for text in facts.warnings if text.startswith(ADVISORY_PREFIXES)), None)


def advisory_reason(facts: FailureFacts) -> str:
    """The warning behind the verdict; all of them if the verdict alone would be a success."""
    if facts.verdict == "success":
        return "; ".join(text for text in facts.warnings if text.startswith(ADVISORY_PREFIXES))
    return (advisory(facts) or "").partition(":")[2].strip()


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

    @property
    def reason(self) -> str | None:
        """Why the run did not succeed, on one line; None if it did."""
        return failure_reason(self)

    def raise_for_verdict(self) -> "Report":
        """Return the report if `ok`, else raise RunFailed."""
        if not self.ok:
            raise RunFailed(self)
        return self

    def to_json(self) -> bytes:
        """The report as one line of JSON, without a newline; `reason` follows `error`."""
        values: dict[str, Any] = {}
        for name, value in msgspec.to_builtins(self).items():
            values[name] = value
            if name == "error":
                values["reason"] = self.reason
        return msgspec.json.encode(values)


IDLE_SUFFIX = "; no call and no change since"  # of a run after one with denied calls


def describe_denials(denials: Sequence[DeniedCall]) -> str:
    """Denied calls as text: 2 calls denied (Write, Bash)."""
    tools = ", ".join(dict.fromkeys(denial.tool or "unknown tool" for denial in denials))
    return f"{len(denials)} call{'' if len(denials) == 1 else 's'} denied ({tools})"


def denied_before(newest_first: Iterable[Report], otherwise: str | None = None) -> str | None:
    """The denied calls that are still open after these runs of a task, as text.

    A run that made no call and changed nothing leaves those of the run before it open: `otherwise`
    if it is the first one.
    """
    for report in newest_first:
        denials = _open_denials(report)
        if denials is not None or report.ok or report.tools or report.tool_counts or report.files:
            return denials
    return otherwise


def _open_denials(report: Report) -> str | None:
    if report.ok:
        return None
    if report.verdict == "permission":
        return (report.reason or "").removesuffix(IDLE_SUFFIX)
    succeeded = {tool.name for tool in report.tools if tool.ok}
    denials = [denial for denial in report.denials if denial.tool not in succeeded]
    return describe_denials(denials) if denials else None


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
