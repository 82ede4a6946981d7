"""The chats that Gemini CLI keeps below ~/.gemini/tmp: where they lie, and what their lines mean. It never opens a file.

A chat is a first line that names the session, then messages. A message is written again, under the same id, when more is
known of it: first what the model said and used, then its calls with their results. Lines with $set change nothing here.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, Count, decode_lenient, iter_json_values, text_of
from .. import chat_log as chat
from ..chat_log import PendingCall
from .tables import FILE_WRITE_TOOLS, USER_INPUT_TOOLS, tool_kind

Instant = Annotated[datetime, Meta(tz=True)]
EventHead = tuple[int, str | None, str | None, datetime | None]
FILE_CREATED_TEXT = b"Successfully created and wrote to new file"  # what the model is told of a file that was not there before
_WORKSPACE_FOLDER_PATTERN = re.compile(r"\*\*Workspace Directories:\*\*\n\s*- (.+)")


class MessageTokens(Struct, gc=False):
    input: Count | None = None
    output: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = 0
    tool: Count | None = 0


class Thought(Struct, gc=False):
    subject: str | None = None
    description: str | None = None


class ChatToolCall(Struct, gc=False):
    id: str = ""
    name: str = ""
    args: Raw = ev.NO_JSON
    result: Raw = ev.NO_JSON
    status: str | None = None
    timestamp: Instant | None = None
    resultDisplay: Raw = ev.NO_JSON


class Message(Struct, gc=False):
    id: str | None = None
    timestamp: Instant | None = None
    type: str = ""
    content: Raw = ev.NO_JSON
    thoughts: list[Thought] | None = None
    tokens: MessageTokens | None = None
    model: str | None = None
    toolCalls: list[ChatToolCall] | None = None


class ChatLine(Message, gc=False):
    sessionId: str | None = None
    projectHash: str | None = None
    startTime: Instant | None = None
    messages: list[Message] | None = None
    set: Raw = field(name="$set", default=ev.NO_JSON)
    rewind: Raw = field(name="$rewindTo", default=ev.NO_JSON)


class GeminiTranscriptState(Struct):
    """What joins lines: the session, the message that was told last, and which of its calls were."""

    session: str | None = None
    message: str | None = None
    calls: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    placed: bool = False


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a chat, not of a stream."""
    try:
        known = decode_lenient(line, ChatLine)
    except DECODE_ERRORS:
        return False
    return known.projectHash is not None or known.type == "gemini" or known.set is not ev.NO_JSON


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folder below which chats lie, one for each project."""
    return [f"{environment.get('GEMINI_CLI_HOME') or home}/.gemini/tmp"]


def transcript_pattern(session: str) -> str:
    """The chats of a session, below one of the folders: their names end with the beginning of its id."""
    return f"**/session-*-{session[:8]}.jsonl"


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a chat tells of, and where it began."""
    return chat.scan_requests(GeminiTranscriptReader(), lines)


def file_change_events(
    head: EventHead, call: PendingCall, created: bool | None = None
) -> list[ev.Event]:
    """The file that a call did change. The stream does not say whether it is new."""
    if call.tool not in FILE_WRITE_TOOLS:
        return []
    path = decode_lenient(call.input, _FileInput).file_path
    return (
        []
        if path is None
        else [ev.FileChanged(*head, path, "created" if created else "modified", call.id)]
    )


class _FileInput(Struct, gc=False):
    file_path: str | None = None


