"""The lines Claude Code prints and stores, as types: only the fields that are read here.

A schema without logic, except for the tolerant decoder at the end. Unknown fields are skipped while
decoding. Names follow the program's spelling: stdout says session_id, transcripts say sessionId.

`decode_stream` and `decode_transcript` decode a line by tagged unions, so that a line or block has
only the fields of its kind. `decode_line_lenient` builds the same types from a line that doesn't
fit. Fields that few lines need (`LineDetails`), and rare kinds of lines, are decoded on demand.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar, Union

from msgspec import Raw, Struct, defstruct, field

from ...codec.decode import (
    DECODE_ERRORS,
    Amount,
    Count,
    ExitCode,
    Instant,
    decode_lenient,
    decoder,
    text_of,
)
from ...event import NO_JSON, ToolResultDetails
from .tables import (
    ATTACHMENT_BLOCK_TYPES,
    CONVERSATION_TYPES,
    IGNORED_BLOCK_TYPES,
    OTHER_LINE_TYPES,
)
from .tool_results import raw_tool_result

# -- assistant, user and stream_event lines --------------------------------------------------------


class CacheCreation(Struct, gc=False):
    ephemeral_1h_input_tokens: Count | None = None


class OutputDetails(Struct, gc=False):
    thinking_tokens: Count | None = None


class RequestUsage(Struct, gc=False):
    """A missing cache counter is 0 (no cache was used); one of a wrong type is None, unknown."""

    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = 0
    cache_read_input_tokens: Count | None = 0
    cache_creation: CacheCreation | None = None
    output_tokens: Count | None = None
    output_tokens_details: OutputDetails | None = None


class ToolUseBlock(Struct, gc=False, tag_field="type", tag="tool_use"):
    id: str = ""
    name: str = ""
    input: Raw = NO_JSON


class TextBlock(Struct, gc=False, tag_field="type", tag="text"):
    text: str = ""


class SyntheticTextBlock(Struct, gc=False):
    """A text that the program wrote in the model's place. Made by the reader, never decoded."""

    text: str = ""


class ThinkingBlock(Struct, gc=False, tag_field="type", tag="thinking"):
    thinking: Raw = NO_JSON


class ToolResultBlock(Struct, gc=False, tag_field="type", tag="tool_result"):
    tool_use_id: str = ""
    content: Raw = NO_JSON
    is_error: bool = False


class IgnoredBlock(Struct, gc=False):
    """A block of a known kind that says nothing about the run."""


class AttachmentBlock(Struct, gc=False):
    """An image or a file, as printed. Such lines don't fit: their blocks are decoded one by one."""

    content: Raw


class BareBlock(Struct, gc=False):
    """A string in the place of a block."""

    text: str


