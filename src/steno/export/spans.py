"""The spans of a run, named by OpenTelemetry's semantic conventions for generative AI.

`invoke_agent` is the run, below it `chat` for each request to the model and `execute_tool` for each
tool call; a subagent is an `invoke_agent` below its call. Agents don't report when a request was
sent: it starts with the last event of its thread before the answer. Values only, nothing is sent.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
from msgspec import Struct

from .. import event as ev
from ..analysis.usage import merge_usage
from ..codec.decode import text_of
from ..codec.redact import redact
from ..report import Report, Subagent, Tokens, ToolCallSummary

TRACEPARENT = "TRACEPARENT"
TRACESTATE = "TRACESTATE"
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SAMPLED = 1
MAX_CONTENT_CHARS = 32_000  # of one text, if contents are sent
# The provider of a model by the beginning of its name; names as in the conventions.
PROVIDERS = {
    "claude": "anthropic",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "codex": "openai",
    "gemini": "gcp.gemini",
    "grok": "x_ai",
    "deepseek": "deepseek",
    "mistral": "mistral_ai",
    "qwen": "alibaba_cloud",
}

Attributes = dict[str, Any]


class TraceContext(Struct, frozen=True):
    """The trace of a run: its ids, the span that caused it (0: none), and the run's own span."""

    trace_id: int
    span_id: int
    parent_id: int = 0
    flags: int = _SAMPLED
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The value that makes the agent's own spans children of the run's."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    def child_id(self, key: str) -> int:
        """The id of a span in this trace: always the same for the same key."""
        return _hash(f"{self.trace_id:x}:{self.span_id:x}:{key}", 8)


def trace_context(environ: Mapping[str, str], run: str | None) -> TraceContext:
    """Continue the trace in TRACEPARENT, or begin one with an id derived from that of the run."""
    seed = run or secrets.token_hex(16)
    incoming = _TRACEPARENT.fullmatch(environ.get(TRACEPARENT, "").strip())
    if incoming is not None:
        version, trace, parent, flags, rest = incoming.groups()
        is_valid = version != "ff" and not (version == "00" and rest)
        if is_valid and int(trace, 16) and int(parent, 16):
            trace_id = int(trace, 16)
            return TraceContext(
                trace_id=trace_id,
                span_id=_hash(f"{trace}:{parent}:{seed}", 8),
                parent_id=int(parent, 16),
                flags=int(flags, 16) & _SAMPLED,
                state=environ.get(TRACESTATE, ""),
            )
    return TraceContext(_hash(f"trace:{seed}", 16), _hash(f"span:{seed}", 8))


def _hash(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:size]) or 1


class RunSpan(Struct):
    """One span; times in nanoseconds since 1970. `error`: what made it fail, if it did."""

    id: int
    parent_id: int
    name: str
    is_client: bool
    start: int
    end: int
    attributes: Attributes
    error: str | None = None


class RequestTrace(Struct):
    """A request to the model: its usage, thread, times, and parts of the answer if recorded."""

    usage: ev.Usage
    start: datetime | None
    end: datetime | None
    parts: list[Attributes]


