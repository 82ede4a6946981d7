"""The chat files of Qwen Code, read alone or to complete a stream. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.attachments import find_attachments
from ...codec.decode import DECODE_ERRORS, Count, Instant, decode_lenient, decode_raw, text_of
from ...event import EventHead
from ..typed_reader import (
    PendingCall,
    TypedLineReader,
    scan_events,
    sum_usage,
    sum_usage_by_model,
    uncached_input,
)
from .tables import (
    FILE_CREATED_PREFIXES,
    FILE_WRITE_TOOLS,
    PERMISSION_DENIED_PREFIX,
    USER_INPUT_TOOLS,
    tool_kind,
)

API_RESPONSE = "qwen-code.api_response"
# Of a subagent or a helper: SESSION#NAME-ID#0. Of the main thread: SESSION########0.
_HELPER_PROMPT_PATTERN = re.compile(r"#([^#]+)#\d+$")


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
    parts: list[Raw] | None = None


class UsageMetadata(Struct, gc=False):
    promptTokenCount: Count | None = None
    candidatesTokenCount: Count | None = None
    cachedContentTokenCount: Count | None = 0
    thoughtsTokenCount: Count | None = 0


class ToolCallStatus(Struct, gc=False):
    status: str | None = None


class ApiResponse(Struct, gc=False, rename={"name": "event.name"}):
    name: str | None = None
    model: str | None = None
    input_token_count: Count | None = None
    output_token_count: Count | None = None
    cached_content_token_count: Count | None = 0
    thoughts_token_count: Count | None = 0
    prompt_id: str = ""
    subagent_name: str | None = None
    subagent_id: str | None = None


class TelemetryPayload(Struct, gc=False):
    uiEvent: ApiResponse | None = None


class ChatLine(Struct, gc=False):
    uuid: str | None = None
    isSidechain: bool | None = None
    sessionId: str | None = None
    timestamp: Instant | None = None
    type: str = ""
    cwd: str | None = None
    gitBranch: str | None = None
    version: str | None = None
    model: str | None = None
    message: Message | None = None
    usageMetadata: UsageMetadata | None = None
    toolCallResult: Raw = ev.NO_JSON
    subtype: str | None = None
    systemPayload: Raw = ev.NO_JSON


class Response(Struct, gc=False):
    output: str | None = None
    error: str | None = None


class SystemPayload(Struct, gc=False):
    """The fields of a note that a person may read."""

    rawCommand: str | None = None
    title: str | None = None
    content: str | None = None
    text: str | None = None
    message: str | None = None


# Notes without a text for a person.
SILENT_SUBTYPES = frozenset({"ui_telemetry", "attribution_snapshot", "chat_compression"})


class FileInput(Struct, gc=False):
    file_path: str | None = None
    notebook_path: str | None = None


class QwenTranscriptState(Struct):
    """What must survive between two lines. Stored in the ledger: field names stay."""

    begun: bool = False
    writes: dict[str, tuple[str, Raw]] = {}  # tool and input of file changes without a result


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    root = environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME") or f"{home}/.qwen"
    return [f"{root.rstrip('/')}/projects"]


def transcript_pattern(session: str) -> str:
    return f"*/chats/{session}.jsonl"


def is_transcript_line(line: bytes) -> bool:
    """Whether a line belongs to a chat: it has a sessionId, and no message or one with parts."""
    try:
        chat = decode_lenient(line, ChatLine)
    except DECODE_ERRORS:
        return False
    if chat.sessionId is None or chat.uuid is None:
        return False
    return chat.message is None or chat.message.parts is not None


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The start, the prompts and the requests of a chat."""
    return scan_events(QwenTranscriptReader(), lines, (ev.Started, ev.Usage, ev.UserMessage))


def file_change_events(head: EventHead, call: PendingCall, output: str) -> list[ev.Event]:
    """The file that a successful call changed."""
    if call.tool not in FILE_WRITE_TOOLS:
        return []
    input_ = decode_lenient(call.input, FileInput)
    path = input_.file_path or input_.notebook_path
    if path is None:
        return []
    change = "created" if output.startswith(FILE_CREATED_PREFIXES) else "modified"
    return [ev.FileChanged(*head, path, change, call.id)]