class OtherBlock(Struct, gc=False):
    """A block of any other kind: server tools and their results, unknown kinds."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Raw = NO_JSON
    text: str | None = None
    tool_use_id: str | None = None
    content: Raw = NO_JSON
    is_error: bool | None = None


def _tagged(base: type[Struct], names: frozenset[str] | tuple[str, ...]) -> dict[str, Any]:
    """A subclass of `base` per kind, so that these kinds decode without an error."""
    return {
        name: defstruct(name, [], bases=(base,), gc=False, tag_field="type", tag=name)
        for name in sorted(names)
    }


BLOCK_TYPES: dict[str, Any] = {
    "tool_use": ToolUseBlock,
    "text": TextBlock,
    "thinking": ThinkingBlock,
    "tool_result": ToolResultBlock,
    **_tagged(IgnoredBlock, IGNORED_BLOCK_TYPES),
}
Block: Any = Union[tuple(BLOCK_TYPES.values())]  # noqa: UP007  # made from the table


class AssistantMessage(Struct, gc=False, tag_field="role", tag="assistant"):
    model: str | None = None
    id: str | None = None
    content: list[Block] = []
    stop_reason: str | None = None
    usage: RequestUsage | None = None


class UserMessage(Struct, gc=False, tag_field="role", tag="user"):
    content: list[Block]


class ToolOutcome(Struct, gc=False, rename="camel"):
    """The part of a structured tool result (`event.ToolResultDetails`) that a report needs.

    A result that reports background work doesn't fit: its line is decoded leniently.
    """

    type: str | None = None
    file_path: str | None = None
    error: str | None = None
    background_task_id: None = None
    is_async: None = None
    agent_id: None = None
    shell_id: None = None


Outcome = TypeVar("Outcome")  # ToolOutcome or ToolResultDetails: how much a sink needs


class AssistantLine(Struct, gc=False, kw_only=True, tag_field="type", tag="assistant"):
    """Fields are in printing order: the decoder looks for a key next to the one before it."""

    message: AssistantMessage
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str | None = None
    timestamp: Instant | None = None


class UserLine(Struct, Generic[Outcome], gc=False, kw_only=True, tag_field="type", tag="user"):
    message: UserMessage
    parent_tool_use_id: str | None = None
    session_id: str
    timestamp: Instant | None = None
    tool_use_result: Outcome | str | list[Raw] | None = None


class Delta(Struct, gc=False):
    text: str | None = None
    stop_reason: str | None = None


class StreamEvent(Struct, gc=False):
    """The content of a `stream_event`: a message of the model server, passed on."""

    type: str = ""
    message: AssistantMessage | None = None
    delta: Delta | None = None
    usage: RequestUsage | None = None


class StreamEventLine(Struct, gc=False, tag_field="type", tag="stream_event"):
    event: StreamEvent | None = None
    session_id: str | None = None
    parent_tool_use_id: str | None = None
    timestamp: Instant | None = None


class OtherLine(Struct, gc=False):
    """What every other line shares; `OtherFields` and `ResultLine` have the rest."""

    subtype: str | None = None
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    timestamp: Instant | None = None


class UntypedLine(OtherLine, gc=False):
    """A line of a kind this version doesn't know."""

    type: str = ""


class TranscriptLine(Struct, Generic[Outcome], gc=False):
    """A transcript line, in writing order. Its `type` comes late: only the message is tagged."""

    isSidechain: bool | None = None
    session_id: str | None = field(name="sessionId", default=None)
    agentId: str | None = None
    message: AssistantMessage | UserMessage | None = None
    type: str = ""
    uuid: str | None = None
    timestamp: Instant | None = None
    tool_use_result: Outcome | str | list[Raw] | None = field(name="toolUseResult", default=None)
    subtype: str | None = None
    parent_tool_use_id: str | None = None


class ContextCategory(Struct, gc=False):
    name: str = ""
    tokens: Count | None = None
    kind: str | None = None


class ContextUsage(Struct, gc=False):
    """The answer to `/context`."""

    model: str | None = None
    total_tokens: Count | None = None
    raw_max_tokens: Count | None = None
    categories: list[ContextCategory] | None = None


class LineDetails(Struct, gc=False):
    """Every field of a message line in both spellings: for rare needs, and lines that don't fit."""

    type: str = ""
    message: Raw = NO_JSON
    parent_tool_use_id: str | None = None
    session_id: str | None = None
    uuid: str | None = None
    timestamp: Instant | None = None
    leafUuid: str | None = None
    isSidechain: bool | None = None
    agentId: str | None = None
    cwd: str | None = None
    gitBranch: str | None = None
    sessionId: str | None = None
    version: str | None = None
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
    context_usage: ContextUsage | None = None


OTHER_LINES = _tagged(OtherLine, OTHER_LINE_TYPES)
OTHER_LINE_NAMES = {kind: name for name, kind in OTHER_LINES.items()}
LINE_TYPES: dict[str, Any] = {
    "assistant": AssistantLine,
    "user": UserLine,
    "stream_event": StreamEventLine,
    **OTHER_LINES,
}


