"""What Codex writes, as types: the lines of `codex exec --json` and those of its rollout files. Data without logic.

Only fields that somebody reads are declared. What may be long, or of several shapes, stays JSON (`Raw`).
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Raw, Struct

from ...codec.decode import Amount, Count
from ...event import NO_JSON

Instant = Annotated[datetime, Meta(tz=True)]


class TokenUsage(Struct, gc=False):
    """Input includes what was cached and what was written to the cache; output includes reasoning."""

    input_tokens: Count | None = None
    cached_input_tokens: Count | None = 0
    cache_write_input_tokens: Count | None = 0
    output_tokens: Count | None = None
    reasoning_output_tokens: Count | None = 0
    total_tokens: Count | None = None


class Item(Struct, gc=False):
    """A thing that happened in a turn: of the stream (agent_message) or of a rollout (AgentMessage)."""

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


class TurnError(Struct, gc=False):
    """Why a turn failed; only a rollout has the structured part."""

    message: str | None = None
    codex_error_info: Raw = NO_JSON


class TokenCountInfo(Struct, gc=False):
    """How a thread stands after a request."""

    total_token_usage: TokenUsage | None = None
    last_token_usage: TokenUsage | None = None
    model_context_window: Count | None = None


class RateLimitWindow(Struct, gc=False):
    """One limit of an account."""

    used_percent: Amount | None = None
    window_minutes: Count | None = None
    resets_at: Count | None = None


class RateLimits(Struct, gc=False):
    """The limits of an account, as a response told them."""

    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    rate_limit_reached_type: str | None = None


class SandboxPolicy(Struct, gc=False):
    """What commands may do to the disk."""

    type: str | None = None
    mode: str | None = None  # older versions


class Payload(Struct, gc=False):
    """What a line of a rollout holds; which fields are filled depends on its two types."""

    type: str = ""
    id: str | None = None
    turn_id: str | None = None
    cwd: str | None = None
    cli_version: str | None = None
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
    status: str | None = None
    usage: TokenUsage | None = None
    response_id: str | None = None
    info: TokenCountInfo | None = None
    rate_limits: RateLimits | None = None
    message: str | None = None
    text: str | None = None
    reason: str | None = None
    last_agent_message: str | None = None
    error: TurnError | None = None
    codex_error_info: Raw = NO_JSON
    duration_ms: Count | None = None


class CodexLine(Struct, gc=False):
    """Any line: of the stream, or of a rollout, which has a time and a payload."""

    type: str = ""
    thread_id: str | None = None
    item: Item | None = None
    usage: TokenUsage | None = None
    error: TurnError | None = None
    message: str | None = None
    timestamp: Instant | None = None
    payload: Payload | None = None


class FileChange(Struct, gc=False):
    """One file of a patch, as the stream tells it."""

    path: str = ""
    kind: str = ""


class FileDiff(Struct, gc=False):
    """One file of a patch, as a rollout tells it."""

    type: str = ""
    move_path: str | None = None
