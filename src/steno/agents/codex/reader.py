"""The stream of `codex exec --json`, completed from the rollout of the same thread. Pure.

The stream lacks the model, the window, the usage per request, durations, calls that were never
executed, and interruptions. The rollout of a thread contains all of its runs: the turn of this run
is the last one with the same token total, the same error, or no end either. Without such a turn
the rollout is ignored. Older versions (seen in 0.80) do not mark where a turn starts and ends: it
starts with its prompt, and without a token total its texts identify it.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_first_object, decode_lenient, decode_raw, decoder, text_of
from ...event import EventHead
from . import tables
from .transcripts import (
    CodexReaderState,
    RolloutReader,
    failed_result,
    file_change_events,
    file_changes,
    model_usage,
    retry_events,
)
from .wire import CodexLine, Item, Payload, TokenUsage

_decode_line = decoder(CodexLine).decode
_TOOL_ITEM_TYPES = (
    "command_execution",
    "file_change",
    "mcp_tool_call",
    "web_search",
    "todo_list",
    "collab_tool_call",
)
# The totals of a thread that every version prints: they grow with each turn.
_IDENTIFYING_COUNTERS = ("input_tokens", "cached_input_tokens", "output_tokens")
TURN_START_TYPES = ("task_started", "turn_started")
MILLISECOND = timedelta(milliseconds=1)
_STREAM_ITEM_TYPES = {"CommandExecution": "command_execution", "FileChange": "file_change"}
_PATCHED_FILE_PATTERN = r"(?m)^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$"
_ENRICHING_EVENTS = (
    ev.Usage,
    ev.Compaction,
    ev.RateLimit,
    ev.PermissionDenied,
    ev.ToolCall,
    ev.ToolResult,
    ev.Result,
)


class StreamCall(Struct, frozen=True):
    """A call in the stream: a command, the files of a patch, or the name of another tool."""

    id: str
    item_type: str
    name: str
    command: str
    paths: tuple[str, ...]


class StderrCall(Struct, frozen=True):
    """A call that only stderr mentions."""

    id: str
    error: str


class CodexStreamSummary(Struct):
    """What identifies the turn of the stream in a rollout; calls are in their order."""

    result: ev.Result | None = None
    total_usage: TokenUsage | None = None
    texts: list[str] = field(default_factory=list)
    calls: list[StreamCall] = field(default_factory=list)
    finished_calls: set[str] = field(default_factory=set)
    stderr_calls: list[StderrCall] = field(default_factory=list)

    def add_stderr_call(self, error: str) -> str:
        """Return an id for a call that only stderr mentions."""
        id_ = f"stderr {len(self.stderr_calls) + 1}"
        self.stderr_calls.append(StderrCall(id_, error))
        self.finished_calls.add(id_)
        return id_

    def add_call(self, item: Item, name: str) -> None:
        changes = [] if item.type != "file_change" else file_changes(item.changes)
        self.calls.append(
            StreamCall(
                id=item.id,
                item_type=item.type,
                name=name,
                command=text_of(item.command) if item.type == "command_execution" else "",
                paths=tuple(path for path, _ in changes),
            )
        )


class CodexReader:
    """Turns the lines of one run, or of one rollout, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._rollout: RolloutReader | None = None  # set if the lines are those of a rollout
        self._summary = CodexStreamSummary()
        self._open_items: set[str] = set()  # calls without a result
        self._texts: list[str] = []  # of the current request
        self._repeatable_texts: list[str] = []  # that a repeated request may print again
        self._last_text: str | None = None

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one JSON object, ignoring fields of a wrong type."""
        return self._events(decode_lenient(data, CodexLine), data, number, at)

    def state(self) -> bytes:
        """Return the state as JSON; only rollouts are read in parts."""
        return encode(CodexReaderState()) if self._rollout is None else self._rollout.state()

    def restore(self, state: bytes) -> None:
        """Continue with a rollout from a stored state."""
        self._rollout = RolloutReader()
        self._rollout.restore(state)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """Return the call that was never executed: it is on stderr, but not in the stream."""
        error = tables.parse_router_error(line.text)
        if error is None:
            return []
        tool = tables.tool_name_in(error)
        head = (0, self.session, None, line.at)
        call = self._summary.add_stderr_call(error)
        events: list[ev.Event] = [ev.ToolCall(*head, call, tool, tables.tool_kind(tool))]
        if tables.is_refused(error, None, None):
            events.append(ev.PermissionDenied(*head, call, tool, error))
        return [*events, ev.ToolResult(*head, call, True, Raw(encode(error)))]

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """Return what only the rollout knows about this run; nothing if the run is not in it."""
        return enrich(self.session, self._summary, lines)

    def _events(
        self, line: CodexLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        if line.payload is not None or (self._rollout is not None and line.timestamp is not None):
            if self._rollout is None:
                self._rollout = RolloutReader()
            return self._rollout.events(line, data, number)
        head = (number, self.session, None, line.timestamp or at)
        kind = line.type
        if kind in ("item.completed", "item.started", "item.updated") and line.item is not None:
            return self._item(kind, line.item, data, head)
        if kind == "error" and line.message is not None:
            return self._error(line.message, head)
        if kind == "thread.started":
            self.session = line.thread_id
            return [ev.Started(number, line.thread_id, None, line.timestamp or at)]
        if kind == "turn.started":
            return []
        if kind in ("turn.completed", "turn.failed"):
            return self._turn_end(line, head)
        return [ev.Unknown(*head, kind or "no type", data)]

    def _error(self, text: str, head: EventHead) -> list[ev.Event]:
        """Never the end of a turn: Codex retries, or a turn.failed follows."""
        if tables.parse_reconnect(text) is None:
            return [ev.Notice(*head, "error", text)]
        self._repeatable_texts += self._texts
        self._texts.clear()
        return retry_events(head, text)

    def _turn_end(self, line: CodexLine, head: EventHead) -> list[ev.Event]:
        if line.type == "turn.failed":
            message = line.error.message if line.error is not None else None
            text = message or "the turn failed without a message"
            self._summary.result = failed_result(head, (*tables.classify_error(text), text))
            return [self._summary.result]
        self._summary.total_usage = line.usage
        self._summary.result = ev.Result(
            *head,
            "success",
            text=self._last_text,
            usage=None if line.usage is None else model_usage(line.usage),
            over_session=True,  # the usage of the thread includes earlier runs
        )
        return [self._summary.result]

    # -- items ---------------------------------------------------------------------------------

    def _item(self, kind: str, item: Item, data: bytes, head: EventHead) -> list[ev.Event]:
        done = kind == "item.completed"
        if item.type == "agent_message":
            return self._text(item, head) if done else []
        if item.type == "reasoning":
            return [ev.Thinking(*head, item.id, item.text or "")] if done else []
        if item.type == "error":
            return [ev.Notice(*head, "error", item.message)]
        if item.type not in _TOOL_ITEM_TYPES:
            return [ev.Unknown(*head, f"item {item.type}", data)]
        events: list[ev.Event] = []
        if item.id not in self._open_items and (done or kind == "item.started"):
            self._open_items.add(item.id)
            call = _tool_call(item, head)
            events.append(call)
            self._summary.add_call(item, call.name)
        if done:
            self._open_items.discard(item.id)
            self._summary.finished_calls.add(item.id)
            # A call was executed: what follows belongs to another request.
            self._repeatable_texts.clear()
            self._texts.clear()
            events += _tool_result(item, head)
        return events

    def _text(self, item: Item, head: EventHead) -> list[ev.Event]:
        """A text; one that a repeated request prints again is counted once."""
        text = item.text or ""
        if text in self._repeatable_texts:
            self._repeatable_texts.remove(text)
            return [ev.Notice(*head, "repeated", text)]
        self._texts.append(text)
        self._summary.texts.append(text)
        self._last_text = text
        return [ev.Text(*head, item.id, text)]


def _tool_call(item: Item, head: EventHead) -> ev.ToolCall:
    if item.type == "command_execution":
        input_ = _to_raw_json(command=text_of(item.command))
        return ev.ToolCall(*head, item.id, "exec_command", "shell", input=input_)
    if item.type == "file_change":
        return ev.ToolCall(*head, item.id, "apply_patch", "file_edit", input=item.changes)
    if item.type == "mcp_tool_call":
        name = f"mcp__{item.server}__{item.tool}"
        return ev.ToolCall(*head, item.id, name, "mcp", input=item.arguments)
    if item.type == "web_search":
        input_ = _to_raw_json(query=item.query)
        return ev.ToolCall(*head, item.id, "web_search", "web", input=input_)
    if item.type == "todo_list":
        return ev.ToolCall(*head, item.id, "update_plan", "todo", input=item.items)
    return ev.ToolCall(*head, item.id, item.tool or "collab", "subagent", input=item.arguments)


def _tool_result(item: Item, head: EventHead) -> list[ev.Event]:
    failed = item.status in ("failed", "declined") or item.exit_code not in (0, None)
    events: list[ev.Event] = []
    if item.status == "declined":
        reason = text_of(item.aggregated_output) or "declined"
        events.append(ev.PermissionDenied(*head, item.id, None, reason))
    if item.type == "file_change":
        events.append(ev.ToolResult(*head, item.id, failed, item.error))
        return events if failed else [*events, *file_change_events(head, item.id, item.changes)]
    if item.type == "command_execution":
        details = ev.ToolResultDetails(stdout=item.aggregated_output)
        return [*events, ev.ToolResult(*head, item.id, failed, item.aggregated_output, details)]
    content = item.error if decode_raw(item.error) is not None else item.result
    return [*events, ev.ToolResult(*head, item.id, failed, content)]


def _to_raw_json(**fields: str | None) -> Raw:
    return Raw(encode(fields))


# -- enriching the stream from the rollout -----------------------------------------------------


class Turn(Struct):
    """One turn of a rollout, and what identifies it."""

    events: list[ev.Event] = field(default_factory=list)
    total_usage: TokenUsage | None = None
    result: ev.Result | None = None
    texts: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)  # of executed calls
    is_marked: bool = False  # the rollout has a line for the start of the turn
    is_aborted: bool = False
    started: ev.Started | None = None
    started_at: datetime | None = None
    last_at: datetime | None = None


def enrich(
    session: str | None, summary: CodexStreamSummary, lines: Iterable[bytes]
) -> list[ev.Event]:
    """Return the events of the stream's run that only its rollout has."""
    match = None
    for turn in _turns(session, lines):
        if _matches_stream(turn, summary):
            match = turn
    return [] if match is None else _merge(match, summary)


