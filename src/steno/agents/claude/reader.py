"""The lines that make up nearly all of a stream: assistant, user, stream_event. The hot path.

It turns one line into events and holds only what joins lines: open writes, the message that is
being streamed, which call started which subagent. It never keeps text or totals.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...decode import MISFIT, decoder, lenient, text_of
from ...event import FileChanged, Outcome, Text, Thinking, ToolCall, ToolResult
from . import lines as ln
from . import rare
from .names import ASKS, ENDED, QUIET_BLOCKS, SERVER_CALLS, SILENT, TOOLS, WRITES, kind_of
from .rare import Head

_stream = decoder(ln.StreamLine).decode
_every = decoder(ln.Line).decode
_asked = decoder(ln.ToolInput).decode
_EMPTY, _NONE = ev.Outcome(), ev.NO_JSON
_INTERRUPTED = "[Request interrupted by user"
_REFUSALS = ("Claude requested permissions to", "Permission to use ", "Tool permission request failed")
# A deny rule takes the whole tool away: the call then fails with "No such tool available: Bash. Bash ..."
_REMOVED = r"No such tool available: (\w+)\. \1 (?:is disabled for this session|exists but is not enabled)"
_NOTIFIED = r"(?s)<task-id>([^<]+)</task-id>(?:.*?<tool-use-id>([^<]+)</tool-use-id>)?.*?<status>(\w+)</status>"
_TALK = ("assistant", "user")
_USUAL = ("tool_use", "text", "thinking")
_STREAM = frozenset({"system", "assistant", "user", "result", "stream_event", "rate_limit_event", "tool_progress"})


def looks_like(line: dict[str, Any]) -> bool:
    """Whether a decoded line can be Claude Code's: its stream, its result, or its transcript."""
    kind = line.get("type")
    return isinstance(kind, str) and (kind in _STREAM or kind in SILENT or kind == "cost-state")


