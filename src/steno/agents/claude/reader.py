"""Reads the lines of Claude Code: decodes each line once and tells a sink what it means.

The reader keeps only what connects lines: calls that write files, the message being streamed, which call
started which subagent. It keeps no text and no totals.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, ValidationError
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_lenient, decoder
from ...event import ToolResultDetails
from ..base import EventHead
from ..sink import EventSink, LineFallback, Sink
from . import blocks, other_lines, wire
from .tables import (
    BACKGROUND_KEY,
    CONVERSATION_TYPES,
    IGNORED_LINE_TYPES,
    OTHER_LINE_TYPES,
    ROLE_BACKGROUND,
    ROLE_FILE_WRITE,
    ROLE_USER_INPUT,
    SYNTHETIC_MODEL,
    TOOLS,
)
from .wire import (
    AssistantLine,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TranscriptLine,
    UserLine,
)

_NO_DETAILS = ToolResultDetails()
_NO_WRITE = ("", ev.NO_JSON)


def looks_like(line: dict[str, Any]) -> bool:
    """Whether a decoded line can be Claude Code's: of its stream, its result, or a transcript."""
    kind = line.get("type")
    return isinstance(kind, str) and (
        kind in CONVERSATION_TYPES
        or kind in OTHER_LINE_TYPES
        or kind in IGNORED_LINE_TYPES
        or kind in ("stream_event", "cost-state")
    )


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
        self._outcome: Any = ToolResultDetails  # type of a tool result: all of it, or a part
        self._decode: Callable[[bytes], Any] | None = None
        self._default_time: datetime | None = None  # of lines without a timestamp
        self._pending_writes: dict[str, tuple[str, Raw]] = {}  # calls without a result so far
        self._streaming_messages: dict[str | None, str | None] = {}  # by thread
        self._subagent_calls: dict[str, str] = {}  # agent id -> call that started it (transcripts)
        # The message whose usage was sent last: its other lines repeat the same figures.
        self._usage_message: str | None = None
        self._usage_output: int | None = None
        self._usage_stop: str | None = None
        self._session: str | None = None
        self._model: str | None = None
        self._has_started = False  # a transcript has no init line: its first line stands for it

    # -- lines in -------------------------------------------------------------------------------------

    def feed(self, lines: Iterable[bytes], number: int, fallback: LineFallback, sink: Sink) -> int:
        """Send what many lines mean to a sink: see `sink.feed`."""
        self._prepare(sink, None)
        read_line = self._read_line
        for data in lines:
            number += 1
            try:
                read_line(data, number, sink)
            except DECODE_ERRORS:
                sink.add(fallback(data, number))
                self._prepare(sink, None)  # the fallback may have read events
        return number

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of DECODE_ERRORS if it can't be decoded."""
        self._prepare(self._events, at)
        self._read_line(data, number, self._events)
        return self._events.take()

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, ignoring fields of a wrong type. Never raises."""
        self._prepare(self._events, at)
        line = wire.decode_line_lenient(data, self._outcome)
        self._interpret(line, data, number, self._events)
        return self._events.take()

    def state(self) -> bytes:
        """What must be stored to continue with the next lines of the same file."""
        return encode(
            ClaudeReaderState(
                writes=self._pending_writes,
                agents=self._subagent_calls,
                message=self._usage_message,
                stop=self._usage_stop,
                output=self._usage_output,
                announced=self._has_started,
            )
        )

    def restore(self, state: bytes) -> None:
        """Continue from `state`. Only transcripts are read in parts."""
        stored = _decode_state(state)
        self._pending_writes = dict(stored.writes)
        self._subagent_calls = stored.agents
        self._usage_message = stored.message
        self._usage_output = stored.output
        self._usage_stop = stored.stop
        self._has_started = stored.announced
        self._is_transcript = True
        self._decode = None

    # -- one line -------------------------------------------------------------------------------------

    def _prepare(self, sink: Sink, at: datetime | None) -> None:
        self._default_time = at
        outcome = ToolResultDetails if sink.needs_tool_output else wire.ToolOutcome
        if outcome is not self._outcome or self._decode is None:
            self._outcome = outcome
            self._decode = wire.line_decoder(self._is_transcript, outcome)

    def _read_line(self, data: bytes, number: int, sink: Sink) -> None:
        try:
            line = self._decode(data)  # type: ignore[misc]  # set by _prepare
        except ValidationError:
            if data[:1] != b"{":
                raise
            line = wire.decode_line_lenient(data, self._outcome)
        self._interpret(line, data, number, sink)

    def _interpret(self, line: Any, data: bytes, number: int, sink: Sink) -> None:
        kind = type(line)
        if kind is UserLine:
            if line.session_id is None:
                self._unsigned_line(line, data, number, sink)
            else:
                self._user(line, data, number, line.parent_tool_use_id, sink)
        elif kind is AssistantLine:
            if line.session_id is None:
                self._unsigned_line(line, data, number, sink)
            else:
                self._assistant(line, data, number, line.parent_tool_use_id, sink)
        elif kind is TranscriptLine:
            self._transcript_line(line, data, number, sink)
        else:
            self._other_line(line, data, number, sink)

    def _unsigned_line(self, line: Any, data: bytes, number: int, sink: Sink) -> None:
        """A line without session_id: the first of a transcript (it has a sessionId), or damaged."""
        details = decode_lenient(data, wire.LineDetails)
        if details.sessionId is not None:
            self._is_transcript = True
            self._decode = wire.line_decoder(True, self._outcome)
            self._read_line(data, number, sink)
            return
        self._announce(details, number, line.timestamp or self._default_time, sink)
        parent = line.parent_tool_use_id
        if parent is None and details.isSidechain:
            parent = self._thread_of(details.agentId)
        message = self._assistant if type(line) is AssistantLine else self._user
        message(line, data, number, parent, sink)

    def _transcript_line(
        self, line: TranscriptLine[Any], data: bytes, number: int, sink: Sink
    ) -> None:
        kind = line.type
        if kind not in CONVERSATION_TYPES:
            if kind == "stream_event":
                line = decode_lenient(data, wire.StreamEventLine)  # type: ignore[assignment]  # one kind becomes another
            self._other_line(line, data, number, sink)
            return
        if line.session_id is not None and not self._is_transcript:
            self._is_transcript = True
            self._decode = wire.line_decoder(True, self._outcome)
        if not self._has_started:
            details = decode_lenient(data, wire.LineDetails)
            self._announce(details, number, line.timestamp or self._default_time, sink)
        parent = line.parent_tool_use_id
        if parent is None and line.isSidechain:
            parent = self._thread_of(line.agentId)
        message_type = wire.AssistantMessage if kind == "assistant" else wire.UserMessage
        if type(line.message) is not message_type and line.message is not None:
            line = wire.decode_line_lenient(data, self._outcome)  # its role contradicts its type
        if kind == "assistant":
            self._assistant(line, data, number, parent, sink)
        else:
            self._user(line, data, number, parent, sink)

    def _announce(
        self, details: wire.LineDetails, number: int, at: datetime | None, sink: Sink
    ) -> None:
        if self._has_started or details.version is None:
            return
        self._has_started = True
        head = (number, details.sessionId, None, at)
        started = ev.Started(*head, details.version, None, details.cwd, transcript=True)
        sink.add((started,))

    def _thread_of(self, agent: str | None) -> str:
        """The thread of a subagent's line in a transcript: the call that started it, if known."""
        return self._subagent_calls.get(agent or "", agent or "sidechain")

    # -- assistant lines ------------------------------------------------------------------------------

    def _assistant(
        self, line: Any, data: bytes, number: int, parent: str | None, sink: Sink
    ) -> None:
        message = line.message
        session = line.session_id
        at = line.timestamp or self._default_time
        if message is None:
            sink.add((ev.Unknown(number, session, parent, at, "assistant without message", data),))
            return
        id_ = message.id
        is_synthetic = message.model == SYNTHETIC_MODEL
        if is_synthetic:
            details = decode_lenient(data, wire.LineDetails)
            failure = blocks.failure_event((number, session, parent, at), details, message)
            if failure is not None:
                sink.add((failure,))
                return
        else:
            self._usage(line, number, parent, at, sink)
        content = message.content
        if type(content) is not list:
            content = [TextBlock(content)] if content else ()
        for block in content:
            kind = type(block)
            if kind is ToolUseBlock:
                name, group, role = TOOLS[block.name]
                call = block.id or ""
                if role and self._is_special_call(call, name, role, block.input):
                    head = (number, session, parent, at)
                    sink.add(_special_call(*head, call, name, group, id_, block.input))
                else:
                    sink.tool_call(number, session, parent, at, call, name, group, id_, block.input)
            elif kind is TextBlock and not is_synthetic:
                sink.text(number, session, parent, at, id_, block.text or "")
            elif kind is ThinkingBlock:
                sink.thinking(number, session, parent, at, id_, block.thinking or "")
            elif kind is TextBlock:
                sink.add((ev.Text(number, session, parent, at, id_, block.text or "", True),))
            elif not isinstance(block, wire.IgnoredBlock):
                head = (number, session, parent, at)
                sink.add((blocks.other_block_event(block, head, id_, data),))

    def _usage(
        self, line: Any, number: int, parent: str | None, at: datetime | None, sink: Sink
    ) -> None:
        """Send the usage of a message, unless the line before told the same."""
        message = line.message
        id_ = message.id
        output = None if message.usage is None else message.usage.output_tokens
        stop = message.stop_reason
        if (
            id_ == self._usage_message
            and output == self._usage_output
            and stop == self._usage_stop
            and id_ is not None
        ):
            return
        self._usage_message = id_
        self._usage_output = output
        self._usage_stop = stop
        # One object per model and session name: a report holds thousands of each.
        if message.model == self._model:
            message.model = self._model
        else:
            self._model = message.model
        if line.session_id != self._session:
            self._session = line.session_id
        session = self._session
        sink.usage(blocks.usage_event(number, session, parent, at, message, stop, line.uuid))

    def _is_special_call(self, call: str, name: str, role: int, input_: Raw) -> bool:
        """Whether a call may do more than answer: ask a person, or run beside the main thread."""
        if role == ROLE_FILE_WRITE:
            self._pending_writes[call] = (name, input_)
            return False
        # `find`, because `in` costs ten times as much
        return role != ROLE_BACKGROUND or bytes(input_).find(BACKGROUND_KEY) >= 0

    # -- user lines -----------------------------------------------------------------------------------

    def _user(self, line: Any, data: bytes, number: int, parent: str | None, sink: Sink) -> None:
        session = line.session_id
        at = line.timestamp or self._default_time
        content = None if line.message is None else line.message.content
        if type(content) is not list:
            if content is None:
                sink.add((ev.Unknown(number, session, parent, at, "user without content", data),))
                return
            content = [TextBlock(content)]
        for block in content:
            kind = type(block)
            if kind is ToolResultBlock:
                outcome = line.tool_use_result if len(content) == 1 else None  # else: of which?
                is_typed = type(outcome) is self._outcome
                if self._outcome is ToolResultDetails and outcome is not None:
                    outcome, is_typed = self._complete_details(outcome, is_typed, block, data)
                call = block.tool_use_id or ""
                if block.is_error:
                    self._tool_error(block, (number, session, parent, at), outcome, data, sink)
                    continue
                sink.tool_result(number, session, parent, at, call, block.content, outcome)
                if call in self._pending_writes:
                    known = outcome if is_typed else None
                    self._file_change(block, known, (number, session, parent, at), data, sink)
                elif is_typed:
                    agent = outcome.agent_id
                    if agent is not None:
                        self._subagent_calls[agent] = call
                    if (
                        outcome.status is not None
                        or outcome.background_task_id is not None
                        or outcome.is_async
                    ):
                        head = (number, session, parent, at)
                        sink.add(blocks.task_events(outcome, call, head))
            elif kind is TextBlock:
                # The next message of the model is another one, even if it has the same id.
                self._usage_message = self._usage_output = self._usage_stop = None
                details = decode_lenient(data, wire.LineDetails)
                head = (number, session, parent, at)
                sink.add((blocks.user_text_event(details, head, block.text or ""),))
            elif not isinstance(block, wire.IgnoredBlock):
                head = (number, session, parent, at)
                sink.add((blocks.unknown_block_event(block, head, data),))

    def _complete_details(
        self, outcome: Any, is_typed: bool, block: ToolResultBlock, data: bytes
    ) -> tuple[Any, bool]:
        """The whole structured result, and whether its shape is known; else it is kept as JSON."""
        if not is_typed or outcome == _NO_DETAILS:
            is_text = type(outcome) is str
            return Raw(encode(outcome)) if is_text else wire.raw_tool_result(data), False
        if self._pending_writes.get(block.tool_use_id or "", _NO_WRITE)[0] == "NotebookEdit":
            return blocks.notebook_details(data), True
        return outcome, True

    def _tool_error(
        self, block: ToolResultBlock, head: EventHead, outcome: Any, data: bytes, sink: Sink
    ) -> None:
        denial = blocks.denial_event(data, block, head)
        if denial is not None:
            sink.add((denial,))
        call = block.tool_use_id or ""
        self._pending_writes.pop(call, None)
        sink.tool_error(*head, call, block.content, outcome)

    def _file_change(
        self, block: ToolResultBlock, outcome: Any, head: EventHead, data: bytes, sink: Sink
    ) -> None:
        call = block.tool_use_id or ""
        write = self._pending_writes.pop(call)
        if write[0] == "NotebookEdit" and outcome is not None:
            outcome = blocks.notebook_details(data)
        change = blocks.file_change_event(write, outcome, block.content, call, head)
        if change is not None:
            sink.add((change,))

    # -- other lines ----------------------------------------------------------------------------------

    def _other_line(self, line: Any, data: bytes, number: int, sink: Sink) -> None:
        at = line.timestamp or self._default_time
        if type(line) is wire.StreamEventLine:
            head = (number, line.session_id, line.parent_tool_use_id, at)
            sink.add(self._stream_event(line.event, head, data))
            return
        kind = wire.OTHER_LINE_NAMES.get(type(line)) or line.type
        # The parent of a tool_progress line is the running tool itself.
        parent = line.parent_tool_use_id if kind == "system" else None
        head = (number, line.session_id, parent, at)
        sink.add(other_lines.read(kind, line.subtype, data, head))

    def _stream_event(
        self, part: wire.StreamEvent | None, head: EventHead, data: bytes
    ) -> Iterable[ev.Event]:
        if part is None:
            return ()
        if part.type == "content_block_delta":
            text = part.delta.text if part.delta is not None else None
            return (ev.Partial(*head, text),) if text else ()
        parent = head[2]
        if part.type == "message_start" and part.message is not None:
            self._streaming_messages[parent] = part.message.id
            return (blocks.usage_event(*head, part.message, None),)
        if part.type == "message_delta":
            id_ = decode_lenient(data, wire.LineDetails).api_message_id
            message = wire.AssistantMessage(
                id=id_ or self._streaming_messages.get(parent), usage=part.usage
            )
            stop = part.delta.stop_reason if part.delta is not None else None
            return (blocks.usage_event(*head, message, stop or "unknown"),)
        return ()


def _special_call(
    number: int,
    session: str | None,
    parent: str | None,
    at: datetime | None,
    id_: str,
    name: str,
    kind: str,
    message: str | None,
    input_: Raw,
) -> list[ev.Event]:
    """A call that needs a person, may run in the background, or starts a subagent."""
    head = (number, session, parent, at)
    if TOOLS[name][2] == ROLE_USER_INPUT:
        return [ev.ToolCall(*head, id_, name, kind, message, input_, asks=True)]
    options = decode_lenient(input_, wire.ToolInput)
    background = options.run_in_background is True
    call = ev.ToolCall(*head, id_, name, kind, message, input_, background=background)
    if kind != "subagent":
        return [call]
    task = ev.TaskStarted(
        *(*head, id_, id_, kind),
        options.subagent_type,
        options.description,
        background or None,
    )
    return [task, call]
