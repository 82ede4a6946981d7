"""The stream of Gemini CLI; chat files and the json format have their own readers. Pure."""

from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import Count, Instant, decode_lenient, decoder, text_of
from ...event import EventHead
from ..typed_reader import CallTracker, add_counters, subtract_counters, uncached_input
from . import tables
from .tables import (
    BLOCKED_PREFIX,
    EndReason,
    classify_error,
    stop_warning,
    terminal_reason_of,
    tool_kind,
)
from .transcripts import (
    GeminiStreamSummary,
    GeminiTranscriptReader,
    enrich,
    file_change_events,
    is_transcript_line,
)


class StreamError(Struct, gc=False):
    type: str | None = None
    message: str | None = None


class StreamTokens(Struct, gc=False):
    """Token counts of a result, for all models or for one."""

    total_tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached: Count | None = None
    input: Count | None = None


class StreamStats(StreamTokens, gc=False):
    duration_ms: Count | None = None
    models: dict[str, StreamTokens] | None = None


class StreamLine(Struct, gc=False):
    type: str = ""
    timestamp: Instant | None = None
    session_id: str | None = None
    model: str | None = None
    role: str | None = None
    content: str | None = None
    delta: bool | None = None
    tool_name: str | None = None
    tool_id: str | None = None
    parameters: Raw = ev.NO_JSON
    status: str | None = None
    output: Raw = ev.NO_JSON
    error: StreamError | None = None
    stats: StreamStats | None = None
    severity: str | None = None
    message: str | None = None


_decode_line = decoder(StreamLine).decode