class Reader:
    """Turns the lines of one run or transcript into events."""

    def __init__(self) -> None:
        self._decode: Callable[[bytes], ln.StreamLine] = _stream
        self._writes: dict[str, tuple[str, Raw]] = {}  # file calls without their result yet
        self._streaming: dict[str | None, str | None] = {}  # thread -> message that is being streamed
        self._agents: dict[str, str] = {}  # agent id -> the call that started it (transcripts)
        self._message: str | None = None  # the message whose usage was told last, with what was known then
        self._stop: str | None = None
        self._output: int | None = None
        self._session: str | None = None
        self._model: str | None = None
        self._announced = False  # a transcript has no init: its first line stands for it

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape.

        The lines that make up nearly all of a stream go a short way: one block of the model's, or the plain
        answer of a tool. `_assistant` and `_user` say the same of every other shape.
        """
        decode = self._decode
        line: Any = decode(data)
        session, message = line.session_id, line.message
        if session is None or message is None:
            return self._events(line, data, number, at)
        try:
            (block,) = message.content
            shape = block.type
        except (AttributeError, TypeError, ValueError):  # no list of blocks, or not one block
            return self._events(line, data, number, at)
        parent, at = line.parent_tool_use_id, line.timestamp or at
        if shape == "tool_result":
            if block.is_error is not True and line.type == "user":
                output, call = line.tool_use_result, block.tool_use_id or ""
                if type(output) is Outcome:
                    if output.stdout is not _NONE or output.file is not _NONE or output.filenames is not _NONE:
                        if output.background_task_id is None:
                            return [ToolResult(number, session, parent, at, call, False, block.content, output)]
                    elif output.file_path is not None and not output.error and call in self._writes:
                        del self._writes[call]
                        change = "created" if output.type == "create" else "modified"
                        answer = ToolResult(number, session, parent, at, call, False, block.content, output)
                        return [answer, FileChanged(number, session, parent, at, output.file_path, change, call)]
                elif output is None and call not in self._writes:
                    return [ToolResult(number, session, parent, at, call, False, block.content)]
            return self._events(line, data, number, at)
        usage, said = message.usage, message.id
        if usage is None or said is None or shape not in _USUAL or line.type != "assistant" or message.model == "<synthetic>":
            return self._events(line, data, number, at)
        if said == self._message and message.stop_reason == self._stop and usage.output_tokens == self._output:
            events: list[ev.Event] = []
        else:
            events = [self._told(number, session, parent, at, message)]
        if shape == "tool_use":
            name, tool, role = TOOLS.get(block.name) or _other_tool(block.name)
            made = ToolCall(number, session, parent, at, block.id or "", name, tool, said, block.input)
            if role and (tool != "shell" or b"run_in_background" in bytes(block.input)):
                made = self._special(events, made, role)
            events.append(made)
        elif shape == "text":
            events.append(Text(number, session, parent, at, said, block.text or ""))
        else:
            events.append(Thinking(number, session, parent, at, said, block.thinking or ""))
        return events

    def _told(self, number: int, session: str | None, parent: str | None, at: datetime | None, message: ln.Message) -> ev.Usage:
        """The usage of a message, remembered so that its other lines need not tell it again."""
        self._message, self._stop = message.id, message.stop_reason
        self._output = None if message.usage is None else message.usage.output_tokens
        if message.model == self._model:
            message.model = self._model  # one object per name: a report holds thousands of each
        if session == self._session:
            session = self._session
        self._model, self._session = message.model, session
        return _usage(number, session, parent, at, message, message.stop_reason)

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(lenient(data, ln.Line), data, number, at)

    def _events(self, line: ln.StreamLine, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        kind = line.type
        if line.timestamp is not None:
            at = line.timestamp
        if line.session_id is None and kind in _TALK:
            return self._unsigned(line, data, number, at)
        if kind == "user":
            return self._user(line, data, number, line.session_id, line.parent_tool_use_id, at)
        if kind == "assistant":
            return self._assistant(line, data, number, line.session_id, line.parent_tool_use_id, at)
        if kind == "stream_event":
            return self._stream_event(line, data, (number, line.session_id, line.parent_tool_use_id, at))
        parent = line.parent_tool_use_id if kind == "system" else None  # a heartbeat's is the running tool itself
        return rare.read(kind, line.subtype, data, (number, line.session_id, parent, at))

    def _unsigned(self, line: ln.StreamLine, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        """A line without session_id: a transcript's, which says sessionId, or one that lost its name."""
        whole = _whole(line, data)
        if whole.sessionId is not None:
            self._decode = _every
        whole.session_id = whole.sessionId
        parent = whole.parent_tool_use_id
        if parent is None and whole.isSidechain:
            parent = self._agents.get(whole.agentId or "", whole.agentId or "sidechain")
        talk = self._assistant if whole.type == "assistant" else self._user
        events = talk(whole, data, number, whole.sessionId, parent, at)
        if whole.version is not None and not self._announced:
            self._announced = True
            events.insert(0, ev.Started(number, whole.sessionId, None, at, whole.version, None, whole.cwd, transcript=True))
        return events

    def _assistant(
        self, line: ln.StreamLine, data: bytes, number: int, session: str | None, parent: str | None, at: datetime | None
    ) -> list[ev.Event]:
        message = line.message
        if message is None:
            return [ev.Unknown(number, session, parent, at, "assistant without message", data)]
        events: list[ev.Event] = []
        said, usage, content = message.id, message.usage, message.content
        output = usage.output_tokens if usage is not None else None
        synthetic = message.model == "<synthetic>"
        if synthetic:
            failure = _failure((number, session, parent, at), _whole(line, data), message)
            if failure is not None:
                return [failure]
        elif said is None or said != self._message or message.stop_reason != self._stop or output != self._output:
            events.append(self._told(number, session, parent, at, message))
        if type(content) is not list:
            if content:
                events.append(ev.Text(number, session, parent, at, said, str(content), synthetic))
            return events
        for block in content:
            kind = block.type
            if kind == "tool_use":
                name, tool, role = TOOLS.get(block.name) or _other_tool(block.name)
                made = ToolCall(number, session, parent, at, block.id or "", name, tool, said, block.input)
                events.append(self._special(events, made, role) if role else made)
            elif kind == "text":
                events.append(ev.Text(number, session, parent, at, said, block.text or "", synthetic))
            elif kind == "thinking":
                events.append(ev.Thinking(number, session, parent, at, said, block.thinking or ""))
            elif kind not in QUIET_BLOCKS:
                events.append(_other_block(block, (number, session, parent, at), said, data))
        return events

    def _special(self, events: list[ev.Event], call: ev.ToolCall, role: int) -> ev.ToolCall:
        """A call that does more than answer: it changes a file, asks a person, or can go on beside the main thread."""
        if role == WRITES:
            self._writes[call.id] = (call.name, call.input)
            return call
        if role == ASKS:
            return replace(call, asks=True)
        try:
            asked = _asked(call.input)
        except MISFIT:
            asked = lenient(call.input, ln.ToolInput)
        away = asked.run_in_background is True
        if call.kind == "subagent":
            head = (call.line, call.session, call.parent, call.at)
            agent, about = asked.subagent_type, asked.description
            events.append(ev.TaskStarted(*head, call.id, call.id, "subagent", agent, about, away or None))
        return replace(call, background=True) if away else call

    def _user(
        self, line: ln.StreamLine, data: bytes, number: int, session: str | None, parent: str | None, at: datetime | None
    ) -> list[ev.Event]:
        content = None if line.message is None else line.message.content
        if type(content) is not list:
            if content is None:
                return [ev.Unknown(number, session, parent, at, "user without content", data)]
            return _said(_whole(line, data), (number, session, parent, at), str(content))
        events: list[ev.Event] = []
        for block in content:
            if block.type == "tool_result":
                call = block.tool_use_id or ""
                output: Any
                output, typed = self._output_of(line, data) if len(content) == 1 else (None, False)  # else: whose is it?
                if block.is_error is True:
                    if b"ermission" in data or b"No such tool" in data:  # what any refusal says, in its words or its fields
                        events += _refusal(_whole(line, data), block, (number, session, parent, at))
                    self._writes.pop(call, None)
                    events.append(ev.ToolResult(number, session, parent, at, call, True, block.content, output))
                    continue
                events.append(ev.ToolResult(number, session, parent, at, call, False, block.content, output))
                if call in self._writes:
                    write, done = self._writes.pop(call), output if typed else None
                    events += _change(write, done, block.content, call, (number, session, parent, at))
                elif typed:
                    self._beside(events, output, call, (number, session, parent, at))
            elif block.type == "text":
                events += _said(_whole(line, data), (number, session, parent, at), block.text or "")
            elif block.type not in QUIET_BLOCKS:
                events.append(ev.Unknown(number, session, parent, at, f"block {block.type}", data))
        return events

    @staticmethod
    def _output_of(line: ln.StreamLine, data: bytes) -> tuple[Any, bool]:
        """The structured result, and whether its shape is known; one of an unknown shape is kept as it came."""
        output: Any = line.tool_use_result
        if output is None and type(line) is ln.Line:
            output = line.toolUseResult
        if output is None or (type(output) is Outcome and output != _EMPTY):
            return output, output is not None
        return Raw(encode(output)) if type(output) is str else _as_it_came(data), False

    def _beside(self, events: list[ev.Event], output: ev.Outcome, call: str, head: Head) -> None:
        """What a structured result says of work beside the main thread: started, or seen to be over."""
        agent, task = output.agent_id, output.background_task_id
        if agent is not None:
            self._agents[agent] = call
        if task is not None:
            events.append(ev.TaskStarted(*head, task, call, "shell", None, None, True))
        elif output.is_async:
            events.append(ev.TaskStarted(*head, agent or call, call, "subagent", output.agent_type, None, True))
        elif output.status in ENDED and (agent is not None or output.shell_id is not None):
            events.append(ev.TaskEnded(*head, agent or output.shell_id or "", agent and call, output.status))

    def _stream_event(self, line: ln.StreamLine, data: bytes, head: Head) -> list[ev.Event]:
        part = line.event
        if part is None:
            return []
        if part.type == "content_block_delta":
            text = part.delta.text if part.delta is not None else None
            return [ev.Partial(*head, text)] if text else []
        if part.type == "message_start" and part.message is not None:
            self._streaming[head[2]] = part.message.id
            return [_usage(*head, part.message, None)]
        if part.type == "message_delta":
            message = _whole(line, data).api_message_id or self._streaming.get(head[2])
            stop = part.delta.stop_reason if part.delta is not None else None
            return [_usage(*head, ln.Message(id=message, usage=part.usage), stop or "unknown")]
        return []