def _turns(session: str | None, lines: Iterable[bytes]) -> Iterator[Turn]:
    """The turns of a thread. Lines before the thread's first line belong to another thread."""
    rollout = RolloutReader()
    turn = Turn()
    has_begun = False
    for data in lines:
        line = decode_first_object(data, CodexLine)
        if line is None or line.payload is None:
            continue
        is_first = line.type == "session_meta" and line.payload.id == session
        if rollout.session is None and not is_first:
            continue
        if line.type == "event_msg" and _starts_turn(line.payload, turn):
            if has_begun:
                yield turn
                turn = Turn()
            has_begun = True
            turn.is_marked = line.payload.type in TURN_START_TYPES
            turn.started_at = line.timestamp
        if line.type == "event_msg":  # other lines of the next turn may precede its start
            turn.last_at = line.timestamp or turn.last_at
        events = rollout.events(line, data, 0)
        _add_to_turn(turn, line.payload, events)
        if any(isinstance(event, ev.Started) for event in events) or line.type == "turn_context":
            turn.started = rollout.started_event(turn.started_at)
    if rollout.session is not None:
        yield turn


def _starts_turn(payload: Payload, current: Turn) -> bool:
    """Whether an event starts a turn: a line that says so, or a prompt that is in no such turn."""
    if payload.type in TURN_START_TYPES:
        return True
    is_open = current.is_marked and current.result is None
    return payload.type == "user_message" and not is_open


