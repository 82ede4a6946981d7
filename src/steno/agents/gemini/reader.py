"""The lines of Gemini CLI's stream, and the one document of its json format. It holds only what joins lines.

That is: the pieces of the answer that is being written, the last whole answer, calls without their result, and how many
turns the model took. Chats that it keeps go to `chats`.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import Count, decode_lenient, decoder, text_of
from ..chat_log import CallTracker
from . import tables as ends
from . import transcripts as chats
from .tables import (
    CONFIRMATION_REQUIRED_TEXT,
    FILE_WRITE_TOOLS,
    PERMISSION_TOOLS,
    USER_INPUT_TOOLS,
    tool_kind,
)
from .transcripts import GeminiStreamSummary, enrich

Instant = Annotated[datetime, Meta(tz=True)]
EventHead = tuple[int, str | None, str | None, datetime | None]
COMMAND_FAILED_PREFIX = (
    "Command exited with code: "  # all that a command without output says of its failure
)


class StreamError(Struct, gc=False):
    type: str | None = None
    message: str | None = None


class StreamTokens(Struct, gc=False):
    """Figures of the stream's result, of all models or of one."""

    total_tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached: Count | None = None
    input: Count | None = None


class StreamStats(StreamTokens, gc=False):
    duration_ms: Count | None = None
    models: dict[str, StreamTokens] | None = None


