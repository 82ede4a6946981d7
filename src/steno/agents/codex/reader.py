"""The lines of `codex exec --json`, and those of a rollout: one line to events. It holds only what joins lines.

It never takes an `error` for the end: only turn.completed and turn.failed end a turn.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode

from ... import event as ev
from ...decode import decode_lenient, decode_raw, decoder, text_of
from . import lines as ln
from . import words
from .alongside import CodexStreamSummary, enrich
from .rollout import EventHead, RolloutReader, RolloutState, failed_result, file_change_events, retry_events, usage_counters

_decode_line = decoder(ln.CodexLine).decode
Odd = Callable[[bytes, int], list[ev.Event]]
_TOOL_ITEM_TYPES = ("command_execution", "file_change", "mcp_tool_call", "web_search", "todo_list", "collab_tool_call")


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
        return encode(CodexReaderState(self._rollout.state if self._rollout is not None else RolloutState()))

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
        return [ev.ToolCall(*head, call, name, words.tool_kind(name)), *refusal, ev.ToolResult(*head, call, True, content)]

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the rollout of the same thread says that the stream does not; nothing where it is of another run."""
        return enrich(self.session, self._summary, lines)

    def _events(self, line: ln.CodexLine, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
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
            text = (line.error.message if line.error is not None else None) or "the turn failed and said nothing"
            self._summary.result = failed_result(head, (*words.classify_error(text), text))
        else:
            new, written, cached, output, reasoning = usage_counters(line.usage)
            usage = None if line.usage is None else ev.ModelUsage(new, written, cached, output, reasoning)
            self._summary.total_usage = line.usage
            self._summary.result = ev.Result(*head, "success", text=self._last_text, usage=usage, over_session=True)
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
            return ev.ToolCall(*head, item.id, "exec_command", "shell", None, _to_raw_json(command=text_of(item.command)))
        if item.type == "file_change":
            return ev.ToolCall(*head, item.id, "apply_patch", "file_edit", None, item.changes)
        if item.type == "mcp_tool_call":
            return ev.ToolCall(*head, item.id, f"mcp__{item.server}__{item.tool}", "mcp", None, item.arguments)
        if item.type == "web_search":
            return ev.ToolCall(*head, item.id, "web_search", "web", None, _to_raw_json(query=item.query))
        if item.type == "todo_list":
            return ev.ToolCall(*head, item.id, "update_plan", "todo", None, item.items)
        return ev.ToolCall(*head, item.id, item.tool or "collab", "subagent", None, item.arguments)

    def _tool_result(self, item: ln.Item, head: EventHead) -> list[ev.Event]:
        broken = item.status in ("failed", "declined") or item.exit_code not in (0, None)
        events: list[ev.Event] = []
        if item.status == "declined":
            events.append(ev.PermissionDenied(*head, item.id, None, text_of(item.aggregated_output) or "declined"))
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
