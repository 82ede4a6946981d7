"""The lines of Qwen Code's stream: Claude Code's reader tells what they say, and what Qwen Code means by it is told here.

It holds what joins lines besides what that reader holds: ids that are used again, files being written, a failed request.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import Count, decode_lenient, text_of
from .. import claude
from ..chat_log import CallTracker
from . import transcripts as chats
from .transcripts import (
    FILE_WRITE_TOOLS,
    PERMISSION_DENIED_PREFIX,
    USER_INPUT_TOOLS,
    QwenStreamSummary,
    enrich,
    tool_kind,
)

_API_ERROR_PATTERN = re.compile(
    r"(?s)\[API Error: (.*)\]\s*(?:\n.*)?"
)  # at a limit, advice follows in the next line
_HTTP_STATUS_PATTERN = re.compile(r"(?:(?:status|code)\W*)?(\d{3})\b")


class InitLine(Struct, gc=False):
    qwen_code_version: str | None = None
    permission_mode: str | None = None


class ModelTokens(Struct, gc=False):
    prompt: Count | None = None
    candidates: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = 0


class ModelStats(Struct, gc=False):
    tokens: ModelTokens | None = None


class ResultStats(Struct, gc=False):
    models: dict[str, ModelStats] | None = None


class ResultLine(Struct, gc=False):
    stats: ResultStats | None = None


class QwenReader:
    """Turns the lines of one run, or of one chat, into events."""

    def __init__(self) -> None:
        self._claude_reader = claude.ClaudeReader()
        self._transcript: chats.QwenTranscriptReader | None = None
        self._calls = CallTracker()
        self._model: str | None = None
        self._failure: str | None = None  # what the last message said in place of an answer
        self.session: str | None = None
        self._summary = QwenStreamSummary()

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        if self._is_transcript(data) and self._transcript is not None:
            return self._transcript.read(data, number, at)
        return self._convert(self._claude_reader.read(data, number, at), data)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        if self._is_transcript(data) and self._transcript is not None:
            return self._transcript.read_lenient(data, number, at)
        return self._convert(self._claude_reader.read_lenient(data, number, at), data)

    def state(self) -> bytes:
        """Only a chat is read in parts."""
        return b"" if self._transcript is None else self._transcript.state()

    def restore(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._transcript = chats.QwenTranscriptReader()
        self._transcript.restore(state)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """What it writes to stderr means nothing but its words."""
        return []

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the chat of the same session says that the stream does not."""
        return enrich(self.session, self._summary, lines)

    def _is_transcript(self, data: bytes) -> bool:
        """Whether these are lines of a file that it keeps: the first one says so, for all."""
        if self._transcript is None and self._model is None and chats.is_transcript_line(data):
            self._transcript = chats.QwenTranscriptReader()
        return self._transcript is not None

    def _convert(self, told: list[ev.Event], data: bytes) -> list[ev.Event]:
        """What Qwen Code means by a line that has Claude Code's shape."""
        spent = any(type(event) is ev.Usage and (event.input or event.output) for event in told)
        found: list[ev.Event] = []
        for event in told:
            make = _EVENT_CONVERTERS.get(type(event))
            if type(event) is ev.Text and not spent:
                found += self._convert_text(event)
            elif make is None:
                found.append(event)
            else:
                found += make(self, event, data)
        return found

    def _convert_started(self, event: ev.Started, data: bytes) -> list[ev.Event]:
        init = decode_lenient(data, InitLine)
        self._model, self.session = event.model or "", event.session
        return [
            replace(
                event, agent_version=init.qwen_code_version, permission_mode=init.permission_mode
            )
        ]

    def _convert_usage(self, event: ev.Usage, data: bytes) -> list[ev.Event]:
        """A message that used nothing is no request of its own; one that used something tells all of it."""
        if not event.input and not event.output:
            return []
        self._failure = None
        if event.parent is None:
            self._summary.requests.append(
                (event.input or 0, event.cache_read or 0, event.output or 0)
            )
        return [
            replace(
                event,
                input=_uncached_input(event.input, event.cache_read),
                cache_write=0,
                final=True,
            )
        ]

    def _convert_text(self, event: ev.Text) -> list[ev.Event]:
        """Text of a message that used nothing: the first half of an answer, or the program's word for a failure."""
        found = _API_ERROR_PATTERN.fullmatch(event.text)
        if found is None:
            return [event]
        self._failure = event.text
        head = (event.line, event.session, event.parent, event.at)
        return [ev.Failure(*head, None, http_status_of(event.text), event.text)]

    def _convert_tool_call(self, event: ev.ToolCall, data: bytes) -> list[ev.Event]:
        self._failure = None
        name = event.name
        call = self._calls.open(
            event.id, name, event.input if name in FILE_WRITE_TOOLS else ev.NO_JSON
        )
        return [
            replace(
                event,
                id=call,
                kind=tool_kind(name),
                asks=name in USER_INPUT_TOOLS,
                background=_is_background(event),
            )
        ]

    def _convert_tool_result(self, event: ev.ToolResult, data: bytes) -> list[ev.Event]:
        call = self._calls.close(event.id)
        head = (event.line, event.session, event.parent, event.at)
        found: list[ev.Event] = [replace(event, id=call.id)]
        text = text_of(event.content)
        if event.is_error:
            denied = text.startswith(PERMISSION_DENIED_PREFIX)
            return (
                [ev.PermissionDenied(*head, call.id, call.tool or None, text), *found]
                if denied
                else found
            )
        return found + chats.file_change_events(head, call, text)

    def _convert_result(self, event: ev.Result, data: bytes) -> list[ev.Event]:
        """The account of the run, with every model's share; a failure that is called a success is put right."""
        usage = event.usage
        more = False  # than the messages tell of: of helpers, or of earlier runs of the session
        if usage is not None:
            seen = sum(given + output for given, _, output in self._summary.requests)
            more = (usage.input or 0) + (usage.output or 0) > seen
            usage = replace(
                usage,
                input=_uncached_input(usage.input, usage.cache_read),
                cache_write=0,
                reasoning=None,
            )
        models = model_usages(decode_lenient(data, ResultLine).stats) or (
            {self._model: usage} if self._model and usage is not None else None
        )
        event = replace(event, usage=usage, models=models, over_session=more)
        if self._failure is not None and not event.is_error and event.text == self._failure:
            event = replace(
                event,
                is_error=True,
                text=None,
                errors=(self._failure,),
                api_status=http_status_of(self._failure),
            )
        self._summary.result, self._summary.result_count = event, self._summary.result_count + 1
        return [event]