def _other_tool(name: str | None) -> tuple[str, str, int]:
    return name or "", kind_of(name or ""), 0


def _whole(line: ln.StreamLine, data: bytes) -> ln.Line:
    """The line with every field that somebody reads."""
    return line if isinstance(line, ln.Line) else lenient(data, ln.Line)


def _usage(
    number: int, session: str | None, parent: str | None, at: datetime | None, message: ln.Message, stop_reason: str | None
) -> ev.Usage:
    usage = message.usage
    if usage is None:
        return ev.Usage(number, session, parent, at, message.id, message.model, stop_reason=stop_reason)
    return ev.Usage(
        number,
        session,
        parent,
        at,
        message.id,
        message.model,
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
        usage.output_tokens,
        usage.output_tokens_details.thinking_tokens if usage.output_tokens_details is not None else None,
        usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation is not None else None,
        stop_reason is not None,
        stop_reason,
    )


def _failure(head: Head, line: ln.Line, message: ln.Message) -> ev.Failure | None:
    """A synthetic message can be the agent's word for a request that failed; not a word of the model."""
    if line.error is None and not line.is_api_error_message and not line.isApiErrorMessage:
        return None
    status = line.api_error_status if line.api_error_status is not None else line.apiErrorStatus
    content = message.content
    text = content if isinstance(content, str) else "\n".join(block.text or "" for block in content or ())
    return ev.Failure(*head, line.error, status, text)


