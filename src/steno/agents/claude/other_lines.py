"""Events of lines other than plain messages, and of parts of a message. Pure."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_lenient, text_of
from ...units import NANO_PER_USD
from . import wire
from .local_commands import (
    caveat_event,
    is_added_context,
    is_caveat,
    is_compact_command,
    local_command_event,
)
from .side_lines import SIDE_LINE_BUILDERS
from .tables import (
    CONTEXT_CATEGORIES,
    FINISHED_TASK_STATUSES,
    IGNORED_RESULT_FIELDS,
    NOTICE_SUBTYPES,
    SERVER_TOOL_BLOCK_TYPES,
    SIDE_LINE_TYPES,
    TOOLS,
    tool_kind,
)
from .tool_results import raw_tool_result

_INTERRUPTED_PREFIX = "[Request interrupted by user"
_REJECT_DECISION = "reject"  # a permission decision
_DENIAL_PREFIXES = (
    "Claude requested permissions to",
    "Permission to use ",
    "Tool permission request failed",
    "PreToolUse:",  # a hook denied the call
)
_BLOCKED_PATTERN = r"\w+ operation blocked by hook:"  # likewise, in 1.0.x
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
    r"(?:\s*<summary>(.*?)</summary>)?(?:.*?<result>(.*)</result>)?"
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


def context_event(head: ev.EventHead, given: wire.ContextUsage) -> ev.ContextUsage:
    """What fills the context. Deferred tools, the reserve and free space don't."""
    parts: dict[str, int] = {}
    for category in given.categories or ():
        if category.kind == "used" and category.tokens is not None:
            part = CONTEXT_CATEGORIES.get(category.name, "other")
            parts[part] = parts.get(part, 0) + category.tokens
    about = (given.model, given.total_tokens, given.raw_max_tokens)
    return replace(ev.ContextUsage(*head, *about), **parts)


def other_block_events(
    block: Any, head: ev.EventHead, message: str | None, data: bytes
) -> list[ev.Event]:
    """The events of an assistant's block that is no text, thinking or tool_use."""
    if type(block) is wire.OtherBlock:
        if block.type in SERVER_TOOL_BLOCK_TYPES:
            name = block.name or ""
            kind = "web" if name.startswith("web_") else tool_kind(name)
            return [ev.ToolCall(*head, block.id or "", name, kind, message, block.input)]
        if block.type.endswith("_tool_result"):
            id_ = block.tool_use_id or ""
            return [ev.ToolResult(*head, id_, block.is_error is True, block.content)]
    if type(block) is wire.AttachmentBlock:
        return [ev.Attachment(*head, message, block.content)]
    unknown = unknown_block_event(block, head, data)
    if type(block) is wire.BareBlock:
        return [ev.Text(*head, message, block.text), unknown]
    return [unknown]


def unknown_block_event(block: Any, head: ev.EventHead, data: bytes) -> ev.Unknown:
    if type(block) is wire.BareBlock:
        kind = "string"
    else:
        kind = block.type if type(block) is wire.OtherBlock else block.__struct_config__.tag
    return ev.Unknown(*head, f"block {kind}", data)


def user_text_event(details: wire.LineDetails, head: ev.EventHead, text: str) -> ev.Event:
    """Text to the model that is no tool result: a prompt, or one of the program's own messages."""
    if text.startswith(_INTERRUPTED_PREFIX) and not details.isReplay:
        return ev.UserMessage(*head, "interrupted", text, details.uuid)
    if details.version is not None and text.startswith("<task-notification>"):
        match = re.search(_TASK_NOTIFICATION_PATTERN, text)
        if match is not None and match[3] in FINISHED_TASK_STATUSES:
            summary = "\n".join(filter(None, (match[4], match[5]))) or None
            return ev.TaskEnded(*head, match[1], match[2], match[3], summary)
    if details.isMeta and is_caveat(text):
        return caveat_event(head, text)
    if text.startswith("<"):
        local = local_command_event(head, text, details.uuid)
        if local is not None:
            return local
    if details.version is not None and is_compact_command(text):
        return ev.LocalCommand(*head, text, uuid=details.uuid)
    return ev.UserMessage(*head, _kind_of_user_text(details, text), text, details.uuid)


def _kind_of_user_text(details: wire.LineDetails, text: str) -> str:
    if details.isCompactSummary:
        return "summary"
    if details.isSynthetic or details.isMeta or is_added_context(text):
        return "synthetic"
    return "replay" if details.isReplay else "prompt"


# -- tool results ----------------------------------------------------------------------------------


class PermissionDecision(Struct, gc=False):
    decision: str | None = None


class ToolResultMeta(Struct, gc=False):
    id: str | None = None
    permission_decision: PermissionDecision | None = None


