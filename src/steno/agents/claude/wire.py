"""The lines that Claude Code prints or keeps, as types: only the fields that somebody here reads.

A schema without logic. It never decides what a line means; `reader.py` and `rare.py` do. Unknown fields are
skipped on decoding, so a new field costs nothing. Names follow the program's own spelling; stdout
says session_id where the transcript files say sessionId, so both stand here.

`StreamLine` is what a line of stdout is decoded to first. Where more must be known, and for every line of
a transcript, it is decoded as a `Line`; the rare kinds are decoded a second time into their own type.
"""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from ...codec.decode import Amount, Count, ExitCode
from ...event import NO_JSON, ToolResultDetails

# A time without its zone is of the wrong type: it cannot be compared with the others.
Instant = Annotated[datetime, Meta(tz=True)]


class CacheCreation(Struct, gc=False):
    ephemeral_1h_input_tokens: Count | None = None


class OutputDetails(Struct, gc=False):
    thinking_tokens: Count | None = None


class RequestUsage(Struct, gc=False):
    """A cache counter that is left out is 0 (no cache was used); one of a wrong type is None, unknown."""

    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    output_tokens: Count | None = None
    cache_creation: CacheCreation | None = None
    output_tokens_details: OutputDetails | None = None


class Block(Struct, gc=False):
    tool_use_id: str | None = None
    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Raw = NO_JSON
    content: Raw = NO_JSON
    is_error: bool | None = None
    text: str | None = None
    thinking: str | None = None


class Message(Struct, gc=False):
    model: str | None = None
    id: str | None = None
    content: list[Block] | str | None = None
    stop_reason: str | None = None
    usage: RequestUsage | None = None


class Delta(Struct, gc=False):
    text: str | None = None
    stop_reason: str | None = None


class StreamEvent(Struct, gc=False):
    """The inside of a `stream_event`: what the model server sent, passed on."""

    type: str = ""
    message: Message | None = None
    delta: Delta | None = None
    usage: RequestUsage | None = None


class StreamLine(Struct, gc=False):
    """What stdout says most of the time. Few fields, in the order in which they are printed: the decoder
    looks for a key beside the one before it, and walks past every field for a key that it does not know."""

    type: str = ""
    message: Message | None = None
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    timestamp: Instant | None = None
    tool_use_result: ToolResultDetails | str | list[Raw] | None = None
    subtype: str | None = None
    event: StreamEvent | None = None


class FullLine(StreamLine, gc=False):
    """Every field that somebody reads of an assistant, user or stream_event line, in both spellings."""

    isSidechain: bool | None = None
    agentId: str | None = None
    cwd: str | None = None
    sessionId: str | None = None
    version: str | None = None
    toolUseResult: ToolResultDetails | str | list[Raw] | None = None
    tool_result_meta: Raw = NO_JSON
    error: str | None = None
    api_error_status: Count | None = None
    apiErrorStatus: Count | None = None
    is_api_error_message: bool | None = None
    isApiErrorMessage: bool | None = None
    isSynthetic: bool | None = None
    isReplay: bool | None = None
    isMeta: bool | None = None
    isCompactSummary: bool | None = None
    api_message_id: str | None = None


class TranscriptLine(Struct, gc=False):
    """What a line of a transcript says most of the time, under the names that stdout has for it. In the order of writing."""

    isSidechain: bool | None = None
    session_id: str | None = field(name="sessionId", default=None)
    message: Message | None = None
    type: str = ""
    uuid: str | None = None
    timestamp: Instant | None = None
    tool_use_result: ToolResultDetails | str | list[Raw] | None = field(
        name="toolUseResult", default=None
    )
    subtype: str | None = None
    event: StreamEvent | None = None
    parent_tool_use_id: str | None = None


class RawToolResult(Struct, gc=False):
    """The structured tool result as it came, for shapes that `Outcome` does not know."""

    tool_use_result: Raw = NO_JSON
    toolUseResult: Raw = NO_JSON


class NotebookResult(Struct, gc=False):
    """The structured result of NotebookEdit: the one tool that says notebook_path where others say filePath."""

    notebook_path: str | None = None
    edit_mode: str | None = None
    original_file: Raw = NO_JSON
    updated_file: Raw = NO_JSON
    error: str | None = None


