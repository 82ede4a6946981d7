"""Events of lines other than plain messages, and of parts of a message. Pure."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_lenient, text_of
from . import wire
from .tables import (
    FINISHED_TASK_STATUSES,
    IGNORED_LINE_TYPES,
    NOTICE_SUBTYPES,
    SERVER_TOOL_BLOCK_TYPES,
    TOOLS,
    tool_kind,
)

_INTERRUPTED_PREFIX = "[Request interrupted by user"
_REJECT_DECISION = "reject"  # a permission decision
_DENIAL_PREFIXES = (
    "Claude requested permissions to",
    "Permission to use ",
    "Tool permission request failed",
    "PreToolUse:",  # a hook denied the call
)
# A deny rule removes the tool: the call then fails with "No such tool available: Bash. Bash ..."
_TOOL_MISSING_PREFIX = "No such tool available: "
_TOOL_DISABLED_PATTERN = (
    _TOOL_MISSING_PREFIX
    + r"(?:(\w+)\. \1 (?:is disabled for this session|exists but is not enabled)"
    # Older versions give no reason. These tools are always there unless they are denied.
    r"|(Bash|Read|Write|Edit|NotebookEdit|Task|WebFetch|WebSearch)(?:</tool_use_error>)?$)"
)
_DECISIONS_KEY = b'"tool_result_meta"'
_REJECT_MARKER = f'"{_REJECT_DECISION}"'.encode()
_TASK_NOTIFICATION_PATTERN = (
    r"(?s)<task-id>([^<]+)</task-id>(?:.*?<tool-use-id>([^<]+)</tool-use-id>)?"
    r".*?<status>(\w+)</status>"
)


def usage_event(
    number: int,
    session: str | None,
    parent: str | None,
    at: datetime | None,
    message: str | None,
    model: str | None,
    usage: wire.RequestUsage | None,
    stop_reason: str | None,
    uuid: str | None = None,
) -> ev.Usage:
    if usage is None:
        head = (number, session, parent, at)
        return ev.Usage(*head, message, model, stop_reason=stop_reason, uuid=uuid)
    details = usage.output_tokens_details
    cache = usage.cache_creation
    return ev.Usage(  # positional arguments: keywords cost more
        number,
        session,
        parent,
        at,
        message,
        model,
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
    head: ev.EventHead, details: wire.LineDetails, message: wire.AssistantMessage
) -> ev.Failure | None:
    """The failed request that a synthetic message reports, if it does."""
    if details.error is None and not (details.is_api_error_message or details.isApiErrorMessage):
        return None
    status = details.api_error_status
    if status is None:
        status = details.apiErrorStatus
    text = "\n".join(getattr(block, "text", None) or "" for block in message.content)
    return ev.Failure(*head, details.error, status, text)


def other_block_event(block: Any, head: ev.EventHead, message: str | None, data: bytes) -> ev.Event:
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


def unknown_block_event(block: Any, head: ev.EventHead, data: bytes) -> ev.Unknown:
    kind = block.type if type(block) is wire.OtherBlock else block.__struct_config__.tag
    return ev.Unknown(*head, f"block {kind}", data)


def user_text_event(details: wire.LineDetails, head: ev.EventHead, text: str) -> ev.Event:
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
    data: bytes, block: wire.ToolResultBlock, head: ev.EventHead
) -> ev.PermissionDenied | None:
    """The denial that a failed result stands for: by its permission decision, else by its text."""
    text = text_of(block.content)
    # Few results are denials, and decoding the line again is expensive.
    may_be_rejected = data.find(_REJECT_MARKER, data.rfind(_DECISIONS_KEY)) >= 0
    is_tool_missing = _TOOL_MISSING_PREFIX in text
    if not (may_be_rejected or is_tool_missing or text.startswith(_DENIAL_PREFIXES)):
        return None
    tool = None
    metas = decode_lenient(data, wire.LineDetails).tool_result_meta
    if not _is_rejected(metas, block.tool_use_id):
        match = re.search(_TOOL_DISABLED_PATTERN, text)
        if match is not None:
            tool = match[1] or match[2]
            if match[2] is not None and head[2] is not None:
                return None  # a subagent may have fewer tools
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


def task_events(outcome: Any, call: str, head: ev.EventHead) -> Iterator[ev.Event]:
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


# The basis of a price, and of the limits, of a model that the program does not know.
GUESSED_COST_BASIS = "unknown"
MAX_FIGURE = 1e18  # nano-dollars or milliseconds: a billion dollars, thirty million years
EventBuilder = Callable[[ev.EventHead, wire.OtherFields], list[ev.Event]]


def read(kind: str, subtype: str | None, data: bytes, head: ev.EventHead) -> list[ev.Event]:
    """The events of any line that is not of an assistant, a user or a stream_event."""
    if kind == "result":
        return _result(subtype, decode_lenient(data, wire.ResultLine), head)
    if kind in IGNORED_LINE_TYPES:
        return []
    if head[1] is None:
        head = (head[0], decode_lenient(data, wire.LineDetails).sessionId, head[2], head[3])
    if kind == "cost-state":
        return [cost_state(data, head)]
    make = _EVENT_BUILDERS.get((kind, subtype)) or _EVENT_BUILDERS.get((kind, None))
    if make is not None:
        return make(head, decode_lenient(data, wire.OtherFields))
    if (
        kind == "system"
        and subtype is not None
        and (subtype in NOTICE_SUBTYPES or subtype.startswith("ui_"))
    ):
        return _notice(subtype, head, decode_lenient(data, wire.OtherFields))
    return [ev.Unknown(*head, "/".join(filter(None, (kind, subtype))) or "no type", data)]


def _notice(kind: str, head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Notice(*head, kind, rare.content or rare.text or rare.title or rare.status)]


def _init(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    servers = tuple((server.name, server.status) for server in rare.mcp_servers or ())
    about = (rare.claude_code_version, rare.model, rare.cwd, rare.apiKeySource, rare.permissionMode)
    return [ev.Started(*head, *about, tuple(rare.tools or ()), servers)]


def _retry(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    delay = _round_or_none(rare.retry_delay_ms)
    return [ev.Retry(*head, rare.attempt, rare.max_retries, rare.error_status, rare.error, delay)]


def _compaction(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    data = rare.compact_metadata or rare.compactMetadata or wire.CompactMetadata()
    before = data.pre_tokens if data.pre_tokens is not None else data.preTokens
    after = data.post_tokens if data.post_tokens is not None else data.postTokens
    return [ev.Compaction(*head, data.trigger, before, after)]


def _permission_denied(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.PermissionDenied(*head, rare.tool_use_id, rare.tool_name, rare.message)]


def _task_started(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    kind = "subagent" if rare.task_type == "local_agent" else "shell"
    task, call, agent = rare.task_id or "", rare.tool_use_id, rare.subagent_type
    return [ev.TaskStarted(*head, task, call, kind, agent, rare.description, rare.is_backgrounded)]


def _task_progress(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    elapsed = None if rare.elapsed_time_seconds is None else rare.elapsed_time_seconds * 1000
    tool = rare.last_tool_name or rare.tool_name
    return [
        ev.TaskProgress(*head, rare.task_id or "", rare.tool_use_id, tool, _round_or_none(elapsed))
    ]


def _task_ended(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    status = rare.status
    if status is None and rare.patch is not None:
        status = rare.patch.status
    if status not in FINISHED_TASK_STATUSES:
        return []
    return [ev.TaskEnded(*head, rare.task_id or "", rare.tool_use_id, status, rare.summary)]


def _hook(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Hook(*head, rare.hook_name, rare.hook_event, rare.exit_code, rare.outcome)]


def _refusal(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Failure(*head, "refusal", None, rare.content)]


def _informational(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    if rare.prevent_continuation or rare.preventContinuation:
        return [ev.Failure(*head, "prevent_continuation", None, rare.content)]
    return _notice("informational", head, rare)


def _rate_limit(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    info = rare.rate_limit_info or wire.RateLimitInfo()
    return [ev.RateLimit(*head, info.status, info.resetsAt, info.rateLimitType, info.utilization)]


_EVENT_BUILDERS: dict[tuple[str, str | None], EventBuilder] = {
    ("system", "init"): _init,
    ("system", "api_retry"): _retry,
    ("system", "compact_boundary"): _compaction,
    ("system", "permission_denied"): _permission_denied,
    ("system", "task_started"): _task_started,
    ("system", "task_progress"): _task_progress,
    ("system", "task_updated"): _task_ended,
    ("system", "task_notification"): _task_ended,
    ("system", "hook_started"): _hook,
    ("system", "hook_response"): _hook,
    ("system", "informational"): _informational,
    ("system", "model_refusal_no_fallback"): _refusal,
    ("rate_limit_event", None): _rate_limit,
    ("tool_progress", None): _task_progress,
}


def cost_state(data: bytes, head: ev.EventHead) -> ev.CostState:
    """The totals of a session so far."""
    given = decode_lenient(data, wire.CostLine)
    is_guess = given.hasUnknownModelCost is True
    shares = _model_usages(given.modelUsage)
    if is_guess and shares is not None:  # it does not say of which model
        shares = {name: replace(share, cost_nano=None) for name, share in shares.items()}
    return ev.CostState(*head, None if is_guess else _to_nano_dollars(given.totalCostUSD), shares)


def _result(subtype: str | None, given: wire.ResultLine, head: ev.EventHead) -> list[ev.Event]:
    """The refusals that the result lists, then the result itself."""
    events: list[ev.Event] = [
        ev.PermissionDenied(*head, denial.tool_use_id, denial.tool_name, None, denial.tool_input)
        for denial in given.permission_denials or ()
    ]
    usage = None
    if given.usage is not None:
        details = given.usage.output_tokens_details
        cache = given.usage.cache_creation
        usage = ev.ModelUsage(
            given.usage.input_tokens,
            given.usage.cache_creation_input_tokens,
            given.usage.cache_read_input_tokens,
            given.usage.output_tokens,
            (details.thinking_tokens if details is not None else None) or 0,
            (cache.ephemeral_1h_input_tokens if cache is not None else None) or 0,
        )
    events.append(
        ev.Result(
            *head,
            subtype=subtype,
            is_error=given.is_error is True,
            text=given.result,
            errors=tuple(given.errors or filter(None, (given.error_message,))),
            structured_output=given.structured_output,
            terminal_reason=given.terminal_reason,
            stop_reason=given.stop_reason,
            startup_failure=given.startup_failure_reason,
            api_error=given.api_error,
            api_status=given.api_error_status,
            local_command=given.local_command,
            turns=given.num_turns,
            duration_ms=_round_or_none(given.duration_ms),
            duration_api_ms=_round_or_none(given.duration_api_ms),
            usage=usage,
            models=_model_usages(given.modelUsage),
            models_since=_model_usages(given.model_usage_since_last_result),
            cost_nano=None if _has_guessed_cost(given) else _to_nano_dollars(given.total_cost_usd),
            index=given.result_index,
            subagents=None if given.subagent_stats is None else given.subagent_stats.spawned,
            uuid=given.uuid,
            answers_task=given.origin is not None and given.origin.kind == "task-notification",
        )
    )
    return events


def _model_usages(
    shares: dict[str, wire.ModelUsageEntry] | None,
) -> dict[str, ev.ModelUsage] | None:
    if shares is None:
        return None
    return {name: _model_usage(share) for name, share in shares.items()}


def _model_usage(share: wire.ModelUsageEntry) -> ev.ModelUsage:
    is_guess = share.costBasis == GUESSED_COST_BASIS
    return ev.ModelUsage(
        share.inputTokens,
        share.cacheCreationInputTokens,
        share.cacheReadInputTokens,
        share.outputTokens,
        share.thinkingTokens,
        share.cacheCreationEphemeral1hInputTokens,
        None if is_guess else _to_nano_dollars(share.costUSD),
        None if is_guess else share.contextWindow,
        None if is_guess else share.maxOutputTokens,
    )


def _has_guessed_cost(given: wire.ResultLine) -> bool:
    """Whether the total includes a model that the program does not know."""
    return any(share.costBasis == GUESSED_COST_BASIS for share in (given.modelUsage or {}).values())


def _to_nano_dollars(dollars: float | None) -> int | None:
    """Integer nano-dollars, so that sums are exact; None stays unknown."""
    return None if dollars is None else _round_or_none(dollars * ev.NANO_PER_USD)


def _round_or_none(figure: float | None) -> int | None:
    """The nearest whole number; one that no clock or bill can show is not known."""
    return None if figure is None or not figure < MAX_FIGURE else round(figure)