class TraceRecorder:
    """Collects what spans need from the events of a task's runs; contents only if asked for."""

    def __init__(self, with_content: bool = False) -> None:
        self._with_content = with_content
        self._requests: dict[str, RequestTrace] = {}
        self._thread_times: dict[str | None, datetime] = {}
        self._first_at: datetime | None = None
        self._last_at: datetime | None = None
        self._contents: dict[str, Attributes] = {}  # of calls
        self._prompt: str | None = None

    def add(self, events: Iterable[ev.Event], run: str = "") -> None:
        """Events of one run, in order."""
        for event in events:
            if isinstance(event, ev.Usage | ev.Text | ev.Thinking | ev.ToolCall):
                self._add_answer(event, f"{run}:{event.message or f'line {event.line}'}")
            if self._with_content:
                self._add_content(event)
            if event.at is not None:
                self._thread_times[event.parent] = event.at
                self._first_at = min(self._first_at or event.at, event.at)
                self._last_at = max(self._last_at or event.at, event.at)

    def _add_answer(
        self, event: "ev.Usage | ev.Text | ev.Thinking | ev.ToolCall", key: str
    ) -> None:
        request = self._requests.get(key)
        if request is None:
            start = self._thread_times.get(event.parent, event.at)
            usage = ev.Usage(event.line, event.session, event.parent, event.at)
            request = self._requests[key] = RequestTrace(usage, start, event.at, [])
        if event.at is not None:
            request.end = event.at
        if isinstance(event, ev.Usage):
            request.usage = msgspec.structs.replace(
                merge_usage(request.usage, event),
                message=event.message,
                stop_reason=event.stop_reason or request.usage.stop_reason,
            )
        elif self._with_content and isinstance(event, ev.Text | ev.Thinking):
            kind = "text" if isinstance(event, ev.Text) else "reasoning"
            request.parts.append({"type": kind, "content": _content(event.text)})

    def _add_content(self, event: ev.Event) -> None:
        if isinstance(event, ev.UserMessage) and self._prompt is None and event.kind == "prompt":
            self._prompt = event.text
        elif isinstance(event, ev.ToolCall):
            arguments = _content(bytes(event.input).decode("utf-8", "replace"))
            self._contents[event.id] = {"gen_ai.tool.call.arguments": arguments}
        elif isinstance(event, ev.ToolResult) and event.id in self._contents:
            result = _content(text_of(event.content))
            self._contents[event.id]["gen_ai.tool.call.result"] = result

    # -- spans -----------------------------------------------------------------------------------

    def spans(self, report: Report, context: TraceContext) -> list[RunSpan]:
        """The span of the run, those of its tools and subagents, those of its requests."""
        root = self._root(report, context)
        tools = {tool.id: self._tool(tool, context, root) for tool in report.tools}
        agents = {
            entry.id: self._subagent(entry, report, context, tools[entry.id])
            for entry in report.subagents
            if entry.id in tools
        }
        threads = {**tools, **agents}
        for tool in report.tools:  # a tool of a subagent
            if tool.parent in threads and tool.parent != tool.id:
                tools[tool.id].parent_id = threads[tool.parent].id
        chats = []
        for key, request in self._requests.items():
            if request.usage.model is None and request.usage.output is None:
                continue  # text of the agent itself
            parent = threads.get(request.usage.parent or "", root)
            chat = self._chat(key, request, context, parent)
            parent.end = max(parent.end, chat.end)
            chats.append(chat)
        return [root, *tools.values(), *agents.values(), *chats]

    def _root(self, report: Report, context: TraceContext) -> RunSpan:
        start = report.started_at or self._first_at
        duration = timedelta(milliseconds=report.duration_ms or 0)
        is_assumed = start is None
        if start is None:  # nothing says when it ran
            start = datetime.now(timezone.utc) - duration
        end = max(start + duration, self._last_at or start)
        attributes = {
            **_run_attributes(report),
            **_usage_attributes(report.tokens),
            "steno.time.assumed": True if is_assumed else None,
        }
        if self._with_content:
            attributes |= _messages("gen_ai.input.messages", "user", self._prompt)
            attributes |= _messages("gen_ai.output.messages", "assistant", report.result)
        return RunSpan(
            id=context.span_id,
            parent_id=context.parent_id,
            name=f"invoke_agent {report.agent or 'unknown'}",
            is_client=True,
            start=_to_ns(start),
            end=_to_ns(end),
            attributes=_known(attributes),
            error=None if report.ok else report.verdict,
        )

    def _tool(self, tool: ToolCallSummary, context: TraceContext, root: RunSpan) -> RunSpan:
        start = root.start if tool.started_at is None else _to_ns(tool.started_at)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": redact(tool.name),
            "gen_ai.tool.call.id": tool.id,
            "gen_ai.tool.type": "function",
            "steno.tool.kind": tool.kind,
            **self._contents.get(tool.id, {}),
        }
        error = None if tool.ok is not False else "tool_error"
        return RunSpan(
            id=context.child_id(f"tool:{tool.id}"),
            parent_id=root.id,
            name=f"execute_tool {redact(tool.name)}",
            is_client=False,
            start=start,
            end=start + (tool.duration_ms or 0) * 1_000_000,
            attributes=attributes,
            error="denied" if tool.denied else error,
        )

    def _subagent(
        self, entry: Subagent, report: Report, context: TraceContext, call: RunSpan
    ) -> RunSpan:
        name = redact(entry.type or "subagent")
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": provider_name(report.model),
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": report.session_id,
            **_usage_attributes(entry.tokens),
            "steno.cost.usd": entry.cost_usd,
        }
        return RunSpan(
            id=context.child_id(f"agent:{entry.id}"),
            parent_id=call.id,
            name=f"invoke_agent {name}",
            is_client=False,
            start=call.start,
            end=call.end,
            attributes=_known(attributes),
        )

    def _chat(
        self, key: str, request: RequestTrace, context: TraceContext, parent: RunSpan
    ) -> RunSpan:
        usage = request.usage
        end = parent.start if request.end is None else _to_ns(request.end)
        start = end if request.start is None else min(end, _to_ns(request.start))
        reasons = None if usage.stop_reason is None else [usage.stop_reason]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_name(usage.model),
            "gen_ai.request.model": usage.model,
            "gen_ai.response.model": usage.model,
            "gen_ai.response.id": usage.message,
            "gen_ai.response.finish_reasons": reasons,
            "gen_ai.conversation.id": usage.session,
            **_usage_attributes(usage),
        }
        if request.parts:
            message = [{"role": "assistant", "parts": request.parts}]
            attributes["gen_ai.output.messages"] = msgspec.json.encode(message).decode()
        return RunSpan(
            id=context.child_id(f"chat:{key}"),
            parent_id=parent.id,
            name=f"chat {usage.model or 'unknown'}",
            is_client=True,
            start=start,
            end=end,
            attributes=_known(attributes),
        )


