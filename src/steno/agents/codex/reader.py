"""The stream of `codex exec --json`, completed from the rollout of the same thread. Pure.

The stream lacks the model, the window, the usage per request, durations, calls that were never
executed, and interruptions: see `enrich`.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Raw
from msgspec.json import encode

from ... import event as ev
from ...codec.decode import decode_lenient, decode_raw, decoder, text_of
from ...event import EventHead
from . import tables
from .collab import call_input, call_output, task_events
from .enrich import CodexStreamSummary, enrich
from .events import failed_result, file_change_events, model_usage, retry_events
from .older_stream import OlderStreamReader, is_older_line
from .rollout import ROLLOUT_LINE_TYPES, CodexReaderState, RolloutReader
from .wire import CodexLine, Item

_STREAM_TYPE_PREFIXES = ("thread.", "turn.", "item.")
_decode_line = decoder(CodexLine).decode
_TOOL_ITEM_TYPES = (
    "command_execution",
    "file_change",
    "mcp_tool_call",
    "web_search",
    "todo_list",
    "collab_tool_call",
)


class CodexReader:
    """Turns the lines of one run, or of one rollout, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._rollout: RolloutReader | None = None  # set if the lines are those of a rollout
        self._older: OlderStreamReader | None = None  # set for the stream of an older version
        self._summary = CodexStreamSummary()
        self._open_items: set[str] = set()  # calls without a result
        self._ended_threads: set[str] = set()  # of subagents
        self._texts: list[str] = []  # of the current request
        self._repeatable_texts: Counter[str] = Counter()  # that a repeated request may print again
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
        if is_older_line(line):
            self._older = self._older or OlderStreamReader()
            return self._older.events(line, data, number, at)
        if _is_of_rollout(line, self._rollout is not None):
            self._rollout = self._rollout or RolloutReader()
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
        self._repeatable_texts.update(self._texts)
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
            if item.type == "collab_tool_call":
                events += task_events(item, head, self._ended_threads)
        return events

    def _text(self, item: Item, head: EventHead) -> list[ev.Event]:
        """A text; one that a repeated request prints again is counted once."""
        text = item.text or ""
        if self._repeatable_texts[text]:
            self._repeatable_texts[text] -= 1
            return [ev.Notice(*head, "repeated", text)]
        self._texts.append(text)
        self._summary.texts.append(text)
        self._last_text = text
        return [ev.Text(*head, item.id, text)]


def _is_of_rollout(line: CodexLine, was_rollout: bool) -> bool:
    """Whether a line belongs to a rollout: see `wire` for its forms."""
    if line.payload is not None or line.items is not None or line.record_type is not None:
        return True
    if was_rollout:
        return not line.type.startswith(_STREAM_TYPE_PREFIXES)
    is_first = not line.type and line.id is not None
    return line.timestamp is not None and (is_first or line.type in ROLLOUT_LINE_TYPES)


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
    return ev.ToolCall(*head, item.id, item.tool or "collab", "subagent", input=call_input(item))


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
        details = ev.ToolResultDetails(stdout=item.aggregated_output, exit_code=item.exit_code)
        return [*events, ev.ToolResult(*head, item.id, failed, item.aggregated_output, details)]
    if item.type == "collab_tool_call":
        return [*events, ev.ToolResult(*head, item.id, failed, call_output(item))]
    content = item.error if decode_raw(item.error) is not None else item.result
    return [*events, ev.ToolResult(*head, item.id, failed, content)]


def _to_raw_json(**fields: str | None) -> Raw:
    return Raw(encode(fields))
