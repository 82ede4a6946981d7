"""Completes a stream from the rollout of the same thread. Pure.

The rollout of a thread contains all of its runs: the turn of this run is the last one with the same
token total, the same error, or no end either. Without such a turn the rollout is ignored. Older
versions (seen in 0.80) do not mark where a turn starts and ends: it starts with its prompt, and
without a token total its texts identify it.
"""

import re
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_first_object, decode_raw, text_of
from .collab import spawned_threads
from .events import file_changes
from .rollout import RolloutReader
from .subagents import SubagentThreads
from .totals import describe_difference, tokens_of
from .wire import CodexLine, Item, Payload, TokenUsage

# The totals of a thread that every version prints: they grow with each turn.
_IDENTIFYING_COUNTERS = ("input_tokens", "cached_input_tokens", "output_tokens")
TURN_START_TYPES = ("task_started", "turn_started")
MILLISECOND = timedelta(milliseconds=1)
_STREAM_ITEM_TYPES = {"CommandExecution": "command_execution", "FileChange": "file_change"}
_ROLLOUT_TOOL_NAMES = {"wait": "wait_agent"}  # by those of the stream
_PATCHED_FILE_PATTERN = r"(?m)^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$"
# Calls in parallel end, and are printed, in another order in the stream than in the rollout.
MAX_CALLS_APART = 100
_ENRICHING_EVENTS = (
    ev.Usage,
    ev.Compaction,
    ev.RateLimit,
    ev.PermissionDenied,
    ev.ToolCall,
    ev.ToolResult,
    ev.TaskStarted,
    ev.TaskEnded,
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


class Turn(Struct):
    """One turn of a rollout, and what identifies it.

    `difference` is that of the thread's own total to its requests before the turn; `next_at` is
    when the next turn started.
    """

    difference: int = 0
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
    next_at: datetime | None = None


def enrich(
    session: str | None, summary: CodexStreamSummary, lines: Iterable[bytes]
) -> list[ev.Event]:
    """Return the events of the stream's run that only its rollout, and those of subagents, have."""
    main = TurnFinder(summary)
    subagents = SubagentThreads()
    thread: TurnFinder | SubagentThreads | None = None
    follows_meta = False
    for data in lines:
        line = decode_first_object(data, CodexLine)
        if line is None or line.payload is None:
            continue
        is_meta = line.type == "session_meta"
        if is_meta and not follows_meta:  # the first line of a file
            is_main = line.payload.id == session
            thread = main if is_main else subagents.begin(line.payload)
        follows_meta = is_meta
        if thread is not None:
            thread.add(line, data)
    match = main.close()
    if match is None or session is None:
        return []
    ids = _call_ids(match, summary)
    events = _merge(match, summary, ids)
    return events + subagents.events(session, main.spawned, ids, match.started_at, match.next_at)


class TurnFinder:
    """Finds the turn of the stream among those of its thread: the last one that matches."""

    def __init__(self, summary: CodexStreamSummary) -> None:
        self.spawned: dict[str, str] = {}  # thread of a subagent -> call
        self._summary = summary
        self._rollout = RolloutReader()
        self._turn = Turn()
        self._has_begun = False
        self._match: Turn | None = None

    def add(self, line: CodexLine, data: bytes) -> None:
        """Add a line of the thread's rollout."""
        payload = line.payload or Payload()
        events = self._rollout.events(line, data, 0)
        if self._rollout.is_copying:
            return
        if line.type == "event_msg" and _starts_turn(payload, self._turn):
            self._begin_turn(line, payload)
        turn = self._turn
        if line.type == "event_msg":  # other lines of the next turn may precede its start
            turn.last_at = line.timestamp or turn.last_at
        self.spawned |= spawned_threads(payload)
        _add_to_turn(turn, payload, events)
        if any(isinstance(event, ev.Started) for event in events) or line.type == "turn_context":
            turn.started = self._rollout.started_event(turn.started_at)

    def close(self) -> Turn | None:
        """End the thread and return the turn of the stream, if there is one."""
        self._end_turn()
        return self._match

    def _begin_turn(self, line: CodexLine, payload: Payload) -> None:
        if self._has_begun:
            self._turn.next_at = line.timestamp
            self._end_turn()
            self._turn = Turn(self._rollout.difference)
        self._has_begun = True
        self._turn.is_marked = payload.type in TURN_START_TYPES
        self._turn.started_at = line.timestamp

    def _end_turn(self) -> None:
        turn = self._turn
        if self._rollout.session is None or not _matches_stream(turn, self._summary):
            return
        self._match = turn
        missing = self._rollout.difference - turn.difference
        if missing:
            requests = [event for event in turn.events if isinstance(event, ev.Usage)]
            measured = sum(tokens_of(request) for request in requests)
            text = describe_difference(measured, measured + missing)
            turn.events.append(ev.Notice(*(0, None, None, turn.last_at), "totals", text))


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


def _merge(turn: Turn, summary: CodexStreamSummary, ids: dict[str, str]) -> list[ev.Event]:
    """The turn's events with the stream's call ids, without those that the stream has."""
    events: list[ev.Event] = [] if turn.started is None else [turn.started]
    last_success = _last_successful_calls(turn.events)
    for index, event in enumerate(turn.events):
        if isinstance(event, ev.ToolCall):
            if event.id not in ids:
                events.append(event)
        elif isinstance(event, ev.ToolResult):
            id_ = ids.get(event.id)
            if id_ not in summary.finished_calls:
                events.append(event if id_ is None else replace(event, id=id_))
        elif isinstance(event, ev.PermissionDenied):
            settled = last_success.get(event.tool or "", -1) > index
            call = ids.get(event.call or "", event.call)
            events.append(replace(event, call=call, settled=settled))
        elif isinstance(event, ev.TaskStarted):
            events.append(replace(event, call=ids.get(event.call or "", event.call)))
        elif isinstance(event, ev.Result):
            events.append(_amended_result(event, turn, summary))
        else:
            events.append(event)
    return [*events, *_missing_result(turn, summary)]


def _call_ids(turn: Turn, summary: CodexStreamSummary) -> dict[str, str]:
    """The stream's ids by the rollout's, for calls that are in both: their order is the same."""
    calls: dict[str, deque[StreamCall]] = {}  # by type
    for call in summary.calls:
        calls.setdefault(call.item_type, deque()).append(call)
    ids: dict[str, str] = {}
    matched: set[int] = set()  # ids of the objects: Codex's own may repeat
    for item in turn.items:
        same_type = calls.get(_STREAM_ITEM_TYPES[item.type])
        if same_type:
            call = same_type.popleft()
            ids[item.id] = call.id
            matched.add(id(call))
    left = [call for call in summary.calls if id(call) not in matched]
    return {**ids, **_ids_by_content(turn, summary, ids, left), **_stderr_call_ids(turn, summary)}


def _ids_by_content(
    turn: Turn, summary: CodexStreamSummary, known: dict[str, str], calls: list[StreamCall]
) -> dict[str, str]:
    """The stream's ids by the rollout's, for calls with the same content."""
    ids: dict[str, str] = {}
    matched: set[int] = set()  # indexes
    following = 0  # the index after the last match
    commands = [_unquoted(call.command) for call in calls]
    for event in turn.events:
        if not isinstance(event, ev.ToolCall) or event.id in known or event.id in ids:
            continue
        text = _command_in(event.input)
        content = CallContent(event.name, _unquoted(text), _patched_files(text))
        nearby = range(
            max(0, following - MAX_CALLS_APART), min(len(calls), following + MAX_CALLS_APART)
        )
        left = (index for index in nearby if index not in matched)
        index = next((at for at in left if content.is_of(calls[at], commands[at])), None)
        if index is None:
            continue
        # With items, an executed command is known: only one that was cut off is left.
        was_executed = calls[index].id in summary.finished_calls
        if not (turn.items and calls[index].command and was_executed):
            ids[event.id] = calls[index].id
            matched.add(index)
            following = index + 1
    return ids


class CallContent(NamedTuple):
    """A call of the rollout: its tool, its command without quoting, the files of its patch."""

    name: str
    command: str
    paths: tuple[str, ...]

    def is_of(self, call: StreamCall, command: str) -> bool:
        """Whether it is a call of the stream; `command` is that call's, without quoting."""
        if call.item_type == "file_change":
            return bool(call.paths) and all(path.endswith(self.paths) for path in call.paths)
        if call.item_type == "command_execution":
            return self.command != "" and not self.paths and self.command in command
        return self.name == _ROLLOUT_TOOL_NAMES.get(call.name, call.name)


def _stderr_call_ids(turn: Turn, summary: CodexStreamSummary) -> dict[str, str]:
    """The ids that calls on stderr were given, by the rollout's ids; their messages are equal."""
    calls: dict[str, deque[str]] = {}  # ids by message
    for call in summary.stderr_calls:
        calls.setdefault(call.error, deque()).append(call.id)
    ids = {}
    for event in turn.events:
        if calls and isinstance(event, ev.ToolResult):
            same_error = calls.get(text_of(event.content))
            if same_error:
                ids[event.id] = same_error.popleft()
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


def _patched_files(text: str) -> tuple[str, ...]:
    return tuple(re.findall(_PATCHED_FILE_PATTERN, text))


def _unquoted(command: str) -> str:
    """A command without quoting: the stream wraps it in another shell's quotes."""
    return re.sub(r"[\"'\\]", "", command)


def _last_successful_calls(events: list[ev.Event]) -> dict[str, int]:
    """The index of each tool's last call that succeeded."""
    successes = {
        event.id for event in events if isinstance(event, ev.ToolResult) and not event.is_error
    }
    return {
        event.name: index
        for index, event in enumerate(events)
        if isinstance(event, ev.ToolCall) and event.id in successes
    }


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