def _run_attributes(report: Report) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider_name(report.model),
        "gen_ai.agent.name": report.agent,
        "gen_ai.agent.version": report.agent_version,
        "gen_ai.conversation.id": report.session_id,
        "gen_ai.request.model": report.model,
        "steno.run.id": report.run_id,
        "steno.run.name": None if report.name is None else redact(report.name),
        "steno.verdict": report.verdict,
        "steno.cost.usd": report.cost.usd,
        "steno.cost.source": report.cost.source,
        "steno.turns": report.turns,
        "steno.context.peak": report.context.peak,
        "steno.files.changed": len(report.files),
        "steno.attempts": len(getattr(report, "attempts", ())) or None,
        "process.exit.code": report.exit_code,
    }


def _usage_attributes(tokens: Tokens | ev.Usage) -> Attributes:
    """`input_tokens` includes those of the cache, as the conventions ask for."""
    # While an answer is streamed, its output so far is not what it will have used.
    is_final = not isinstance(tokens, ev.Usage) or tokens.final
    parts = (tokens.input, tokens.cache_write, tokens.cache_read)
    known = [part for part in parts if part is not None]
    return {
        "gen_ai.usage.input_tokens": sum(known) if known else None,
        "gen_ai.usage.output_tokens": tokens.output if is_final else None,
        "gen_ai.usage.cache_creation.input_tokens": tokens.cache_write,
        "gen_ai.usage.cache_read.input_tokens": tokens.cache_read,
        "gen_ai.usage.reasoning.output_tokens": tokens.reasoning,
    }


def provider_name(model: str | None) -> str:
    """The provider of a model, by its name after the last slash."""
    name = (model or "").rpartition("/")[2].lower()
    return next((text for start, text in PROVIDERS.items() if name.startswith(start)), "unknown")


def _messages(name: str, role: str, text: str | None) -> Attributes:
    if not text:
        return {}
    message = [{"role": role, "parts": [{"type": "text", "content": _content(text)}]}]
    return {name: msgspec.json.encode(message).decode()}


def _content(text: str) -> str:
    return redact(text)[:MAX_CONTENT_CHARS]


def _to_ns(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def _known(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}
