"""The lines that make up nearly all of a stream: assistant, user, stream_event. The hot path.

It turns one line into events and holds only what joins lines: open writes, the message that is
being streamed, which call started which subagent. It never keeps text or totals.
"""

import re
from datetime import datetime
from typing import Any

from msgspec import Raw

from ... import events as ev
from ...decode import decoder, lenient, text_of
from . import lines as ln
from . import rare
from .names import ENDED, FILE_TOOLS, KINDS, LAUNCHERS, NAMES, QUESTIONS, QUIET_BLOCKS, SERVER_CALLS, SILENT, kind_of
from .rare import Head

_decode = decoder(ln.Line).decode
_EMPTY = ev.Outcome()
_INTERRUPTED = "[Request interrupted by user"
_REFUSALS = ("Claude requested permissions to", "Permission to use ", "Tool permission request failed")
# A deny rule takes the whole tool away: the call then fails with "No such tool available: Bash. Bash ..."
_REMOVED = re.compile(r"No such tool available: (\w+)\. \1 (?:is disabled for this session|exists but is not enabled)")
_NOTIFIED = re.compile(r"<task-id>([^<]+)</task-id>(?:.*?<tool-use-id>([^<]+)</tool-use-id>)?.*?<status>(\w+)</status>", re.S)
_STREAM = frozenset({"system", "assistant", "user", "result", "stream_event", "rate_limit_event", "tool_progress"})


def looks_like(line: dict[str, Any]) -> bool:
    """Whether a decoded line can be Claude Code's: its stream, its result, or its transcript."""
    kind = line.get("type")
    return isinstance(kind, str) and (kind in _STREAM or kind in SILENT or kind == "cost-state")


