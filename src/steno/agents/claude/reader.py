"""The lines that make up nearly all of a stream: assistant, user, stream_event. The hot path.

It turns one line into events and holds only what joins lines: open writes, the message that is
being streamed, which call started which subagent. It never keeps text or totals.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, decode_lenient, decoder
from ...event import ToolCall, ToolResultDetails
from ..sink import LineFallback, Sink
from . import blocks
from . import fast_path as short
from . import other_lines as rare
from . import wire as ln
from .other_lines import EventHead
from .tables import (
    BACKGROUND_KEY,
    CONVERSATION_TYPES,
    FINISHED_TASK_STATUSES,
    IGNORED_BLOCK_TYPES,
    IGNORED_LINE_TYPES,
    OTHER_STREAM_TYPES,
    ROLE_BACKGROUND,
    ROLE_FILE_WRITE,
    ROLE_USER_INPUT,
    TOOLS,
)

_decode_stream = decoder(ln.StreamLine).decode
_decode_transcript = decoder(ln.TranscriptLine).decode
_decode_tool_input = decoder(ln.ToolInput).decode
_EMPTY_OUTCOME, _NO_JSON = ev.ToolResultDetails(), ev.NO_JSON
NO_PENDING_WRITE = ("", _NO_JSON)
NO_USAGE_KEY = (None, None, None)


def looks_like(line: dict[str, Any]) -> bool:
    """Whether a decoded line can be Claude Code's: its stream, its result, or its transcript."""
    kind = line.get("type")
    return isinstance(kind, str) and (
        kind in CONVERSATION_TYPES
        or kind in OTHER_STREAM_TYPES
        or kind in IGNORED_LINE_TYPES
        or kind == "cost-state"
    )


class ClaudeReaderState(Struct):
    """What joins lines: see `Reader`."""

    writes: dict[str, tuple[str, Raw]]
    agents: dict[str, str]
    message: str | None
    stop: str | None
    output: int | None
    announced: bool


_decode_state = decoder(ClaudeReaderState).decode


