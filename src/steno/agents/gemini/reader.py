"""The lines of Gemini CLI's stream, and the one document of its json format. It holds only what joins lines.

That is: the pieces of the answer that is being written, the last whole answer, calls without their result, and how many
turns the model took. Chats that it keeps go to `chats`.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct
from msgspec.json import encode

from ... import event as ev
from ...decode import Count, decoder, lenient, text_of
from ..calls import Calls
from . import chats, ends
from .alongside import Told, understand
from .names import ASKS, GUARDED, UNASKED, WRITES, kind_of

Instant = Annotated[datetime, Meta(tz=True)]
Head = tuple[int, str | None, str | None, datetime | None]
EXITED = "Command exited with code: "  # all that a command without output says of its failure


class Problem(Struct, gc=False):
    type: str | None = None
    message: str | None = None


class Share(Struct, gc=False):
    """Figures of the stream's result, of all models or of one."""

    total_tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached: Count | None = None
    input: Count | None = None


class Stats(Share, gc=False):
    duration_ms: Count | None = None
    models: dict[str, Share] | None = None


class Line(Struct, gc=False):
    """Every field that somebody reads of a line of the stream."""

    type: str = ""
    timestamp: Instant | None = None
    session_id: str | None = None
    model: str | None = None
    role: str | None = None
    content: str | None = None
    delta: bool | None = None
    tool_name: str | None = None
    tool_id: str | None = None
    parameters: Raw = ev.NO_JSON
    status: str | None = None
    output: Raw = ev.NO_JSON
    error: Problem | None = None
    stats: Stats | None = None
    severity: str | None = None
    message: str | None = None


_line = decoder(Line).decode


