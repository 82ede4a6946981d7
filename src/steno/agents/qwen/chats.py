"""The chats that Qwen Code keeps below ~/.qwen/projects: where they lie, and what their lines mean. It never opens a file.

A line is a message in the shape of Google's API, with `parts` where Claude Code has `content`; calls and their results are
parts too. Lines of the kind `system` are telemetry, and repeat what the messages say.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Raw, Struct
from msgspec.json import encode

from ... import event as ev
from ...decode import DECODE_ERRORS, Count, decode_lenient
from .. import chat
from ..calls import PendingCall
from .names import FILE_WRITE_TOOLS, PERMISSION_DENIED_PREFIX, USER_INPUT_TOOLS, tool_kind

Instant = Annotated[datetime, Meta(tz=True)]
EventHead = tuple[int, str | None, str | None, datetime | None]


class Function(Struct, gc=False):
    id: str = ""
    name: str = ""
    args: Raw = ev.NO_JSON
    response: Raw = ev.NO_JSON


class MessagePart(Struct, gc=False):
    text: str | None = None
    thought: bool | None = None
    functionCall: Function | None = None
    functionResponse: Function | None = None


class Message(Struct, gc=False):
    parts: list[MessagePart] | None = None


class UsageMetadata(Struct, gc=False):
    promptTokenCount: Count | None = None
    candidatesTokenCount: Count | None = None
    cachedContentTokenCount: Count | None = 0
    thoughtsTokenCount: Count | None = 0


class ToolCallStatus(Struct, gc=False):
    status: str | None = None


class ChatLine(Struct, gc=False):
    uuid: str | None = None
    sessionId: str | None = None
    timestamp: Instant | None = None
    type: str = ""
    cwd: str | None = None
    version: str | None = None
    model: str | None = None
    message: Message | None = None
    usageMetadata: UsageMetadata | None = None
    toolCallResult: ToolCallStatus | None = None


class Response(Struct, gc=False):
    output: str | None = None
    error: str | None = None


class FileInput(Struct, gc=False):
    file_path: str | None = None
    notebook_path: str | None = None


class QwenTranscriptState(Struct):
    """What joins lines: whether the session was told, and the calls that write a file and have no answer yet."""

    begun: bool = False
    writes: dict[str, tuple[str, Raw]] = {}


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folder below which chats lie, one for each project."""
    root = environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME") or f"{home}/.qwen"
    return [f"{root.rstrip('/')}/projects"]


def transcript_pattern(session: str) -> str:
    """The chat of a session, below the folder."""
    return f"*/chats/{session}.jsonl"


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a chat, not of a stream: it says sessionId, and parts or nothing."""
    try:
        known = decode_lenient(line, ChatLine)
    except DECODE_ERRORS:
        return False
    return known.sessionId is not None and known.uuid is not None and (known.message is None or known.message.parts is not None)


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a chat tells of, and where it began."""
    return chat.scan_requests(QwenTranscriptReader(), lines)


def file_change_events(head: EventHead, call: PendingCall, answer: str) -> list[ev.Event]:
    """The file that a call did change, in the words of its answer."""
    if call.tool not in FILE_WRITE_TOOLS:
        return []
    asked = decode_lenient(call.input, FileInput)
    path = asked.file_path or asked.notebook_path
    change = "created" if answer.startswith(("Successfully created", "Created new file")) else "modified"
    return [] if path is None else [ev.FileChanged(*head, path, change, call.id)]


class QwenTranscriptReader(chat.TranscriptReader[ChatLine, QwenTranscriptState]):
    """Turns the lines of one chat into events."""

    def __init__(self) -> None:
        super().__init__(ChatLine, QwenTranscriptState())

    def _events(self, line: ChatLine, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        head = (number, line.sessionId, None, line.timestamp or at)
        found: list[ev.Event] = []
        if not self._state.begun and line.version is not None:
            self._state.begun = True
            found.append(ev.Started(*head, line.version, None, line.cwd, transcript=True))
        if line.type == "system":
            return found
        if line.type not in ("user", "assistant", "tool_result") or line.message is None:
            return [*found, ev.Unknown(*head, line.type or "no type", data)]
        if line.usageMetadata is not None and line.type == "assistant":
            found.append(_usage_event(head, line, line.usageMetadata))
        for part in line.message.parts or ():
            found += self._part_events(head, line, part)
        return found

    def _part_events(self, head: EventHead, line: ChatLine, part: MessagePart) -> list[ev.Event]:
        if part.functionCall is not None:
            return self._tool_call(head, line, part.functionCall)
        if part.functionResponse is not None:
            return self._tool_result(head, line, part.functionResponse)
        if part.text is None:
            return []
        if line.type == "user":
            return [ev.UserMessage(*head, "prompt", part.text)]
        return [ev.Thinking(*head, line.uuid, part.text) if part.thought is True else ev.Text(*head, line.uuid, part.text)]

    def _tool_call(self, head: EventHead, line: ChatLine, call: Function) -> list[ev.Event]:
        if call.name in FILE_WRITE_TOOLS:
            self._state.writes[call.id] = (call.name, call.args)
        return [ev.ToolCall(*head, call.id, call.name, tool_kind(call.name), line.uuid, call.args, asks=call.name in USER_INPUT_TOOLS)]

    def _tool_result(self, head: EventHead, line: ChatLine, call: Function) -> list[ev.Event]:
        response = decode_lenient(call.response, Response)
        failed = response.error is not None or (line.toolCallResult is not None and line.toolCallResult.status == "error")
        text = response.error if response.error is not None else response.output or ""
        found: list[ev.Event] = []
        if failed and text.startswith(PERMISSION_DENIED_PREFIX):
            found.append(ev.PermissionDenied(*head, call.id, call.name, text))
        found.append(ev.ToolResult(*head, call.id, failed, Raw(encode(text))))
        name, given = self._state.writes.pop(call.id, (call.name, ev.NO_JSON))
        return found if failed else found + file_change_events(head, PendingCall(call.id, name, given), text)


def _usage_event(head: EventHead, line: ChatLine, told: UsageMetadata) -> ev.Usage:
    """Four counters that do not overlap; see the package's docstring."""
    prompt, cached = told.promptTokenCount, told.cachedContentTokenCount
    fresh = None if prompt is None or cached is None else max(0, prompt - cached)
    figures = (fresh, 0, cached, told.candidatesTokenCount, told.thoughtsTokenCount)
    return ev.Usage(*head, line.uuid, line.model, *figures, final=True, uuid=line.uuid)
