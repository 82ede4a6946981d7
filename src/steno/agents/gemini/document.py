"""The one document of Gemini CLI's json format: the answer, and figures for each model and tool. Pure.

It lists no call and no request, only how many there were; calls are told as that many, without what was asked.
"""

from datetime import datetime

from msgspec import Struct

from ... import event as ev
from ...codec.decode import Count, decode_lenient
from . import tables as ends
from .tables import tool_kind

EventHead = tuple[int, str | None, str | None, datetime | None]
MAX_TOOL_CALLS = 10_000  # calls that are told one by one: no run has more, and a wrong figure must not fill the memory


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
    """The events of the document; what is none is kept as unknown."""
    given = decode_lenient(data, Document)
    if given.response is None and given.error is None and given.stats is None:
        return [ev.Unknown(*head, "no type", data)]
    head = (head[0], given.session_id, None, head[3])
    stats = given.stats or DocumentStats()
    models = stats.models or {}
    main = max(models, key=lambda name: _main_requests(models[name]), default=None)
    found: list[ev.Event] = [ev.Started(*head, None, main)]
    found += [ev.Notice(*head, "warning", text) for text in given.warnings or ()]
    for name, tool in ((stats.tools or ToolStatsByName()).byName or {}).items():
        found += _tool_call_events(head, name, tool)
    if given.response:
        found.append(ev.Text(*head, None, given.response))
    return [*found, _result(head, given, models, main)]


def _main_requests(model: ModelStats) -> int:
    """How often the main loop asked it."""
    main = (model.roles or {}).get("main")
    told = (
        main.totalRequests
        if main is not None
        else model.api.totalRequests
        if model.api is not None
        else None
    )
    return told or 0


def _tool_call_events(head: EventHead, name: str, tool: ToolStats) -> list[ev.Event]:
    found: list[ev.Event] = []
    count, failures = min(tool.count or 0, MAX_TOOL_CALLS), tool.fail or 0
    for number in range(count):
        call = f"{name} {number + 1}"
        found.append(ev.ToolCall(*head, call, name, tool_kind(name)))
        found.append(ev.ToolResult(*head, call, number >= count - failures))
    return found


def _model_usage(tokens: TokenStats | None) -> ev.ModelUsage:
    if tokens is None or tokens.prompt is None or tokens.cached is None:
        return ev.ModelUsage(None, 0, None, None if tokens is None else tokens.candidates, None)
    output = (
        None
        if tokens.candidates is None or tokens.thoughts is None
        else tokens.candidates + tokens.thoughts
    )
    return ev.ModelUsage(
        max(0, tokens.prompt - tokens.cached) + (tokens.tool or 0),
        0,
        tokens.cached,
        output,
        tokens.thoughts,
    )


def _result(
    head: EventHead, given: Document, models: dict[str, ModelStats], main: str | None
) -> ev.Result:
    from .reader import terminal_reason_of

    problem = given.error or DocumentError()
    failed = given.error is not None
    shares = {name: _model_usage(model.tokens) for name, model in models.items()}
    return ev.Result(
        *head,
        subtype="error" if failed else "success",
        is_error=failed,
        text=problem.message if failed else given.response,
        errors=(problem.message,) if problem.message else (),
        terminal_reason=terminal_reason_of(problem.type, problem.message),
        api_error=ends.classify_error(problem.message or ""),
        api_status=problem.code if problem.code is not None and problem.code >= 400 else None,
        turns=_main_requests(models[main]) if main is not None else None,
        duration_api_ms=sum(model.api.totalLatencyMs or 0 for model in models.values() if model.api)
        or None,
        usage=shares.get(main or ""),
        models=shares or None,
        requests=sum(
            (model.api.totalRequests or 0) for model in models.values() if model.api is not None
        ),
    )
