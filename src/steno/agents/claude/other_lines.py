"""Lines that occur a few times per run: init, retries, tasks, hooks, limits, the result.

Pure functions from a decoded line to events. `head` is what all events of a line share.
"""

from collections.abc import Callable

from ... import event as ev
from ...codec.decode import decode_lenient
from . import wire
from .tables import FINISHED_TASK_STATUSES, IGNORED_LINE_TYPES, NOTICE_SUBTYPES
from .wire import HeadTuple

MAX_FIGURE = 1e18  # nano-dollars or milliseconds: a billion dollars, thirty million years
EventBuilder = Callable[[HeadTuple, wire.OtherFields], list[ev.Event]]


def read(kind: str, subtype: str | None, data: bytes, head: HeadTuple) -> list[ev.Event]:
    """The events of any line that is not of an assistant, a user or a stream_event."""
    if kind == "result":
        return _result(subtype, decode_lenient(data, wire.ResultLine), head)
    if kind in IGNORED_LINE_TYPES:
        return []
    if head[1] is None:
        head = (head[0], decode_lenient(data, wire.LineDetails).sessionId, head[2], head[3])
    if kind == "cost-state":
        cost = decode_lenient(data, wire.CostLine)
        return [
            ev.CostState(*head, _to_nano_dollars(cost.totalCostUSD), _model_usages(cost.modelUsage))
        ]
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


def _notice(kind: str, head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Notice(*head, kind, rare.content or rare.text or rare.title or rare.status)]


def _init(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    servers = tuple((server.name, server.status) for server in rare.mcp_servers or ())
    about = (rare.claude_code_version, rare.model, rare.cwd, rare.apiKeySource, rare.permissionMode)
    return [ev.Started(*head, *about, tuple(rare.tools or ()), servers)]


def _retry(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    delay = _round_or_none(rare.retry_delay_ms)
    return [ev.Retry(*head, rare.attempt, rare.max_retries, rare.error_status, rare.error, delay)]


def _compaction(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    data = rare.compact_metadata or rare.compactMetadata or wire.CompactMetadata()
    before = data.pre_tokens if data.pre_tokens is not None else data.preTokens
    after = data.post_tokens if data.post_tokens is not None else data.postTokens
    return [ev.Compaction(*head, data.trigger, before, after)]


def _permission_denied(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.PermissionDenied(*head, rare.tool_use_id, rare.tool_name, rare.message)]


def _task_started(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    kind = "subagent" if rare.task_type == "local_agent" else "shell"
    task, call, agent = rare.task_id or "", rare.tool_use_id, rare.subagent_type
    return [ev.TaskStarted(*head, task, call, kind, agent, rare.description, rare.is_backgrounded)]


def _task_progress(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    elapsed = None if rare.elapsed_time_seconds is None else rare.elapsed_time_seconds * 1000
    tool = rare.last_tool_name or rare.tool_name
    return [
        ev.TaskProgress(*head, rare.task_id or "", rare.tool_use_id, tool, _round_or_none(elapsed))
    ]


def _task_ended(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    status = rare.status
    if status is None and rare.patch is not None:
        status = rare.patch.status
    if status not in FINISHED_TASK_STATUSES:
        return []
    return [ev.TaskEnded(*head, rare.task_id or "", rare.tool_use_id, status, rare.summary)]


def _hook(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Hook(*head, rare.hook_name, rare.hook_event, rare.exit_code, rare.outcome)]


def _refusal(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
    return [ev.Failure(*head, "refusal", None, rare.content)]


def _rate_limit(head: HeadTuple, rare: wire.OtherFields) -> list[ev.Event]:
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
    ("system", "model_refusal_no_fallback"): _refusal,
    ("rate_limit_event", None): _rate_limit,
    ("tool_progress", None): _task_progress,
}


def _result(subtype: str | None, given: wire.ResultLine, head: HeadTuple) -> list[ev.Event]:
    """The refusals that the result lists, then the result itself."""
    events: list[ev.Event] = [
        ev.PermissionDenied(*head, denial.tool_use_id, denial.tool_name, None, denial.tool_input)
        for denial in given.permission_denials or ()
    ]
    events.append(
        ev.Result(
            *head,
            subtype=subtype,
            is_error=given.is_error is True,
            text=given.result,
            errors=tuple(given.errors or ()),
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
            usage=_result_usage(given.usage),
            models=_model_usages(given.modelUsage),
            models_since=_model_usages(given.model_usage_since_last_result),
            cost_nano=_to_nano_dollars(given.total_cost_usd),
            index=given.result_index,
            subagents=None if given.subagent_stats is None else given.subagent_stats.spawned,
            uuid=given.uuid,
        )
    )
    return events


def _result_usage(usage: wire.RequestUsage | None) -> ev.ModelUsage | None:
    if usage is None:
        return None
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None
    hour = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation else None
    return ev.ModelUsage(
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
        usage.output_tokens,
        thinking or 0,
        hour or 0,
    )


def _model_usages(
    shares: dict[str, wire.ModelUsageEntry] | None,
) -> dict[str, ev.ModelUsage] | None:
    if shares is None:
        return None
    return {name: _model_usage(share) for name, share in shares.items()}


def _model_usage(share: wire.ModelUsageEntry) -> ev.ModelUsage:
    return ev.ModelUsage(
        share.inputTokens,
        share.cacheCreationInputTokens,
        share.cacheReadInputTokens,
        share.outputTokens,
        share.thinkingTokens,
        share.cacheCreationEphemeral1hInputTokens,
        _to_nano_dollars(share.costUSD),
        share.contextWindow,
        share.maxOutputTokens,
    )


def _to_nano_dollars(dollars: float | None) -> int | None:
    """Integer nano-dollars, so that sums are exact; None stays unknown."""
    return None if dollars is None else _round_or_none(dollars * ev.NANO_PER_USD)


def _round_or_none(figure: float | None) -> int | None:
    """The nearest whole number; one that no clock or bill can show is not known."""
    return None if figure is None or not figure < MAX_FIGURE else round(figure)