class Reader:
    """Turns the lines of one run, or of one chat, into events."""

    def __init__(self) -> None:
        self._chat: chats.Chat | None = None
        self.session: str | None = None
        self._model: str | None = None
        self._pieces: list[str] = []
        self._piece: Head = (0, None, None, None)  # where the last piece stood
        self._text: str | None = None  # the last whole answer
        self._calls = Calls()
        self._told = Told()
        self._turn: str | None = None  # the name of the model's turn; None: its tools answer, or nothing was said yet
        self._trouble: str | None = None  # an error that nothing followed but the result

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        if self._chat is not None:
            return self._chat.read(data, number, at)
        return self._events(_line(data), data, number, at)

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        if self._chat is not None:
            return self._chat.salvage(data, number, at)
        return self._events(lenient(data, Line), data, number, at)

    def state(self) -> bytes:
        """Only a chat is read in parts."""
        return b"" if self._chat is None else self._chat.state()

    def go_on(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._chat = chats.Chat()
        self._chat.go_on(state)

    def hear(self, line: ev.Stderr) -> list[ev.Event]:
        """A failed request that will be tried again is told on stderr alone."""
        return ends.heard(line)

    def beside(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the chat of the same session says that the stream does not."""
        return understand(self.session, self._told, lines)

    # -- one line -------------------------------------------------------------------------------------------------

    def _events(self, line: Line, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        if not line.type:
            return self._untyped(data, number, at)
        head = (number, self.session, None, line.timestamp or at)
        if line.type == "message" and line.role == "assistant":
            return self._spoke(head, line)
        make = _MAKERS.get(line.type)
        if make is None:  # it may stand between two pieces of one answer
            return [ev.Unknown(*head, line.type, data)]
        return self._whole() + make(self, head, line)

    def _untyped(self, data: bytes, number: int, at: datetime | None) -> list[ev.Event]:
        """No line of a stream: the first line of a chat, the document of the json format, or nothing that is known."""
        if chats.keeps(data):
            self._chat = chats.Chat()
            return self._chat.salvage(data, number, at)
        from . import document  # a stream does not need it

        return document.read(data, (number, self.session, None, at))

    def _begun(self, head: Head) -> list[ev.Event]:
        """A turn of the model: a request whose figures the stream does not tell. Named by its time: lines have no ids."""
        if self._turn is not None:
            return []
        self._turn = f"line {head[0]}" if head[3] is None else head[3].isoformat()
        self._told.turns += 1
        return [ev.Notice(*head, "request")]

    def _spoke(self, head: Head, line: Line) -> list[ev.Event]:
        self._trouble = None
        found = self._begun(head)
        self._pieces.append(line.content or "")
        self._piece = head
        return found + ([ev.Partial(*head, line.content or "")] if line.delta is True else self._whole())

    def _whole(self) -> list[ev.Event]:
        """The answer that is over, now that something else comes."""
        if not self._pieces:
            return []
        self._text = "".join(self._pieces)
        self._pieces.clear()
        return [ev.Text(*self._piece, self._turn, self._text)]

    def _init(self, head: Head, line: Line) -> list[ev.Event]:
        self.session, self._model = line.session_id, line.model
        self._told.began = self._told.began or head[3]
        return [ev.Started(head[0], line.session_id, None, head[3], None, line.model)]

    def _said(self, head: Head, line: Line) -> list[ev.Event]:
        self._turn = None
        return [ev.UserMessage(*head, "prompt", line.content or "")]

    def _used(self, head: Head, line: Line) -> list[ev.Event]:
        self._trouble = None
        name = line.tool_name or ""
        found = self._begun(head)
        call = self._calls.made(line.tool_id or "", name, line.parameters if name in WRITES else ev.NO_JSON)
        return [*found, ev.ToolCall(*head, call, name, kind_of(name), self._turn, line.parameters, asks=name in ASKS)]

    def _answered(self, head: Head, line: Line) -> list[ev.Event]:
        self._turn = None
        call = self._calls.answered(line.tool_id or "")
        problem = line.error or Problem()
        content = line.output if line.output is not ev.NO_JSON or problem.message is None else Raw(encode(problem.message))
        failed = line.status == "error" or text_of(content).startswith(EXITED)
        found: list[ev.Event] = []
        missing = problem.type == "tool_not_registered" and call.tool in GUARDED
        if missing or problem.type == "policy_violation" or UNASKED in (problem.message or ""):
            found.append(ev.PermissionDenied(*head, call.id, call.tool or None, problem.message))
        found.append(ev.ToolResult(*head, call.id, failed, content))
        return found if failed else found + chats.changed(head, call)

    def _failed(self, head: Head, line: Line) -> list[ev.Event]:
        """An error of the program. A warning is no failure; an error is one unless the model goes on."""
        if line.severity != "error":
            return [ev.Notice(*head, line.severity or "error", line.message)]
        self._trouble = line.message or "error"
        return [ev.Failure(*head, None, None, line.message)]

    def _ended(self, head: Head, line: Line) -> list[ev.Event]:
        self._told.end = self._result(head, line)
        return [self._told.end]

    def _result(self, head: Head, line: Line) -> ev.Result:
        stats, problem = line.stats or Stats(), line.error or Problem()
        message = problem.message or self._trouble
        failed = line.status != "success" or self._trouble is not None
        models = None if stats.models is None else {name: _share(share) for name, share in stats.models.items()}
        return ev.Result(
            *head,
            subtype=line.status,
            is_error=failed,
            text=message if failed else self._text,
            errors=(message,) if failed and message else (),
            terminal_reason=reason_of(problem.type, message),
            api_error=ends.error_of(message or ""),
            api_status=ends.status_of(message or "") if failed else None,
            turns=self._told.turns or None,  # the stream shows no turn that failed
            duration_ms=stats.duration_ms or None,  # a failure says 0
            usage=(models or {}).get(self._model or "", None if line.stats is None else _share(stats)),
            models=models,
        )


def reason_of(kind: str | None, message: str | None) -> str | None:
    """Why it stopped, in the words of the vocabulary; None where it only failed."""
    if kind == "FatalCancellationError":
        return "aborted_streaming"
    limit = kind == "FatalTurnLimitedError" or (message or "").startswith(("Maximum session turns", "Reached max session turns"))
    return "max_turns" if limit else None


def _share(share: Share) -> ev.ModelUsage:
    """Four counters that do not overlap; see the package's docstring."""
    cached, fresh, output = share.cached, share.input, share.output_tokens
    if fresh is None and share.input_tokens is not None and cached is not None:
        fresh = max(0, share.input_tokens - cached)
    if output is not None and None not in (share.total_tokens, share.input_tokens):
        output += max(0, (share.total_tokens or 0) - (share.input_tokens or 0) - output)
    return ev.ModelUsage(fresh, 0, cached, output, None, 0)


_MAKERS: dict[str, Callable[[Reader, Head, Line], list[Any]]] = {
    "init": Reader._init,
    "message": Reader._said,
    "tool_use": Reader._used,
    "tool_result": Reader._answered,
    "error": Reader._failed,
    "result": Reader._ended,
}
