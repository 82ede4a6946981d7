"""The stream of Qwen Code: read as Claude Code's, with its events corrected. Pure."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import Count, decode_lenient, text_of
from ...event import EventHead
from .. import claude
from ..typed_reader import CallTracker, add_counters, subtract_counters, uncached_input
from .tables import (
    BACKGROUND_TOOLS,
    FILE_WRITE_TOOLS,
    LOOP_DETECTED_PREFIX,
    PERMISSION_DENIED_PREFIX,
    USER_INPUT_TOOLS,
    http_status_of,
    is_api_error,
    is_rejected_answer,
    tool_kind,
)
from .transcripts import (
    QwenStreamSummary,
    QwenTranscriptReader,
    RequestTokens,
    enrich,
    file_change_events,
    is_transcript_line,
)


class InitLine(Struct, gc=False):
    qwen_code_version: str | None = None
    permission_mode: str | None = None


class ModelTokens(Struct, gc=False):
    prompt: Count | None = None
    candidates: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = 0


class ApiStats(Struct, gc=False):
    totalRequests: Count | None = None
    totalErrors: Count | None = 0


class SourceStats(Struct, gc=False):
    tokens: ModelTokens | None = None


class ModelStats(Struct, gc=False):
    """The usage of a model; `bySource` splits it into the main thread and each helper."""

    tokens: ModelTokens | None = None
    api: ApiStats | None = None
    bySource: dict[str, SourceStats] | None = None


class ResultStats(Struct, gc=False):
    models: dict[str, ModelStats] | None = None


class ResultError(Struct, gc=False):
    message: str | None = None


class ResultLine(Struct, gc=False):
    stats: ResultStats | None = None
    error: ResultError | None = None


class RetryData(Struct, gc=False):
    """`attempt` and the delay are given for rate limits only."""

    reason: str | None = None
    attempt: Count | None = None
    maxRetries: Count | None = None
    delayMs: Count | None = None


class RetryLine(Struct, gc=False):
    data: RetryData | None = None


class BackgroundInput(Struct, gc=False):
    is_background: bool | None = None
    run_in_background: bool | None = None


class QwenReader:
    """Turns the lines of one run, or of one chat, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._claude_reader = claude.ClaudeReader()
        self._transcript: QwenTranscriptReader | None = None  # set if these are lines of a chat
        self._summary = QwenStreamSummary()
        self._calls = CallTracker()
        self._model: str | None = None
        self._failure: str | None = None  # the API error in the last message
        self._held_text: ev.Text | None = None  # an API error with usage, until the next line
        self._is_retry_announced = False  # by the previous line

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        transcript = self._transcript_for(data)
        if transcript is not None:
            return transcript.read(data, number, at)
        return self._convert(self._claude_reader.read(data, number, at), data)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one JSON object, ignoring fields of a wrong type."""
        transcript = self._transcript_for(data)
        if transcript is not None:
            return transcript.read_lenient(data, number, at)
        return self._convert(self._claude_reader.read_lenient(data, number, at), data)

    def state(self) -> bytes:
        """Return the state as JSON; only chats are read in parts."""
        return b"" if self._transcript is None else self._transcript.state()

    def restore(self, state: bytes) -> None:
        """Continue with a chat from a stored state."""
        self._transcript = QwenTranscriptReader()
        self._transcript.restore(state)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """Return nothing: stderr has no events."""
        return []

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """Return what only the chat knows about this run."""
        return enrich(self.session, self._summary, lines)

    def _transcript_for(self, data: bytes) -> QwenTranscriptReader | None:
        """The reader for lines of a chat; the first line decides for all."""
        if self._transcript is None and self._model is None and is_transcript_line(data):
            self._transcript = QwenTranscriptReader()
        return self._transcript

    def _convert(self, claude_events: list[ev.Event], data: bytes) -> list[ev.Event]:
        has_usage = any(
            type(event) is ev.Usage and (event.input or event.output) for event in claude_events
        )
        if any(type(event) is not ev.Unknown for event in claude_events):
            self._is_retry_announced = False
        events = self._release_text(data)
        for event in claude_events:
            convert = _EVENT_CONVERTERS.get(type(event))
            if type(event) is ev.Text and is_api_error(event.text):
                events += self._convert_api_error(event, has_usage)
            elif convert is None:
                events.append(event)
            else:
                events += convert(self, event, data)
        return events

    def _convert_started(self, event: ev.Started, data: bytes) -> list[ev.Event]:
        init = decode_lenient(data, InitLine)
        self._model = event.model or ""
        self.session = event.session
        version = init.qwen_code_version
        return [replace(event, agent_version=version, permission_mode=init.permission_mode)]

    def _convert_usage(self, event: ev.Usage, data: bytes) -> list[ev.Event]:
        """A message without usage is not a request of its own."""
        if not event.input and not event.output:
            return []
        self._failure = None
        if event.parent is None:
            request = RequestTokens(event.input or 0, event.cache_read or 0, event.output or 0)
            self._summary.requests.append(request)
            self._summary.tokens += request.input + request.output
        input_ = uncached_input(event.input, event.cache_read)
        return [replace(event, input=input_, cache_write=0, final=True)]

    def _convert_api_error(self, event: ev.Text, has_usage: bool) -> list[ev.Event]:
        """A failed request; if it has usage, it may be the model's own text: the result decides."""
        if has_usage and not is_rejected_answer(event.text):
            self._held_text = event
            return [ev.Partial(*_head_of(event), event.text)]
        self._failure = event.text
        return [_failure_event(event)]

    def _release_text(self, data: bytes) -> list[ev.Event]:
        """The text that looked like an API error, as the line after it shows."""
        text = self._held_text
        if text is None:
            return []
        self._held_text = None
        line = decode_lenient(data, ResultLine)
        failed = line.error is not None and line.error.message == text.text
        return [_failure_event(text) if failed else text]

    def _convert_tool_call(self, event: ev.ToolCall, data: bytes) -> list[ev.Event]:
        self._failure = None
        kept_input = event.input if event.name in FILE_WRITE_TOOLS else ev.NO_JSON
        return [
            replace(
                event,
                id=self._calls.open(event.id, event.name, kept_input),
                kind=tool_kind(event.name),
                asks=event.name in USER_INPUT_TOOLS,
                background=_is_background(event),
            )
        ]

    def _convert_tool_result(self, event: ev.ToolResult, data: bytes) -> list[ev.Event]:
        call = self._calls.close(event.id)
        head = _head_of(event)
        result = replace(event, id=call.id)
        text = text_of(event.content)
        if not event.is_error:
            return [result, *file_change_events(head, call, text)]
        if text.startswith(PERMISSION_DENIED_PREFIX):
            return [ev.PermissionDenied(*head, call.id, call.tool or None, text), result]
        return [result]

    def _convert_result(self, event: ev.Result, data: bytes) -> list[ev.Event]:
        """Add the models, and turn the success of a failed request into a failure."""
        usage = event.usage
        line = decode_lenient(data, ResultLine)
        over_session = usage is not None and self._exceeds_requests(usage)
        if over_session and _main_tokens(line.stats) == self._summary.tokens:
            over_session = False  # the rest is that of helpers
        if usage is not None:
            input_ = uncached_input(usage.input, usage.cache_read)
            usage = replace(usage, input=input_, cache_write=0, reasoning=None)
        models = _model_usages(line.stats)
        if models is None and self._model and usage is not None:
            models = {self._model: usage}
        event = replace(
            event,
            usage=usage,
            models=models,
            over_session=over_session,
            requests=_answered_requests(line.stats),
        )
        if self._failure is not None and not event.is_error and event.text == self._failure:
            event = replace(
                event,
                is_error=True,
                text=None,
                errors=(self._failure,),
                api_status=http_status_of(self._failure),
            )
        elif event.is_error and line.error is not None and line.error.message:
            event = _with_error(event, line.error.message)
        self._summary.result = event
        self._summary.result_count += 1
        return [event]

    def _convert_unknown(self, event: ev.Unknown, data: bytes) -> list[ev.Event]:
        """A retry is announced when a request fails, and mostly again when it is repeated."""
        if event.kind != "system/retry":
            return [event]
        retry = decode_lenient(data, RetryLine).data or RetryData()
        head = _head_of(event)
        if retry.reason == "model_fallback":
            return [ev.Notice(*head, retry.reason)]
        is_repetition = retry.attempt is None and self._is_retry_announced
        self._is_retry_announced = not is_repetition
        if is_repetition:
            return []
        error = None if retry.attempt is None else "rate_limit"
        return [ev.Retry(*head, retry.attempt, retry.maxRetries, None, error, retry.delayMs)]

    def _exceeds_requests(self, usage: ev.ModelUsage) -> bool:
        """Whether a result includes helpers or earlier runs of the session."""
        return (usage.input or 0) + (usage.output or 0) > self._summary.tokens