class Reader:
    """Turns the lines of one run or transcript into events."""

    def __init__(self) -> None:
        self._writes: dict[str, tuple[str, Raw]] = {}  # file calls without their result yet
        self._streaming: dict[str | None, str | None] = {}  # thread -> message that is being streamed
        self._agents: dict[str, str] = {}  # agent id -> the call that started it (transcripts)
        self._last: tuple[str | None, ln.RequestUsage | None, str | None] = (None, None, None)
        self._announced = False  # a transcript has no init: its first line stands for it

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(_decode(data), data, number, at)

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(lenient(data, ln.Line), data, number, at)

    def _events(self, line: ln.Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        kind = line.type
        if line.timestamp is not None:
            at = line.timestamp
        if kind == "assistant":
            events = self._assistant(line, data, number, at)
        elif kind == "user":
            events = self._user(line, data, number, at)
        elif kind == "stream_event":
            return self._stream_event(line, (number, line.session_id, line.parent_tool_use_id, at))
        else:
            return rare.read(line, data, (number, line.session_id or line.sessionId, None, at))
        if line.version is not None and not self._announced:
            self._announced = True
            events.insert(0, ev.Started(number, line.sessionId, None, at, line.version, None, line.cwd))
        return events

    def _assistant(self, line: ln.Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        message = line.message
        session = line.session_id or line.sessionId
        if message is None:
            return [ev.Unknown(number, session, None, at, "assistant without message", data)]
        parent = line.parent_tool_use_id
        if parent is None and line.isSidechain:
            parent = self._side(line)
        synthetic = message.model == "<synthetic>"
        events: list[ev.Event] = []
        seen = (message.id, message.usage, message.stop_reason)
        if not synthetic and (seen != self._last or message.id is None):
            self._last = seen
            events.append(_usage((number, session, parent, at), message, message.stop_reason))
        content = message.content
        if synthetic and (line.error is not None or line.is_api_error_message or line.isApiErrorMessage):
            events.append(_failure((number, session, parent, at), line, message))
        elif isinstance(content, str):
            events.append(ev.Text(number, session, parent, at, message.id, content, synthetic))
        elif content is not None:
            for block in content:
                kind = block.type
                if kind == "tool_use":
                    self._call(events, block, (number, session, parent, at), message.id)
                elif kind == "text":
                    events.append(ev.Text(number, session, parent, at, message.id, block.text or "", synthetic))
                elif kind == "thinking":
                    events.append(ev.Thinking(number, session, parent, at, message.id, block.thinking or ""))
                elif kind not in QUIET_BLOCKS:
                    events.append(_other_block(block, (number, session, parent, at), message.id, data))
        return events

    def _call(self, events: list[ev.Event], block: ln.Block, head: Head, message: str | None) -> None:
        call, name = block.id or "", block.name or ""
        kind = KINDS.get(name)
        if kind is None:
            kind = kind_of(name)
        else:
            name = NAMES[name]
        given = block.input
        if name in LAUNCHERS:
            asked = lenient(given, ln.ToolInput)
            away = asked.run_in_background is True
            events.append(ev.ToolCall(*head, call, name, kind, message, given, away))
            if kind == "subagent":
                agent, about = asked.subagent_type, asked.description
                events.append(ev.TaskStarted(*head, call, call, kind, agent, about, away or None))
            return
        if name in FILE_TOOLS:
            self._writes[call] = (name, given)
        events.append(ev.ToolCall(*head, call, name, kind, message, given))

    def _user(self, line: ln.Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        session = line.session_id or line.sessionId
        parent = line.parent_tool_use_id
        if parent is None and line.isSidechain:
            parent = self._side(line)
        content = None if line.message is None else line.message.content
        head = (number, session, parent, at)
        if content is None:
            return [ev.Unknown(*head, "user without content", data)]
        if isinstance(content, str):
            return _said(line, head, content)
        events: list[ev.Event] = []
        for block in content:
            if block.type == "tool_result":
                self._result(events, line, block, head, data)
            elif block.type == "text":
                events += _said(line, head, block.text or "")
            elif block.type not in QUIET_BLOCKS:
                events.append(ev.Unknown(*head, f"block {block.type}", data))
        return events

    def _result(self, events: list[ev.Event], line: ln.Line, block: ln.Block, head: Head, data: bytes) -> None:
        call = block.tool_use_id or ""
        failed = block.is_error is True
        output: Any = line.tool_use_result
        if output is None:
            output = line.toolUseResult
        if output is not None and (output.__class__ is not ev.Outcome or output == _EMPTY):
            output = _as_it_came(data)
        if failed:
            events += _refusal(line, block, head)
        events.append(ev.ToolResult(*head, call, failed, block.content, output))
        write = self._writes.pop(call, None)
        if write is not None and not failed:
            events += _change(write, output, block.content, call, head)
        if output.__class__ is ev.Outcome:
            events += self._beside(output, call, head)

    def _beside(self, output: ev.Outcome, call: str, head: Head) -> tuple[ev.Event, ...]:
        """What a structured result says of work beside the main thread: started, or seen to be over."""
        agent = output.agent_id
        if agent is not None:
            self._agents[agent] = call
        if output.background_task_id is not None:
            return (ev.TaskStarted(*head, output.background_task_id, call, "shell", None, None, True),)
        if output.is_async:
            return (ev.TaskStarted(*head, agent or call, call, "subagent", output.agent_type, None, True),)
        if output.status in ENDED and (agent is not None or output.shell_id is not None):
            return (ev.TaskEnded(*head, agent or output.shell_id or "", agent and call, output.status),)
        return ()

    def _side(self, line: ln.Line) -> str:
        """A name for the subagent that a transcript line belongs to: its call where that is known."""
        return self._agents.get(line.agentId or "", line.agentId or "sidechain")

    def _stream_event(self, line: ln.Line, head: Head) -> list[ev.Event]:
        part = line.event
        if part is None:
            return []
        if part.type == "content_block_delta":
            text = part.delta.text if part.delta is not None else None
            return [ev.Partial(*head, text)] if text else []
        if part.type == "message_start" and part.message is not None:
            self._streaming[head[2]] = part.message.id
            return [_usage(head, part.message, None)]
        if part.type == "message_delta":
            told = ln.Message(line.api_message_id or self._streaming.get(head[2]), None, None, part.usage)
            stop = part.delta.stop_reason if part.delta is not None else None
            return [_usage(head, told, stop or "unknown")]
        return []


def _usage(head: Head, message: ln.Message, stop_reason: str | None) -> ev.Usage:
    usage = message.usage
    if usage is None:
        return ev.Usage(*head, message.id, message.model, stop_reason=stop_reason)
    thinking = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details is not None else None
    hour = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation is not None else None
    return ev.Usage(
        *head,
        message.id,
        message.model,
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
        usage.output_tokens,
        thinking,
        hour,
        stop_reason is not None,
        stop_reason,
    )


def _failure(head: Head, line: ln.Line, message: ln.Message) -> ev.Failure:
    """A synthetic message is the agent's word for a request that failed; not a word of the model."""
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
        found = _NOTIFIED.search(text)
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
    for meta in lenient(line.tool_result_meta, list[ln.ResultMeta]):
        decision = meta.permission_decision
        if meta.id == block.tool_use_id and decision is not None and decision.decision == "reject":
            return [ev.PermissionDenied(*head, block.tool_use_id, None, text)]
    removed = _REMOVED.search(text)
    if removed is not None:
        tool = removed[1]
        if tool in QUESTIONS or KINDS.get(tool) in ("todo", None):
            return []
        return [ev.PermissionDenied(*head, block.tool_use_id, tool, text)]
    return [ev.PermissionDenied(*head, block.tool_use_id, None, text)] if text.startswith(_REFUSALS) else []


def _change(write: tuple[str, Raw], output: Any, content: Raw, call: str, head: Head) -> list[ev.Event]:
    """The file that a write or edit did change; its path from the result, else from the call."""
    name, given = write
    path = change = None
    if output.__class__ is ev.Outcome:
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