class ClaudeReader:
    """Turns the lines of one run or transcript into events."""

    def __init__(self) -> None:
        self._decode: Callable[[bytes], ln.StreamLine | ln.TranscriptLine] = _decode_stream
        self.pending_writes: dict[str, tuple[str, Raw]] = {}  # file calls without their result yet
        self._streaming_messages: dict[
            str | None, str | None
        ] = {}  # thread -> message that is being streamed
        self._subagent_calls: dict[
            str, str
        ] = {}  # agent id -> the call that started it (transcripts)
        self.last_usage_key: tuple[str | None, int | None, str | None] = (
            NO_USAGE_KEY  # whose usage was told last: message, output, stop reason
        )
        self._session: str | None = None
        self._model: str | None = None
        self._has_started = False  # a transcript has no init: its first line stands for it

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(self._decode(data), data, number, at)

    def feed(self, lines: Iterable[bytes], number: int, odd: LineFallback, scribe: Sink) -> int:
        """Tell a scribe what many lines say: see `scribe.dictate`."""
        return short.feed(self, lines, number, odd, scribe)

    @property
    def fast_decoder(self) -> Callable[[bytes], Any]:
        """What decodes the lines that go the short way."""
        return (
            short.decode_transcript_line
            if self._decode is _decode_transcript
            else short.decode_stream_line
        )

    def thread_of(self, agent: str | None) -> str:
        """The thread of a subagent's line in a transcript: the call that started it, where that is known."""
        return self._subagent_calls.get(agent or "", agent or "sidechain")

    def state(self) -> bytes:
        """What must be remembered to go on with the next lines of the same file another time."""
        message, output, stop = self.last_usage_key
        return encode(
            ClaudeReaderState(
                self.pending_writes, self._subagent_calls, message, stop, output, self._has_started
            )
        )

    def restore(self, state: bytes) -> None:
        """Remember what `state` said. It is a transcript: nothing else is read in parts."""
        kept = _decode_state(state)
        self.pending_writes, self._subagent_calls = dict(kept.writes), kept.agents
        self.last_usage_key, self._has_started = (
            (kept.message, kept.output, kept.stop),
            kept.announced,
        )
        self._decode = _decode_transcript

    def _usage_event(
        self,
        number: int,
        session: str | None,
        parent: str | None,
        at: datetime | None,
        message: ln.Message,
        uuid: str | None,
    ) -> ev.Usage:
        """The usage of a message, remembered so that its other lines need not tell it again."""
        self.last_usage_key = (
            message.id,
            None if message.usage is None else message.usage.output_tokens,
            message.stop_reason,
        )
        if message.model == self._model:
            message.model = self._model  # one object per name: a report holds thousands of each
        else:
            self._model = message.model
        if session == self._session:
            session = self._session
        else:
            self._session = session
        return blocks.usage_event(number, session, parent, at, message, message.stop_reason, uuid)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(decode_lenient(data, ln.FullLine), data, number, at)

    def _events(
        self, line: ln.StreamLine | ln.TranscriptLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        kind = line.type
        if line.timestamp is not None:
            at = line.timestamp
        if kind in CONVERSATION_TYPES and (
            line.session_id is None or type(line) is ln.TranscriptLine
        ):
            return self._transcript_message(line, data, number, at)
        if kind == "user":
            return self._user(line, data, number, line.session_id, line.parent_tool_use_id, at)
        if kind == "assistant":
            return self._assistant(line, data, number, line.session_id, line.parent_tool_use_id, at)
        if kind == "stream_event":
            return self._stream_event(
                line, data, (number, line.session_id, line.parent_tool_use_id, at)
            )
        parent = (
            line.parent_tool_use_id if kind == "system" else None
        )  # a heartbeat's is the running tool itself
        return rare.read(kind, line.subtype, data, (number, line.session_id, parent, at))

    def _transcript_message(
        self, line: ln.StreamLine | ln.TranscriptLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        """A line without session_id: a transcript's, which says sessionId, or one that lost its name."""
        whole = blocks.full_line(line, data)
        if whole.sessionId is not None:
            self._decode = _decode_transcript
        whole.session_id = whole.sessionId
        parent = whole.parent_tool_use_id
        if parent is None and whole.isSidechain:
            parent = self.thread_of(whole.agentId)
        talk = self._assistant if whole.type == "assistant" else self._user
        events = talk(whole, data, number, whole.sessionId, parent, at)
        if whole.version is not None and not self._has_started:
            self._has_started = True
            events.insert(
                0,
                ev.Started(
                    number,
                    whole.sessionId,
                    None,
                    at,
                    whole.version,
                    None,
                    whole.cwd,
                    transcript=True,
                ),
            )
        return events

    def _assistant(
        self,
        line: ln.StreamLine | ln.TranscriptLine,
        data: bytes,
        number: int,
        session: str | None,
        parent: str | None,
        at: datetime | None,
    ) -> list[ev.Event]:
        message = line.message
        if message is None:
            return [ev.Unknown(number, session, parent, at, "assistant without message", data)]
        events: list[ev.Event] = []
        said, usage, content = message.id, message.usage, message.content
        output = usage.output_tokens if usage is not None else None
        synthetic = message.model == "<synthetic>"
        if synthetic:
            failure = blocks.failure_event(
                (number, session, parent, at), blocks.full_line(line, data), message
            )
            if failure is not None:
                return [failure]
        elif said is None or self.last_usage_key != (said, output, message.stop_reason):
            events.append(self._usage_event(number, session, parent, at, message, line.uuid))
        if type(content) is not list:
            if content:
                events.append(ev.Text(number, session, parent, at, said, str(content), synthetic))
            return events
        for block in content:
            kind = block.type
            if kind == "tool_use":
                name, tool, role = TOOLS[block.name]
                made = ToolCall(
                    number, session, parent, at, block.id or "", name, tool, said, block.input
                )
                events += self._call_events(made, role, data)
            elif kind == "text":
                events.append(
                    ev.Text(number, session, parent, at, said, block.text or "", synthetic)
                )
            elif kind == "thinking":
                events.append(ev.Thinking(number, session, parent, at, said, block.thinking or ""))
            elif kind not in IGNORED_BLOCK_TYPES:
                events.append(
                    blocks.other_block_event(block, (number, session, parent, at), said, data)
                )
        return events

    def _call_events(self, call: ev.ToolCall, role: int, data: bytes) -> tuple[ev.Event, ...]:
        """A call with what it does more than answer: it changes a file, asks a person, or goes on beside the main thread."""
        if role == ROLE_FILE_WRITE:
            self.pending_writes[call.id] = (call.name, call.input)
            return (call,)
        if not role or (role == ROLE_BACKGROUND and BACKGROUND_KEY not in data):
            return (call,)
        if role == ROLE_USER_INPUT:
            return (replace(call, asks=True),)
        try:
            asked = _decode_tool_input(call.input)
        except DECODE_ERRORS:
            asked = decode_lenient(call.input, ln.ToolInput)
        away = asked.run_in_background is True
        made = replace(call, background=True) if away else call
        if call.kind != "subagent":
            return (made,)
        head = (call.line, call.session, call.parent, call.at)
        agent, about = asked.subagent_type, asked.description
        return ev.TaskStarted(*head, call.id, call.id, "subagent", agent, about, away or None), made

    def _user(
        self,
        line: ln.StreamLine | ln.TranscriptLine,
        data: bytes,
        number: int,
        session: str | None,
        parent: str | None,
        at: datetime | None,
    ) -> list[ev.Event]:
        content = None if line.message is None else line.message.content
        if type(content) is not list:
            if content is None:
                return [ev.Unknown(number, session, parent, at, "user without content", data)]
            self.last_usage_key = (
                NO_USAGE_KEY  # what the model says now is another message, whatever its id
            )
            return blocks.user_text_events(
                blocks.full_line(line, data), (number, session, parent, at), str(content)
            )
        events: list[ev.Event] = []
        for block in content:
            if block.type == "tool_result":
                call = block.tool_use_id or ""
                output: Any
                output, typed = (
                    self._structured_result(line, data) if len(content) == 1 else (None, False)
                )  # else: whose is it?
                if typed and self.pending_writes.get(call, NO_PENDING_WRITE)[0] == "NotebookEdit":
                    output = blocks.notebook_outcome(data)
                if block.is_error is True:
                    events += blocks.denial_events(line, data, block, (number, session, parent, at))
                    self.pending_writes.pop(call, None)
                    events.append(
                        ev.ToolResult(
                            number, session, parent, at, call, True, block.content, output
                        )
                    )
                    continue
                events.append(
                    ev.ToolResult(number, session, parent, at, call, False, block.content, output)
                )
                if call in self.pending_writes:
                    write, done = self.pending_writes.pop(call), output if typed else None
                    events += blocks.file_change_events(
                        write, done, block.content, call, (number, session, parent, at)
                    )
                elif typed:
                    self._add_task_events(events, output, call, (number, session, parent, at))
            elif block.type == "text":
                self.last_usage_key = NO_USAGE_KEY
                events += blocks.user_text_events(
                    blocks.full_line(line, data), (number, session, parent, at), block.text or ""
                )
            elif block.type not in IGNORED_BLOCK_TYPES:
                events.append(ev.Unknown(number, session, parent, at, f"block {block.type}", data))
        return events

    @staticmethod
    def _structured_result(
        line: ln.StreamLine | ln.TranscriptLine, data: bytes
    ) -> tuple[Any, bool]:
        """The structured result, and whether its shape is known; one of an unknown shape is kept as it came."""
        output: Any = line.tool_use_result
        if output is None and type(line) is ln.FullLine:
            output = line.toolUseResult
        if output is None or (type(output) is ToolResultDetails and output != _EMPTY_OUTCOME):
            return output, output is not None
        return Raw(encode(output)) if type(output) is str else blocks.raw_tool_result(data), False

    def _add_task_events(
        self, events: list[ev.Event], output: ev.ToolResultDetails, call: str, head: EventHead
    ) -> None:
        """What a structured result says of work beside the main thread: started, or seen to be over."""
        agent, task = output.agent_id, output.background_task_id
        if agent is not None:
            self._subagent_calls[agent] = call
        if task is not None:
            events.append(ev.TaskStarted(*head, task, call, "shell", None, None, True))
        elif output.is_async:
            events.append(
                ev.TaskStarted(
                    *head, agent or call, call, "subagent", output.agent_type, None, True
                )
            )
        elif output.status in FINISHED_TASK_STATUSES and (
            agent is not None or output.shell_id is not None
        ):
            events.append(
                ev.TaskEnded(*head, agent or output.shell_id or "", agent and call, output.status)
            )

    def _stream_event(
        self, line: ln.StreamLine | ln.TranscriptLine, data: bytes, head: EventHead
    ) -> list[ev.Event]:
        part = line.event
        if part is None:
            return []
        if part.type == "content_block_delta":
            text = part.delta.text if part.delta is not None else None
            return [ev.Partial(*head, text)] if text else []
        if part.type == "message_start" and part.message is not None:
            self._streaming_messages[head[2]] = part.message.id
            return [blocks.usage_event(*head, part.message, None)]
        if part.type == "message_delta":
            message = blocks.full_line(line, data).api_message_id or self._streaming_messages.get(
                head[2]
            )
            stop = part.delta.stop_reason if part.delta is not None else None
            return [
                blocks.usage_event(
                    *head, ln.Message(id=message, usage=part.usage), stop or "unknown"
                )
            ]
        return []
