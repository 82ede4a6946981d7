"""The chat files of Gemini CLI (below ~/.gemini/tmp), read alone or to complete a stream. Pure.

The first line of a chat names the session; messages follow. A message is written again under the
same id when there is more of it: first text and usage, then calls with their results. Older
versions (0.27.0) write one JSON document, with the messages in it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ... import event as ev
from ...codec.attachments import find_attachments
from ...codec.decode import DECODE_ERRORS, Count, Instant, decode_lenient, decode_raw, text_of
from ...event import EventHead
from ..base import read_objects_lenient
from ..typed_reader import (
    PendingCall,
    TypedLineReader,
    add_counters,
    scan_events,
    sum_usage_by_model,
    uncached_input,
)
from .tables import COMMAND_FAILED_PREFIX, FILE_WRITE_TOOLS, USER_INPUT_TOOLS, tool_kind

FILE_CREATED_TEXT = b"Successfully created and wrote to new file"  # in the result of write_file
# What the user runs with "!" is written as a prompt, which the model gets with the next one.
_USER_COMMAND_PREFIX = "I ran the following shell command:\n```sh\n"
_USER_COMMAND_RESULT = "\n```\n\nThis produced the following result:\n```\n"
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


class FileInput(Struct, gc=False):
    file_path: str | None = None


class GeminiTranscriptState(Struct):
    """What must survive between two lines. Stored in the ledger: field names stay."""

    session: str | None = None
    message: str | None = None  # the last message
    calls: set[str] = field(default_factory=set)  # its calls so far
    done: set[str] = field(default_factory=set)  # those with a result
    placed: bool = False  # the working directory is known


def is_transcript_line(line: bytes) -> bool:
    try:
        chat = decode_lenient(line, ChatLine)
    except DECODE_ERRORS:
        return False
    return chat.projectHash is not None or chat.type == "gemini" or chat.set is not ev.NO_JSON


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    return [f"{environment.get('GEMINI_CLI_HOME') or home}/.gemini/tmp"]


def transcript_pattern(session: str) -> str:
    """The chats of a session: their names end with the first characters of its id."""
    return f"**/session-*-{session[:8]}.json*"


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The start, the prompts and the requests of a chat."""
    return scan_events(GeminiTranscriptReader(), lines, (ev.Started, ev.Usage, ev.UserMessage))


def file_change_events(head: EventHead, call: PendingCall, created: bool = False) -> list[ev.Event]:
    """The file that a successful call changed. Only chats tell new files from modified ones."""
    if call.tool not in FILE_WRITE_TOOLS:
        return []
    path = decode_lenient(call.input, FileInput).file_path
    if path is None:
        return []
    return [ev.FileChanged(*head, path, "created" if created else "modified", call.id)]


