"""Gemini CLI's json format: one document with the answer and figures per model and tool. Pure.

It lists no calls or requests, only their number; that many calls without input are reported.
"""

from msgspec import Struct

from ... import event as ev
from ...codec.decode import Count, decode_lenient
from ...event import EventHead
from ..token_counters import add_counters, uncached_input
from .tables import classify_error, terminal_reason_of, tool_kind

MAX_TOOL_CALLS = 10_000  # a wrong figure must not fill the memory


class ApiStats(Struct, gc=False):
    totalRequests: Count | None = None
    totalLatencyMs: Count | None = None


class TokenStats(Struct, gc=False):
    prompt: Count | None = None
    candidates: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = 0
    tool: Count | None = 0


class RoleStats(Struct, gc=False):
    totalRequests: Count | None = None


class ModelStats(Struct, gc=False):
    api: ApiStats | None = None
    tokens: TokenStats | None = None
    roles: dict[str, RoleStats] | None = None


class ToolStats(Struct, gc=False):
    count: Count | None = None
    fail: Count | None = None


class ToolStatsByName(Struct, gc=False):
    byName: dict[str, ToolStats] | None = None


class DocumentStats(Struct, gc=False):
    models: dict[str, ModelStats] | None = None
    tools: ToolStatsByName | None = None


class DocumentError(Struct, gc=False):
    type: str | None = None
    message: str | None = None
    code: Count | None = None


class Document(Struct, gc=False):
    session_id: str | None = None
    response: str | None = None
    stats: DocumentStats | None = None
    error: DocumentError | None = None
    warnings: list[str] | None = None


def read(data: bytes, head: EventHead) -> list[ev.Event]:
    """Return the events of the document; Unknown if it is not one."""
    document = decode_lenient(data, Document)
    if document.response is None and document.error is None and document.stats is None:
        return [ev.Unknown(*head, "no type", data)]
    head = EventHead(head.line, document.session_id, None, head.at)
    stats = document.stats or DocumentStats()
    models = stats.models or {}
    main = max(models, key=lambda name: _main_requests(models[name]), default=None)
    events: list[ev.Event] = [ev.Started(*head, None, main)]
    events += [ev.Notice(*head, "warning", text) for text in document.warnings or ()]
    for name, tool in ((stats.tools or ToolStatsByName()).byName or {}).items():
        events += _tool_call_events(head, name, tool)
    if document.response:
        events.append(ev.Text(*head, None, document.response))
    return [*events, _result(head, document, models, main)]


def _main_requests(model: ModelStats) -> int:
    """The requests of the main loop, else all requests."""
    stats = (model.roles or {}).get("main") or model.api
    return 0 if stats is None else stats.totalRequests or 0


def _tool_call_events(head: EventHead, name: str, tool: ToolStats) -> list[ev.Event]:
    events: list[ev.Event] = []
    count = min(tool.count or 0, MAX_TOOL_CALLS)
    first_failure = count - (tool.fail or 0)
    for index in range(count):
        call = f"{name} {index + 1}"
        events.append(ev.ToolCall(*head, call, name, tool_kind(name)))
        events.append(ev.ToolResult(*head, call, index >= first_failure))
    return events


def _document_usage(tokens: TokenStats) -> ev.ModelUsage:
    if tokens.prompt is None or tokens.cached is None:
        return ev.ModelUsage(None, 0, None, tokens.candidates, None)
    return ev.ModelUsage(
        input=add_counters(uncached_input(tokens.prompt, tokens.cached), tokens.tool or 0),
        cache_write=0,
        cache_read=tokens.cached,
        output=add_counters(tokens.candidates, tokens.thoughts),
        reasoning=tokens.thoughts,
    )


def _result(
    head: EventHead, document: Document, models: dict[str, ModelStats], main: str | None
) -> ev.Result:
    error = document.error or DocumentError()
    failed = document.error is not None
    usage = {name: _document_usage(model.tokens or TokenStats()) for name, model in models.items()}
    api_stats = [model.api for model in models.values() if model.api is not None]
    return ev.Result(
        *head,
        subtype="error" if failed else "success",
        is_error=failed,
        text=error.message if failed else document.response,
        errors=(error.message,) if error.message else (),
        terminal_reason=terminal_reason_of(error.type, error.message),
        api_error=classify_error(error.message or ""),
        api_status=error.code if error.code is not None and error.code >= 400 else None,
        turns=_main_requests(models[main]) if main is not None else None,
        duration_api_ms=sum(stats.totalLatencyMs or 0 for stats in api_stats) or None,
        usage=usage.get(main or ""),
        models=usage or None,
        requests=sum(stats.totalRequests or 0 for stats in api_stats),
    )
