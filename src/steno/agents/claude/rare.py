"""The lines that come once or a few times in a run: init, retries, tasks, hooks, limits, the result.

Pure functions from a decoded line to events. `head` is what all events of a line share.
"""

from collections.abc import Callable
from datetime import datetime

from ... import event as ev
from ...decode import lenient
from . import lines as ln
from .names import ENDED, NOTICES, SILENT

Head = tuple[int, str | None, str | None, datetime | None]
BEYOND = 1e18  # nano-dollars or milliseconds: a billion dollars, thirty million years
Make = Callable[[Head, ln.RareLine], list[ev.Event]]


def read(kind: str, subtype: str | None, data: bytes, head: Head) -> list[ev.Event]:
    """The events of any line that is not of an assistant, a user or a stream_event."""
    if kind == "result":
        return _result(subtype, lenient(data, ln.ResultLine), head)
    if kind in SILENT:
        return []
    if head[1] is None:
        head = (head[0], lenient(data, ln.Line).sessionId, head[2], head[3])
    if kind == "cost-state":
        cost = lenient(data, ln.CostLine)
        return [ev.CostState(*head, _nano(cost.totalCostUSD), _models(cost.modelUsage))]
    make = _MAKERS.get((kind, subtype)) or _MAKERS.get((kind, None))
    if make is not None:
        return make(head, lenient(data, ln.RareLine))
    if kind == "system" and subtype is not None and (subtype in NOTICES or subtype.startswith("ui_")):
        return _notice(subtype, head, lenient(data, ln.RareLine))
    return [ev.Unknown(*head, "/".join(filter(None, (kind, subtype))) or "no type", data)]


def _notice(kind: str, head: Head, rare: ln.RareLine) -> list[ev.Event]:
    return [ev.Notice(*head, kind, rare.content or rare.text or rare.title or rare.status)]


def _init(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    servers = tuple((server.name, server.status) for server in rare.mcp_servers or ())
    about = (rare.claude_code_version, rare.model, rare.cwd, rare.apiKeySource, rare.permissionMode)
    return [ev.Started(*head, *about, tuple(rare.tools or ()), servers)]


def _retry(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    delay = _whole(rare.retry_delay_ms)
    return [ev.Retry(*head, rare.attempt, rare.max_retries, rare.error_status, rare.error, delay)]


def _compaction(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    data = rare.compact_metadata or rare.compactMetadata or ln.CompactMetadata()
    before = data.pre_tokens if data.pre_tokens is not None else data.preTokens
    after = data.post_tokens if data.post_tokens is not None else data.postTokens
    return [ev.Compaction(*head, data.trigger, before, after)]


def _denied(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    return [ev.PermissionDenied(*head, rare.tool_use_id, rare.tool_name, rare.message)]


def _task_started(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    kind = "subagent" if rare.task_type == "local_agent" else "shell"
    task, call, agent = rare.task_id or "", rare.tool_use_id, rare.subagent_type
    return [ev.TaskStarted(*head, task, call, kind, agent, rare.description, rare.is_backgrounded)]


def _task_progress(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    elapsed = None if rare.elapsed_time_seconds is None else rare.elapsed_time_seconds * 1000
    tool = rare.last_tool_name or rare.tool_name
    return [ev.TaskProgress(*head, rare.task_id or "", rare.tool_use_id, tool, _whole(elapsed))]


def _task_ended(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    status = rare.status
    if status is None and rare.patch is not None:
        status = rare.patch.status
    if status not in ENDED:
        return []
    return [ev.TaskEnded(*head, rare.task_id or "", rare.tool_use_id, status, rare.summary)]


def _hook(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    return [ev.Hook(*head, rare.hook_name, rare.hook_event, rare.exit_code, rare.outcome)]


def _refused(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    return [ev.Failure(*head, "refusal", None, rare.content)]


def _limit(head: Head, rare: ln.RareLine) -> list[ev.Event]:
    info = rare.rate_limit_info or ln.RateLimitInfo()
    return [ev.RateLimit(*head, info.status, info.resetsAt, info.rateLimitType, info.utilization)]


_MAKERS: dict[tuple[str, str | None], Make] = {
    ("system", "init"): _init,
    ("system", "api_retry"): _retry,
    ("system", "compact_boundary"): _compaction,
    ("system", "permission_denied"): _denied,
    ("system", "task_started"): _task_started,
    ("system", "task_progress"): _task_progress,
    ("system", "task_updated"): _task_ended,
    ("system", "task_notification"): _task_ended,
    ("system", "hook_started"): _hook,
    ("system", "hook_response"): _hook,
    ("system", "model_refusal_no_fallback"): _refused,
    ("rate_limit_event", None): _limit,
    ("tool_progress", None): _task_progress,
}


def _result(subtype: str | None, given: ln.ResultLine, head: Head) -> list[ev.Event]:
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
            duration_ms=_whole(given.duration_ms),
            duration_api_ms=_whole(given.duration_api_ms),
            usage=_share_of_usage(given.usage),
            models=_models(given.modelUsage),
            models_since=_models(given.model_usage_since_last_result),
            cost_nano=_nano(given.total_cost_usd),
            index=given.result_index,
            subagents=None if given.subagent_stats is None else given.subagent_stats.spawned,
            uuid=given.uuid,
        )
    )
    return events


def _share_of_usage(usage: ln.RequestUsage | None) -> ev.ModelUsage | None:
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


def _models(shares: dict[str, ln.ModelShare] | None) -> dict[str, ev.ModelUsage] | None:
    if shares is None:
        return None
    return {name: _share(share) for name, share in shares.items()}


def _share(share: ln.ModelShare) -> ev.ModelUsage:
    return ev.ModelUsage(
        share.inputTokens,
        share.cacheCreationInputTokens,
        share.cacheReadInputTokens,
        share.outputTokens,
        share.thinkingTokens,
        share.cacheCreationEphemeral1hInputTokens,
        _nano(share.costUSD),
        share.contextWindow,
        share.maxOutputTokens,
    )


def _nano(dollars: float | None) -> int | None:
    """Integer nano-dollars, so that sums are exact; None stays unknown."""
    return None if dollars is None else _whole(dollars * 1_000_000_000)


def _whole(figure: float | None) -> int | None:
    """The nearest whole number; one that no clock or bill can show is not known."""
    return None if figure is None or not figure < BEYOND else round(figure)
