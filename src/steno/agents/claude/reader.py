"""Reads the lines of Claude Code: decodes each line once and reports its meaning to a sink.

The reader keeps only what connects lines: calls that write files, the message being streamed, and
which call started which subagent. It keeps no text and no totals.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_lenient, decoder, text_of
from ...event import EventHead, ToolResultDetails
from ..sink import EventSink, LineFallback, Sink
from . import other_lines, tool_results, wire
from .other_lines import usage_event
from .tables import (
    BACKGROUND_KEY,
    CONVERSATION_TYPES,
    ROLE_BACKGROUND,
    ROLE_EFFECT,
    ROLE_USER_INPUT,
    SYNTHETIC_MODEL,
    TOOLS,
)
from .transcripts import find_earlier_totals
from .wire import (
    LINE_TYPES,
    AssistantLine,
    MessageLine,
    TextBlock,
    ThinkingBlock,
    ToolOutcome,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptLine,
    UserLine,
)

_NO_DETAILS = ToolResultDetails()
_NO_WRITE = ("", ev.NO_JSON)
# The id, output tokens, stop reason and model of a message.
_UsageKey = tuple[str | None, int | None, str | None, str | None]
_NO_USAGE: _UsageKey = (None, None, None, None)
_SURROGATE_ESCAPE = b"\\ud"
# As local variables, they save 0.2 % of steno.read.
_COMMON_TYPES = (AssistantLine, UserLine, ToolUseBlock, ToolResultBlock, ToolOutcome)


class ClaudeReaderState(Struct):
    """What connects lines, as stored between two readings of a growing transcript."""

    writes: dict[str, tuple[str, Raw]]
    agents: dict[str, str]
    message: str | None
    stop: str | None
    output: int | None
    announced: bool


_decode_state = decoder(ClaudeReaderState).decode


class ClaudeReader:
    """Reads the lines of one run or transcript."""

    def __init__(self) -> None:
        self._events = EventSink()
        self._is_transcript = False
        self._decode: Callable[[bytes], Any]
        self._default_time: datetime | None = None  # of lines without a timestamp
        self._pending_effects: dict[str, tuple[str, Raw]] = {}  # calls without a result so far
        self._streaming_messages: dict[str | None, str | None] = {}  # by thread
        self._subagent_calls: dict[str, str] = {}  # agent id -> call that started it (transcripts)
        # The message whose usage was sent last: its other lines repeat the same figures.
        self._usage_key = _NO_USAGE
        self._session: str | None = None  # one object for thousands of requests
        self._first_uuid: str | None = None  # of the first message of the main thread
        self._last_result: ev.Result | None = None
        self._last_line = (0, b"")  # the last one fed, with its number
        self._rare_fields = other_lines.RareFields(b"")  # of the last line that needed them
        self._has_started = False  # a transcript has no init line: its first line stands for it
        self._set_sink(self._events)

    # -- lines in ----------------------------------------------------------------------------------

    def feed(self, lines: Iterable[bytes], number: int, fallback: LineFallback, sink: Sink) -> int:
        """Send what many lines mean to a sink: see `sink.feed`."""
        rest = iter(lines)
        while True:
            if sink is not self._sink:
                self._set_sink(sink)
            try:
                return self._feed(rest, number, sink)
            except DECODE_ERRORS:
                number, data = self._last_line
                sink.add(fallback(data, number))  # may use this reader with another sink

    def _feed(self, lines: Iterable[bytes], number: int, sink: Sink) -> int:
        """The loop that takes most of the time: what few lines need is left to other methods."""
        assistant_line, user_line, tool_use, tool_result, outcome = _COMMON_TYPES
        call, result, text, thinking, send_usage = self._sink_methods
        decode = self._decode
        pending_effects = self._pending_effects
        last_id, last_output, last_stop, model = self._usage_key
        data = b""
        try:
            for data in lines:
                number += 1
                try:
                    line = decode(data)
                except DECODE_ERRORS:
                    line = self._decode_misfit(data)
                kind: type | None = type(line)
                if kind is not assistant_line:
                    if kind is not user_line:
                        kind, line = self._resolve(line, data, number, sink)
                        decode = self._decode  # the first message of a transcript changes it
                        if kind is None:
                            last_id = None if line else last_id  # the same id is another one
                            continue
                    if kind is user_line:
                        at = line.timestamp or self._default_time
                        for block in line.message.content:
                            if type(block) is not tool_result:
                                if self._user_block(block, line, number, at, data, sink):
                                    last_id = last_output = last_stop = None
                            elif block.is_error or type(line.tool_use_result) is not outcome:
                                self._tool_result(block, line, number, at, data, sink)
                            else:
                                id_ = block.tool_use_id
                                session = line.session_id
                                parent = line.parent_tool_use_id
                                result(number, session, parent, at, id_, block.content, None)
                                if id_ in pending_effects:
                                    self._effect(block, line, number, at, data, sink)
                        continue
                at = line.timestamp or self._default_time  # again: fast for one type of line only
                session = line.session_id
                parent = line.parent_tool_use_id
                message = line.message
                mid = message.id
                usage = message.usage
                stop = message.stop_reason
                if usage is None or message.model != model:
                    self._usage_key = (last_id, last_output, last_stop, model)
                    self._begin_message(line, number, at, data, sink)
                    last_id, last_output, last_stop, model = self._usage_key
                elif mid != last_id or usage.output_tokens != last_output or stop != last_stop:
                    last_id = mid
                    last_output = usage.output_tokens
                    last_stop = stop
                    known = self._session if session == self._session else session
                    send_usage(
                        usage_event(number, known, parent, at, mid, model, usage, stop, line.uuid)
                    )
                for block in message.content:
                    block_kind = type(block)
                    if block_kind is tool_use:
                        name, group, role = TOOLS[block.name]
                        if role == ROLE_EFFECT:
                            pending_effects[block.id] = (name, block.input)
                        elif role and (
                            role != ROLE_BACKGROUND or bytes(block.input).find(BACKGROUND_KEY) >= 0
                        ):
                            sink.add(_call_events(block, (number, session, parent, at), mid))
                            continue
                        call(number, session, parent, at, block.id, name, group, mid, block.input)
                    elif block_kind is TextBlock:
                        text(number, session, parent, at, mid, block.text)
                    elif block_kind is ThinkingBlock:
                        thinking(number, session, parent, at, mid, block.thinking)
                    else:
                        sink.add(_block_events(block, (number, session, parent, at), mid, data))
        finally:
            self._usage_key = (last_id, last_output, last_stop, model)
            self._last_line = (number, data)
        return number

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of DECODE_ERRORS if it can't be decoded."""
        self._default_time = at
        sink = self._events
        if sink is not self._sink:
            self._set_sink(sink)
        self._feed((data,), number - 1, sink)
        self._default_time = None
        events = sink.events
        sink.events = []
        return events

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, ignoring fields of a wrong type.

        Raises one of DECODE_ERRORS only if it isn't JSON or is nested too deeply.
        """
        self._set_sink(self._events)
        self._decode = wire.decode_line_lenient
        try:
            return self.read(data, number, at)
        finally:
            self._set_sink(self._sink)

    def state(self) -> bytes:
        """What must be stored to continue with the next lines of the same file."""
        id_, output, stop, _ = self._usage_key
        return encode(
            ClaudeReaderState(
                writes=self._pending_effects,
                agents=self._subagent_calls,
                message=id_,
                stop=stop,
                output=output,
                announced=self._has_started,
            )
        )

    def restore(self, state: bytes) -> None:
        """Continue from `state`. Only transcripts are read in parts."""
        stored = _decode_state(state)
        self._pending_effects = dict(stored.writes)
        self._subagent_calls = stored.agents
        self._usage_key = (stored.message, stored.output, stored.stop, None)
        self._has_started = stored.announced
        self._is_transcript = True
        self._set_sink(self._sink)

    # -- the session's transcript ------------------------------------------------------------------

    @property
    def session(self) -> str | None:
        """The session of the last result."""
        return None if self._last_result is None else self._last_result.session

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """Return nothing: stderr has no events."""
        return []

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """The totals of the session before this run."""
        if self._last_result is None:
            return []
        earlier = find_earlier_totals(lines, self._first_uuid, self._last_result)
        return [] if earlier is None else [earlier]

    # -- one line ----------------------------------------------------------------------------------

    def _set_sink(self, sink: Sink) -> None:
        """Prepare for lines of the current kind, stream or transcript, and this sink."""
        self._sink = sink
        self._sink_methods = (
            sink.tool_call,
            sink.tool_result,
            sink.text,
            sink.thinking,
            sink.usage,
        )
        outcome: type = ToolResultDetails if sink.needs_tool_output else ToolOutcome
        self._decode = wire.line_decoder(self._is_transcript, outcome)

    @staticmethod
    def _decode_misfit(data: bytes) -> Any:
        """The line without the fields that don't fit; the others are kept as printed.

        Raises the decoding error again if it isn't an object or has invalid characters.
        """
        if data[:1] != b"{" or data.find(_SURROGATE_ESCAPE) >= 0:
            raise  # the decoding error that is being handled
        data.decode()
        return wire.decode_line_lenient(data)

    def _resolve(self, line: Any, data: bytes, number: int, sink: Sink) -> tuple[type | None, Any]:
        """The kind and line of a message in a transcript, or of one that didn't fit.

        Any other line is sent to the sink, and the kind is None; the line then says whether a run
        begins or a turn ends.
        """
        kind = type(line)
        if kind is TranscriptLine and line.type in CONVERSATION_TYPES:
            role = wire.AssistantMessage if line.type == "assistant" else wire.UserMessage
            if self._has_started and type(line.message) is role:
                if line.isSidechain:
                    self._set_thread(line, line.agentId)
                return LINE_TYPES[line.type], line
            line = wire.decode_line_lenient(data)
            kind = MessageLine
        if kind is MessageLine:
            return self._resolve_lenient(line, data, number, sink)
        at = line.timestamp or self._default_time
        if kind is wire.StreamEventLine:
            head = (number, line.session_id, line.parent_tool_use_id, at)
            sink.add(self._stream_event(line.event, head, data))
        else:
            name = wire.OTHER_LINE_NAMES.get(kind) or line.type
            # The parent of a tool_progress line is the running tool itself.
            parent = line.parent_tool_use_id if name == "system" else None
            head = (number, line.session_id, parent, at)
            events = other_lines.read(name, line.subtype, data, head)
            if name == "result" and isinstance(events[-1], ev.Result):
                self._last_result = events[-1]
            sink.add(events)
            return None, name == "result" or line.subtype == "init"
        return None, False

    def _resolve_lenient(
        self, line: MessageLine, data: bytes, number: int, sink: Sink
    ) -> tuple[type | None, Any]:
        details = line.details
        at = line.timestamp or self._default_time
        if line.session_id is None:
            line.session_id = details.sessionId
            if details.sessionId is not None and not self._is_transcript:
                self._is_transcript = True
                self._set_sink(self._sink)
            if details.isSidechain:
                self._set_thread(line, details.agentId)
            if details.version is not None and not self._has_started:
                self._has_started = True
                head: EventHead = (number, line.session_id, None, at)
                sink.add((other_lines.transcript_started(head, details),))
        if line.message is None:
            without = "message" if line.type == "assistant" else "content"
            head = (number, line.session_id, line.parent_tool_use_id, at)
            sink.add((ev.Unknown(*head, f"{line.type} without {without}", data),))
            return None, None
        return LINE_TYPES[line.type], line

    def _set_thread(self, line: Any, agent: str | None) -> None:
        """The thread of a subagent's line in a transcript is the call that started it, if known."""
        if line.parent_tool_use_id is None:
            line.parent_tool_use_id = self._subagent_calls.get(agent or "", agent or "sidechain")

    def _stream_event(
        self, part: wire.StreamEvent | None, head: EventHead, data: bytes
    ) -> Iterable[ev.Event]:
        if part is None:
            return ()
        if part.type == "content_block_delta":
            text = part.delta.text if part.delta is not None else None
            return (ev.Partial(*head, text),) if text else ()
        _, _, parent, _ = head
        if part.type == "message_start" and part.message is not None:
            begun = part.message
            self._streaming_messages[parent] = begun.id
            return (usage_event(*head, begun.id, begun.model, begun.usage, None),)
        if part.type == "message_delta":
            id_ = decode_lenient(data, wire.LineDetails).api_message_id
            id_ = id_ or self._streaming_messages.get(parent)
            stop = part.delta.stop_reason if part.delta is not None else None
            return (usage_event(*head, id_, None, part.usage, stop or "unknown"),)
        return ()

    # -- messages of the model ---------------------------------------------------------------------

    def _begin_message(
        self, line: Any, number: int, at: datetime | None, data: bytes, sink: Sink
    ) -> None:
        """A message of another model than the one before, or without usage."""
        message = line.message
        model = message.model
        session = line.session_id
        parent = line.parent_tool_use_id
        if self._first_uuid is None and parent is None:
            self._first_uuid = line.uuid
        if model == SYNTHETIC_MODEL:
            self._begin_synthetic(message, (number, session, parent, at), data, sink)
            return
        id_ = message.id
        usage = message.usage
        output = None if usage is None else usage.output_tokens
        stop = message.stop_reason
        is_repeated = (id_, output, stop) == self._usage_key[:3] and id_ is not None
        if not is_repeated:
            self._usage_key = (id_, output, stop, model)
            self._session = session
            sink.usage(usage_event(number, session, parent, at, id_, model, usage, stop, line.uuid))

    @staticmethod
    def _begin_synthetic(
        message: wire.AssistantMessage, head: EventHead, data: bytes, sink: Sink
    ) -> None:
        """A message written by the program: a failed request, or texts that have to be marked."""
        details = decode_lenient(data, wire.LineDetails)
        failure = other_lines.failure_event(head, details, message)
        if failure is not None:
            sink.add((failure,))
            message.content = []
            return
        if details.context_usage is not None:
            sink.add((other_lines.context_event(head, details.context_usage),))
        message.content = [
            wire.SyntheticTextBlock(block.text) if type(block) is TextBlock else block
            for block in message.content
        ]

    # -- tool results and other blocks of the user -------------------------------------------------

    def _user_block(
        self, block: Any, line: Any, number: int, at: datetime | None, data: bytes, sink: Sink
    ) -> bool:
        """Whether the next message of the model is another one, even if it has the same id."""
        head = (number, line.session_id, line.parent_tool_use_id, at)
        if type(block) is TextBlock or type(block) is wire.BareBlock:
            details = self._rare_fields_of(data).details
            sink.add((other_lines.user_text_event(details, head, block.text),))
            if type(block) is wire.BareBlock:
                sink.add((other_lines.unknown_block_event(block, head, data),))
            return True
        if type(block) is wire.AttachmentBlock:
            sink.add((ev.Attachment(*head, None, block.content),))
        elif not isinstance(block, wire.IgnoredBlock):
            sink.add((other_lines.unknown_block_event(block, head, data),))
        return False

    def _rare_fields_of(self, data: bytes) -> other_lines.RareFields:
        """Kept for the other blocks of the line."""
        if self._rare_fields.data is not data:
            self._rare_fields = other_lines.RareFields(data)
        return self._rare_fields

    def _tool_result(
        self,
        block: ToolResultBlock,
        line: Any,
        number: int,
        at: datetime | None,
        data: bytes,
        sink: Sink,
    ) -> None:
        """A result that failed, reports background work, or is needed completely."""
        id_ = block.tool_use_id
        is_single = len(line.message.content) == 1  # else it is unclear whose result it is
        outcome = line.tool_use_result if is_single else None
        details = None
        if type(outcome) is ToolResultDetails and outcome != _NO_DETAILS:
            is_notebook = self._pending_effects.get(id_, _NO_WRITE)[0] == "NotebookEdit"
            details = tool_results.notebook_details(data) if is_notebook else outcome
        session = line.session_id
        parent = line.parent_tool_use_id
        head = (number, session, parent, at)
        if block.is_error:
            denial = other_lines.denial_event(self._rare_fields_of(data), block, head)
            if denial is not None:
                sink.add((denial,))
            self._pending_effects.pop(id_, None)
        if sink.needs_tool_output:
            sink.add((_complete_result(block, head, details, outcome, data),))
        elif block.is_error:
            sink.tool_error(*head, id_, block.content, details)
        else:
            sink.tool_result(*head, id_, block.content, details)
        if block.is_error:
            return
        if id_ in self._pending_effects:
            self._effect(block, line, number, at, data, sink)
        elif outcome is None:
            sink.add(other_lines.started_in_background(text_of(block.content), id_, head))
        elif details is not None:
            if details.agent_id is not None:
                self._subagent_calls[details.agent_id] = id_
            if details.status or details.is_async or details.background_task_id is not None:
                line_of_stream = b"" if self._is_transcript else data
                sink.add(other_lines.task_events(details, id_, head, line_of_stream))

    def _effect(
        self,
        block: ToolResultBlock,
        line: Any,
        number: int,
        at: datetime | None,
        data: bytes,
        sink: Sink,
    ) -> None:
        """The file that a write or edit changed, by the result or the call; or the stopped task."""
        id_ = block.tool_use_id
        name, input_ = self._pending_effects.pop(id_)
        if TOOLS[name][1] == "shell":
            head = (number, line.session_id, line.parent_tool_use_id, at)
            sink.add(other_lines.stopped_task_events(input_, text_of(block.content), head))
            return
        outcome = line.tool_use_result
        is_known = type(outcome) is ToolOutcome or (
            type(outcome) is ToolResultDetails and outcome != _NO_DETAILS
        )
        path = None
        is_new = False
        if is_known and len(line.message.content) == 1:  # else it is unclear whose result it is
            if name == "NotebookEdit":
                outcome = tool_results.notebook_details(data)
            if outcome.error:
                return
            path = outcome.file_path or getattr(outcome, "notebook_path", None)
            is_new = outcome.type == "create"
        if path is None:
            target = decode_lenient(input_, wire.ToolInput)
            path = target.file_path or target.notebook_path
            if path is None:
                return
            is_new = name == "Write" and text_of(block.content).startswith("File created")
        change = "created" if is_new else "modified"
        session = line.session_id
        parent = line.parent_tool_use_id
        sink.add((ev.FileChanged(number, session, parent, at, path, change, id_),))


