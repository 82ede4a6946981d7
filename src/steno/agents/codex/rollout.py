"""Rollouts: the session files that Codex writes. Pure.

Every line is {timestamp, type, payload}. What the model said and did is stored twice: as sent
(`response_item`) and as it happened (`event_msg`). Text is read from what happened, because what
was sent also contains summaries and instructions; only a file without such events is read from what
was sent. Calls are read from what was sent, because calls that were never executed have no event.

Versions up to 0.29 write what is now the payload, without times; some files have the fields of the
payload beside the timestamp. From 0.88 to 0.142 the rollout of a fork begins with a copy of the
rollout it was forked from, whose events are not its own: see `_is_copied`.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_lenient, decode_raw, text_of
from ...codec.redact import repository_name
from ...event import EventHead
from ..base import is_uuid
from ..typed_reader import TypedLineReader
from . import tables
from .collab import SPAWN_TOOL, activity_events, describe_task, spawned_threads
from .events import (
    ErrorDetails,
    failed_result,
    file_change_events,
    model_usage,
    retry_events,
)
from .messages import MessageState, attachment_events, folder_in, image_events, text_parts
from .outputs import is_failed, parse_output, parse_patched_files
from .totals import TotalsState, add_count, add_record, describe_change, forget_requests
from .wire import (
    CodexLine,
    Duration,
    GitInfo,
    Item,
    Payload,
    RateLimits,
    RateLimitWindow,
    SpawnInput,
    TokenCountInfo,
    TokenUsage,
)

_SILENT_ITEM_TYPES = (  # the line of the call has it all
    "McpToolCall",
    "WebSearch",
    "ContextCompaction",
    "Plan",
    "HookPrompt",
    "ImageView",
    "CollabAgentToolCall",
)
# The lines of a copy are written at once; the next prompt comes later. Seen: 11 and 31 ms.
_COPY_GAP = timedelta(milliseconds=20)
# A recording has the first line, which names the thread, and those of its run. Seen in whole files:
# 60 ms.
_CUT_GAP = timedelta(milliseconds=300)


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
    answered: bool = False  # the model answered since the last token_count
    totals: TotalsState = field(default_factory=TotalsState)
    calls: dict[str, tuple[str, Raw]] = field(default_factory=dict)  # without output yet
    codes: dict[str, int] = field(default_factory=dict)  # exit codes that precede their output
    durations: dict[str, int] = field(default_factory=dict)  # the same, in milliseconds
    items: bool = False  # this version writes items
    messages: MessageState = field(default_factory=MessageState)
    has_lines: bool = False  # after those that name threads
    is_forked: bool = False  # its totals begin with those of another thread
    is_cut: bool = False  # lines are missing after the first one
    is_copy: bool = False  # the lines are a copy of another thread's
    are_turns_copied: bool = False  # with turns whose ids have a time
    last_at: datetime | None = None
    error: ErrorDetails | None = None  # the error that the turn will end with


class CodexReaderState(Struct):
    """The stored state of a reader."""

    rollout: RolloutState = field(default_factory=RolloutState)


class RolloutReader(TypedLineReader[CodexLine, CodexReaderState]):
    """Turns the lines of one rollout into events."""

    def __init__(self, is_whole: bool = False) -> None:
        """`is_whole`: the lines are those of a file from its beginning, without any left out."""
        super().__init__(CodexLine, CodexReaderState())
        self._is_whole = is_whole

    @property
    def is_copying(self) -> bool:
        """Whether the last line was a copy of another thread's."""
        return self._state.rollout.is_copy

    @property
    def difference(self) -> int:
        """By how much the thread's own total exceeds its requests, at the last count."""
        return self._state.rollout.totals.difference

    @property
    def session(self) -> str | None:
        """The thread that the rollout belongs to; None before its first line."""
        return self._state.rollout.session

    def _events(
        self, line: CodexLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        return self.events(line, data, number)

    def events(self, line: CodexLine, data: bytes, number: int) -> list[ev.Event]:
        """Return the events of a decoded line, or of a document."""
        if line.items is not None:
            first = CodexLine(type="session_meta", payload=line.session or Payload())
            items = (CodexLine(type="response_item", payload=item) for item in line.items)
            return [event for part in (first, *items) for event in self.events(part, data, number)]
        state = self._state.rollout
        kind, payload = _kind_and_payload(line, data)
        if kind == "session_meta":
            self._note_thread(payload, line.timestamp)
        elif kind and not state.has_lines:
            state.has_lines = True
            state.is_cut = _is_gap(state.last_at, line.timestamp, _CUT_GAP)
        head = (number, state.session, None, line.timestamp)
        if state.is_copy and self._is_copied(kind, payload, line.timestamp):
            if payload.info is not None:
                add_count(state.totals, payload.info, state.version)
            return []
        held: list[ev.Event] = []
        if payload.role == "assistant" or payload.type in tables.MODEL_ITEM_TYPES:
            state.answered = True
            held = state.messages.release(state.session)
        build = _EVENT_BUILDERS.get((kind, payload.type)) or _EVENT_BUILDERS.get((kind, None))
        events = build(self, head, payload) if build is not None else None
        if events is not None:
            return held + events
        if _is_ignored(kind, payload.type):
            return held
        if payload.item is not None and kind == "event_msg":
            return [*held, ev.Unknown(*head, f"item {payload.item.type}", data)]
        name = "/".join(filter(None, (kind, payload.type)))
        return [*held, ev.Unknown(*head, name or "no type", data)]

    def _note_thread(self, payload: Payload, at: datetime | None) -> None:
        """The first line names the thread; in a fork, the second names the thread it copies."""
        state = self._state.rollout
        state.last_at = at or state.last_at
        state.is_forked = state.is_forked or payload.forked_from_id is not None
        if state.session is None:
            state.session = payload.id
        elif payload.id not in (None, state.session) and not state.has_lines:
            state.is_copy = state.is_forked = True

    def _is_copied(self, kind: str, payload: Payload, at: datetime | None) -> bool:
        """Whether a line is still part of the copy, which the first turn of the fork ends.

        Ids of turns and threads begin with their time.
        Older versions don't number turns: the copy is written at once.
        """
        state = self._state.rollout
        before = state.last_at
        state.last_at = at or before
        is_own = _is_later_id(payload.turn_id, state.session)
        if is_own is not None:
            state.are_turns_copied = True
        elif not state.are_turns_copied:
            is_own = kind != "session_meta" and _is_gap(before, at, _COPY_GAP)
        if not is_own:
            return True
        state.is_copy = False
        state.answered = False
        forget_requests(state.totals)
        return False

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
            return []  # repeated
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
        if payload.model_context_window in (None, state.window):
            return []
        state.window = payload.model_context_window
        if state.model is None:  # announced together
            return []
        return [ev.Started(*head, agent_version=state.version, context_window=state.window)]

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
        state = self._state.rollout
        state.recorded = True
        add_record(state.totals, payload.usage)
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
        events = self._rate_limit(head, payload.rate_limits)
        # The window first: the use of the context is a fraction of it.
        if info.model_context_window is not None and info.model_context_window != state.window:
            state.window = info.model_context_window
            setup = (state.version, state.model, state.cwd)
            events.append(ev.Started(*head, *setup, context_window=state.window))
        is_new = add_count(
            state.totals,
            info,
            state.version,
            recorded=state.recorded,
            answered=state.answered,
            from_zero=self._is_whole or not (state.is_forked or state.is_cut),
        )
        last = info.last_token_usage
        if is_new and last is not None and last.input_tokens:
            events.append(self._usage(head, self._request_id(head), last))
        difference = describe_change(state.totals)
        if difference is not None:
            events.append(ev.Notice(*head, "totals", difference))
        state.recorded = False
        state.answered = False
        return events

    def _request_id(self, head: EventHead) -> str:
        """A thread's total is unique until it starts again; older versions don't number turns."""
        state = self._state.rollout
        totals = state.totals
        count = f"line {head[0]}" if totals.total is None else str(totals.total)
        restarts = f"{totals.restarts}:" if totals.restarts else ""
        return f"{state.turn or state.session}/{restarts}{count}"

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
        events: list[ev.Event] = [ev.Compaction(*head, "auto")]
        if payload.message:
            events.append(ev.UserMessage(*head, "summary", payload.message))
        return events

    # -- messages ------------------------------------------------------------------------------

    def _item(self, head: EventHead, payload: Payload) -> list[ev.Event] | None:
        item = payload.item or Item()
        self._state.rollout.items = True
        self._state.rollout.messages.expect_events()
        text = text_of(item.content) if item.content is not ev.NO_JSON else ""
        if item.type == "AgentMessage":
            return [ev.Text(*head, item.id, text)]
        if item.type == "UserMessage":
            return [ev.UserMessage(*head, "prompt", text), *attachment_events(head, item.content)]
        if item.type == "Reasoning":
            return [ev.Thinking(*head, item.id, "\n".join(item.summary_text or ()))]
        if item.type == "CommandExecution":
            return self._command_finished(item)
        if item.type == "FileChange":
            completed = item.status == "completed"
            return file_change_events(head, item.id, item.changes) if completed else []
        if item.type == "SubAgentActivity":
            return activity_events(item, head)
        return [] if item.type in _SILENT_ITEM_TYPES else None

    def _command_finished(self, item: Item) -> list[ev.Event]:
        """Keep how it ended: the output follows, or came first if the command was cut off."""
        self._note_end(item.id, item.exit_code, item.duration)
        return []

    def _exec_command_end(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """In some versions without items (the public files are of 0.93 to 0.125)."""
        self._note_end(payload.call_id or "", payload.exit_code, payload.duration)
        return []

    def _note_end(self, call: str, code: int | None, duration: Duration | None) -> None:
        state = self._state.rollout
        if call in state.calls:
            if code is not None:
                state.codes[call] = code
            if duration is not None:
                state.durations[call] = duration.milliseconds

    def _message(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """A message in a version without items."""
        state = self._state.rollout
        text = payload.message or payload.text or ""
        is_repeated = payload.type == "agent_message" and state.messages.take_repeated(text)
        state.messages.expect_events()
        if payload.type == "user_message":
            return [ev.UserMessage(*head, "prompt", text), *image_events(head, payload.images)]
        if payload.type == "agent_reasoning":
            return [ev.Thinking(*head, None, text)]
        return [] if state.items or is_repeated else [ev.Text(*head, None, text)]

    def _sent_message(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """A message as it was sent; it counts in files without events for messages."""
        state = self._state.rollout
        events: list[ev.Event] = []
        if state.cwd is None and payload.role == "user":
            state.cwd = folder_in(payload.content)
            if state.cwd is not None:
                events.append(ev.Started(*head, cwd=state.cwd))
        events += state.messages.read(head, payload)
        if head[3] is None:  # a version that writes nothing else
            events += state.messages.release(state.session)
        return events

    def _sent_reasoning(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        if self._state.rollout.messages.has_events:
            return []
        texts = text_parts(payload.summary)
        return [ev.Thinking(*head, None, "\n".join(texts))] if texts else []

    def _agent_message(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """A message between agents: the task of a subagent, or its answer."""
        return [ev.UserMessage(*head, "synthetic", text_of(payload.content))]

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
        id_ = payload.call_id or payload.id or ""
        name, input_ = state.calls.pop(id_, ("", ev.NO_JSON))
        output = parse_output(payload.output)
        output = replace(
            output,
            exit_code=state.codes.pop(id_, output.exit_code),
            duration_ms=state.durations.pop(id_, output.duration_ms),
        )
        failed = is_failed(name, output)
        code = output.exit_code
        events: list[ev.Event] = []
        if failed and tables.is_refused(output.text, code, state.sandbox):
            input_ = _with_sandbox(input_, state.sandbox)
            events.append(ev.PermissionDenied(*head, id_, name, output.text, input_))
        details = None if code is None else ev.ToolResultDetails(exit_code=code)
        result = ev.ToolResult(*head, id_, failed, output.content, details, output.duration_ms)
        events.append(result)
        if name == SPAWN_TOOL:
            about = describe_task(decode_lenient(input_, SpawnInput).message)
            events += (
                ev.TaskStarted(*head, thread, id_, "subagent", None, about)
                for thread in spawned_threads(payload)
            )
        if not failed and not state.items:  # with items, they name the files
            for path, letter in parse_patched_files(output.text):
                events.append(ev.FileChanged(*head, path, tables.change_kind(letter), id_))
        return events

    # -- end of a turn -------------------------------------------------------------------------

    def _error(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        text = payload.message or ""
        kind, status = tables.classify_error(text, payload.codex_error_info)
        self._state.rollout.error = (kind, status, text)
        return [ev.Notice(*head, "error", text)]

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
    ("event_msg", "exec_command_end"): RolloutReader._exec_command_end,
    ("event_msg", "error"): RolloutReader._error,
    ("event_msg", "stream_error"): RolloutReader._retry,
    ("event_msg", "task_complete"): RolloutReader._turn_complete,
    ("event_msg", "turn_complete"): RolloutReader._turn_complete,
    ("event_msg", "turn_aborted"): RolloutReader._turn_aborted,
    ("response_item", "message"): RolloutReader._sent_message,
    ("response_item", "agent_message"): RolloutReader._agent_message,
    ("response_item", "reasoning"): RolloutReader._sent_reasoning,
    ("response_item", "function_call"): RolloutReader._tool_call,
    ("response_item", "custom_tool_call"): RolloutReader._tool_call,
    ("response_item", "local_shell_call"): RolloutReader._tool_call,
    ("response_item", "function_call_output"): RolloutReader._tool_output,
    ("response_item", "custom_tool_call_output"): RolloutReader._tool_output,
    ("response_item", "local_shell_call_output"): RolloutReader._tool_output,
    ("response_item", "web_search_call"): RolloutReader._web_search,
}


ROLLOUT_LINE_TYPES = frozenset({"session_meta", "turn_context", "compacted", "token_usage_record"})
_EVENT_TYPES = {
    *tables.IGNORED_EVENT_TYPES,
    *(kind for line, kind in _EVENT_BUILDERS if line == "event_msg"),
}


def _kind_and_payload(line: CodexLine, data: bytes) -> tuple[str, Payload]:
    """The type of a line and its payload, whose fields older files have in the line itself."""
    if line.payload is not None:
        return line.type, line.payload
    if line.record_type is not None:  # "state": without content
        return "world_state", Payload()
    payload = decode_lenient(data, Payload)
    kind = line.type
    if kind in tables.IGNORED_LINE_TYPES or kind in ROLLOUT_LINE_TYPES:
        return kind, payload
    if kind in _EVENT_TYPES:
        return "event_msg", payload
    if not kind:
        return ("session_meta" if line.id is not None else ""), payload
    return "response_item", payload


def _is_gap(before: datetime | None, at: datetime | None, least: timedelta) -> bool:
    return before is not None and at is not None and at - before > least


def _is_later_id(id_: str | None, other: str | None) -> bool | None:
    """Whether an id is not older than another; None unless both begin with their time."""
    if id_ is None or other is None:
        return None
    if not all(is_uuid(name) and name[14] == "7" for name in (id_, other)):
        return None
    return id_.lower() >= other.lower()