@cache
def line_decoder(is_transcript: bool, outcome: type) -> Callable[[bytes], Any]:
    """The decoder for the lines of a stream or a transcript, built when first needed."""
    if is_transcript:
        return decoder(TranscriptLine[outcome]).decode  # type: ignore[valid-type]  # a parameter
    kinds = {**LINE_TYPES, "user": UserLine[outcome]}  # type: ignore[valid-type]  # a parameter
    return decoder(Union[tuple(kinds.values())]).decode  # noqa: UP007  # made from the table


# -- lines that don't fit --------------------------------------------------------------------------


class MessageLine(Struct, gc=False, kw_only=True):
    """An assistant or user line of a stream or a transcript that was decoded leniently."""

    type: str
    message: AssistantMessage | UserMessage | None
    parent_tool_use_id: str | None
    session_id: str | None
    uuid: str | None
    timestamp: Instant | None
    tool_use_result: ToolResultDetails | str | list[Raw] | None
    details: LineDetails


class BlockHead(Struct, gc=False):
    type: str = ""


class RawContent(Struct, gc=False):
    content: Raw = NO_JSON


def decode_line_lenient(data: bytes | Raw) -> Any:
    """The line without the fields of a wrong type, and with blocks of unknown kinds.

    A message may be None. Raises one of DECODE_ERRORS if the line isn't JSON
    or is nested too deeply.
    """
    details = decode_lenient(data, LineDetails)
    if details.type not in CONVERSATION_TYPES:
        is_transcript = details.session_id is None and details.sessionId is not None
        kind = TranscriptLine if is_transcript else LINE_TYPES.get(details.type, UntypedLine)
        return decode_lenient(data, kind)
    is_user = details.type == "user"
    return MessageLine(
        type=details.type,
        message=decode_message_lenient(details),
        parent_tool_use_id=details.parent_tool_use_id,
        session_id=details.session_id,
        uuid=details.uuid,
        timestamp=details.timestamp,
        tool_use_result=_tool_result_lenient(raw_tool_result(data)) if is_user else None,
        details=details,
    )


def decode_message_lenient(details: LineDetails) -> AssistantMessage | UserMessage | None:
    data = details.message
    if _first_byte(data) != b"{":
        return None
    is_user = details.type == "user"
    content = _content_lenient(decode_lenient(data, RawContent).content, is_user)
    if not is_user:
        message = decode_lenient(data, AssistantMessage)
        message.content = content or []
        return message
    return None if content is None else UserMessage(content)


def _content_lenient(data: Raw, is_user: bool) -> list[Any] | None:
    first = _first_byte(data)
    if first == b"[":
        blocks = decoder(list[Raw]).decode(data)
        return [_block_lenient(block) for block in blocks]
    if first == b"n":
        return None
    if first != b'"':  # a block without its list, or another value
        return [_block_lenient(data)]
    text = text_of(data)
    return [TextBlock(text)] if text or is_user else []


def _block_lenient(data: Raw) -> Any:
    first = _first_byte(data)
    if first == b'"':
        return BareBlock(text_of(data))
    if first != b"{":
        return OtherBlock("value")
    kind = decode_lenient(data, BlockHead).type
    if kind in ATTACHMENT_BLOCK_TYPES:
        return AttachmentBlock(data)
    return decode_lenient(data, BLOCK_TYPES.get(kind, OtherBlock))


def _tool_result_lenient(data: Raw) -> ToolResultDetails | str | list[Raw] | None:
    result: ToolResultDetails | str | list[Raw] | None = None
    try:
        result = decoder(ToolResultDetails | str | list[Raw] | None).decode(data)
    except DECODE_ERRORS:
        if _first_byte(data) == b"{":
            result = decode_lenient(data, ToolResultDetails)
    return result


def _first_byte(data: Raw) -> bytes:
    return bytes(memoryview(data)[:1])


# -- structured values and rare kinds of lines -----------------------------------------------------


class McpServer(Struct, gc=False):
    name: str = ""
    status: str = ""


