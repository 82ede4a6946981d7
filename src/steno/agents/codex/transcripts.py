"""The rollout files that Codex keeps: one line to events. It holds what joins lines, and never opens a file.

Every line is {timestamp, type, payload}. What the model said and did stands there twice, as what was sent
(`response_item`) and as what happened (`event_msg`). Text is taken from what happened: the other also holds summaries
and instructions. Calls are taken from what was sent: calls that were never carried out have no event.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import decode_first_object, decode_lenient, decode_raw, decoder, text_of
from . import tables as words
from . import wire as ln

_line = decoder(ln.CodexLine).decode
EventHead = tuple[int, str | None, str | None, datetime | None]


class RolloutState(Struct):
    """What joins the lines of a rollout."""

    session: str | None = None
    version: str | None = None
    cwd: str | None = None
    model: str | None = None
    sandbox: str | None = None
    window: int | None = None
    turn: str | None = None
    told: tuple[str | None, str | None, int | None] = (
        None,
        None,
        None,
    )  # model, sandbox and window as last announced
    recorded: bool = False  # the request that the next token_count tells of was told already
    total: int | None = None  # of the thread, as the last token_count had it
    calls: dict[str, tuple[str, Raw]] = field(default_factory=dict)  # without their output yet
    codes: dict[str, int] = field(
        default_factory=dict
    )  # exit codes of commands whose output is still to come
    items: bool = False  # this version tells what happened by items
    error: tuple[str | None, int | None, str] | None = (
        None  # the error that a turn is about to end with
    )


def usage_counters(
    usage: ln.TokenUsage | None,
) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    """Input, cache write, cache read, output, reasoning; the first four do not overlap (M1)."""
    if usage is None:
        return None, None, None, None, None
    cached, written, all_ = (
        usage.cached_input_tokens,
        usage.cache_write_input_tokens,
        usage.input_tokens,
    )
    if all_ is None or cached is None or written is None:
        return None, written, cached, usage.output_tokens, usage.reasoning_output_tokens
    return (
        max(0, all_ - cached - written),
        written,
        cached,
        usage.output_tokens,
        usage.reasoning_output_tokens,
    )


class RolloutReader:
    """The lines of one rollout, turned into events."""

    def __init__(self, state: RolloutState | None = None) -> None:
        self.state = state or RolloutState()

    def events(self, line: ln.CodexLine, data: bytes, number: int) -> list[ev.Event]:
        """What a line says. One without a payload says nothing that can be read."""
        payload, state = line.payload, self.state
        if payload is None:
            return [
                ev.Unknown(
                    number,
                    state.session,
                    None,
                    line.timestamp,
                    f"{line.type} without payload",
                    data,
                )
            ]
        if line.type == "session_meta" and state.session is None:
            state.session = payload.id
        head: EventHead = (number, state.session, None, line.timestamp)
        make = _EVENT_BUILDERS.get((line.type, payload.type)) or _EVENT_BUILDERS.get(
            (line.type, None)
        )
        found = make(self, head, payload) if make is not None else None
        if found is not None:
            return found
        if line.type in words.IGNORED_LINE_TYPES or (
            line.type == "event_msg" and payload.type in words.IGNORED_EVENT_TYPES
        ):
            return []
        if line.type == "response_item" and payload.type in words.IGNORED_ITEM_TYPES:
            return []
        if payload.item is not None and line.type == "event_msg":
            return [ev.Unknown(*head, f"item {payload.item.type}", data)]
        return [
            ev.Unknown(*head, "/".join(filter(None, (line.type, payload.type))) or "no type", data)
        ]

    def started_event(self, at: datetime | None) -> ev.Started:
        """All that is known so far of what the turn works with."""
        state = self.state
        about = (state.version, state.model, state.cwd, None, state.sandbox)
        return ev.Started(0, state.session, None, at, *about, context_window=state.window)

    # -- who and where -------------------------------------------------------------------------------------

    def _session_meta(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        state = self.state
        if state.version is not None or payload.id != state.session:
            return []  # of the thread that this one was forked from
        state.version, state.cwd = payload.cli_version, payload.cwd
        return [ev.Started(*head, payload.cli_version, None, payload.cwd, transcript=True)]

    def _turn_started(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        state = self.state
        state.turn, state.error = payload.turn_id, None
        state.window = payload.model_context_window or state.window
        return []

    def _turn_context(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        state, policy = self.state, payload.sandbox_policy
        state.turn, state.model = payload.turn_id or state.turn, payload.model or state.model
        state.cwd = payload.cwd or state.cwd
        state.sandbox = (policy.type or policy.mode) if policy is not None else state.sandbox
        now = (state.model, state.sandbox, state.window)
        if now == state.told:
            return []
        state.told = now
        cwd, version = state.cwd, state.version
        return [
            ev.Started(
                *head, version, state.model, cwd, None, state.sandbox, context_window=state.window
            )
        ]

    # -- what it used ----------------------------------------------------------------------------------------

    def _usage_record(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        self.state.recorded = True
        name = f"{payload.turn_id}/{payload.response_id}"  # small servers give the same names to the answers of every run
        return [self._usage(head, name, payload.usage)]

    def _usage(self, head: EventHead, name: str, usage: ln.TokenUsage | None) -> ev.Usage:
        new, written, cached, output, reasoning = usage_counters(usage)
        return ev.Usage(
            *head,
            name,
            self.state.model,
            new,
            written,
            cached,
            output,
            reasoning,
            0,
            True,
            None,
            name,
        )

    def _token_count(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        """Older versions tell each request by this line alone, and it may be repeated."""
        state, info = self.state, payload.info or ln.TokenCountInfo()
        total = info.total_token_usage.total_tokens if info.total_token_usage is not None else None
        events = self._rate_limit(head, payload.rate_limits)
        fresh = (
            not state.recorded
            and total is not None
            and total != state.total
            and info.last_token_usage is not None
        )
        if fresh and (info.last_token_usage is not None and info.last_token_usage.input_tokens):
            events.append(self._usage(head, f"{state.turn}/{total}", info.last_token_usage))
        state.recorded, state.total = False, total if total is not None else state.total
        if info.model_context_window is not None and info.model_context_window != state.window:
            state.window = info.model_context_window
            events.append(
                ev.Started(
                    *head, state.version, state.model, state.cwd, context_window=state.window
                )
            )
        return events

    def _rate_limit(self, head: EventHead, limits: ln.RateLimits | None) -> list[ev.Event]:
        if limits is None or (limits.primary is None and limits.rate_limit_reached_type is None):
            return []
        full = limits.primary or ln.RateLimitWindow()
        status = "allowed" if limits.rate_limit_reached_type is None else "rejected"
        share = None if full.used_percent is None else full.used_percent / 100
        kind = None if full.window_minutes is None else f"{full.window_minutes} minutes"
        return [
            ev.RateLimit(
                *head, status, full.resets_at, limits.rate_limit_reached_type or kind, share
            )
        ]

    def _compaction(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        return [ev.Compaction(*head, "auto")]

    # -- what was said -----------------------------------------------------------------------------------------

    def _item(self, head: EventHead, payload: ln.Payload) -> list[ev.Event] | None:
        item = payload.item or ln.Item()
        self.state.items = True
        text = text_of(item.content) if item.content is not ev.NO_JSON else ""
        if item.type == "AgentMessage":
            return [ev.Text(*head, item.id, text)]
        if item.type == "UserMessage":
            return [ev.UserMessage(*head, "prompt", text)]
        if item.type == "Reasoning":
            return [ev.Thinking(*head, item.id, "\n".join(item.summary_text or ()))]
        if item.type == "CommandExecution":
            return self._command_finished(head, item)
        if item.type == "FileChange":
            return (
                file_change_events(head, item.id, item.changes)
                if item.status == "completed"
                else []
            )
        if item.type in (
            "McpToolCall",
            "WebSearch",
            "ContextCompaction",
            "Plan",
            "HookPrompt",
            "ImageView",
            "CollabAgentToolCall",
        ):
            return []  # the line of the call tells it
        return None

    def _command_finished(self, head: EventHead, item: ln.Item) -> list[ev.Event]:
        """How a command ended. Its output comes after this, or came before it when it was cut off."""
        if item.id in self.state.calls and item.exit_code is not None:
            self.state.codes[item.id] = item.exit_code
        return []

    def _message(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        """What versions without items tell: a prompt, an answer, a thought."""
        text = payload.message or payload.text or ""
        if payload.type == "user_message":
            return [ev.UserMessage(*head, "prompt", text)]
        if payload.type == "agent_reasoning":
            return [ev.Thinking(*head, None, text)]
        return [] if self.state.items else [ev.Text(*head, None, text)]

    # -- calls ---------------------------------------------------------------------------------------------------

    def _tool_call(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        name = payload.name or {"local_shell_call": "local_shell"}.get(payload.type, payload.type)
        given = next(
            (
                part
                for part in (payload.arguments, payload.input, payload.action)
                if part is not ev.NO_JSON
            ),
            ev.NO_JSON,
        )
        if payload.arguments is not ev.NO_JSON:
            given = words.unwrap_json_string(given)
        id_ = payload.call_id or payload.id or ""
        self.state.calls[id_] = (name, given)
        return [
            ev.ToolCall(
                *head,
                id_,
                name,
                words.tool_kind(name),
                None,
                given,
                False,
                name in words.USER_INPUT_TOOLS,
            )
        ]

    def _web_search(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        """A search is carried out by the service: it has no output."""
        id_ = payload.id or payload.call_id or f"search {head[0]}"
        return [
            ev.ToolCall(*head, id_, "web_search", "web", None, payload.action),
            ev.ToolResult(*head, id_, payload.status == "failed"),
        ]

    def _tool_output(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        id_ = payload.call_id or ""
        name, given = self.state.calls.pop(id_, ("", ev.NO_JSON))
        text = text_of(payload.output)
        code = self.state.codes.pop(id_, None)
        code = words.parse_exit_code(text) if code is None else code
        failed = words.is_failed(name, text, code)
        events: list[ev.Event] = []
        if failed and words.is_refused(text, code, self.state.sandbox):
            events.append(
                ev.PermissionDenied(
                    *head, id_, name, text, _with_sandbox(given, self.state.sandbox)
                )
            )
        return [*events, ev.ToolResult(*head, id_, failed, payload.output)]

    # -- ends ----------------------------------------------------------------------------------------------------

    def _error(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        text = payload.message or ""
        kind, status = words.classify_error(text, payload.codex_error_info)
        self.state.error = (kind, status, text)
        return []

    def _retry(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        return retry_events(head, payload.message or "")

    def _turn_complete(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        error = self.state.error
        if payload.error is not None:
            text = payload.error.message or ""
            error = (*words.classify_error(text, payload.error.codex_error_info), text)
        self.state.error = None
        if error is None:
            return [
                ev.Result(
                    *head,
                    "success",
                    text=payload.last_agent_message,
                    duration_ms=payload.duration_ms,
                )
            ]
        return [failed_result(head, error, payload.duration_ms)]

    def _turn_aborted(self, head: EventHead, payload: ln.Payload) -> list[ev.Event]:
        reason = payload.reason or "interrupted"
        end = ev.Result(
            *head,
            "error",
            True,
            terminal_reason=f"aborted_{reason}",
            duration_ms=payload.duration_ms,
        )
        return [ev.UserMessage(*head, "interrupted", reason), end]


def failed_result(
    head: EventHead, error: tuple[str | None, int | None, str], duration: int | None = None
) -> ev.Result:
    """The end of a turn that failed."""
    kind, status, text = error
    return ev.Result(
        *head, "error", True, None, (text,), api_error=kind, api_status=status, duration_ms=duration
    )


def retry_events(head: EventHead, text: str) -> list[ev.Event]:
    """An error that is none: the agent tries again."""
    attempt, limit, why = words.parse_reconnect(text) or (None, None, text)
    return [ev.Retry(*head, attempt, limit, words.classify_error(why)[1], why)]


def file_change_events(head: EventHead, call: str, changes: Raw) -> list[ev.Event]:
    """The files of a patch that was applied, in either way of telling them."""
    if bytes(changes)[:1] == b"[":
        told: list[tuple[str, str, str | None]] = [
            (change.path, change.kind, None)
            for change in decode_lenient(changes, list[ln.FileChange])
        ]
    else:
        told = [
            (path, diff.type, diff.move_path)
            for path, diff in decode_lenient(changes, dict[str, ln.FileDiff]).items()
        ]
    events: list[ev.Event] = []
    for path, kind, moved in told:
        events.append(
            ev.FileChanged(
                *head, path, "deleted" if moved else words.CHANGE_KINDS.get(kind, "modified"), call
            )
        )
        if moved:
            events.append(ev.FileChanged(*head, moved, "created", call))
    return events


def _with_sandbox(given: Raw, sandbox: str | None) -> Raw:
    """What was asked, and the sandbox that it was refused in: only both say which setting would allow it."""
    asked = decode_raw(given)
    return Raw(
        encode(
            {**(asked if isinstance(asked, dict) else {"input": asked}), "sandbox_policy": sandbox}
        )
    )


_EVENT_BUILDERS: dict[
    tuple[str, str | None], Callable[[RolloutReader, EventHead, ln.Payload], list[ev.Event] | None]
] = {
    ("session_meta", None): RolloutReader._session_meta,
    ("turn_context", None): RolloutReader._turn_context,
    ("token_usage_record", None): RolloutReader._usage_record,
    ("compacted", None): RolloutReader._compaction,
    ("event_msg", "task_started"): RolloutReader._turn_started,
    ("event_msg", "turn_started"): RolloutReader._turn_started,
    ("event_msg", "token_count"): RolloutReader._token_count,
    ("event_msg", "item_completed"): RolloutReader._item,
    **{
        ("event_msg", kind): RolloutReader._message
        for kind in ("user_message", "agent_message", "agent_reasoning")
    },
    ("event_msg", "error"): RolloutReader._error,
    ("event_msg", "stream_error"): RolloutReader._retry,
    ("event_msg", "task_complete"): RolloutReader._turn_complete,
    ("event_msg", "turn_complete"): RolloutReader._turn_complete,
    ("event_msg", "turn_aborted"): RolloutReader._turn_aborted,
    **{
        ("response_item", kind): RolloutReader._tool_call
        for kind in ("function_call", "custom_tool_call", "local_shell_call")
    },
    **{
        ("response_item", kind): RolloutReader._tool_output
        for kind in ("function_call_output", "custom_tool_call_output")
    },
    ("response_item", "web_search_call"): RolloutReader._web_search,
}


_USAGE_MARKERS = (
    b'"token_',
    b'"session_meta"',
    b'"turn_context"',
    b'"task_started"',
    b'"turn_started"',
)  # what a sum must know


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """The folders below which rollouts lie, those that were put away included."""
    root = (environment.get("CODEX_HOME") or f"{home}/.codex").rstrip("/")
    return [f"{root}/sessions", f"{root}/archived_sessions"]


def transcript_pattern(session: str) -> str:
    """The rollout of a thread, below one of the folders."""
    return f"**/rollout-*-{session}.jsonl"


class _LineProbe(Struct, gc=False):
    timestamp: str | None = None
    payload: object = None


def is_transcript_line(line: bytes) -> bool:
    """Whether a line is one of a rollout: it has a time and a payload."""
    signed = decode_lenient(line, _LineProbe)
    return signed.timestamp is not None and isinstance(signed.payload, dict)


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """The requests that a rollout tells of, and where it began. Most of its bytes are of neither."""
    rollout = RolloutReader()
    for number, data in enumerate(lines, 1):
        if not any(mark in data for mark in _USAGE_MARKERS):
            continue
        line = decode_first_object(data, ln.CodexLine)
        if line is not None and line.payload is not None:
            for event in rollout.events(line, data, number):
                if isinstance(event, ev.Usage | ev.Started):
                    yield event
