"""Events of parts of a message: usage, failures, denials, changed files, background work."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import Raw

from ... import event as ev
from ...codec.decode import decode_lenient, text_of
from . import wire
from .tables import FINISHED_TASK_STATUSES, SERVER_TOOL_BLOCK_TYPES, TOOLS, tool_kind
from .wire import HeadTuple

_INTERRUPTED_PREFIX = "[Request interrupted by user"
_REJECT_DECISION = "reject"  # a permission decision
_DENIAL_PREFIXES = (
    "Claude requested permissions to",
    "Permission to use ",
    "Tool permission request failed",
)
# A deny rule removes the tool: the call then fails with "No such tool available: Bash. Bash ..."
_TOOL_MISSING_PREFIX = "No such tool available: "
_TOOL_DISABLED_PATTERN = (
    _TOOL_MISSING_PREFIX + r"(\w+)\. \1 (?:is disabled for this session|exists but is not enabled)"
)
_DENIAL_MARKERS = tuple(
    text.encode() for text in (f'"{_REJECT_DECISION}"', _TOOL_MISSING_PREFIX, *_DENIAL_PREFIXES)
)
_TASK_NOTIFICATION_PATTERN = (
    r"(?s)<task-id>([^<]+)</task-id>(?:.*?<tool-use-id>([^<]+)</tool-use-id>)?"
    r".*?<status>(\w+)</status>"
)


def usage_event(
    number: int,
    session: str | None,
    parent: str | None,
    at: datetime | None,
    message: wire.AssistantMessage,
    stop_reason: str | None,
    uuid: str | None = None,
) -> ev.Usage:
    usage = message.usage
    if usage is None:
        return ev.Usage(
            *(number, session, parent, at, message.id, message.model),
            stop_reason=stop_reason,
            uuid=uuid,
        )
    details = usage.output_tokens_details
    cache = usage.cache_creation
    return ev.Usage(  # positional arguments: keywords cost more
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
        None if details is None else details.thinking_tokens,
        None if cache is None else cache.ephemeral_1h_input_tokens,
        stop_reason is not None,
        stop_reason,
        uuid,
    )


def failure_event(
    head: HeadTuple, details: wire.LineDetails, message: wire.AssistantMessage
) -> ev.Failure | None:
    """The failed request that a synthetic message reports, if it does."""
    if details.error is None and not (details.is_api_error_message or details.isApiErrorMessage):
        return None
    status = details.api_error_status
    if status is None:
        status = details.apiErrorStatus
    text = "\n".join(getattr(block, "text", None) or "" for block in message.content)
    return ev.Failure(*head, details.error, status, text)


def other_block_event(block: Any, head: HeadTuple, message: str | None, data: bytes) -> ev.Event:
    """The event of an assistant's block that is no text, thinking or tool_use."""
    if type(block) is wire.OtherBlock:
        if block.type in SERVER_TOOL_BLOCK_TYPES:
            name = block.name or ""
            kind = "web" if name.startswith("web_") else tool_kind(name)
            return ev.ToolCall(*head, block.id or "", name, kind, message, block.input)
        if block.type.endswith("_tool_result"):
            id_ = block.tool_use_id or ""
            return ev.ToolResult(*head, id_, block.is_error is True, block.content)
    return unknown_block_event(block, head, data)


def unknown_block_event(block: Any, head: HeadTuple, data: bytes) -> ev.Unknown:
    kind = block.type if type(block) is wire.OtherBlock else block.__struct_config__.tag
    return ev.Unknown(*head, f"block {kind}", data)


def user_text_event(details: wire.LineDetails, head: HeadTuple, text: str) -> ev.Event:
    """Text to the model that is no tool result: a prompt, or one of the program's own messages."""
    if text.startswith(_INTERRUPTED_PREFIX) and not details.isReplay:
        return ev.UserMessage(*head, "interrupted", text)
    if details.version is not None and text.startswith("<task-notification>"):
        match = re.search(_TASK_NOTIFICATION_PATTERN, text)
        if match is not None and match[3] in FINISHED_TASK_STATUSES:
            return ev.TaskEnded(*head, match[1], match[2], match[3])
    if details.isSynthetic or details.isMeta or details.isCompactSummary:
        return ev.UserMessage(*head, "synthetic", text)
    return ev.UserMessage(*head, "replay" if details.isReplay else "prompt", text)


# -- tool results ----------------------------------------------------------------------------------


def notebook_details(data: bytes) -> ev.ToolResultDetails:
    """The structured result of NotebookEdit, which has its own field names."""
    result = decode_lenient(wire.raw_tool_result(data), wire.NotebookResult)
    return ev.ToolResultDetails(
        notebook_path=result.notebook_path,
        edit_mode=result.edit_mode,
        original_file=result.original_file,
        content=result.updated_file,
        error=result.error,
    )


def denial_event(
    data: bytes, block: wire.ToolResultBlock, head: HeadTuple
) -> ev.PermissionDenied | None:
    """The denial that a failed result stands for: by its permission decision, else by its text."""
    # Few results are denials, and decoding their text is expensive. `in` costs ten times as much.
    if not any(data.find(marker) >= 0 for marker in _DENIAL_MARKERS):
        return None
    text = text_of(block.content)
    tool = None
    metas = decode_lenient(data, wire.LineDetails).tool_result_meta
    if not _is_rejected(metas, block.tool_use_id):
        match = re.search(_TOOL_DISABLED_PATTERN, text)
        if match is not None:
            tool = match[1]
            if tool not in TOOLS or TOOLS[tool][1] in ("todo", "other"):
                return None
        elif not text.startswith(_DENIAL_PREFIXES):
            return None
    return ev.PermissionDenied(*head, block.tool_use_id or None, tool, text)


def _is_rejected(metas: Raw, call: str | None) -> bool:
    if metas is ev.NO_JSON:
        return False
    return any(
        meta.permission_decision is not None
        and meta.permission_decision.decision == _REJECT_DECISION
        for meta in decode_lenient(metas, list[wire.ToolResultMeta])
        if meta.id == call
    )


def file_change_events(
    write: tuple[str, Raw], outcome: Any, content: Raw, call: str, head: HeadTuple
) -> tuple[ev.FileChanged, ...]:
    """The file that a write or edit changed; its path from the result, else from the call.

    `outcome` is the structured result, if its shape is known.
    """
    name, input_ = write
    if outcome is not None:
        if outcome.error:
            return ()
        path = outcome.file_path or getattr(outcome, "notebook_path", None)
        if path is not None:
            change = "created" if outcome.type == "create" else "modified"
            return (ev.FileChanged(*head, path, change, call),)
    target = decode_lenient(input_, wire.ToolInput)
    path = target.file_path or target.notebook_path
    if path is None:
        return ()
    is_new = name == "Write" and text_of(content).startswith("File created")
    return (ev.FileChanged(*head, path, "created" if is_new else "modified", call),)


def task_events(outcome: Any, call: str, head: HeadTuple) -> Iterator[ev.Event]:
    """Background work that a structured result reports: started, or finished."""
    agent = outcome.agent_id
    task = outcome.background_task_id
    if task is not None:
        yield ev.TaskStarted(*head, task, call, "shell", None, None, True)
    elif outcome.is_async:
        agent_type = outcome.agent_type
        yield ev.TaskStarted(*head, agent or call, call, "subagent", agent_type, None, True)
    elif outcome.status in FINISHED_TASK_STATUSES and (
        agent is not None or outcome.shell_id is not None
    ):
        yield ev.TaskEnded(*head, agent or outcome.shell_id or "", agent and call, outcome.status)