class PermissionDecision(Struct, gc=False):
    decision: str | None = None


class ToolResultMeta(Struct, gc=False):
    id: str | None = None
    permission_decision: PermissionDecision | None = None


class McpServer(Struct, gc=False):
    name: str = ""
    status: str = ""


class CompactMetadata(Struct, gc=False):
    trigger: str | None = None
    pre_tokens: Count | None = None
    post_tokens: Count | None = None
    preTokens: Count | None = None
    postTokens: Count | None = None


class TaskPatch(Struct, gc=False):
    status: str | None = None


class RateLimitInfo(Struct, gc=False):
    status: str | None = None
    resetsAt: Count | None = None
    rateLimitType: str | None = None
    utilization: Amount | None = None


class OtherLine(Struct, gc=False):
    """system, rate_limit_event, tool_progress: every other field that somebody reads."""

    model: str | None = None
    cwd: str | None = None
    apiKeySource: str | None = None
    claude_code_version: str | None = None
    permissionMode: str | None = None
    tools: list[str] | None = None
    mcp_servers: list[McpServer] | None = None
    attempt: Count | None = None
    max_retries: Count | None = None
    retry_delay_ms: Amount | None = None
    error_status: Count | None = None
    error: str | None = None
    compact_metadata: CompactMetadata | None = None
    compactMetadata: CompactMetadata | None = None
    tool_name: str | None = None
    tool_use_id: str | None = None
    message: str | None = None
    task_id: str | None = None
    task_type: str | None = None
    subagent_type: str | None = None
    description: str | None = None
    is_backgrounded: bool | None = None
    patch: TaskPatch | None = None
    status: str | None = None
    summary: str | None = None
    last_tool_name: str | None = None
    elapsed_time_seconds: Amount | None = None
    hook_name: str | None = None
    hook_event: str | None = None
    exit_code: ExitCode | None = None
    outcome: str | None = None
    content: str | None = None
    text: str | None = None
    title: str | None = None
    rate_limit_info: RateLimitInfo | None = None


class ModelUsageEntry(Struct, gc=False):
    inputTokens: Count | None = None
    outputTokens: Count | None = None
    cacheReadInputTokens: Count | None = 0
    cacheCreationInputTokens: Count | None = 0
    cacheCreationEphemeral1hInputTokens: Count | None = 0
    thinkingTokens: Count | None = 0
    costUSD: Amount | None = None
    contextWindow: Count | None = None
    maxOutputTokens: Count | None = None


class PermissionDenial(Struct, gc=False):
    tool_name: str | None = None
    tool_use_id: str | None = None
    tool_input: Raw = NO_JSON


class SubagentStats(Struct, gc=False):
    spawned: Count | None = None


class ResultLine(Struct, gc=False):
    uuid: str | None = None
    is_error: bool | None = None
    result: str | None = None
    errors: list[str] | None = None
    structured_output: Raw = NO_JSON
    terminal_reason: str | None = None
    stop_reason: str | None = None
    startup_failure_reason: str | None = None
    api_error: str | None = None
    api_error_status: Count | None = None
    local_command: str | None = None
    num_turns: Count | None = None
    duration_ms: Amount | None = None
    duration_api_ms: Amount | None = None
    usage: RequestUsage | None = None
    modelUsage: dict[str, ModelUsageEntry] | None = None
    model_usage_since_last_result: dict[str, ModelUsageEntry] | None = None
    total_cost_usd: Amount | None = None
    result_index: Count | None = None
    permission_denials: list[PermissionDenial] | None = None
    subagent_stats: SubagentStats | None = None


class CostLine(Struct, gc=False):
    totalCostUSD: Amount | None = None
    modelUsage: dict[str, ModelUsageEntry] | None = None


class ToolInput(Struct, gc=False):
    """What is read of a call's input: where it writes, and whether it goes to the background."""

    file_path: str | None = None
    notebook_path: str | None = None
    run_in_background: bool | None = None
    subagent_type: str | None = None
    description: str | None = None