def _with_error(result: ev.Result, message: str) -> ev.Result:
    stopped = message.startswith(LOOP_DETECTED_PREFIX)
    return replace(
        result,
        text=None,
        errors=(message,),
        api_status=http_status_of(message),
        terminal_reason="loop_detected" if stopped else result.terminal_reason,
    )


def _failure_event(event: ev.Text) -> ev.Failure:
    return ev.Failure(*_head_of(event), None, http_status_of(event.text), event.text)


def _head_of(event: ev.Event) -> EventHead:
    return (event.line, event.session, event.parent, event.at)


def _is_background(event: ev.ToolCall) -> bool:
    if event.name not in BACKGROUND_TOOLS:
        return False
    input_ = decode_lenient(event.input, BackgroundInput)
    return input_.is_background is True or input_.run_in_background is True


def _models_of(stats: ResultStats | None) -> dict[str, ModelStats]:
    return (stats.models or {}) if stats is not None else {}


def _model_usages(stats: ResultStats | None) -> dict[str, ev.ModelUsage] | None:
    """The usage per model; only the json format has it."""
    models = _models_of(stats)
    usages = {name: _model_usage(model.tokens) for name, model in models.items() if model.tokens}
    return usages if models and len(usages) == len(models) else None


def _main_tokens(stats: ResultStats | None) -> int | None:
    """The tokens of the main thread, if the stats show them."""
    parts = [model.bySource for model in _models_of(stats).values()]
    if not parts or None in parts:
        return None
    main = [part["main"].tokens or ModelTokens() for part in parts if part and "main" in part]
    return add_counters(*(add_counters(part.prompt, part.candidates) for part in main))


def _answered_requests(stats: ResultStats | None) -> int | None:
    """The number of requests that did not fail, helpers included."""
    counts = [model.api or ApiStats() for model in _models_of(stats).values()]
    if not counts:
        return None
    return add_counters(
        *(subtract_counters(count.totalRequests, count.totalErrors) for count in counts)
    )


def _model_usage(tokens: ModelTokens) -> ev.ModelUsage:
    return ev.ModelUsage(
        input=uncached_input(tokens.prompt, tokens.cached),
        cache_write=0,
        cache_read=tokens.cached,
        output=tokens.candidates,
        reasoning=tokens.thoughts,
    )


_EVENT_CONVERTERS: dict[type[ev.Event], Callable[[QwenReader, Any, bytes], list[ev.Event]]] = {
    ev.Started: QwenReader._convert_started,
    ev.Usage: QwenReader._convert_usage,
    ev.ToolCall: QwenReader._convert_tool_call,
    ev.ToolResult: QwenReader._convert_tool_result,
    ev.Result: QwenReader._convert_result,
    ev.Unknown: QwenReader._convert_unknown,
}