class SubagentResult(Struct, gc=False):
    """The structured result of a subagent: its usage is that of its last request."""

    usage: wire.RequestUsage | None = None
    resolvedModel: str | None = None


class RareFields:
    """Fields that few blocks of a line need: decoded on demand, once for all its blocks."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def details(self) -> wire.LineDetails:
        return decode_lenient(self.data, wire.LineDetails)

    @cached_property
    def rejected_calls(self) -> frozenset[str | None]:
        """Calls whose permission was refused. Few lines have any: the others are not decoded."""
        if self.data.find(_REJECT_MARKER, self.data.rfind(_DECISIONS_KEY)) < 0:
            return frozenset()
        metas = self.details.tool_result_meta
        if metas is ev.NO_JSON:
            return frozenset()
        return frozenset(
            meta.id
            for meta in decode_lenient(metas, list[ToolResultMeta])
            if meta.permission_decision is not None
            and meta.permission_decision.decision == _REJECT_DECISION
        )


def denial_event(
    line: RareFields, block: wire.ToolResultBlock, head: ev.EventHead
) -> ev.PermissionDenied | None:
    """The denial that a failed result stands for: by its permission decision, else by its text."""
    text = text_of(block.content)
    tool = None
    if block.tool_use_id not in line.rejected_calls:
        match = None
        if _TOOL_MISSING_PREFIX in text:
            match = re.search(_TOOL_DISABLED_PATTERN, text)
        if match is not None:
            tool = match[1] or match[2]
            if match[2] is not None and head[2] is not None:
                return None  # a subagent may have fewer tools
            if tool not in TOOLS or TOOLS[tool][1] in ("todo", "other"):
                return None
        elif not text.startswith(_DENIAL_PREFIXES) and not re.match(_BLOCKED_PATTERN, text):
            return None
    return ev.PermissionDenied(*head, block.tool_use_id or None, tool, text)


def task_events(outcome: Any, call: str, head: ev.EventHead, data: bytes) -> Iterator[ev.Event]:
    """Background work, or a subagent, that a structured result reports: started, or finished.

    `data` is the line of a stream, which does not show the last answer of a subagent in the
    foreground; empty for transcripts, which do.
    """
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
        task = agent or outcome.shell_id or ""
        usage, model = _last_request(data) if agent and data else (None, None)
        yield ev.TaskEnded(*head, task, agent and call, outcome.status, None, usage, model)


def started_in_background(text: str, call: str, head: ev.EventHead) -> Iterator[ev.Event]:
    """A background command, by the text of its result: 1.0.x prints no structured results."""
    match = re.match(r"Command running in background with ID: ([\w-]+)", text)
    if match is not None:
        yield ev.TaskStarted(*head, match[1], call, "shell", None, None, True)


def stopped_task_events(given: Raw, text: str, head: ev.EventHead) -> Iterator[ev.Event]:
    """The background task that a call stopped: up to 2.1.30 no other line says so."""
    target = decode_lenient(given, wire.ToolInput)
    task = target.shell_id or target.task_id
    if task is not None and "Successfully" in text:
        yield ev.TaskEnded(*head, task, None, "stopped")


def _last_request(data: bytes) -> tuple[ev.ModelUsage | None, str | None]:
    """The usage and the model of a subagent's last request; none after a failed one."""
    given = decode_lenient(raw_tool_result(data), SubagentResult)
    usage = None if given.usage is None else _result_usage(given.usage)
    has_tokens = usage is not None and (usage.input or usage.cache_write or usage.cache_read)
    return (usage, given.resolvedModel) if has_tokens else (None, None)


# The basis of a price, and of the limits, of a model that the program does not know.
GUESSED_COST_BASIS = "unknown"
MAX_FIGURE = 1e18  # nano-dollars or milliseconds: a billion dollars, thirty million years
EventBuilder = Callable[[ev.EventHead, wire.OtherFields], list[ev.Event]]


def read(kind: str, subtype: str | None, data: bytes, head: ev.EventHead) -> list[ev.Event]:
    """The events of any line that is not of an assistant, a user or a stream_event."""
    if kind == "result":
        events = _result(subtype, decode_lenient(data, wire.ResultLine), head)
        return [*(ev.Unknown(*head, name, data) for name in _unknown_fields(data)), *events]
    make = _EVENT_BUILDERS.get((kind, subtype)) or _EVENT_BUILDERS.get((kind, None))
    if make is None and kind in SIDE_LINE_TYPES and kind not in SIDE_LINE_BUILDERS:
        return []
    if head[1] is None:
        head = (head[0], decode_lenient(data, wire.LineDetails).sessionId, head[2], head[3])
    if kind == "cost-state":
        return [cost_state(data, head)]
    if kind in SIDE_LINE_BUILDERS:
        return SIDE_LINE_BUILDERS[kind](head, data)
    if make is not None:
        return make(head, decode_lenient(data, wire.OtherFields))
    if kind == "system":
        rare = decode_lenient(data, wire.OtherFields)
        if subtype is None and _notice_text(rare):
            return _notice(kind, head, rare)
        if subtype is not None and (subtype in NOTICE_SUBTYPES or subtype.startswith("ui_")):
            return _notice(subtype, head, rare)
    return [ev.Unknown(*head, "/".join(filter(None, (kind, subtype))) or "no type", data)]


