"""A conversation as an ATIF 1.8 trajectory (agent trajectory interchange format): one JSON object.

A step of the agent is one request: its reasoning, text and tool calls with their results. The
trajectory of a subagent is embedded, and the result of the call that started it refers to it.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec

from .. import __version__
from ..report import Report, Tokens
from .conversation import Conversation
from .presentation import step_label
from .steps import Step, StepRequest, ToolUse

SCHEMA_VERSION = "ATIF-v1.8"
AGENT_KINDS = ("thinking", "text", "tool")
USER_KINDS = ("prompt", "sent")
MAX_DEPTH = 50  # of nested subagents

Values = dict[str, Any]


def atif_document(conversation: Conversation) -> Iterator[bytes]:
    """The trajectory of the run, without secrets."""
    report = conversation.shareable_report()
    threads: dict[str | None, list[Step]] = {}
    for step in conversation:
        threads.setdefault(step.parent, []).append(step)
    builder = _TrajectoryBuilder(report, threads)
    main = builder.build(None)
    embedded = main.pop("subagent_trajectories", [])
    # Subagents whose call is unknown, or nested too deep.
    embedded += [builder.build(thread) for thread in list(threads) if thread in threads]
    root = {
        "schema_version": SCHEMA_VERSION,
        "session_id": report.session_id,
        "trajectory_id": report.run_id,
        **main,
        "final_metrics": _final_metrics(report, len(main["steps"])),
        "extra": _run_facts(report),
        "subagent_trajectories": embedded or None,
    }
    yield msgspec.json.encode(_known(root)) + b"\n"


class _TrajectoryBuilder:
    """Builds the trajectory of each thread once; `threads` keeps those that are left."""

    def __init__(self, report: Report, threads: dict[str | None, list[Step]]) -> None:
        self._threads = threads
        name = report.agent or "unknown"
        version = report.agent_version or "unknown"
        self._agent = _known({"name": name, "version": version, "model_name": report.model})

    def build(self, thread: str | None, depth: int = 0) -> Values:
        groups = list(_requests(self._threads.pop(thread, [])))
        calls = [step.tool.id for group in groups for step in group if step.tool is not None]
        embedded = [
            self.build(call, depth + 1)
            for call in calls
            if call in self._threads and depth < MAX_DEPTH
        ]
        refs = {entry["trajectory_id"] for entry in embedded}
        steps = [_step(number, group, refs) for number, group in enumerate(groups, 1)]
        trajectory: Values = {"agent": self._agent, "steps": steps}
        if thread is not None:
            head = {"schema_version": SCHEMA_VERSION, "trajectory_id": thread}
            trajectory = {**head, **trajectory}
        if embedded:
            trajectory["subagent_trajectories"] = embedded
        return trajectory


def _requests(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Steps of the agent that belong to one request together, every other step alone."""
    group: list[Step] = []
    for step in steps:
        is_new = step.kind not in AGENT_KINDS or step.request is not None
        if group and (is_new or group[0].kind not in AGENT_KINDS):
            yield group
            group = []
        group.append(step)
        if step.request is not None and step.kind not in AGENT_KINDS:  # it made no step of its own
            yield group
            group = [Step(0, "text", at=step.at, request=step.request)]
    if group:
        yield group


def _step(number: int, group: list[Step], refs: set[str]) -> Values:
    first = group[0]
    at = next((step.at for step in group if step.at is not None), None)
    head = {"step_id": number, "timestamp": _timestamp(at)}
    if first.kind not in AGENT_KINDS:
        is_user = first.kind in USER_KINDS
        source = "user" if is_user else "system"
        text = first.text if is_user else f"{step_label(first)}: {first.text}".removesuffix(": ")
        return _known({**head, "source": source, "message": text, "extra": {"kind": first.kind}})
    tools = [step.tool for step in group if step.tool is not None]
    results = [_result(tool, refs) for tool in tools if tool.status is not None]
    thoughts = [step.text for step in group if step.kind == "thinking" and step.text]
    request = first.request
    values = {
        **head,
        "source": "agent",
        "model_name": request.model if request is not None else None,
        "message": "\n".join(step.text for step in group if step.kind == "text"),
        "reasoning_content": "\n".join(thoughts) or None,
        "tool_calls": [_call(tool) for tool in tools] or None,
        "observation": {"results": results} if results else None,
        "metrics": _metrics(request) if request is not None else None,
    }
    return _known(values)


def _call(tool: ToolUse) -> Values:
    arguments = tool.input if isinstance(tool.input, dict) else {"input": tool.input}
    names = {"tool_call_id": tool.id, "function_name": tool.name}
    return {**names, "arguments": arguments, "extra": {"kind": tool.kind}}


def _result(tool: ToolUse, refs: set[str]) -> Values:
    extra = {
        "status": tool.status,
        "exit_code": tool.exit_code,
        "duration_ms": tool.duration_ms,
    }
    values = {
        "source_call_id": tool.id,
        "content": tool.output or tool.reason or "",
        "subagent_trajectory_ref": [{"trajectory_id": tool.id}] if tool.id in refs else None,
        "extra": _known(extra),
    }
    return _known(values)


def _metrics(request: StepRequest) -> Values:
    tokens = request.tokens
    extra = {
        "cache_write_tokens": tokens.cache_write,
        "reasoning_tokens": tokens.reasoning,
        "is_lower_bound": request.is_lower_bound or None,
    }
    values = {
        "prompt_tokens": _prompt_tokens(tokens),
        "completion_tokens": tokens.output,
        "cached_tokens": tokens.cache_read,
        "cost_usd": request.cost_usd,
        "extra": _known(extra) or None,
    }
    return _known(values)


def _final_metrics(report: Report, step_count: int) -> Values:
    values = {
        "total_prompt_tokens": _prompt_tokens(report.tokens),
        "total_completion_tokens": report.tokens.output,
        "total_cached_tokens": report.tokens.cache_read,
        "total_cost_usd": report.cost.usd,
        "total_steps": step_count,
        "extra": _known({"cost_source": report.cost.source, "turns": report.turns}),
    }
    return _known(values)


def _run_facts(report: Report) -> Values:
    names = ("verdict", "ok", "error", "exit_code", "cwd", "name", "duration_ms")
    facts = {name: getattr(report, name) for name in names}
    return _known({"exported_by": f"steno {__version__}", **facts})


def _prompt_tokens(tokens: Tokens) -> int | None:
    """All input tokens, with those of the cache; None if a part is unknown."""
    parts = (tokens.input, tokens.cache_write, tokens.cache_read)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _known(values: Values) -> Values:
    """The values without those that are unknown: ATIF has no null."""
    return {name: value for name, value in values.items() if value is not None}


def _timestamp(at: int | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at / 1000, timezone.utc).isoformat(timespec="milliseconds")