class StreamLine(Struct, gc=False):
    """Every field that somebody reads of a line of the stream."""

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
        self._transcript: chats.GeminiTranscriptReader | None = None
        self.session: str | None = None
        self._model: str | None = None
        self._text_parts: list[str] = []
        self._last_part_head: EventHead = (0, None, None, None)  # where the last piece stood
        self._last_text: str | None = None  # the last whole answer
        self._calls = CallTracker()
        self._summary = GeminiStreamSummary()
        self._turn_id: str | None = (
            None  # the name of the model's turn; None: its tools answer, or nothing was said yet
        )
        self._pending_error: str | None = None  # an error that nothing followed but the result

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        if self._transcript is not None:
            return self._transcript.read(data, number, at)
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        if self._transcript is not None:
            return self._transcript.read_lenient(data, number, at)
        return self._events(decode_lenient(data, StreamLine), data, number, at)

    def state(self) -> bytes:
        """Only a chat is read in parts."""
        return b"" if self._transcript is None else self._transcript.state()

    def restore(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._transcript = chats.GeminiTranscriptReader()
        self._transcript.restore(state)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """A failed request that will be tried again is told on stderr alone."""
        return ends.read_stderr(line)

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the chat of the same session says that the stream does not."""
        return enrich(self.session, self._summary, lines)

    # -- one line -------------------------------------------------------------------------------------------------

    def _events(
        self, line: StreamLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        if not line.type:
            return self._untyped_line(data, number, at)
        head = (number, self.session, None, line.timestamp or at)
        if line.type == "message" and line.role == "assistant":
            return self._assistant_message(head, line)
        make = _EVENT_BUILDERS.get(line.type)
        if make is None:  # it may stand between two pieces of one answer
            return [ev.Unknown(*head, line.type, data)]
        return self._flush_text() + make(self, head, line)

    def _untyped_line(self, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        """No line of a stream: the first line of a chat, the document of the json format, or nothing that is known."""
        if chats.is_transcript_line(data):
            self._transcript = chats.GeminiTranscriptReader()
            return self._transcript.read_lenient(data, number, at)
        from . import document  # a stream does not need it

        return document.read(data, (number, self.session, None, at))

    def _begin_turn(self, head: EventHead) -> list[ev.Event]:
        """A turn of the model: a request whose figures the stream does not tell. Named by its time: lines have no ids."""
        if self._turn_id is not None:
            return []
        self._turn_id = f"line {head[0]}" if head[3] is None else head[3].isoformat()
        self._summary.turns += 1
        return [ev.Notice(*head, "request")]

    def _assistant_message(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._pending_error = None
        found = self._begin_turn(head)
        self._text_parts.append(line.content or "")
        self._last_part_head = head
        return found + (
            [ev.Partial(*head, line.content or "")] if line.delta is True else self._flush_text()
        )

    def _flush_text(self) -> list[ev.Event]:
        """The answer that is over, now that something else comes."""
        if not self._text_parts:
            return []
        self._last_text = "".join(self._text_parts)
        self._text_parts.clear()
        return [ev.Text(*self._last_part_head, self._turn_id, self._last_text)]

    def _init(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self.session, self._model = line.session_id, line.model
        self._summary.started_at = self._summary.started_at or head[3]
        return [ev.Started(head[0], line.session_id, None, head[3], None, line.model)]

    def _user_message(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._turn_id = None
        return [ev.UserMessage(*head, "prompt", line.content or "")]

    def _tool_use(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._pending_error = None
        name = line.tool_name or ""
        found = self._begin_turn(head)
        call = self._calls.open(
            line.tool_id or "", name, line.parameters if name in FILE_WRITE_TOOLS else ev.NO_JSON
        )
        return [
            *found,
            ev.ToolCall(
                *head,
                call,
                name,
                tool_kind(name),
                self._turn_id,
                line.parameters,
                asks=name in USER_INPUT_TOOLS,
            ),
        ]

    def _tool_result(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._turn_id = None
        call = self._calls.close(line.tool_id or "")
        problem = line.error or StreamError()
        content = (
            line.output
            if line.output is not ev.NO_JSON or problem.message is None
            else Raw(encode(problem.message))
        )
        failed = line.status == "error" or text_of(content).startswith(COMMAND_FAILED_PREFIX)
        found: list[ev.Event] = []
        missing = problem.type == "tool_not_registered" and call.tool in PERMISSION_TOOLS
        if (
            missing
            or problem.type == "policy_violation"
            or CONFIRMATION_REQUIRED_TEXT in (problem.message or "")
        ):
            found.append(ev.PermissionDenied(*head, call.id, call.tool or None, problem.message))
        found.append(ev.ToolResult(*head, call.id, failed, content))
        return found if failed else found + chats.file_change_events(head, call)

    def _error(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        """An error of the program. A warning is no failure; an error is one unless the model goes on."""
        if line.severity != "error":
            return [ev.Notice(*head, line.severity or "error", line.message)]
        self._pending_error = line.message or "error"
        return [ev.Failure(*head, None, None, line.message)]

    def _record_result(self, head: EventHead, line: StreamLine) -> list[ev.Event]:
        self._summary.result = self._build_result(head, line)
        return [self._summary.result]

    def _build_result(self, head: EventHead, line: StreamLine) -> ev.Result:
        stats, problem = line.stats or StreamStats(), line.error or StreamError()
        message = problem.message or self._pending_error
        failed = line.status != "success" or self._pending_error is not None
        models = (
            None
            if stats.models is None
            else {name: _model_usage(share) for name, share in stats.models.items()}
        )
        return ev.Result(
            *head,
            subtype=line.status,
            is_error=failed,
            text=message if failed else self._last_text,
            errors=(message,) if failed and message else (),
            terminal_reason=terminal_reason_of(problem.type, message),
            api_error=ends.classify_error(message or ""),
            api_status=ends.http_status_of(message or "") if failed else None,
            turns=self._summary.turns or None,  # the stream shows no turn that failed
            duration_ms=stats.duration_ms or None,  # a failure says 0
            usage=(models or {}).get(
                self._model or "", None if line.stats is None else _model_usage(stats)
            ),
            models=models,
        )


def terminal_reason_of(kind: str | None, message: str | None) -> str | None:
    """Why it stopped, in the words of the vocabulary; None where it only failed."""
    if kind == "FatalCancellationError":
        return "aborted_streaming"
    limit = kind == "FatalTurnLimitedError" or (message or "").startswith(
        ("Maximum session turns", "Reached max session turns")
    )
    return "max_turns" if limit else None


def _model_usage(share: StreamTokens) -> ev.ModelUsage:
    """Four counters that do not overlap; see the package's docstring."""
    cached, fresh, output = share.cached, share.input, share.output_tokens
    if fresh is None and share.input_tokens is not None and cached is not None:
        fresh = max(0, share.input_tokens - cached)
    if output is not None and None not in (share.total_tokens, share.input_tokens):
        output += max(0, (share.total_tokens or 0) - (share.input_tokens or 0) - output)
    return ev.ModelUsage(fresh, 0, cached, output, None, 0)


_EVENT_BUILDERS: dict[str, Callable[[GeminiReader, EventHead, StreamLine], list[Any]]] = {
    "init": GeminiReader._init,
    "message": GeminiReader._user_message,
    "tool_use": GeminiReader._tool_use,
    "tool_result": GeminiReader._tool_result,
    "error": GeminiReader._error,
    "result": GeminiReader._record_result,
}
