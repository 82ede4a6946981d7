"""Rollouts: the session files that Codex writes. Pure.

Every line is {timestamp, type, payload}. What the model said and did is stored twice: as sent
(`response_item`) and as it happened (`event_msg`). Text is read from what happened, because what
was sent also contains summaries and instructions. Calls are read from what was sent, because calls
that were never executed have no event.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import decode_lenient, decode_raw, text_of
from ...codec.redact import repository_name
from ...event import EventHead
from ..typed_reader import TypedLineReader, scan_events, uncached_input
from . import tables
from .wire import (
    CodexLine,
    FileChange,
    FileDiff,
    GitInfo,
    Item,
    Payload,
    RateLimits,
    RateLimitWindow,
    TokenCountInfo,
    TokenUsage,
)

ErrorDetails = tuple[str | None, int | None, str]  # kind, HTTP status, text
_SILENT_ITEM_TYPES = (  # the line of the call has it all
    "McpToolCall",
    "WebSearch",
    "ContextCompaction",
    "Plan",
    "HookPrompt",
    "ImageView",
    "CollabAgentToolCall",
)


class RolloutState(Struct):
    """What must survive between two lines. Stored in the ledger: field names stay."""

    session: str | None = None
    version: str | None = None
    cwd: str | None = None
    model: str | None = None
    sandbox: str | None = None
    window: int | None = None
    turn: str | None = None
    # Model, sandbox and window of the last Started event.
    last_setup: tuple[str | None, str | None, int | None] = (None, None, None)
    recorded: bool = False  # the next token_count repeats a token_usage_record
    total: int | None = None  # tokens of the thread, by the last token_count
    answered: bool = False  # the model answered since the last token_count
    calls: dict[str, tuple[str, Raw]] = field(default_factory=dict)  # without output yet
    codes: dict[str, int] = field(default_factory=dict)  # exit codes that precede their output
    items: bool = False  # this version writes items
    error: ErrorDetails | None = None  # the error that the turn will end with


class CodexReaderState(Struct):
    """The stored state of a reader."""

    rollout: RolloutState = field(default_factory=RolloutState)


def model_usage(usage: TokenUsage | None) -> ev.ModelUsage:
    """The usage in counters that do not overlap."""
    if usage is None:
        return ev.ModelUsage(None, None, None, None, None)
    cached = usage.cached_input_tokens
    written = usage.cache_write_input_tokens
    return ev.ModelUsage(
        input=uncached_input(usage.input_tokens, cached, written),
        cache_write=written,
        cache_read=cached,
        output=usage.output_tokens,
        reasoning=usage.reasoning_output_tokens,
    )


class RolloutReader(TypedLineReader[CodexLine, CodexReaderState]):
    """Turns the lines of one rollout into events."""

    def __init__(self) -> None:
        super().__init__(CodexLine, CodexReaderState())

    @property
    def session(self) -> str | None:
        """The thread that the rollout belongs to; None before its first line."""
        return self._state.rollout.session

    def _events(
        self, line: CodexLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        return self.events(line, data, number)

    def events(self, line: CodexLine, data: bytes, number: int) -> list[ev.Event]:
        """Return the events of a decoded line."""
        payload = line.payload
        state = self._state.rollout
        if payload is None:
            head = (number, state.session, None, line.timestamp)
            return [ev.Unknown(*head, f"{line.type} without payload", data)]
        if line.type == "session_meta" and state.session is None:
            state.session = payload.id
        head = (number, state.session, None, line.timestamp)
        if payload.role == "assistant" or payload.type in tables.MODEL_ITEM_TYPES:
            state.answered = True
        build = _EVENT_BUILDERS.get((line.type, payload.type))
        build = build or _EVENT_BUILDERS.get((line.type, None))
        events = build(self, head, payload) if build is not None else None
        if events is not None:
            return events
        if _is_ignored(line.type, payload.type):
            return []
        if payload.item is not None and line.type == "event_msg":
            return [ev.Unknown(*head, f"item {payload.item.type}", data)]
        kind = "/".join(filter(None, (line.type, payload.type)))
        return [ev.Unknown(*head, kind or "no type", data)]

    def started_event(self, at: datetime | None) -> ev.Started:
        """Everything known so far about the setup of the turn."""
        state = self._state.rollout
        return ev.Started(
            *(0, state.session, None, at),
            agent_version=state.version,
            model=state.model,
            cwd=state.cwd,
            permission_mode=state.sandbox,
            context_window=state.window,
        )

    # -- session and turn ----------------------------------------------------------------------

    def _session_meta(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        state = self._state.rollout
        if state.version is not None or payload.id != state.session:
            return []  # of the thread that this one was forked from
        state.version = payload.cli_version
        state.cwd = payload.cwd
        git = payload.git or GitInfo()
        started = ev.Started(
            *head,
            agent_version=payload.cli_version,
            cwd=payload.cwd,
            transcript=True,
            repository=repository_name(git.repository_url or ""),
            branch=git.branch,
            commit=git.commit_hash,
        )
        return [started]

    def _turn_started(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        state = self._state.rollout
        state.turn = payload.turn_id
        state.error = None
        state.window = payload.model_context_window or state.window
        return []

    def _turn_context(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        state = self._state.rollout
        policy = payload.sandbox_policy
        state.turn = payload.turn_id or state.turn
        state.model = payload.model or state.model
        state.cwd = payload.cwd or state.cwd
        if policy is not None:
            state.sandbox = policy.type or policy.mode
        setup = (state.model, state.sandbox, state.window)
        if setup == state.last_setup:
            return []
        state.last_setup = setup
        return [
            ev.Started(
                *head,
                agent_version=state.version,
                model=state.model,
                cwd=state.cwd,
                permission_mode=state.sandbox,
                context_window=state.window,
            )
        ]

    # -- usage ---------------------------------------------------------------------------------

    def _usage_record(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        self._state.rollout.recorded = True
        # With the turn: small model servers repeat their response ids in every run.
        return [self._usage(head, f"{payload.turn_id}/{payload.response_id}", payload.usage)]

    def _usage(self, head: EventHead, request: str, usage: TokenUsage | None) -> ev.Usage:
        share = model_usage(usage)
        return ev.Usage(
            *head,
            message=request,
            model=self._state.rollout.model,
            input=share.input,
            cache_write=share.cache_write,
            cache_read=share.cache_read,
            output=share.output,
            reasoning=share.reasoning,
            cache_write_1h=0,
            final=True,
            uuid=request,
        )

    def _token_count(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """In older versions the only line about a request; it may be repeated."""
        state = self._state.rollout
        info = payload.info or TokenCountInfo()
        last = info.last_token_usage
        total = info.total_token_usage.total_tokens if info.total_token_usage is not None else None
        events = self._rate_limit(head, payload.rate_limits)
        # The window first: the use of the context is a fraction of it.
        if info.model_context_window is not None and info.model_context_window != state.window:
            state.window = info.model_context_window
            setup = (state.version, state.model, state.cwd)
            events.append(ev.Started(*head, *setup, context_window=state.window))
        # A turn may start with the total of the turn before, which need not be in these lines.
        is_first = state.total is None and not state.answered
        is_new = not (state.recorded or is_first) and total not in (None, state.total)
        if is_new and last is not None and last.input_tokens:
            # A thread's total is unique in the thread; older versions do not number its turns.
            request = f"{state.turn or state.session}/{total}"
            events.append(self._usage(head, request, last))
        state.recorded = False
        state.answered = False
        state.total = total if total is not None else state.total
        return events

    def _rate_limit(self, head: EventHead, limits: RateLimits | None) -> list[ev.Event]:
        if limits is None or (limits.primary is None and limits.rate_limit_reached_type is None):
            return []
        window = limits.primary or RateLimitWindow()
        status = "allowed" if limits.rate_limit_reached_type is None else "rejected"
        share = None if window.used_percent is None else window.used_percent / 100
        kind = None if window.window_minutes is None else f"{window.window_minutes} minutes"
        kind = limits.rate_limit_reached_type or kind
        return [ev.RateLimit(*head, status, window.resets_at, kind, share)]

    def _compaction(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        return [ev.Compaction(*head, "auto")]

    # -- messages ------------------------------------------------------------------------------

    def _item(self, head: EventHead, payload: Payload) -> list[ev.Event] | None:
        item = payload.item or Item()
        self._state.rollout.items = True
        text = text_of(item.content) if item.content is not ev.NO_JSON else ""
        if item.type == "AgentMessage":
            return [ev.Text(*head, item.id, text)]
        if item.type == "UserMessage":
            return [ev.UserMessage(*head, "prompt", text)]
        if item.type == "Reasoning":
            return [ev.Thinking(*head, item.id, "\n".join(item.summary_text or ()))]
        if item.type == "CommandExecution":
            return self._command_finished(item)
        if item.type == "FileChange":
            completed = item.status == "completed"
            return file_change_events(head, item.id, item.changes) if completed else []
        return [] if item.type in _SILENT_ITEM_TYPES else None

    def _command_finished(self, item: Item) -> list[ev.Event]:
        """Keep the exit code: the output follows, or came first if the command was cut off."""
        state = self._state.rollout
        if item.id in state.calls and item.exit_code is not None:
            state.codes[item.id] = item.exit_code
        return []

    def _message(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """A message in a version without items."""
        text = payload.message or payload.text or ""
        if payload.type == "user_message":
            return [ev.UserMessage(*head, "prompt", text)]
        if payload.type == "agent_reasoning":
            return [ev.Thinking(*head, None, text)]
        return [] if self._state.rollout.items else [ev.Text(*head, None, text)]

    # -- calls ---------------------------------------------------------------------------------

    def _tool_call(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        name = payload.name or {"local_shell_call": "local_shell"}.get(payload.type, payload.type)
        input_ = ev.NO_JSON
        if payload.arguments is not ev.NO_JSON:
            input_ = tables.unwrap_json_string(payload.arguments)
        elif payload.input is not ev.NO_JSON:
            input_ = payload.input
        elif payload.action is not ev.NO_JSON:
            input_ = payload.action
        id_ = payload.call_id or payload.id or ""
        self._state.rollout.calls[id_] = (name, input_)
        return [
            ev.ToolCall(
                *head,
                id=id_,
                name=name,
                kind=tables.tool_kind(name),
                input=input_,
                asks=name in tables.USER_INPUT_TOOLS,
            )
        ]

    def _web_search(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """A search runs in the service: it has no output."""
        number, _, _, _ = head
        id_ = payload.id or payload.call_id or f"search {number}"
        return [
            ev.ToolCall(*head, id_, "web_search", "web", input=payload.action),
            ev.ToolResult(*head, id_, payload.status == "failed"),
        ]

    def _tool_output(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        state = self._state.rollout
        id_ = payload.call_id or ""
        name, input_ = state.calls.pop(id_, ("", ev.NO_JSON))
        text = text_of(payload.output)
        code = state.codes.pop(id_, None)
        if code is None:
            code = tables.parse_exit_code(text)
        failed = tables.is_failed(name, text, code)
        events: list[ev.Event] = []
        if failed and tables.is_refused(text, code, state.sandbox):
            input_ = _with_sandbox(input_, state.sandbox)
            events.append(ev.PermissionDenied(*head, id_, name, text, input_))
        events.append(ev.ToolResult(*head, id_, failed, payload.output))
        if not failed and not state.items:  # with items, they name the files
            for path, change in tables.parse_patched_files(text):
                events.append(ev.FileChanged(*head, path, change, id_))
        return events

    # -- end of a turn -------------------------------------------------------------------------

    def _error(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        text = payload.message or ""
        kind, status = tables.classify_error(text, payload.codex_error_info)
        self._state.rollout.error = (kind, status, text)
        return []

    def _retry(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        return retry_events(head, payload.message or "")

    def _turn_complete(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        error = self._state.rollout.error
        if payload.error is not None:
            text = payload.error.message or ""
            error = (*tables.classify_error(text, payload.error.codex_error_info), text)
        self._state.rollout.error = None
        duration = payload.duration_ms
        if error is not None:
            return [failed_result(head, error, duration)]
        answer = payload.last_agent_message
        return [ev.Result(*head, "success", text=answer, duration_ms=duration)]

    def _turn_aborted(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        reason = payload.reason or "interrupted"
        result = ev.Result(
            *head,
            "error",
            is_error=True,
            terminal_reason=f"aborted_{reason}",
            duration_ms=payload.duration_ms,
        )
        return [ev.UserMessage(*head, "interrupted", reason), result]


def _is_ignored(line_type: str, payload_type: str) -> bool:
    if line_type == "event_msg":
        return payload_type in tables.IGNORED_EVENT_TYPES
    if line_type == "response_item":
        return payload_type in tables.IGNORED_ITEM_TYPES
    return line_type in tables.IGNORED_LINE_TYPES


def failed_result(head: EventHead, error: ErrorDetails, duration: int | None = None) -> ev.Result:
    """The result of a failed turn."""
    kind, status, text = error
    return ev.Result(
        *head,
        "error",
        is_error=True,
        errors=(text,),
        api_error=kind,
        api_status=status,
        duration_ms=duration,
    )


def retry_events(head: EventHead, text: str) -> list[ev.Event]:
    """An error line that only announces another attempt."""
    attempt, limit, reason = tables.parse_reconnect(text) or (None, None, text)
    return [ev.Retry(*head, attempt, limit, tables.classify_error(reason)[1], reason)]


def file_change_events(head: EventHead, call: str, changes: Raw) -> list[ev.Event]:
    """The files of an applied patch: a list in the stream, an object in a rollout."""
    return [ev.FileChanged(*head, path, change, call) for path, change in file_changes(changes)]


def file_changes(changes: Raw) -> list[tuple[str, str]]:
    """The paths of a patch, each with created, modified or deleted."""
    if bytes(changes)[:1] == b"[":
        files = decode_lenient(changes, list[FileChange])
        return [(file.path, tables.change_kind(file.kind)) for file in files]
    paths: list[tuple[str, str]] = []
    for path, diff in decode_lenient(changes, dict[str, FileDiff]).items():
        if diff.move_path:
            paths += [(path, "deleted"), (diff.move_path, "created")]
        else:
            paths.append((path, tables.change_kind(diff.type)))
    return paths


def _with_sandbox(input_: Raw, sandbox: str | None) -> Raw:
    """The input of a denied call with its sandbox: the allow rule depends on both."""
    value = decode_raw(input_)
    fields = value if isinstance(value, dict) else {"input": value}
    return Raw(encode({**fields, "sandbox_policy": sandbox}))


EventBuilder = Callable[[RolloutReader, EventHead, Payload], list[ev.Event] | None]
_EVENT_BUILDERS: dict[tuple[str, str | None], EventBuilder] = {
    ("session_meta", None): RolloutReader._session_meta,
    ("turn_context", None): RolloutReader._turn_context,
    ("token_usage_record", None): RolloutReader._usage_record,
    ("compacted", None): RolloutReader._compaction,
    ("event_msg", "task_started"): RolloutReader._turn_started,
    ("event_msg", "turn_started"): RolloutReader._turn_started,
    ("event_msg", "token_count"): RolloutReader._token_count,
    ("event_msg", "item_completed"): RolloutReader._item,
    ("event_msg", "user_message"): RolloutReader._message,
    ("event_msg", "agent_message"): RolloutReader._message,
    ("event_msg", "agent_reasoning"): RolloutReader._message,
    ("event_msg", "error"): RolloutReader._error,
    ("event_msg", "stream_error"): RolloutReader._retry,
    ("event_msg", "task_complete"): RolloutReader._turn_complete,
    ("event_msg", "turn_complete"): RolloutReader._turn_complete,
    ("event_msg", "turn_aborted"): RolloutReader._turn_aborted,
    ("response_item", "function_call"): RolloutReader._tool_call,
    ("response_item", "custom_tool_call"): RolloutReader._tool_call,
    ("response_item", "local_shell_call"): RolloutReader._tool_call,
    ("response_item", "function_call_output"): RolloutReader._tool_output,
    ("response_item", "custom_tool_call_output"): RolloutReader._tool_output,
    ("response_item", "web_search_call"): RolloutReader._web_search,
}


# The lines that a usage sum needs.
_USAGE_MARKERS = (
    b'"token_',
    b'"session_meta"',
    b'"turn_context"',
    b'"task_started"',
    b'"turn_started"',
)


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folders with rollouts, archived ones included."""
    root = (environment.get("CODEX_HOME") or f"{home}/.codex").rstrip("/")
    return [f"{root}/sessions", f"{root}/archived_sessions"]


def transcript_pattern(session: str) -> str:
    return f"**/rollout-*-{session}.jsonl"


class _LineProbe(Struct, gc=False):
    timestamp: str | None = None
    payload: object = None


def is_transcript_line(line: bytes) -> bool:
    probe = decode_lenient(line, _LineProbe)
    return probe.timestamp is not None and isinstance(probe.payload, dict)


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests of a rollout and its start, skipping all other lines undecoded."""
    return scan_events(RolloutReader(), lines, (ev.Started, ev.Usage), _USAGE_MARKERS)
