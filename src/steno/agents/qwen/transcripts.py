"""The words that Qwen Code uses, as tables: tools, windows, permissions. Data, and how a rule is written."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import DECODE_ERRORS, Count, decode_lenient
from .. import chat_log as chat
from ..chat_log import PendingCall


def _tool_entries(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


TOOL_KINDS = {
    **_tool_entries("shell", "run_shell_command", "monitor", "task_stop"),
    **_tool_entries("file_read", "read_file", "read_many_files", "list_directory"),
    **_tool_entries("file_write", "write_file"),
    **_tool_entries("file_edit", "edit", "replace"),
    **_tool_entries("notebook", "notebook_edit"),
    **_tool_entries("search", "grep_search", "glob", "tool_search", "search_file_content"),
    **_tool_entries("subagent", "agent", "task"),
    **_tool_entries("web", "web_fetch", "web_search"),
    **_tool_entries("todo", "todo_write"),
}
USER_INPUT_TOOLS = frozenset({"ask_user_question", "exit_plan_mode"})
FILE_WRITE_TOOLS = frozenset({"write_file", "edit", "replace", "notebook_edit"})
PERMISSION_DENIED_PREFIX = "Qwen Code requires permission to use"


def tool_kind(name: str) -> str:
    """The kind of a tool (E2); MCP tools carry it in their name."""
    return TOOL_KINDS.get(name) or ("mcp" if name.startswith("mcp__") else "other")


def context_window(model: str) -> int | None:
    """Its models are those of any provider; none is known here."""
    return None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have let this call through."""
    command = given.get("command") if isinstance(given, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool


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
    return (
        known.sessionId is not None
        and known.uuid is not None
        and (known.message is None or known.message.parts is not None)
    )


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a chat tells of, and where it began."""
    return chat.scan_requests(QwenTranscriptReader(), lines)


def file_change_events(head: EventHead, call: PendingCall, answer: str) -> list[ev.Event]:
    """The file that a call did change, in the words of its answer."""
    if call.tool not in FILE_WRITE_TOOLS:
        return []
    asked = decode_lenient(call.input, FileInput)
    path = asked.file_path or asked.notebook_path
    change = (
        "created" if answer.startswith(("Successfully created", "Created new file")) else "modified"
    )
    return [] if path is None else [ev.FileChanged(*head, path, change, call.id)]


class QwenTranscriptReader(chat.TranscriptReader[ChatLine, QwenTranscriptState]):
    """Turns the lines of one chat into events."""

    def __init__(self) -> None:
        super().__init__(ChatLine, QwenTranscriptState())

    def _events(
        self, line: ChatLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
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
        return [
            ev.Thinking(*head, line.uuid, part.text)
            if part.thought is True
            else ev.Text(*head, line.uuid, part.text)
        ]

    def _tool_call(self, head: EventHead, line: ChatLine, call: Function) -> list[ev.Event]:
        if call.name in FILE_WRITE_TOOLS:
            self._state.writes[call.id] = (call.name, call.args)
        return [
            ev.ToolCall(
                *head,
                call.id,
                call.name,
                tool_kind(call.name),
                line.uuid,
                call.args,
                asks=call.name in USER_INPUT_TOOLS,
            )
        ]

    def _tool_result(self, head: EventHead, line: ChatLine, call: Function) -> list[ev.Event]:
        response = decode_lenient(call.response, Response)
        failed = response.error is not None or (
            line.toolCallResult is not None and line.toolCallResult.status == "error"
        )
        text = response.error if response.error is not None else response.output or ""
        found: list[ev.Event] = []
        if failed and text.startswith(PERMISSION_DENIED_PREFIX):
            found.append(ev.PermissionDenied(*head, call.id, call.name, text))
        found.append(ev.ToolResult(*head, call.id, failed, Raw(encode(text))))
        name, given = self._state.writes.pop(call.id, (call.name, ev.NO_JSON))
        return (
            found
            if failed
            else found + file_change_events(head, PendingCall(call.id, name, given), text)
        )


def _usage_event(head: EventHead, line: ChatLine, told: UsageMetadata) -> ev.Usage:
    """Four counters that do not overlap; see the package's docstring."""
    prompt, cached = told.promptTokenCount, told.cachedContentTokenCount
    fresh = None if prompt is None or cached is None else max(0, prompt - cached)
    figures = (fresh, 0, cached, told.candidatesTokenCount, told.thoughtsTokenCount)
    return ev.Usage(*head, line.uuid, line.model, *figures, final=True, uuid=line.uuid)


TokenCounts = tuple[int, int, int]  # all input, what of it was cached, output


class ApiResponse(Struct, gc=False, rename={"name": "event.name"}):
    name: str | None = None
    model: str | None = None
    input_token_count: Count | None = None
    output_token_count: Count | None = None
    cached_content_token_count: Count | None = 0
    thoughts_token_count: Count | None = 0
    subagent_name: str | None = None


class TelemetryPayload(Struct, gc=False):
    uiEvent: ApiResponse | None = None


class TelemetryLine(Struct, gc=False):
    sessionId: str | None = None
    type: str = ""
    systemPayload: TelemetryPayload | None = None


class QwenStreamSummary(Struct):
    """What the stream told: the requests of its main thread, its last result, and how many results there were."""

    requests: list[TokenCounts] = field(default_factory=list)
    result: ev.Result | None = None
    result_count: int = 0


def enrich(session: str | None, told: QwenStreamSummary, lines: Iterable[bytes]) -> list[ev.Event]:
    """The result once more, with what the run itself used."""
    own = None if told.result is None else _find_run(_requests_by_prompt(session, lines), told)
    if own is None or told.result is None:
        return []
    names = (
        dict.fromkeys(used.model or "unknown" for used in own) if own else told.result.models or {}
    )
    models = {
        name: _sum_usage([used for used in own if (used.model or "unknown") == name])
        for name in names
    }
    return [
        replace(told.result, models=models, usage=_sum_usage(own), over_session=False, amends=True)
    ]


def _requests_by_prompt(session: str | None, lines: Iterable[bytes]) -> list[list[ApiResponse]]:
    """The requests that follow each prompt of a session."""
    found: list[list[ApiResponse]] = []
    for data in lines:
        line = _decode_line(data)
        if line.sessionId != session:
            continue
        used = line.systemPayload.uiEvent if line.systemPayload is not None else None
        if line.type == "user":
            found.append([])
        elif used is not None and used.name == "qwen-code.api_response" and found:
            found[-1].append(used)
    return found


def _find_run(
    prompts: list[list[ApiResponse]], told: QwenStreamSummary
) -> list[ApiResponse] | None:
    """The requests of the run, the last that can be it; None where none can."""
    for start in range(len(prompts) - told.result_count, -1, -1):
        own = [used for requests in prompts[start : start + told.result_count] for used in requests]
        if [_token_counts(used) for used in own if used.subagent_name is None] == told.requests:
            return own
    return None


def _decode_line(data: bytes) -> TelemetryLine:
    try:
        return decode_lenient(data, TelemetryLine)
    except (ValueError, *DECODE_ERRORS):
        return TelemetryLine()


def _token_counts(used: ApiResponse) -> TokenCounts:
    return (
        used.input_token_count or 0,
        used.cached_content_token_count or 0,
        used.output_token_count or 0,
    )


def _sum_usage(own: list[ApiResponse]) -> ev.ModelUsage:
    """Four counters that do not overlap; thoughts are in the output."""

    def added(name: str) -> Any:
        parts = [getattr(used, name) for used in own]
        return None if None in parts else sum(parts)

    given, cached = added("input_token_count"), added("cached_content_token_count")
    fresh = None if given is None or cached is None else max(0, given - cached)
    return ev.ModelUsage(
        fresh, 0, cached, added("output_token_count"), added("thoughts_token_count")
    )