class GeminiTranscriptReader(TypedLineReader[ChatLine, GeminiTranscriptState]):
    """Turns the lines of one chat into events."""

    def __init__(self) -> None:
        super().__init__(ChatLine, GeminiTranscriptState())

    def _events(
        self, line: ChatLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        if line.sessionId is not None and line.projectHash is not None:
            self._state.session = line.sessionId
            head = (number, line.sessionId, None, line.startTime or at)
            events: list[ev.Event] = [ev.Started(*head, transcript=True)]
            for message in line.messages or ():
                events += self._message(message, data, number, at)
            hidden = sum(map(_hidden_requests, line.messages or ()))
            if hidden:
                text = (
                    f"tokens, cost and requests are a lower bound: the chat lacks {hidden} requests"
                )
                events.append(ev.Notice(*head, "totals", text))
            return events
        if line.set is not ev.NO_JSON or line.rewind is not ev.NO_JSON:
            return self._update_events(line.set, (number, self._state.session, None, at))
        return self._message(line, data, number, at)

    def _update_events(self, update: Raw, head: EventHead) -> list[ev.Event]:
        """The first update contains the prompt about the workspace, with its folder."""
        if self._state.placed or b"Workspace Directories" not in bytes(update):
            return []
        self._state.placed = True
        messages = decode_lenient(update, ChatLine).messages
        first = text_of(messages[0].content) if messages else ""
        match = _WORKSPACE_FOLDER_PATTERN.search(first)
        return [] if match is None else [ev.Started(*head, cwd=match[1].strip(), transcript=True)]

    def _message(
        self, message: Message, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        state = self._state
        head = (number, state.session, None, message.timestamp or at)
        if message.type == "user":
            return _prompt_events(head, message)
        if message.type in ("info", "warning", "error"):
            return [ev.Notice(*head, message.type, text_of(message.content))]
        if message.type != "gemini":
            return [ev.Unknown(*head, message.type or "no type", data)]
        events: list[ev.Event] = []
        if message.id is None or message.id != state.message:
            state.message = message.id
            state.calls = set()
            state.done = set()
            events += _message_events(head, message)
        for call in message.toolCalls or ():
            events += self._tool_call_events(head, message, call)
        return events

    def _tool_call_events(
        self, head: EventHead, message: Message, call: ChatToolCall
    ) -> list[ev.Event]:
        events: list[ev.Event] = []
        if call.id not in self._state.calls:
            self._state.calls.add(call.id)
            events.append(
                ev.ToolCall(
                    *head,
                    id=call.id,
                    name=call.name,
                    kind=tool_kind(call.name),
                    message=message.id,
                    input=call.args,
                    asks=call.name in USER_INPUT_TOOLS,
                )
            )
        if call.status not in ("success", "error", "cancelled") or call.id in self._state.done:
            return events
        self._state.done.add(call.id)
        number, session, _, at = head
        head = (number, session, None, call.timestamp or at)
        output = text_of(call.resultDisplay)
        failed = call.status != "success" or output.startswith(COMMAND_FAILED_PREFIX)
        sent = None if call.result is ev.NO_JSON else call.result  # what the model sees
        shown = call.resultDisplay
        events.append(ev.ToolResult(*head, call.id, failed, shown, sent, uuid=message.id))
        if not failed:
            created = FILE_CREATED_TEXT in bytes(call.result)
            pending = PendingCall(call.id, call.name, call.args)
            events += file_change_events(head, pending, created)
        return events


def _hidden_requests(message: Message) -> int:
    """The requests without tokens in a chat that is one document.

    Calls are added to the message before them (0.27.0): those of one request end at one time.
    """
    times = {call.timestamp for call in message.toolCalls or ()}
    return max(0, len(times) - 1)


def _prompt_events(head: EventHead, message: Message) -> list[ev.Event]:
    """A prompt; tool results ("[part]") are reported with their calls."""
    text = text_of(message.content)
    if text.startswith("<session_context>") or text.strip("\n").startswith("[part]"):
        return []
    command, is_run, output = text.partition(_USER_COMMAND_RESULT)
    if is_run and command.startswith(_USER_COMMAND_PREFIX):
        return [
            ev.LocalCommand(*head, f"!{command.removeprefix(_USER_COMMAND_PREFIX)}"),
            ev.LocalCommand(*head, None, output.removesuffix("\n```")),
        ]
    return [ev.UserMessage(*head, "prompt", text, message.id), *_file_events(head, message)]


def _file_events(head: EventHead, message: Message) -> list[ev.Event]:
    """The images and files among the parts of a prompt."""
    if bytes(message.content)[:1] != b"[":
        return []
    return [
        ev.Attachment(*head, None, part)
        for part in decode_lenient(message.content, list[Raw])
        if next(find_attachments(decode_raw(part)), None) is not None
    ]


def _message_events(head: EventHead, message: Message) -> list[ev.Event]:
    events: list[ev.Event] = []
    if message.tokens is not None:
        events.append(_usage_event(head, message, message.tokens))
    for thought in message.thoughts or ():
        text = "\n".join(filter(None, (thought.subject, thought.description)))
        events.append(ev.Thinking(*head, message.id, text))
    text = text_of(message.content)
    if text:
        events.append(ev.Text(*head, message.id, text))
    return events


def _usage_event(head: EventHead, message: Message, tokens: MessageTokens) -> ev.Usage:
    return ev.Usage(
        *head,
        message=message.id,
        model=message.model,
        input=add_counters(uncached_input(tokens.input, tokens.cached), tokens.tool or 0),
        cache_write=0,
        cache_read=tokens.cached,
        output=add_counters(tokens.output, tokens.thoughts),
        reasoning=tokens.thoughts,
        final=True,
        uuid=message.id,
    )


# -- enriching the stream from the chat --------------------------------------------------------


class GeminiStreamSummary(Struct):
    """What identifies the run of the stream in a chat."""

    started_at: datetime | None = None
    turns: int = 0
    result: ev.Result | None = None


def enrich(
    session: str | None, summary: GeminiStreamSummary, lines: Iterable[bytes]
) -> list[ev.Event]:
    """Return the events of the stream's run that only its chat has."""
    requests: dict[str, ev.Usage] = {}
    changes: list[ev.FileChanged] = []
    folder: list[ev.Event] = []
    reader = GeminiTranscriptReader()
    for event in (event for data in lines for event in read_objects_lenient(reader, data, 0)):
        if event.session != session:
            continue
        if isinstance(event, ev.Started) and event.cwd is not None:
            folder = [ev.Started(*(0, session, None, None), cwd=event.cwd)]
        if not _is_in_run(event, summary):
            continue
        if isinstance(event, ev.Usage):
            requests[event.message or ""] = event
        elif isinstance(event, ev.FileChanged):
            changes.append(event)
    usage = list(requests.values())
    if summary.started_at is None:
        details = _document_details(summary.result, usage, changes)
        return [*folder, *details] if details else []
    if not usage or len(usage) != summary.turns:
        return []
    created = (event for event in changes if event.change == "created")
    return [*usage, *folder, *created, *_amended_result(summary.result, usage)]


def _document_details(
    result: ev.Result | None, requests: list[ev.Usage], changes: list[ev.FileChanged]
) -> list[ev.Event]:
    """The last requests of the session and their changes, if they make up the document of the run.

    The json format has no times, no figures per request and no paths.
    """
    usage = requests[-result.turns :] if result is not None and result.turns else []
    amended = _amended_result(result, usage) if usage else []
    if not amended or usage[0].at is None:
        return []
    start = usage[0].at
    own = [event for event in changes if event.at is not None and event.at >= start]
    return [*usage, *own, *amended]


def _is_in_run(event: ev.Event, summary: GeminiStreamSummary) -> bool:
    """Whether the event's time is within that of the stream, or not known to be outside."""
    if event.at is None or summary.started_at is None:
        return event.at is not None
    if event.at < summary.started_at:
        return False
    ended_at = summary.result.at if summary.result is not None else None
    return ended_at is None or event.at <= ended_at


def _amended_result(result: ev.Result | None, requests: list[ev.Usage]) -> list[ev.Event]:
    """The result with the tokens for thoughts, if it is otherwise the sum of the requests."""
    if result is None or not result.models:
        return []
    models = sum_usage_by_model(requests, result.models)
    for name, streamed in result.models.items():
        if _comparable_counters(models[name]) != _comparable_counters(streamed):
            return []
    usage = models.get(requests[-1].model or "", result.usage)
    return [replace(result, models=models, usage=usage, amends=True)]


def _comparable_counters(usage: ev.ModelUsage) -> tuple[int | None, int | None, int | None]:
    """The counters that stream and chat have in common: the stream's output has no thoughts."""
    output = None if usage.output is None else usage.output - (usage.reasoning or 0)
    return usage.input, usage.cache_read, output