def _add_to_turn(turn: Turn, payload: Payload, events: list[ev.Event]) -> None:
    if payload.info is not None and payload.info.total_token_usage is not None:
        turn.total_usage = payload.info.total_token_usage
    if payload.item is not None and payload.item.type in _STREAM_ITEM_TYPES:
        turn.items.append(payload.item)
    turn.is_aborted = turn.is_aborted or payload.type == "turn_aborted"
    for event in events:
        if isinstance(event, ev.Result):
            turn.result = event
        if isinstance(event, ev.Text):
            turn.texts.append(event.text)
        if isinstance(event, _ENRICHING_EVENTS):
            turn.events.append(event)


def _matches_stream(turn: Turn, summary: CodexStreamSummary) -> bool:
    if summary.total_usage is not None:
        return turn.total_usage is not None and all(
            getattr(turn.total_usage, counter) == getattr(summary.total_usage, counter)
            for counter in _IDENTIFYING_COUNTERS
        )
    if not turn.is_marked:
        return turn.texts == summary.texts and (turn.result is None or turn.is_aborted)
    if summary.result is None or turn.result is None:
        return summary.result is None and (turn.result is None or turn.is_aborted)
    if turn.result.errors == summary.result.errors:
        return True
    # Versions such as 0.115 end a failed turn without its error, and without an answer.
    is_unexplained = not turn.result.is_error and turn.result.text is None
    return is_unexplained and turn.texts == summary.texts


def _merge(turn: Turn, summary: CodexStreamSummary) -> list[ev.Event]:
    """The turn's events with the stream's call ids, without those that the stream has."""
    ids = _call_ids(turn, summary)
    events: list[ev.Event] = [] if turn.started is None else [turn.started]
    for index, event in enumerate(turn.events):
        if isinstance(event, ev.ToolCall):
            if event.id not in ids:
                events.append(event)
        elif isinstance(event, ev.ToolResult):
            id_ = ids.get(event.id)
            if id_ not in summary.finished_calls:
                events.append(event if id_ is None else replace(event, id=id_))
        elif isinstance(event, ev.PermissionDenied):
            settled = _succeeded_later(turn.events[index + 1 :], event)
            call = ids.get(event.call or "", event.call)
            events.append(replace(event, call=call, settled=settled))
        elif isinstance(event, ev.Result):
            events.append(_amended_result(event, turn, summary))
        else:
            events.append(event)
    return [*events, *_missing_result(turn, summary)]