class Plugin(Struct, gc=False):
    name: str = ""


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


class RequestError(Struct, gc=False):
    """Why a request failed, in transcripts."""

    formatted: str | None = None
    message: str | None = None


class OtherFields(Struct, gc=False):
    """Fields of lines that are no messages and no results."""

    model: str | None = None
    cwd: str | None = None
    apiKeySource: str | None = None
    claude_code_version: str | None = None
    permissionMode: str | None = None
    tools: list[str] | None = None
    mcp_servers: list[McpServer] | None = None
    skills: list[str] | None = None
    agents: list[str] | None = None
    plugins: list[Plugin] | None = None
    slash_commands: list[str] | None = None
    uuid: str | None = None
    attempt: Count | None = None
    max_retries: Count | None = None
    retry_delay_ms: Amount | None = None
    error_status: Count | None = None
    error: str | RequestError | None = None
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
    output: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    content: str | None = None
    text: str | None = None
    title: str | None = None
    customTitle: str | None = None
    aiTitle: str | None = None
    agentName: str | None = None
    tool_summary: str | None = None
    new_conversation_id: str | None = None
    prevent_continuation: bool | None = None
    preventContinuation: bool | None = None
    rate_limit_info: RateLimitInfo | None = None
    contextUsage: ContextUsage | None = None


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
    costBasis: str | None = None
    webSearchRequests: Count | None = None
    # Not read, but known:
    cacheCreationEphemeral5mInputTokens: Raw = NO_JSON
    canonicalModel: Raw = NO_JSON
    provider: Raw = NO_JSON


class ServerToolUse(Struct, gc=False):
    web_search_requests: Count | None = None
    web_fetch_requests: Count | None = None


class ResultUsage(RequestUsage, gc=False):
    """The usage of a result; some fields are not read, and known so that new ones are noticed."""

    server_tool_use: ServerToolUse | None = None
    service_tier: str | None = None
    inference_geo: Raw = NO_JSON
    iterations: Raw = NO_JSON
    speed: Raw = NO_JSON
    fallback_credit: Raw = NO_JSON
    total_tokens: Raw = NO_JSON


class PermissionDenial(Struct, gc=False):
    tool_name: str | None = None
    tool_use_id: str | None = None
    tool_input: Raw = NO_JSON


class SubagentStats(Struct, gc=False):
    spawned: Count | None = None


class ResultOrigin(Struct, gc=False):
    """Why the turn was run: absent for a prompt."""

    kind: str | None = None


class DeferredCall(Struct, gc=False):
    name: str = ""


class ResultLine(Struct, gc=False):
    uuid: str | None = None
    is_error: bool | None = None
    result: str | None = None
    errors: list[str] | None = None
    error_message: str | None = None
    origin: ResultOrigin | None = None
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
    usage: ResultUsage | None = None
    modelUsage: dict[str, ModelUsageEntry] | None = None
    model_usage_since_last_result: dict[str, ModelUsageEntry] | None = None
    total_cost_usd: Amount | None = None
    result_index: Count | None = None
    permission_denials: list[PermissionDenial] | None = None
    subagent_stats: SubagentStats | None = None
    deferred_tool_use: DeferredCall | None = None


class RawResult(Struct, gc=False):
    """The parts of a result whose keys are checked."""

    usage: dict[str, Raw] | None = None
    modelUsage: dict[str, dict[str, Raw]] | None = None


class CostLine(Struct, gc=False):
    totalCostUSD: Amount | None = None
    modelUsage: dict[str, ModelUsageEntry] | None = None
    hasUnknownModelCost: bool | None = None


class ToolInput(Struct, gc=False):
    """The fields of a call's input that are read: target file or task, and background flag."""

    file_path: str | None = None
    notebook_path: str | None = None
    run_in_background: bool | None = None
    subagent_type: str | None = None
    description: str | None = None
    shell_id: str | None = None
    task_id: str | None = None