class GeminiReader:
    """Turns the lines of one run, or of one chat, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._transcript: GeminiTranscriptReader | None = None  # set if these are lines of a chat
        self._summary = GeminiStreamSummary()
        self._calls = CallTracker()
        self._model: str | None = None
        self._text_parts: list[str] = []
        self._last_part_head: EventHead = (0, None, None, None)
        self._last_text: str | None = None  # the last complete answer
        self._turn_id: str | None = None  # None until the model's next line
        self._pending_error: str | None = None  # final, unless the model continues
        self._pending_stop: EndReason | None = None  # likewise
        self._stderr_reason: EndReason | None = None

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        if self._transcript is not None:
            return self._transcript.read(data, number, at)
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one JSON object, ignoring fields of a wrong type."""
        if self._transcript is not None:
            return self._transcript.read_lenient(data, number, at)
        return self._events(decode_lenient(data, StreamLine), data, number, at)

    def state(self) -> bytes:
        """Return the state as JSON; only chats are read in parts."""
        return b"" if self._transcript is None else self._transcript.state()

    def restore(self, state: bytes) -> None:
        """Continue with a chat from a stored state."""
        self._transcript = GeminiTranscriptReader()
        self._transcript.restore(state)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """Return the retry that a line of stderr announces, or the result that it explains."""
        reason = tables.end_reason_of_stderr(line.text)
        if reason is None:
            return tables.read_stderr(line)
        self._stderr_reason = reason
        result = self._summary.result
        if result is None:
            return []
        self._summary.result = _explain(result, reason)
        return [replace(self._summary.result, amends=True)]

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """Return what only the chat knows about this run."""
        return enrich(self.session, self._summary, lines)

    def _events(
        self, line: StreamLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        if not line.type:
            return self._untyped_line(data, number, at)
        head = (number, self.session, None, line.timestamp or at)
        if line.type == "message" and line.role == "assistant":
            return self._assistant_message(head, line)
        build = _EVENT_BUILDERS.get(line.type)
        if build is None:  # may come between two pieces of one answer
            return [ev.Unknown(*head, line.type, data)]
        return self._flush_text() + build(self, head, line)

    def _untyped_line(self, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        """Not a stream: the first line of a chat, or the document of the json format."""
        if is_transcript_line(data):
            self._transcript = GeminiTranscriptReader()
            return self._transcript.read_lenient(data, number, at)
        events = read(data, (number, self.session, None, at))
        self.session = next((event.session for event in events), None) or self.session
        return [self._keep_result(event) if type(event) is ev.Result else event for event in events]

    # -- messages ------------------------------------------------------------------------------

    def _begin_turn(self, head: EventHead) -> list[ev.Event]:
        """A request, whose usage is not in the stream. Lines have no ids: use the time."""
        if self._turn_id is not None:
            return []
        number, _, _, at = head
        self._turn_id = f"line {number}" if at is None else at.isoformat()
        self._summary.turns += 1
        return [ev.Notice(*head, "request")]

    def _continue_run(self) -> None:
        """The model continues: what was reported before did not end the run."""
        self._pending_error = None
        self._pending_stop = None

    def _assistant_message(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._continue_run()
        events = self._begin_turn(head)
        text = line.content or ""
        self._text_parts.append(text)
        self._last_part_head = head
        if line.delta is True:
            return [*events, ev.Partial(*head, text)]
        return events + self._flush_text()

    def _flush_text(self) -> list[ev.Event]:
        """The complete answer, once another kind of line follows its pieces."""
        if not self._text_parts:
            return []
        self._last_text = "".join(self._text_parts)
        self._text_parts.clear()
        return [ev.Text(*self._last_part_head, self._turn_id, self._last_text)]

    def _init(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        number, _, _, at = head
        self.session = line.session_id
        self._model = line.model
        self._summary.started_at = self._summary.started_at or at
        return [ev.Started(number, line.session_id, None, at, model=line.model)]

    def _user_message(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._turn_id = None
        return [ev.UserMessage(*head, "prompt", line.content or "")]

    # -- calls ---------------------------------------------------------------------------------

    def _tool_use(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._continue_run()
        name = line.tool_name or ""
        events = self._begin_turn(head)
        kept_input = line.parameters if name in tables.FILE_WRITE_TOOLS else ev.NO_JSON
        call = ev.ToolCall(
            *head,
            id=self._calls.open(line.tool_id or "", name, kept_input),
            name=name,
            kind=tables.tool_kind(name),
            message=self._turn_id,
            input=line.parameters,
            asks=name in tables.USER_INPUT_TOOLS,
        )
        return [*events, call]

    def _tool_result(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._turn_id = None
        call = self._calls.close(line.tool_id or "")
        error = line.error or StreamError()
        content = line.output
        if content is ev.NO_JSON and error.message is not None:
            content = Raw(encode(error.message))
        output = text_of(content)
        if error.type == tables.STOP_EXECUTION:
            self._pending_stop = EndReason(error.message or output, error.type)
        failed = line.status == "error" or output.startswith(tables.COMMAND_FAILED_PREFIX)
        events: list[ev.Event] = []
        if _is_denied(error, call.tool):
            events.append(ev.PermissionDenied(*head, call.id, call.tool or None, error.message))
        said = None if line.error is None or content is not line.output else Raw(encode(error))
        events.append(ev.ToolResult(*head, call.id, failed, content, said))
        return events if failed else events + file_change_events(head, call)

    # -- end of the run ------------------------------------------------------------------------

    def _error(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        if line.severity != "error":
            self._pending_stop = stop_warning(line.message or "") or self._pending_stop
            return [ev.Notice(*head, line.severity or "error", line.message)]
        self._pending_error = line.message or "error"
        return [ev.Failure(*head, None, None, line.message)]

    def _record_result(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        return [self._keep_result(self._build_result(head, line))]

    def _keep_result(self, result: ev.Result) -> ev.Result:
        for reason in (self._pending_stop, self._stderr_reason):
            if reason is not None:
                result = _explain(result, reason)
        self._summary.result = result
        return result

    def _build_result(self, head: EventHead, line: StreamLine) -> ev.Result:
        stats = line.stats or StreamStats()
        error = line.error or StreamError()
        message = error.message or self._pending_error
        failed = line.status != "success" or self._pending_error is not None
        models = {name: _model_usage(tokens) for name, tokens in (stats.models or {}).items()}
        total = None if line.stats is None else _model_usage(stats)
        return ev.Result(
            *head,
            subtype=line.status,
            is_error=failed,
            text=message if failed else self._last_text,
            errors=(message,) if failed and message else (),
            terminal_reason=tables.terminal_reason_of(error.type, message),
            api_error=tables.classify_error(message or ""),
            api_status=tables.http_status_of(message or "") if failed else None,
            turns=self._summary.turns or None,  # a turn that failed is not in the stream
            duration_ms=stats.duration_ms or None,  # 0 after a failure
            usage=models.get(self._model or "", total),
            models=None if stats.models is None else models,
        )


def _explain(result: ev.Result, reason: EndReason) -> ev.Result:
    """The result with the reason for its end, unless it names one itself."""
    if reason.terminal_reason is not None and not result.is_error:
        return replace(
            result,
            is_error=True,
            text=None,
            errors=(reason.message,),
            terminal_reason=reason.terminal_reason,
        )
    if reason.api_error is not None and result.is_error and result.api_error is None:
        return replace(
            result, text=reason.message, errors=(reason.message,), api_error=reason.api_error
        )
    return result


def _is_denied(error: StreamError, tool: str) -> bool:
    if error.type == "tool_not_registered" and tool in tables.PERMISSION_TOOLS:
        return True
    if error.type == "policy_violation":
        return True
    return tables.CONFIRMATION_REQUIRED_TEXT in (error.message or "")


def _model_usage(tokens: StreamTokens) -> ev.ModelUsage:
    input_ = tokens.input
    if input_ is None:
        input_ = uncached_input(tokens.input_tokens, tokens.cached)
    output = tokens.output_tokens
    thoughts = subtract_counters(tokens.total_tokens, tokens.input_tokens, output)
    if output is not None and thoughts is not None:
        output += thoughts
    return ev.ModelUsage(
        input=input_, cache_write=0, cache_read=tokens.cached, output=output, reasoning=None
    )


_EVENT_BUILDERS: dict[str, Callable[[GeminiReader, EventHead, StreamLine], list[ev.Event]]] = {
    "init": GeminiReader._init,
    "message": GeminiReader._user_message,
    "tool_use": GeminiReader._tool_use,
    "tool_result": GeminiReader._tool_result,
    "error": GeminiReader._error,
    "result": GeminiReader._record_result,
}


MAX_TOOL_CALLS = 10_000  # a wrong figure must not fill the memory


class RequestStats(Struct, gc=False):
    """`totalRequests` includes those that failed."""

    totalRequests: Count | None = None
    totalErrors: Count | None = 0

    @property
    def answered(self) -> int:
        return subtract_counters(self.totalRequests, self.totalErrors) or 0


class ApiStats(RequestStats, gc=False):
    totalLatencyMs: Count | None = None


class TokenStats(Struct, gc=False):
    prompt: Count | None = None
    candidates: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = 0
    tool: Count | None = 0


class ModelStats(Struct, gc=False):
    api: ApiStats | None = None
    tokens: TokenStats | None = None
    roles: dict[str, RequestStats] | None = None


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
    number, _, _, at = head
    head = (number, document.session_id, None, at)
    stats = document.stats or DocumentStats()
    models = stats.models or {}
    main = max(models, key=lambda name: _main_requests(models[name]), default=None)
    events: list[ev.Event] = [ev.Started(*head, None, main)]
    events += [ev.Notice(*head, "warning", text) for text in document.warnings or ()]
    for name, tool in ((stats.tools or ToolStatsByName()).byName or {}).items():
        events += _tool_call_events(head, name, tool)
    if document.response:
        events.append(ev.Text(*head, None, document.response))
    result = _result(head, document, models, main)
    for text in document.warnings or ():
        reason = stop_warning(text)
        if reason is not None and (not document.response or not text.startswith(BLOCKED_PREFIX)):
            result = _explain(result, reason)
    return [*events, result]


def _main_requests(model: ModelStats) -> int:
    """The answered requests of the main loop, else of all."""
    stats = (model.roles or {}).get("main") or model.api
    return 0 if stats is None else stats.answered


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
        requests=sum(stats.answered for stats in api_stats),
    )