class GeminiTranscriptReader(chat.TranscriptReader[ChatLine, GeminiTranscriptState]):
    """Turns the lines of one chat into events."""

    def __init__(self) -> None:
        super().__init__(ChatLine, GeminiTranscriptState())

    def _events(
        self, line: ChatLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        if line.sessionId is not None and line.projectHash is not None:
            self._state.session = line.sessionId
            begun = (number, line.sessionId, None, line.startTime or at)
            found: list[ev.Event] = [ev.Started(*begun, transcript=True)]
            return found + [
                event
                for message in line.messages or ()
                for event in self._message(message, data, number, at)
            ]
        if line.set is not ev.NO_JSON or line.rewind is not ev.NO_JSON:
            return self._update_events(line.set, (number, self._state.session, None, at))
        return self._message(line, data, number, at)

    def _update_events(self, given: Raw, head: EventHead) -> list[ev.Event]:
        """The first such line holds what the model is told of its surroundings: the folder, too."""
        if self._state.placed or b"Workspace Directories" not in bytes(given):
            return []
        self._state.placed = True
        first = next(
            (
                text_of(message.content)
                for message in decode_lenient(given, ChatLine).messages or ()
            ),
            "",
        )
        found = _WORKSPACE_FOLDER_PATTERN.search(first)
        return [] if found is None else [ev.Started(*head, cwd=found[1].strip(), transcript=True)]

    def _message(
        self, message: Message, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        head = (number, self._state.session, None, message.timestamp or at)
        if message.type == "user":
            return _prompt_events(head, message)
        if message.type in ("info", "warning", "error"):
            return [ev.Notice(*head, message.type, text_of(message.content))]
        if message.type != "gemini":
            return [ev.Unknown(*head, message.type or "no type", data)]
        found: list[ev.Event] = []
        if message.id is None or message.id != self._state.message:
            self._state.message, self._state.calls, self._state.done = message.id, [], []
            found += _message_events(head, message)
        for call in message.toolCalls or ():
            found += self._tool_call_events(head, message, call)
        return found

    def _tool_call_events(
        self, head: EventHead, message: Message, call: ChatToolCall
    ) -> list[ev.Event]:
        found: list[ev.Event] = []
        if call.id not in self._state.calls:
            self._state.calls.append(call.id)
            asks = call.name in USER_INPUT_TOOLS
            found.append(
                ev.ToolCall(
                    *head,
                    call.id,
                    call.name,
                    tool_kind(call.name),
                    message.id,
                    call.args,
                    asks=asks,
                )
            )
        if call.status not in ("success", "error", "cancelled") or call.id in self._state.done:
            return found
        self._state.done.append(call.id)
        over = (*head[:3], call.timestamp or head[3])
        failed = call.status != "success" or text_of(call.resultDisplay).startswith(
            "Command exited with code: "
        )
        found.append(ev.ToolResult(*over, call.id, failed, call.resultDisplay))
        if not failed:
            found += file_change_events(
                over,
                PendingCall(call.id, call.name, call.args),
                FILE_CREATED_TEXT in bytes(call.result),
            )
        return found


def _prompt_events(head: EventHead, message: Message) -> list[ev.Event]:
    """A prompt; results of tools stand with their calls, and are not told twice."""
    text = text_of(message.content)
    if text.startswith("<session_context>"):
        return []
    return [] if text.strip("\n").startswith("[part]") else [ev.UserMessage(*head, "prompt", text)]


def _message_events(head: EventHead, message: Message) -> list[ev.Event]:
    found: list[ev.Event] = []
    tokens = message.tokens
    if tokens is not None:
        figures = _usage_counters(tokens)
        found.append(
            ev.Usage(*head, message.id, message.model, *figures, final=True, uuid=message.id)
        )
    for thought in message.thoughts or ():
        found.append(
            ev.Thinking(
                *head, message.id, "\n".join(filter(None, (thought.subject, thought.description)))
            )
        )
    text = text_of(message.content)
    if text:
        found.append(ev.Text(*head, message.id, text))
    return found


def _usage_counters(
    tokens: MessageTokens,
) -> tuple[int | None, int, int | None, int | None, int | None]:
    """input, cache write, cache read, output, reasoning: see the package's docstring."""
    fresh = None
    if tokens.input is not None and tokens.cached is not None:
        fresh = max(0, tokens.input - tokens.cached) + (tokens.tool or 0)
    output = (
        None
        if tokens.output is None or tokens.thoughts is None
        else tokens.output + tokens.thoughts
    )
    return fresh, 0, tokens.cached, output, tokens.thoughts


class GeminiStreamSummary(Struct):
    """What the stream told: when it began, how many turns the model took, and its end."""

    started_at: datetime | None = None
    turns: int = 0
    result: ev.Result | None = None


def enrich(
    session: str | None, told: GeminiStreamSummary, lines: Iterable[bytes]
) -> list[ev.Event]:
    """The events of the run that the stream told of, as far as only its chat knows them."""
    requests: dict[str, ev.Usage] = {}
    files: list[ev.Event] = []
    for event in _transcript_events(lines):
        if isinstance(event, ev.Started) and event.session == session and event.cwd is not None:
            files[:0] = [ev.Started(0, session, None, None, cwd=event.cwd)]
        if event.session != session or not _is_in_run(event, told):
            continue
        if isinstance(event, ev.Usage):
            requests[event.message or ""] = event
        elif isinstance(event, ev.FileChanged) and event.change == "created":
            files.append(replace(event, line=0))
    if not requests or len(requests) != told.turns:
        return []
    found: list[ev.Event] = list(requests.values())
    return found + files + _amended_result(told.result, list(requests.values()))


def _transcript_events(lines: Iterable[bytes]) -> Iterable[ev.Event]:
    chat = GeminiTranscriptReader()
    for data in lines:
        try:
            for value in iter_json_values(data):
                if value[:1] == b"{":
                    yield from chat.read_lenient(value, 0)
        except (ValueError, *DECODE_ERRORS):
            continue


def _is_in_run(event: ev.Event, told: GeminiStreamSummary) -> bool:
    """Whether something in the chat came about while the stream was written."""
    ended = told.result.at if told.result is not None else None
    if event.at is None or told.started_at is None or event.at < told.started_at:
        return False
    return ended is None or event.at <= ended


def _amended_result(end: ev.Result | None, requests: list[ev.Usage]) -> list[ev.Event]:
    """The result once more, with the thoughts: only if it is otherwise the sum of these requests."""
    if end is None or not end.models:
        return []
    models = {
        name: _sum_usage([request for request in requests if request.model == name])
        for name in end.models
    }
    if any(
        _comparable_counters(models[name]) != _comparable_counters(share)
        for name, share in end.models.items()
    ):
        return []
    usage = models.get(requests[-1].model or "", end.usage)
    return [replace(end, models=models, usage=usage, amends=True)]


def _sum_usage(requests: list[ev.Usage]) -> ev.ModelUsage:
    def added(name: str) -> Any:
        parts = [getattr(request, name) for request in requests]
        return None if None in parts else sum(parts)

    return ev.ModelUsage(
        added("input"), 0, added("cache_read"), added("output"), added("reasoning")
    )


def _comparable_counters(share: ev.ModelUsage) -> tuple[int | None, int | None, int | None]:
    """The counters that both tell: the stream's output is without thoughts, the chat's share knows how many there are."""
    output = None if share.output is None else share.output - (share.reasoning or 0)
    return share.input, share.cache_read, output
