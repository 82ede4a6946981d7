"""What the blocks of a line say: words, refusals, failures, files that changed. Pure functions, one line at a time."""

import re
from datetime import datetime

from msgspec import Raw

from ... import event as ev
from ...codec.decode import decode_lenient, text_of
from . import wire as ln
from .other_lines import EventHead
from .tables import FINISHED_TASK_STATUSES, SERVER_TOOL_BLOCK_TYPES, TOOLS, tool_kind

_INTERRUPTED_PREFIX = "[Request interrupted by user"
_REJECT_DECISION = "reject"  # a decision on a call
_DENIAL_PREFIXES = (
    "Claude requested permissions to",
    "Permission to use ",
    "Tool permission request failed",
)
# A deny rule takes the whole tool away: the call then fails with "No such tool available: Bash. Bash ..."
_TOOL_MISSING_PREFIX = "No such tool available: "
_TOOL_DISABLED_PATTERN = (
    _TOOL_MISSING_PREFIX + r"(\w+)\. \1 (?:is disabled for this session|exists but is not enabled)"
)
_DENIAL_MARKERS = tuple(
    words.encode() for words in (f'"{_REJECT_DECISION}"', _TOOL_MISSING_PREFIX, *_DENIAL_PREFIXES)
)
_TASK_NOTIFICATION_PATTERN = r"(?s)<task-id>([^<]+)</task-id>(?:.*?<tool-use-id>([^<]+)</tool-use-id>)?.*?<status>(\w+)</status>"


def full_line(line: ln.StreamLine | ln.TranscriptLine, data: bytes) -> ln.FullLine:
    """The line with every field that somebody reads."""
    return line if isinstance(line, ln.FullLine) else decode_lenient(data, ln.FullLine)


def usage_event(
    number: int,
    session: str | None,
    parent: str | None,
    at: datetime | None,
    message: ln.Message,
    stop_reason: str | None,
    uuid: str | None = None,
) -> ev.Usage:
    usage = message.usage
    if usage is None:
        return ev.Usage(
            number,
            session,
            parent,
            at,
            message.id,
            message.model,
            stop_reason=stop_reason,
            uuid=uuid,
        )
    return ev.Usage(
        number,
        session,
        parent,
        at,
        message.id,
        message.model,
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
        usage.output_tokens,
        usage.output_tokens_details.thinking_tokens
        if usage.output_tokens_details is not None
        else None,
        usage.cache_creation.ephemeral_1h_input_tokens
        if usage.cache_creation is not None
        else None,
        stop_reason is not None,
        stop_reason,
        uuid,
    )


def failure_event(head: EventHead, line: ln.FullLine, message: ln.Message) -> ev.Failure | None:
    """A synthetic message can be the agent's word for a request that failed; not a word of the model."""
    if line.error is None and not line.is_api_error_message and not line.isApiErrorMessage:
        return None
    status = line.api_error_status if line.api_error_status is not None else line.apiErrorStatus
    content = message.content
    text = (
        content
        if isinstance(content, str)
        else "\n".join(block.text or "" for block in content or ())
    )
    return ev.Failure(*head, line.error, status, text)


def other_block_event(
    block: ln.Block, head: EventHead, message: str | None, data: bytes
) -> ev.Event:
    if block.type in SERVER_TOOL_BLOCK_TYPES:
        kind = "web" if (block.name or "").startswith("web_") else tool_kind(block.name or "")
        return ev.ToolCall(*head, block.id or "", block.name or "", kind, message, block.input)
    if block.type.endswith("_tool_result"):
        return ev.ToolResult(*head, block.tool_use_id or "", block.is_error is True, block.content)
    return ev.Unknown(*head, f"block {block.type}", data)


def user_text_events(line: ln.FullLine, head: EventHead, text: str) -> list[ev.Event]:
    """Words to the model that are no tool result: whose they are, and what they mark."""
    if text.startswith(_INTERRUPTED_PREFIX) and not line.isReplay:
        return [ev.UserMessage(*head, "interrupted", text)]
    if line.version is not None and text.startswith("<task-notification>"):
        found = re.search(_TASK_NOTIFICATION_PATTERN, text)
        if found is not None and found[3] in FINISHED_TASK_STATUSES:
            return [ev.TaskEnded(*head, found[1], found[2], found[3])]
    if line.isSynthetic or line.isMeta or line.isCompactSummary:
        return [ev.UserMessage(*head, "synthetic", text)]
    return [ev.UserMessage(*head, "replay" if line.isReplay else "prompt", text)]


def raw_tool_result(data: bytes) -> Raw:
    whole = decode_lenient(data, ln.RawToolResult)
    return whole.toolUseResult if whole.tool_use_result is ev.NO_JSON else whole.tool_use_result


def notebook_outcome(data: bytes) -> ev.ToolResultDetails:
    """The structured result of NotebookEdit, which spells its fields in a way of its own."""
    told = decode_lenient(raw_tool_result(data), ln.NotebookResult)
    return ev.ToolResultDetails(
        notebook_path=told.notebook_path,
        edit_mode=told.edit_mode,
        original_file=told.original_file,
        content=told.updated_file,
        error=told.error,
    )


def denial_events(
    line: ln.StreamLine | ln.TranscriptLine, data: bytes, block: ln.Block, head: EventHead
) -> list[ev.Event]:
    """A failed result that is a refusal: by its permission decision, else by the words of the refusal."""
    if not may_be_denial(data):
        return []
    text = text_of(block.content)
    if _is_rejected(full_line(line, data).tool_result_meta, block.tool_use_id):
        return [ev.PermissionDenied(*head, block.tool_use_id, None, text)]
    removed = re.search(_TOOL_DISABLED_PATTERN, text)
    if removed is not None:
        tool = removed[1]
        if tool not in TOOLS or TOOLS[tool][1] in ("todo", "other"):
            return []
        return [ev.PermissionDenied(*head, block.tool_use_id, tool, text)]
    return (
        [ev.PermissionDenied(*head, block.tool_use_id, None, text)]
        if text.startswith(_DENIAL_PREFIXES)
        else []
    )


def may_be_denial(data: bytes) -> bool:
    """Whether the line of a failed result can be a refusal; few are, and their text is not read for nothing."""
    return any(data.find(mark) >= 0 for mark in _DENIAL_MARKERS)  # `in` costs ten times as much


def _is_rejected(metas: Raw, call: str | None) -> bool:
    if metas is ev.NO_JSON:
        return False
    decisions = [
        meta.permission_decision
        for meta in decode_lenient(metas, list[ln.ToolResultMeta])
        if meta.id == call
    ]
    return any(
        decision is not None and decision.decision == _REJECT_DECISION for decision in decisions
    )


def file_change_events(
    write: tuple[str, Raw],
    output: ev.ToolResultDetails | None,
    content: Raw,
    call: str,
    head: EventHead,
) -> list[ev.Event]:
    """The file that a write or edit did change; its path from the result, else from the call."""
    name, given = write
    path = change = None
    if output is not None:
        if output.error:
            return []
        path = output.file_path or output.notebook_path
        change = "created" if output.type == "create" else "modified"
    if path is None:
        asked = decode_lenient(given, ln.ToolInput)
        path = asked.file_path or asked.notebook_path
        created = name == "Write" and text_of(content).startswith("File created")
        change = "created" if created else "modified"
    return [] if path is None else [ev.FileChanged(*head, path, change or "modified", call)]