def _notice(kind: str, head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Notice(*head, kind, _notice_text(rare))]


def _notice_text(rare: wire.OtherFields) -> str | None:
    """What a line tells a person, in any of the fields that such texts are in."""
    error = rare.error
    if isinstance(error, wire.RequestError):
        error = error.formatted or error.message
    titles = (rare.title, rare.summary, rare.customTitle, rare.aiTitle, rare.agentName)
    texts = (rare.content, rare.text, *titles, rare.tool_summary, rare.message, error, rare.status)
    return next(filter(None, (*texts, rare.new_conversation_id)), None)


def _titled(kind: str) -> EventBuilder:
    return lambda head, rare: _notice(kind, head, rare)


def _streamlined_text(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    """The model's text in an output mode that replaces its messages."""
    return [ev.Text(*head, None, rare.text)] if rare.text else []


def _init(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    servers = tuple((server.name, server.status) for server in rare.mcp_servers or ())
    about = (rare.claude_code_version, rare.model, rare.cwd, rare.apiKeySource, rare.permissionMode)
    started = ev.Started(
        *head,
        *about,
        tuple(rare.tools or ()),
        servers,
        skills=tuple(rare.skills or ()),
        agents=tuple(rare.agents or ()),
        plugins=tuple(plugin.name for plugin in rare.plugins or ()),
        slash_commands=tuple(rare.slash_commands or ()),
        uuid=rare.uuid,
    )
    return [started]


def transcript_started(head: ev.EventHead, details: wire.LineDetails) -> ev.Started:
    """What the first line of a transcript says about the session."""
    branch = details.gitBranch
    return ev.Started(
        *head,
        agent_version=details.version,
        cwd=details.cwd,
        transcript=True,
        branch=branch if branch != "HEAD" else None,  # HEAD: detached
    )


def _retry(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    delay = _round_figure(rare.retry_delay_ms)
    error = rare.error if isinstance(rare.error, str) else None
    return [ev.Retry(*head, rare.attempt, rare.max_retries, rare.error_status, error, delay)]


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
    task = (rare.task_id or "", rare.tool_use_id)
    return [ev.TaskProgress(*head, *task, tool, _round_figure(elapsed), rare.description)]


def _task_ended(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    status = rare.status
    if status is None and rare.patch is not None:
        status = rare.patch.status
    if status not in FINISHED_TASK_STATUSES:
        return []
    return [ev.TaskEnded(*head, rare.task_id or "", rare.tool_use_id, status, rare.summary)]


def _hook(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    output = rare.output or "\n".join(filter(None, (rare.stdout, rare.stderr))) or None
    return [ev.Hook(*head, rare.hook_name, rare.hook_event, rare.exit_code, rare.outcome, output)]


def _refusal(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Failure(*head, "refusal", None, rare.content)]


def _informational(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    if rare.prevent_continuation or rare.preventContinuation:
        return [ev.Failure(*head, "prevent_continuation", None, rare.content)]
    return _notice("informational", head, rare)


def _local_command(head: ev.EventHead, rare: wire.OtherFields) -> list[ev.Event]:
    text = rare.content or ""
    events: list[ev.Event] = []
    if rare.contextUsage is not None:
        events.append(context_event(head, rare.contextUsage))
    local = local_command_event(head, text, rare.uuid)
    return [*events, local or ev.LocalCommand(*head, None, text, uuid=rare.uuid)]


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
    ("system", "local_command"): _local_command,
    ("system", "local_command_output"): _local_command,
    ("system", "model_refusal_no_fallback"): _refusal,
    ("rate_limit_event", None): _rate_limit,
    ("tool_progress", None): _task_progress,
    ("summary", None): _titled("summary"),
    ("custom-title", None): _titled("custom_title"),
    ("ai-title", None): _titled("ai_title"),
    ("agent-name", None): _titled("agent_name"),
    ("conversation_reset", None): _titled("conversation_reset"),
    ("streamlined_tool_use_summary", None): _titled("tool_use_summary"),
    ("streamlined_text", None): _streamlined_text,
}


def cost_state(data: bytes, head: ev.EventHead) -> ev.CostState:
    """The totals of a session so far."""
    given = decode_lenient(data, wire.CostLine)
    shares = _model_usages(given.modelUsage)
    if not given.hasUnknownModelCost:
        return ev.CostState(*head, _round_figure(given.totalCostUSD, NANO_PER_USD), shares)
    if shares is not None:  # it does not say of which model
        shares = {name: replace(share, cost_nano=None) for name, share in shares.items()}
    return ev.CostState(*head, None, shares)


def _result(subtype: str | None, given: wire.ResultLine, head: ev.EventHead) -> list[ev.Event]:
    """The refusals that the result lists, then the result itself."""
    events: list[ev.Event] = [
        ev.PermissionDenied(*head, denial.tool_use_id, denial.tool_name, None, denial.tool_input)
        for denial in given.permission_denials or ()
    ]
    # The total includes a model that the program does not know.
    is_guess = any(
        share.costBasis == GUESSED_COST_BASIS for share in (given.modelUsage or {}).values()
    )
    server_tools = given.usage.server_tool_use if given.usage is not None else None
    server_tools = server_tools or wire.ServerToolUse()
    events.append(
        ev.Result(
            *head,
            web_searches=server_tools.web_search_requests,
            web_fetches=server_tools.web_fetch_requests,
            service_tier=None if given.usage is None else given.usage.service_tier,
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
            deferred_tool=None if given.deferred_tool_use is None else given.deferred_tool_use.name,
            turns=given.num_turns,
            duration_ms=_round_figure(given.duration_ms),
            duration_api_ms=_round_figure(given.duration_api_ms),
            usage=None if given.usage is None else _result_usage(given.usage),
            models=_model_usages(given.modelUsage),
            models_since=_model_usages(given.model_usage_since_last_result),
            cost_nano=None if is_guess else _round_figure(given.total_cost_usd, NANO_PER_USD),
            index=given.result_index,
            subagents=None if given.subagent_stats is None else given.subagent_stats.spawned,
            uuid=given.uuid,
            answers_task=given.origin is not None and given.origin.kind == "task-notification",
        )
    )
    return events


def _result_usage(given: wire.RequestUsage) -> ev.ModelUsage:
    details = given.output_tokens_details
    cache = given.cache_creation
    return ev.ModelUsage(
        given.input_tokens,
        given.cache_creation_input_tokens,
        given.cache_read_input_tokens,
        given.output_tokens,
        (details.thinking_tokens if details is not None else None) or 0,
        (cache.ephemeral_1h_input_tokens if cache is not None else None) or 0,
    )


_RESULT_FIELDS = IGNORED_RESULT_FIELDS | set(wire.ResultLine.__struct_fields__)
_USAGE_FIELDS = set(wire.ResultUsage.__struct_fields__)
_MODEL_FIELDS = set(wire.ModelUsageEntry.__struct_fields__)


def _unknown_fields(data: bytes) -> list[str]:
    """The fields of a result that no known version has, as names of unknown events."""
    try:
        fields = decode_lenient(data, dict[str, Raw])
        parts = decode_lenient(data, wire.RawResult)
    except DECODE_ERRORS:
        return []
    of_usage = set(parts.usage or ())
    of_models = {name for share in (parts.modelUsage or {}).values() for name in share}
    names = [
        *sorted(fields.keys() - _RESULT_FIELDS),
        *(f"usage.{name}" for name in sorted(of_usage - _USAGE_FIELDS)),
        *(f"modelUsage.{name}" for name in sorted(of_models - _MODEL_FIELDS)),
    ]
    return [f"result field {name}" for name in names]


def _model_usages(
    shares: dict[str, wire.ModelUsageEntry] | None,
) -> dict[str, ev.ModelUsage] | None:
    if shares is None:
        return None
    usages = {}
    for name, share in shares.items():
        is_guess = share.costBasis == GUESSED_COST_BASIS
        usages[name] = ev.ModelUsage(
            share.inputTokens,
            share.cacheCreationInputTokens,
            share.cacheReadInputTokens,
            share.outputTokens,
            share.thinkingTokens,
            share.cacheCreationEphemeral1hInputTokens,
            None if is_guess else _round_figure(share.costUSD, NANO_PER_USD),
            None if is_guess else share.contextWindow,
            None if is_guess else share.maxOutputTokens,
            share.webSearchRequests,
        )
    return usages


def _round_figure(figure: float | None, scale: int = 1) -> int | None:
    """The figure in units of 1 / `scale`, as a whole number so that sums are exact.

    One that no clock or bill can show is not known.
    """
    if figure is None or not figure * scale < MAX_FIGURE:
        return None
    return round(figure * scale)
