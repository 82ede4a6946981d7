"""The line formats of `codex exec --json` and of rollout files.

Only fields that are read are declared. Values that may be long or of several types stay `Raw`.
"""

from msgspec import Raw, Struct

from ...codec.decode import Amount, Count, Instant
from ...event import NO_JSON


class TokenUsage(Struct, gc=False):
    """Input includes cache reads and writes; output includes reasoning.

    Streams up to 0.115 do not say how much of the output is reasoning.
    """

    input_tokens: Count | None = None
    cached_input_tokens: Count | None = 0
    cache_write_input_tokens: Count | None = 0
    output_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None
    total_tokens: Count | None = None


class Duration(Struct, gc=False):
    """A duration as Rust writes it."""

    secs: Count = 0
    nanos: Count = 0

    @property
    def milliseconds(self) -> int:
        return self.secs * 1000 + self.nanos // 1_000_000


class Item(Struct, gc=False):
    """An item of a turn, in the stream (agent_message) or in a rollout (AgentMessage)."""

    type: str = ""
    id: str = ""
    text: str | None = None
    message: str | None = None
    command: Raw = NO_JSON
    aggregated_output: Raw = NO_JSON
    exit_code: int | None = None
    status: str | None = None
    changes: Raw = NO_JSON
    server: str | None = None
    tool: str | None = None
    arguments: Raw = NO_JSON
    result: Raw = NO_JSON
    error: Raw = NO_JSON
    query: str | None = None
    items: Raw = NO_JSON
    content: Raw = NO_JSON
    summary_text: list[str] | None = None
    stdout: Raw = NO_JSON
    stderr: Raw = NO_JSON
    duration: Duration | None = None
    prompt: str | None = None
    kind: str | None = None
    agent_thread_id: str | None = None
    agent_path: str | None = None
    receiver_thread_ids: list[str] | None = None
    agents_states: Raw = NO_JSON


class TurnError(Struct, gc=False):
    """Why a turn failed; only rollouts have `codex_error_info`."""

    message: str | None = None
    codex_error_info: Raw = NO_JSON


class TokenCountInfo(Struct, gc=False):
    """The totals of a thread after a request."""

    total_token_usage: TokenUsage | None = None
    last_token_usage: TokenUsage | None = None
    model_context_window: Count | None = None


class RateLimitWindow(Struct, gc=False):
    """One rate limit of an account."""

    used_percent: Amount | None = None
    window_minutes: Count | None = None
    resets_at: Count | None = None


class RateLimits(Struct, gc=False):
    """The rate limits of an account, from the headers of a response."""

    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    rate_limit_reached_type: str | None = None


class SandboxPolicy(Struct, gc=False):
    """The sandbox that commands run in."""

    type: str | None = None
    mode: str | None = None  # older versions


class GitInfo(Struct, gc=False):
    """The checkout in which a session was started."""

    repository_url: str | None = None
    branch: str | None = None
    commit_hash: str | None = None


class ThreadSpawn(Struct, gc=False):
    """Which thread started the one of a subagent."""

    parent_thread_id: str | None = None


class SubagentSource(Struct, gc=False):
    thread_spawn: ThreadSpawn | None = None


class ThreadSource(Struct, gc=False):
    """Why a thread was started; for most a string."""

    subagent: SubagentSource | None = None


class AgentState(Struct, gc=False):
    """The state of a subagent, in the item of a call."""

    status: str | None = None
    message: str | None = None


class SpawnInput(Struct, gc=False):
    """What a subagent is to do."""

    message: str | None = None


class SpawnOutput(Struct, gc=False):
    """The output of a call that started a subagent."""

    agent_id: str | None = None


class Payload(Struct, gc=False):
    """The payload of a rollout line; the fields depend on both types."""

    type: str = ""
    id: str | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    source: Raw = NO_JSON
    agent_role: str | None = None
    role: str | None = None
    turn_id: str | None = None
    cwd: str | None = None
    cli_version: str | None = None
    git: GitInfo | None = None
    model: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    model_context_window: Count | None = None
    item: Item | None = None
    name: str | None = None
    call_id: str | None = None
    arguments: Raw = NO_JSON
    input: Raw = NO_JSON
    action: Raw = NO_JSON
    output: Raw = NO_JSON
    content: Raw = NO_JSON
    summary: Raw = NO_JSON
    status: str | None = None
    exit_code: int | None = None
    duration: Duration | None = None
    usage: TokenUsage | None = None
    response_id: str | None = None
    info: TokenCountInfo | None = None
    rate_limits: RateLimits | None = None
    message: str | None = None
    text: str | None = None
    reason: str | None = None
    last_agent_message: str | None = None
    images: list[Raw] | None = None
    error: TurnError | None = None
    codex_error_info: Raw = NO_JSON
    duration_ms: Count | None = None


class Invocation(Struct, gc=False):
    """A call of an MCP tool."""

    server: str | None = None
    tool: str | None = None
    arguments: Raw = NO_JSON


class OlderMessage(Payload, gc=False):
    """The message of a line in the stream of versions up to 0.42.

    Most are what rollouts have as the payload of an event. Up to 0.29, a `token_count` has the
    usage of the request in itself.
    """

    session_id: str | None = None
    command: Raw = NO_JSON
    aggregated_output: Raw = NO_JSON
    stdout: Raw = NO_JSON
    stderr: Raw = NO_JSON
    success: bool | None = None
    changes: Raw = NO_JSON
    invocation: Invocation | None = None
    result: Raw = NO_JSON
    query: str | None = None
    plan: Raw = NO_JSON
    input_tokens: Count | None = None
    cached_input_tokens: Count | None = 0
    output_tokens: Count | None = None
    reasoning_output_tokens: Count | None = None


class CodexLine(Struct, gc=False):
    """A line of the stream, or of a rollout.

    Rollouts have a time and a payload. In those of versions up to 0.29, the first line has an `id`
    and no type, some lines are only a `record_type`, and the others are what is the payload now.
    Before 2025-07 a rollout was one document with `session` and `items`.

    The stream of versions up to 0.42 begins with a line about its setup (`workdir`) and one with
    the `prompt`; then every line has a message, `msg`.
    """

    type: str = ""
    id: str | None = None
    record_type: str | None = None
    thread_id: str | None = None
    item: Item | None = None
    usage: TokenUsage | None = None
    error: TurnError | None = None
    message: str | None = None
    timestamp: Instant | None = None
    payload: Payload | None = None
    session: Payload | None = None
    items: list[Payload] | None = None
    msg: OlderMessage | None = None
    workdir: str | None = None
    model: str | None = None
    sandbox: str | None = None
    prompt: str | None = None


class FileChange(Struct, gc=False):
    """One file of a patch, in the stream."""

    path: str = ""
    kind: str = ""


class FileDiff(Struct, gc=False):
    """One file of a patch, in a rollout; up to 0.42 below the name of what was done with it."""

    type: str = ""
    move_path: str | None = None
    add: Raw | None = None
    delete: Raw | None = None
    update: "FileDiff | None" = None