class QwenTranscriptReader(TypedLineReader[ChatLine, QwenTranscriptState]):
    """Turns the lines of one chat into events."""

    def __init__(self) -> None:
        super().__init__(ChatLine, QwenTranscriptState())

    def _events(
        self, line: ChatLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        head = (number, line.sessionId, None, line.timestamp or at)
        events: list[ev.Event] = []
        if not self._state.begun and line.version is not None:
            self._state.begun = True
            about = (line.version, None, line.cwd)
            branch = line.gitBranch if line.gitBranch != "HEAD" else None  # HEAD: detached
            events.append(ev.Started(*head, *about, transcript=True, branch=branch))
        if line.type == "system":
            events += _helper_usage(head, line.uuid, line.systemPayload)
            return events + _system_events(head, line, data)
        if line.type not in ("user", "assistant", "tool_result") or line.message is None:
            return [*events, ev.Unknown(*head, line.type or "no type", data)]
        # The requests of a subagent with a file of its own (0.24) are in the telemetry of the chat.
        is_own = line.type == "assistant" and line.isSidechain is not True
        if line.usageMetadata is not None and is_own:
            events.append(_usage_event(head, line, line.usageMetadata))
        for data_of_part in line.message.parts or ():
            events += self._part_events(head, line, data_of_part)
        return events

    def _part_events(self, head: EventHead, line: ChatLine, data: Raw) -> list[ev.Event]:
        is_string = bytes(data)[:1] == b'"'
        part = MessagePart(text_of(data)) if is_string else decode_lenient(data, MessagePart)
        if part.functionCall is not None:
            return self._tool_call(head, line, part.functionCall)
        if part.functionResponse is not None:
            return self._tool_result(head, line, part.functionResponse)
        if part.text is None:
            if next(find_attachments(decode_raw(data)), None) is not None:
                return [ev.Attachment(*head, None if line.type == "user" else line.uuid, data)]
            return [ev.Unknown(*head, "part", bytes(data))]
        if line.type == "user":
            return [ev.UserMessage(*head, "prompt", part.text, line.uuid)]
        if part.thought is True:
            return [ev.Thinking(*head, line.uuid, part.text)]
        return [ev.Text(*head, line.uuid, part.text)]

    def _tool_call(self, head: EventHead, line: ChatLine, call: Function) -> list[ev.Event]:
        if call.name in FILE_WRITE_TOOLS:
            self._state.writes[call.id] = (call.name, call.args)
        return [
            ev.ToolCall(
                *head,
                id=call.id,
                name=call.name,
                kind=tool_kind(call.name),
                message=line.uuid,
                input=call.args,
                asks=call.name in USER_INPUT_TOOLS,
            )
        ]

    def _tool_result(self, head: EventHead, line: ChatLine, call: Function) -> list[ev.Event]:
        response = decode_lenient(call.response, Response)
        result = line.toolCallResult
        status = decode_lenient(result, ToolCallStatus).status
        failed = response.error is not None or status == "error"
        text = response.error if response.error is not None else response.output or ""
        events: list[ev.Event] = []
        if failed and text.startswith(PERMISSION_DENIED_PREFIX):
            events.append(ev.PermissionDenied(*head, call.id, call.name, text))
        output = None if result is ev.NO_JSON else result
        content = Raw(encode(text))
        events.append(ev.ToolResult(*head, call.id, failed, content, output, uuid=line.uuid))
        tool, input_ = self._state.writes.pop(call.id, (call.name, ev.NO_JSON))
        if not failed:
            events += file_change_events(head, PendingCall(call.id, tool, input_), text)
        return events


def _system_events(head: EventHead, line: ChatLine, data: bytes) -> list[ev.Event]:
    """A note of the program: what a person was shown, as a notice."""
    if line.subtype in SILENT_SUBTYPES:
        return []
    note = decode_lenient(line.systemPayload, SystemPayload)
    texts = (note.rawCommand, note.title, note.content, note.text, note.message)
    text = next(filter(None, texts), None)
    if text is None:
        return [ev.Unknown(*head, f"system/{line.subtype or ''}".rstrip("/"), data)]
    return [ev.Notice(*head, line.subtype or "system", text)]


def _usage_event(head: EventHead, line: ChatLine, usage: UsageMetadata) -> ev.Usage:
    cached = usage.cachedContentTokenCount
    return ev.Usage(
        *head,
        message=line.uuid,
        model=line.model,
        input=uncached_input(usage.promptTokenCount, cached),
        cache_write=0,
        cache_read=cached,
        output=usage.candidatesTokenCount,
        reasoning=usage.thoughtsTokenCount,
        final=True,
        uuid=line.uuid,
    )


def _helper_usage(head: EventHead, uuid: str | None, payload: Raw) -> list[ev.Event]:
    """A request of a subagent or a helper: it has a line of telemetry, but no message."""
    response = decode_lenient(payload, TelemetryPayload).uiEvent
    helper = _helper_of(response) if response is not None else None
    if response is None or response.name != API_RESPONSE or helper is None:
        return []
    number, session, _, at = head
    return [
        replace(
            _to_usage(response),
            line=number,
            session=session,
            parent=helper,
            at=at,
            message=uuid,
            final=True,
            uuid=uuid,
        )
    ]


def _helper_of(response: ApiResponse) -> str | None:
    """The subagent or helper that sent a request; 0.12 names it in the id of the prompt only."""
    match = _HELPER_PROMPT_PATTERN.search(response.prompt_id)
    return response.subagent_id or (match and match[1]) or response.subagent_name


# -- enriching the stream from the chat --------------------------------------------------------


class TelemetryLine(Struct, gc=False):
    sessionId: str | None = None
    type: str = ""
    subtype: str | None = None
    systemPayload: TelemetryPayload | None = None


class RequestTokens(Struct, frozen=True):
    """The tokens of a request as Qwen Code counts them: the input includes what was cached."""

    input: int
    cached: int
    output: int


class QwenStreamSummary(Struct):
    """What identifies the run of the stream in a chat."""

    requests: list[RequestTokens] = field(default_factory=list)  # of the main thread
    tokens: int = 0  # of these requests
    result: ev.Result | None = None  # the last one
    result_count: int = 0


def enrich(
    session: str | None, summary: QwenStreamSummary, lines: Iterable[bytes]
) -> list[ev.Event]:
    """Return the result with the usage of the run itself, helpers included."""
    result = summary.result
    if result is None:
        return []
    responses = _find_run(_requests_by_prompt(session, lines), summary)
    if responses is None:
        return []
    requests = [_to_usage(response) for response in responses]
    names = dict.fromkeys(request.model or "" for request in requests) or result.models or {}
    models = sum_usage_by_model(requests, names)
    usage = sum_usage(requests)
    return [
        replace(
            result,
            models=models,
            usage=usage,
            over_session=False,
            requests=len(requests),
            amends=True,
        )
    ]


def _requests_by_prompt(session: str | None, lines: Iterable[bytes]) -> list[list[ApiResponse]]:
    """The requests that follow each prompt of a session."""
    prompts: list[list[ApiResponse]] = []
    for data in lines:
        line = _decode_line(data)
        if line.sessionId != session:
            continue
        response = line.systemPayload.uiEvent if line.systemPayload is not None else None
        if line.type == "user" and line.subtype != "notification":  # of a task that ended
            prompts.append([])
        elif response is not None and response.name == API_RESPONSE and prompts:
            prompts[-1].append(response)
    return prompts


def _find_run(
    prompts: list[list[ApiResponse]], summary: QwenStreamSummary
) -> list[ApiResponse] | None:
    """The requests of the last prompts that match those of the stream; None if none do."""
    count = summary.result_count
    main_thread: list[RequestTokens] = []  # of all prompts
    first = [0]  # of each prompt, in main_thread
    for prompt in prompts:
        main_thread += (_request_tokens(entry) for entry in prompt if _helper_of(entry) is None)
        first.append(len(main_thread))
    for start in range(len(prompts) - count, -1, -1):
        part = range(first[start], first[start + count])
        if len(part) == len(summary.requests) and all(
            main_thread[index] == request
            for index, request in zip(part, summary.requests, strict=True)
        ):
            return [response for prompt in prompts[start : start + count] for response in prompt]
    return None


def _decode_line(data: bytes) -> TelemetryLine:
    try:
        return decode_lenient(data, TelemetryLine)
    except (ValueError, *DECODE_ERRORS):
        return TelemetryLine()


def _request_tokens(response: ApiResponse) -> RequestTokens:
    return RequestTokens(
        input=response.input_token_count or 0,
        cached=response.cached_content_token_count or 0,
        output=response.output_token_count or 0,
    )


def _to_usage(response: ApiResponse) -> ev.Usage:
    cached = response.cached_content_token_count
    return ev.Usage(
        *(0, None, None, None),
        model=response.model or "unknown",
        input=uncached_input(response.input_token_count, cached),
        cache_write=0,
        cache_read=cached,
        output=response.output_token_count,
        reasoning=response.thoughts_token_count,
    )