def _is_background(event: ev.ToolCall) -> bool:
    """Whether a command was sent to the background on purpose."""
    if event.name not in ("run_shell_command", "agent"):
        return False
    asked = decode_lenient(event.input, _BackgroundInput)
    return asked.is_background is True or asked.run_in_background is True


class _BackgroundInput(Struct, gc=False):
    is_background: bool | None = None
    run_in_background: bool | None = None


def _uncached_input(given: int | None, cached: int | None) -> int | None:
    """What was sent anew: the input less what came from the cache."""
    return None if given is None or cached is None else max(0, given - cached)


def http_status_of(text: str) -> int | None:
    """The HTTP status at the head of "[API Error: 401 ...]"."""
    found = _HTTP_STATUS_PATTERN.match(text.removeprefix("[API Error: "))
    return int(found[1]) if found is not None and 400 <= int(found[1]) < 600 else None


def model_usages(stats: ResultStats | None) -> dict[str, ev.ModelUsage] | None:
    """Every model's share, where the json format tells it."""
    if stats is None or not stats.models:
        return None
    return {
        name: _model_usage(model.tokens or ModelTokens()) for name, model in stats.models.items()
    }


def _model_usage(tokens: ModelTokens) -> ev.ModelUsage:
    return ev.ModelUsage(
        _uncached_input(tokens.prompt, tokens.cached),
        0,
        tokens.cached,
        tokens.candidates,
        tokens.thoughts,
    )


_EVENT_CONVERTERS: dict[type[ev.Event], Callable[[QwenReader, Any, bytes], list[Any]]] = {
    ev.Started: QwenReader._convert_started,
    ev.Usage: QwenReader._convert_usage,
    ev.ToolCall: QwenReader._convert_tool_call,
    ev.ToolResult: QwenReader._convert_tool_result,
    ev.Result: QwenReader._convert_result,
}
