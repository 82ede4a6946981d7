"""A rollout beside the stream of one of its runs: what only it says. Pure.

The stream leaves out the model, the window, what each request used, how long it took, calls that were never carried out,
and that it was interrupted. The rollout of a thread holds all its runs: the turn of this one is told by the thread's sum
of tokens at its end, or by its error, or by its having no end. Where none is, the rollout says nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_first_object, decode_lenient, decode_raw, decoder, text_of
from . import tables as words
from . import wire as ln
from .transcripts import (
    EventHead,
    RolloutReader,
    RolloutState,
    failed_result,
    file_change_events,
    retry_events,
    usage_counters,
)

_USAGE_COUNTERS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
_MERGED_EVENT_TYPES = (
    ev.Usage,
    ev.Compaction,
    ev.RateLimit,
    ev.PermissionDenied,
    ev.ToolCall,
    ev.ToolResult,
    ev.Result,
)


class CodexStreamSummary(Struct):
    """What the stream told of the end, and of its calls in their order."""

    result: ev.Result | None = None
    total_usage: ln.TokenUsage | None = None
    commands: list[tuple[str, str]] = field(
        default_factory=list
    )  # the item's id, the command as one text
    patches: list[str] = field(default_factory=list)
    finished_calls: set[str] = field(default_factory=set)
    stderr_calls: list[tuple[str, str]] = field(
        default_factory=list
    )  # calls that only stderr told of, and what it said

    def add_stderr_call(self, text: str) -> str:
        """A name for a call that only stderr told of."""
        name = f"stderr {len(self.stderr_calls) + 1}"
        self.stderr_calls.append((name, text))
        self.finished_calls.add(name)
        return name

    def add_call(self, item: ln.Item) -> None:
        """A call that the stream shows."""
        if item.type == "command_execution":
            self.commands.append((item.id, text_of(item.command)))
        elif item.type == "file_change":
            self.patches.append(item.id)

    def finish_call(self, item: str) -> None:
        """A call that it shows to be over."""
        self.finished_calls.add(item)


class Turn(Struct):
    """One turn of a rollout: its events, and what tells whose it is."""

    events: list[ev.Event] = field(default_factory=list)
    total_usage: ln.TokenUsage | None = None
    result: ev.Result | None = None
    items: list[ln.Item] = field(default_factory=list)  # of calls that were carried out
    is_aborted: bool = False
    started: ev.Started | None = None  # all that is known of its surroundings
    started_at: datetime | None = None


def enrich(session: str | None, told: CodexStreamSummary, lines: Iterable[bytes]) -> list[ev.Event]:
    """The events of the run that the stream told of, as far as only its rollout knows them."""
    mine = None
    for turn in _turns(session, lines):
        if _matches_stream(turn, told):
            mine = turn
    return [] if mine is None else _merge(mine, told)


def _turns(session: str | None, lines: Iterable[bytes]) -> Iterator[Turn]:
    """The turns of a thread. What stands before the first belongs to it; what stands before the thread, to another."""
    rollout, turn, begun = RolloutReader(), Turn(), False
    for data in lines:
        line = decode_first_object(data, ln.CodexLine)
        if line is None or line.payload is None:
            continue
        if rollout.state.session is None and (
            line.type != "session_meta" or line.payload.id != session
        ):
            continue
        if line.type == "event_msg" and line.payload.type in ("task_started", "turn_started"):
            if begun:
                yield turn
                turn = Turn()
            begun = True
            turn.started_at = line.timestamp
        _add_to_turn(turn, line, rollout.events(line, data, 0))
        if line.type in ("session_meta", "turn_context"):
            turn.started = rollout.started_event(turn.started_at)
    if rollout.state.session is not None:
        yield turn


def _add_to_turn(turn: Turn, line: ln.CodexLine, events: list[ev.Event]) -> None:
    payload = line.payload or ln.Payload()
    if payload.info is not None and payload.info.total_token_usage is not None:
        turn.total_usage = payload.info.total_token_usage
    if payload.item is not None and payload.item.type in ("CommandExecution", "FileChange"):
        turn.items.append(payload.item)
    turn.is_aborted = turn.is_aborted or payload.type == "turn_aborted"
    for event in events:
        if isinstance(event, ev.Result):
            turn.result = event
        if isinstance(event, _MERGED_EVENT_TYPES):
            turn.events.append(event)


def _matches_stream(turn: Turn, told: CodexStreamSummary) -> bool:
    """Whether a turn can be the one that the stream told of; of several, the last is."""
    if told.result is None:
        return turn.result is None or turn.is_aborted
    if told.total_usage is None or not told.result.usage:
        return turn.result is not None and turn.result.errors == told.result.errors
    return turn.total_usage is not None and all(
        getattr(turn.total_usage, name) == getattr(told.total_usage, name)
        for name in _USAGE_COUNTERS
    )


def _merge(turn: Turn, told: CodexStreamSummary) -> list[ev.Event]:
    """The turn's events under the names of the stream, without those that it told itself."""
    names = _call_ids(turn, told)
    events: list[ev.Event] = [] if turn.started is None else [turn.started]
    for index, event in enumerate(turn.events):
        if isinstance(event, ev.ToolCall):
            if event.id not in names:
                events.append(event)
        elif isinstance(event, ev.ToolResult):
            name = names.get(event.id)
            if name not in told.finished_calls:
                events.append(event if name is None else replace(event, id=name))
        elif isinstance(event, ev.PermissionDenied):
            settled = _succeeded_later(turn.events[index + 1 :], event)
            events.append(
                replace(event, call=names.get(event.call or "", event.call), settled=settled)
            )
        elif isinstance(event, ev.Result):
            events.append(_amended_result(event, told))
        else:
            events.append(event)
    return events