def _complete_result(
    block: ToolResultBlock,
    head: EventHead,
    details: ToolResultDetails | None,
    outcome: Any,
    data: bytes,
) -> ev.ToolResult:
    """The result with everything that its line says about it."""
    line = decode_lenient(data, tool_results.PrintedResult)
    output: ToolResultDetails | Raw | None = details
    if details is not None and details is outcome:
        output = tool_results.with_extra(details, line.result)
    elif details is None and outcome is not None:
        output = line.result
    content = block.content
    return ev.ToolResult(*head, block.tool_use_id, block.is_error, content, output, uuid=line.uuid)


def _block_events(
    block: Any, head: EventHead, message: str | None, data: bytes
) -> Iterable[ev.Event]:
    if type(block) is wire.SyntheticTextBlock:
        return (ev.Text(*head, message, block.text, True),)
    if isinstance(block, wire.IgnoredBlock):
        return ()
    return other_lines.other_block_events(block, head, message, data)


def _call_events(block: ToolUseBlock, head: EventHead, message: str | None) -> list[ev.Event]:
    """A call that needs a person, may run in the background, or starts a subagent."""
    name, kind, role = TOOLS[block.name]
    id_ = block.id
    if role == ROLE_USER_INPUT:
        return [ev.ToolCall(*head, id_, name, kind, message, block.input, asks=True)]
    options = decode_lenient(block.input, wire.ToolInput)
    background = options.run_in_background is True
    call = ev.ToolCall(*head, id_, name, kind, message, block.input, background=background)
    if kind != "subagent":
        return [call]
    agent_type = options.subagent_type
    about = options.description
    return [ev.TaskStarted(*head, id_, id_, kind, agent_type, about, background or None), call]
