"""The lines of `codex exec --json`, and those of a rollout: one line to events. It holds only what joins lines.

It never takes an `error` for the end: only turn.completed and turn.failed end a turn.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode

from ... import event as ev
from ...decode import decoder, lenient, plain, text_of
from . import lines as ln
from . import words
from .alongside import Told, understand
from .rollout import Head, Rollout, State, failed, patched, retries, shares

_line = decoder(ln.Line).decode
Odd = Callable[[bytes, int], list[ev.Event]]
_KNOWN = ("command_execution", "file_change", "mcp_tool_call", "web_search", "todo_list", "collab_tool_call")


class Kept(Struct):
    """What must be remembered between two readings of a file that grows."""

    rollout: State = field(default_factory=State)


class Reader:
    """Turns the lines of one run, or of one rollout, into events."""

    def __init__(self) -> None:
        self.session: str | None = None
        self._rollout: Rollout | None = None  # these are the lines of a rollout
        self._told = Told()
        self._open: set[str] = set()  # items that were called and not answered
        self._said: list[str] = []  # texts of the request that is going on
        self._again: list[str] = []  # texts that a repeated request may tell once more
        self._last: str | None = None

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(_line(data), data, number, at)

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(lenient(data, ln.Line), data, number, at)

    def state(self) -> bytes:
        """What must be remembered to go on with the next lines of the same file another time."""
        return encode(Kept(self._rollout.state if self._rollout is not None else State()))

    def go_on(self, state: bytes) -> None:
        """Remember what `state` said. It is a rollout: nothing else is read in parts."""
        self._rollout = Rollout(decoder(Kept).decode(state).rollout)

    def hear(self, line: ev.Stderr) -> list[ev.Event]:
        """A call that was never carried out stands on stderr, and not in the stream."""
        text = words.misrouted(line.text)
        if text is None:
            return []
        name = words.tool_in(text)
        head: Head = (0, self.session, None, line.at)
        call = self._told.heard_of(text)
        refusal: list[ev.Event] = []
        if words.refused(text, None, None):
            refusal = [ev.PermissionDenied(*head, call, name, text)]
        content = Raw(encode(text))
        return [ev.ToolCall(*head, call, name, words.kind_of(name)), *refusal, ev.ToolResult(*head, call, True, content)]

    def beside(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the rollout of the same thread says that the stream does not; nothing where it is of another run."""
        return understand(self.session, self._told, lines)

    def _events(self, line: ln.Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        if line.payload is not None or (self._rollout is not None and line.timestamp is not None):
            if self._rollout is None:
                self._rollout = Rollout()
            return self._rollout.events(line, data, number)
        head: Head = (number, self.session, None, line.timestamp or at)
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
            return self._ended(line, head)
        return [ev.Unknown(*head, kind or "no type", data)]

    def _error(self, text: str, head: Head) -> list[ev.Event]:
        """Not the end of anything: the agent tries again, or the turn fails in a line of its own."""
        if words.reconnecting(text) is None:
            return [ev.Notice(*head, "error", text)]
        self._again += self._said
        self._said.clear()
        return retries(head, text)

    def _ended(self, line: ln.Line, head: Head) -> list[ev.Event]:
        """A turn is over. Its usage counts over the whole thread, earlier runs included."""
        if line.type == "turn.failed":
            text = (line.error.message if line.error is not None else None) or "the turn failed and said nothing"
            self._told.end = failed(head, (*words.blamed(text), text))
        else:
            new, written, cached, output, reasoning = shares(line.usage)
            usage = None if line.usage is None else ev.ModelUsage(new, written, cached, output, reasoning)
            self._told.total = line.usage
            self._told.end = ev.Result(*head, "success", text=self._last, usage=usage, over_session=True)
        return [self._told.end]

    # -- items -------------------------------------------------------------------------------------------------

    def _item(self, kind: str, item: ln.Item, data: bytes, head: Head) -> list[ev.Event]:
        done = kind == "item.completed"
        if item.type == "agent_message":
            return self._text(item, head) if done else []
        if item.type == "reasoning":
            return [ev.Thinking(*head, item.id, item.text or "")] if done else []
        if item.type == "error":
            return [ev.Notice(*head, "error", item.message)]
        if item.type not in _KNOWN:
            return [ev.Unknown(*head, f"item {item.type}", data)]
        events: list[ev.Event] = []
        if item.id not in self._open and (done or kind == "item.started"):
            self._open.add(item.id)
            events.append(self._call(item, head))
            self._told.began(item)
        if done:
            self._open.discard(item.id)
            self._told.done(item.id)
            self._again.clear()  # a call was carried out: what comes now is another request
            self._said.clear()
            events += self._answer(item, head)
        return events

    def _text(self, item: ln.Item, head: Head) -> list[ev.Event]:
        """What the model said; a request that was sent again says it again, and it counts once."""
        text = item.text or ""
        if text in self._again:
            self._again.remove(text)
            return [ev.Notice(*head, "repeated", text)]
        self._said.append(text)
        self._last = text
        return [ev.Text(*head, item.id, text)]

    def _call(self, item: ln.Item, head: Head) -> ev.ToolCall:
        if item.type == "command_execution":
            return ev.ToolCall(*head, item.id, "exec_command", "shell", None, _raw(command=text_of(item.command)))
        if item.type == "file_change":
            return ev.ToolCall(*head, item.id, "apply_patch", "file_edit", None, item.changes)
        if item.type == "mcp_tool_call":
            return ev.ToolCall(*head, item.id, f"mcp__{item.server}__{item.tool}", "mcp", None, item.arguments)
        if item.type == "web_search":
            return ev.ToolCall(*head, item.id, "web_search", "web", None, _raw(query=item.query))
        if item.type == "todo_list":
            return ev.ToolCall(*head, item.id, "update_plan", "todo", None, item.items)
        return ev.ToolCall(*head, item.id, item.tool or "collab", "subagent", None, item.arguments)

    def _answer(self, item: ln.Item, head: Head) -> list[ev.Event]:
        broken = item.status in ("failed", "declined") or item.exit_code not in (0, None)
        events: list[ev.Event] = []
        if item.status == "declined":
            events.append(ev.PermissionDenied(*head, item.id, None, text_of(item.aggregated_output) or "declined"))
        if item.type == "file_change":
            events.append(ev.ToolResult(*head, item.id, broken, item.error))
            return events if broken else [*events, *patched(head, item.id, item.changes)]
        if item.type == "command_execution":
            output = ev.Outcome(stdout=item.aggregated_output)
            return [*events, ev.ToolResult(*head, item.id, broken, item.aggregated_output, output)]
        content = item.error if plain(item.error) is not None else item.result
        return [*events, ev.ToolResult(*head, item.id, broken, content)]


def _raw(**fields: str | None) -> Raw:
    return Raw(encode(fields))