def _call_ids(turn: Turn, told: CodexStreamSummary) -> dict[str, str]:
    """The calls of the rollout that the stream shows, by its names for them: both tell them in the same order."""
    commands, patches, names = list(told.commands), list(told.patches), {}
    for item in turn.items:
        shown = [id_ for id_, _ in commands] if item.type == "CommandExecution" else patches
        if shown:
            names[item.id] = shown[0]
            commands = [pair for pair in commands if pair[0] != shown[0]]
            patches = [id_ for id_ in patches if id_ != shown[0]]
    for event in turn.events:  # what was cut off has a call, but was never told to be over
        if isinstance(event, ev.ToolCall) and event.id not in names:
            match = next((id_ for id_, text in commands if _command_of(event.input) in text), None)
            if match is not None and match not in told.finished_calls:
                names[event.id] = match
    return {**names, **_stderr_call_ids(turn, told)}


def _stderr_call_ids(turn: Turn, told: CodexStreamSummary) -> dict[str, str]:
    """The calls that stderr told of already, by the names that they got then."""
    left, names = list(told.stderr_calls), {}
    for event in turn.events:
        if isinstance(event, ev.ToolResult) and event.is_error:
            text = text_of(event.content)
            match = next((pair for pair in left if pair[1] == text), None)
            if match is not None:
                left.remove(match)
                names[event.id] = match[0]
    return names


def _command_of(given: Raw) -> str:
    """The command in the arguments of a call; something that no command holds where there is none."""
    asked = decode_raw(given)
    command = asked.get("cmd") or asked.get("command") if isinstance(asked, dict) else None
    return command if isinstance(command, str) and command else "\x00"


def _succeeded_later(events: list[ev.Event], denied: ev.PermissionDenied) -> bool:
    """Whether a later call of the same tool worked."""
    later = {
        event.id for event in events if isinstance(event, ev.ToolCall) and event.name == denied.tool
    }
    return any(
        isinstance(event, ev.ToolResult) and event.id in later and not event.is_error
        for event in events
    )


def _amended_result(end: ev.Result, told: CodexStreamSummary) -> ev.Result:
    """The end as the rollout knows it, in the place of the one that the stream told."""
    if told.result is None:
        return end
    return replace(end, line=told.result.line, text=told.result.text or end.text, amends=True)


_decode_line = decoder(ln.CodexLine).decode
Odd = Callable[[bytes, int], list[ev.Event]]
_TOOL_ITEM_TYPES = (
    "command_execution",
    "file_change",
    "mcp_tool_call",
    "web_search",
    "todo_list",
    "collab_tool_call",
)


class CodexReaderState(Struct):
    """What must be remembered between two readings of a file that grows."""

    rollout: RolloutState = field(default_factory=RolloutState)