def _call_ids(turn: Turn, summary: CodexStreamSummary) -> dict[str, str]:
    """The stream's ids by the rollout's, for calls that are in both: their order is the same."""
    calls = list(summary.calls)
    ids: dict[str, str] = {}
    for item in turn.items:
        item_type = _STREAM_ITEM_TYPES[item.type]
        match = next((call for call in calls if call.item_type == item_type), None)
        if match is not None:
            ids[item.id] = match.id
            calls.remove(match)
    for event in turn.events:
        if not isinstance(event, ev.ToolCall) or event.id in ids:
            continue
        match = next((call for call in calls if _is_same_call(event, call)), None)
        # With items, an executed command was matched above: only one that was cut off is left.
        was_executed = match is not None and match.id in summary.finished_calls
        if match is not None and not (turn.items and match.command and was_executed):
            ids[event.id] = match.id
            calls.remove(match)
    return {**ids, **_stderr_call_ids(turn, summary)}


def _is_same_call(event: ev.ToolCall, call: StreamCall) -> bool:
    """Whether a call of the rollout is one of the stream: by its files, command or tool."""
    text = _command_in(event.input)
    paths = re.findall(_PATCHED_FILE_PATTERN, text)
    if call.item_type == "file_change":
        return bool(call.paths) and all(path.endswith(tuple(paths)) for path in call.paths)
    if call.item_type == "command_execution":
        return text != "" and not paths and _unquoted(text) in _unquoted(call.command)
    return event.name == call.name


def _stderr_call_ids(turn: Turn, summary: CodexStreamSummary) -> dict[str, str]:
    """The ids that calls on stderr were given, by the rollout's ids; their messages are equal."""
    calls = list(summary.stderr_calls)
    ids = {}
    for event in turn.events:
        if isinstance(event, ev.ToolResult) and event.is_error:
            error = text_of(event.content)
            match = next((call for call in calls if call.error == error), None)
            if match is not None:
                calls.remove(match)
                ids[event.id] = match.id
    return ids


def _command_in(input_: Raw) -> str:
    """The command or the patch of a call; empty without one."""
    fields = decode_raw(input_)
    if not isinstance(fields, dict):
        return fields if isinstance(fields, str) else ""
    command = fields.get("cmd") or fields.get("command") or fields.get("input")
    if isinstance(command, list) and command:  # the arguments, with the script as the last one
        command = command[-1]
    return command if isinstance(command, str) else ""


def _unquoted(command: str) -> str:
    """A command without quoting: the stream wraps it in another shell's quotes."""
    return re.sub(r"[\"'\\]", "", command)


def _succeeded_later(events: list[ev.Event], denied: ev.PermissionDenied) -> bool:
    """Whether a later call of the same tool succeeded."""
    calls = {
        event.id for event in events if isinstance(event, ev.ToolCall) and event.name == denied.tool
    }
    return any(
        isinstance(event, ev.ToolResult) and event.id in calls and not event.is_error
        for event in events
    )


def _amended_result(result: ev.Result, turn: Turn, summary: CodexStreamSummary) -> ev.Result:
    """The rollout's result in place of the stream's."""
    if result.duration_ms is None:
        result = replace(result, duration_ms=_duration_ms(turn))
    streamed = summary.result
    if streamed is None:
        return result
    if streamed.is_error and not result.is_error:
        return replace(streamed, at=result.at, duration_ms=result.duration_ms, amends=True)
    return replace(result, line=streamed.line, text=streamed.text or result.text, amends=True)


def _duration_ms(turn: Turn) -> int | None:
    """The time between the first and the last line of a turn; versions up to 0.115 print none."""
    if turn.started_at is None or turn.last_at is None:
        return None
    return max(0, (turn.last_at - turn.started_at) // MILLISECOND)


def _missing_result(turn: Turn, summary: CodexStreamSummary) -> list[ev.Event]:
    """The stream's result without the thread's totals, if the rollout has the requests only."""
    streamed = summary.result
    has_requests = any(isinstance(event, ev.Usage) for event in turn.events)
    if turn.result is not None or streamed is None or not has_requests:
        return []
    return [
        replace(
            streamed,
            at=turn.last_at,
            usage=None,
            over_session=False,
            duration_ms=_duration_ms(turn),
            amends=True,
        )
    ]