def _other_block(block: ln.Block, head: Head, message: str | None, data: bytes) -> ev.Event:
    if block.type in SERVER_CALLS:
        kind = "web" if (block.name or "").startswith("web_") else kind_of(block.name or "")
        return ev.ToolCall(*head, block.id or "", block.name or "", kind, message, block.input)
    if block.type.endswith("_tool_result"):
        return ev.ToolResult(*head, block.tool_use_id or "", block.is_error is True, block.content)
    return ev.Unknown(*head, f"block {block.type}", data)


def _said(line: ln.Line, head: Head, text: str) -> list[ev.Event]:
    """Words to the model that are no tool result: whose they are, and what they mark."""
    if text.startswith(_INTERRUPTED) and not line.isReplay:
        return [ev.UserMessage(*head, "interrupted", text)]
    if line.version is not None and text.startswith("<task-notification>"):
        found = re.search(_NOTIFIED, text)
        if found is not None and found[3] in ENDED:
            return [ev.TaskEnded(*head, found[1], found[2], found[3])]
    if line.isSynthetic or line.isMeta or line.isCompactSummary:
        return [ev.UserMessage(*head, "synthetic", text)]
    return [ev.UserMessage(*head, "replay" if line.isReplay else "prompt", text)]


def _as_it_came(data: bytes) -> Raw:
    whole = lenient(data, ln.WholeResult)
    return whole.toolUseResult if whole.tool_use_result is ev.NO_JSON else whole.tool_use_result


def _refusal(line: ln.Line, block: ln.Block, head: Head) -> list[ev.Event]:
    """A failed result that is a refusal: by its permission decision, else by the words of the refusal."""
    text = text_of(block.content)
    if _is_rejected(line.tool_result_meta, block.tool_use_id):
        return [ev.PermissionDenied(*head, block.tool_use_id, None, text)]
    removed = re.search(_REMOVED, text)
    if removed is not None:
        tool = removed[1]
        if tool not in TOOLS or TOOLS[tool][1] in ("todo", "other"):
            return []
        return [ev.PermissionDenied(*head, block.tool_use_id, tool, text)]
    return [ev.PermissionDenied(*head, block.tool_use_id, None, text)] if text.startswith(_REFUSALS) else []


def _is_rejected(metas: Raw, call: str | None) -> bool:
    if metas is _NONE:
        return False
    decisions = [meta.permission_decision for meta in lenient(metas, list[ln.ResultMeta]) if meta.id == call]
    return any(decision is not None and decision.decision == "reject" for decision in decisions)


def _change(write: tuple[str, Raw], output: ev.Outcome | None, content: Raw, call: str, head: Head) -> list[ev.Event]:
    """The file that a write or edit did change; its path from the result, else from the call."""
    name, given = write
    path = change = None
    if output is not None:
        if output.error:
            return []
        path = output.file_path or output.notebook_path
        change = "created" if output.type == "create" else "modified"
    if path is None:
        asked = lenient(given, ln.ToolInput)
        path = asked.file_path or asked.notebook_path
        created = name == "Write" and text_of(content).startswith("File created")
        change = "created" if created else "modified"
    return [] if path is None else [ev.FileChanged(*head, path, change or "modified", call)]