class CodexReader:
    """Turns the lines of one run, or of one rollout, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._rollout: RolloutReader | None = None  # these are the lines of a rollout
        self._summary = CodexStreamSummary()
        self._open_items: set[str] = set()  # items that were called and not answered
        self._texts: list[str] = []  # texts of the request that is going on
        self._repeatable_texts: list[str] = []  # texts that a repeated request may tell once more
        self._last_text: str | None = None

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(decode_lenient(data, ln.CodexLine), data, number, at)

    def state(self) -> bytes:
        """What must be remembered to go on with the next lines of the same file another time."""
        return encode(
            CodexReaderState(self._rollout.state if self._rollout is not None else RolloutState())
        )

    def restore(self, state: bytes) -> None:
        """Remember what `state` said. It is a rollout: nothing else is read in parts."""
        self._rollout = RolloutReader(decoder(CodexReaderState).decode(state).rollout)

    def read_stderr(self, line: ev.Stderr) -> list[ev.Event]:
        """A call that was never carried out stands on stderr, and not in the stream."""
        text = words.parse_router_error(line.text)
        if text is None:
            return []
        name = words.tool_name_in(text)
        head: EventHead = (0, self.session, None, line.at)
        call = self._summary.add_stderr_call(text)
        refusal: list[ev.Event] = []
        if words.is_refused(text, None, None):
            refusal = [ev.PermissionDenied(*head, call, name, text)]
        content = Raw(encode(text))
        return [
            ev.ToolCall(*head, call, name, words.tool_kind(name)),
            *refusal,
            ev.ToolResult(*head, call, True, content),
        ]

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the rollout of the same thread says that the stream does not; nothing where it is of another run."""
        return enrich(self.session, self._summary, lines)

    def _events(
        self, line: ln.CodexLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        if line.payload is not None or (self._rollout is not None and line.timestamp is not None):
            if self._rollout is None:
                self._rollout = RolloutReader()
            return self._rollout.events(line, data, number)
        head: EventHead = (number, self.session, None, line.timestamp or at)
        kind = line.type
        if kind in ("item.completed", "item.started", "item.updated") and line.item is not None:
            return self._item(kind, line.item, data, head)
        if kind == "error" and line.message is not None:
            return self._error(line.message, head)
        if kind == "thread.started":
            self.session = line.thread_id
            return [ev.Started(number, line.thread_id, None, head[3])]
        if kind == "turn.started":
            return []
        if kind in ("turn.completed", "turn.failed"):
            return self._turn_end(line, head)
        return [ev.Unknown(*head, kind or "no type", data)]

    def _error(self, text: str, head: EventHead) -> list[ev.Event]:
        """Not the end of anything: the agent tries again, or the turn fails in a line of its own."""
        if words.parse_reconnect(text) is None:
            return [ev.Notice(*head, "error", text)]
        self._repeatable_texts += self._texts
        self._texts.clear()
        return retry_events(head, text)

    def _turn_end(self, line: ln.CodexLine, head: EventHead) -> list[ev.Event]:
        """A turn is over. Its usage counts over the whole thread, earlier runs included."""
        if line.type == "turn.failed":
            text = (
                line.error.message if line.error is not None else None
            ) or "the turn failed and said nothing"
            self._summary.result = failed_result(head, (*words.classify_error(text), text))
        else:
            new, written, cached, output, reasoning = usage_counters(line.usage)
            usage = (
                None
                if line.usage is None
                else ev.ModelUsage(new, written, cached, output, reasoning)
            )
            self._summary.total_usage = line.usage
            self._summary.result = ev.Result(
                *head, "success", text=self._last_text, usage=usage, over_session=True
            )
        return [self._summary.result]

    # -- items -------------------------------------------------------------------------------------------------

    def _item(self, kind: str, item: ln.Item, data: bytes, head: EventHead) -> list[ev.Event]:
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
            events.append(self._tool_call(item, head))
            self._summary.add_call(item)
        if done:
            self._open_items.discard(item.id)
            self._summary.finish_call(item.id)
            self._repeatable_texts.clear()  # a call was carried out: what comes now is another request
            self._texts.clear()
            events += self._tool_result(item, head)
        return events

    def _text(self, item: ln.Item, head: EventHead) -> list[ev.Event]:
        """What the model said; a request that was sent again says it again, and it counts once."""
        text = item.text or ""
        if text in self._repeatable_texts:
            self._repeatable_texts.remove(text)
            return [ev.Notice(*head, "repeated", text)]
        self._texts.append(text)
        self._last_text = text
        return [ev.Text(*head, item.id, text)]

    def _tool_call(self, item: ln.Item, head: EventHead) -> ev.ToolCall:
        if item.type == "command_execution":
            return ev.ToolCall(
                *head,
                item.id,
                "exec_command",
                "shell",
                None,
                _to_raw_json(command=text_of(item.command)),
            )
        if item.type == "file_change":
            return ev.ToolCall(*head, item.id, "apply_patch", "file_edit", None, item.changes)
        if item.type == "mcp_tool_call":
            return ev.ToolCall(
                *head, item.id, f"mcp__{item.server}__{item.tool}", "mcp", None, item.arguments
            )
        if item.type == "web_search":
            return ev.ToolCall(
                *head, item.id, "web_search", "web", None, _to_raw_json(query=item.query)
            )
        if item.type == "todo_list":
            return ev.ToolCall(*head, item.id, "update_plan", "todo", None, item.items)
        return ev.ToolCall(*head, item.id, item.tool or "collab", "subagent", None, item.arguments)

    def _tool_result(self, item: ln.Item, head: EventHead) -> list[ev.Event]:
        broken = item.status in ("failed", "declined") or item.exit_code not in (0, None)
        events: list[ev.Event] = []
        if item.status == "declined":
            events.append(
                ev.PermissionDenied(
                    *head, item.id, None, text_of(item.aggregated_output) or "declined"
                )
            )
        if item.type == "file_change":
            events.append(ev.ToolResult(*head, item.id, broken, item.error))
            return events if broken else [*events, *file_change_events(head, item.id, item.changes)]
        if item.type == "command_execution":
            output = ev.ToolResultDetails(stdout=item.aggregated_output)
            return [*events, ev.ToolResult(*head, item.id, broken, item.aggregated_output, output)]
        content = item.error if decode_raw(item.error) is not None else item.result
        return [*events, ev.ToolResult(*head, item.id, broken, content)]


def _to_raw_json(**fields: str | None) -> Raw:
    return Raw(encode(fields))
