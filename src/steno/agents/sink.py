"""Sinks: where a reader sends the meaning of the lines it decodes.

Most of a stream is tool calls, results, text and thinking. A report or the ledger needs a few
fields of these and no `Event` object, so a sink takes them as arguments. Everything else arrives as
events.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Raw

from ..codec.decode import DECODE_ERRORS, text_of
from ..event import (
    Event,
    OptionalStr,
    OptionalTime,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolResultDetails,
    Usage,
)
from .base import LineReader

LineFallback = Callable[[bytes, int], list[Event]]


class Sink(Protocol):
    """Receives what lines mean, in order.

    The first four arguments of most methods are the fields every event has: line, session, parent,
    at. A method must do the same as `add` does with the event of that name.
    """

    needs_tool_output: bool
    """Whether `tool_result` and `tool_error` need the complete structured result; else `output` is
    not usable, which saves decoding it."""

    def add(self, events: Iterable[Event], /) -> None:
        """Events of any kind."""

    def usage(self, event: Usage, /) -> None: ...

    def tool_call(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        name: str,
        kind: str,
        message: OptionalStr,
        input_: Raw,
        /,
    ) -> None:
        """A `ToolCall` in the foreground that needs no answer from a person."""

    def tool_result(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        content: Raw,
        output: ToolResultDetails | Raw | None,
        /,
    ) -> None:
        """A `ToolResult` that is no error."""

    def tool_error(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        content: Raw,
        output: ToolResultDetails | Raw | None,
        /,
    ) -> None:
        """A `ToolResult` that is an error."""

    def text(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        message: OptionalStr,
        text: str,
        /,
    ) -> None:
        """A `Text` of the model, not a synthetic one."""

    def thinking(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        message: OptionalStr,
        text: Raw,
        /,
    ) -> None:
        """A `Thinking`; its text is JSON, because most sinks don't need it."""


class EventSink:
    """Collects the events themselves."""

    needs_tool_output = True

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, events: Iterable[Event], /) -> None:
        self.events += events

    def usage(self, event: Usage, /) -> None:
        self.events.append(event)

    def tool_call(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        name: str,
        kind: str,
        message: OptionalStr,
        input_: Raw,
        /,
    ) -> None:
        self.events.append(ToolCall(line, session, parent, at, id_, name, kind, message, input_))

    def tool_result(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        content: Raw,
        output: ToolResultDetails | Raw | None,
        /,
    ) -> None:
        self.events.append(ToolResult(line, session, parent, at, id_, False, content, output))

    def tool_error(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        id_: str,
        content: Raw,
        output: ToolResultDetails | Raw | None,
        /,
    ) -> None:
        self.events.append(ToolResult(line, session, parent, at, id_, True, content, output))

    def text(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        message: OptionalStr,
        text: str,
        /,
    ) -> None:
        self.events.append(Text(line, session, parent, at, message, text))

    def thinking(
        self,
        line: int,
        session: OptionalStr,
        parent: OptionalStr,
        at: OptionalTime,
        message: OptionalStr,
        text: Raw,
        /,
    ) -> None:
        self.events.append(Thinking(line, session, parent, at, message, text_of(text)))


def feed(
    reader: LineReader, lines: Iterable[bytes], number: int, fallback: LineFallback, sink: Sink
) -> int:
    """Send what the lines mean to the sink, and return the number of the last line.

    `number` is that of the line before the first. `fallback` gives the events of a line that the
    reader can't decode. A reader with its own `feed` method is faster, because it makes no events.
    """
    own_feed: Callable[[Iterable[bytes], int, LineFallback, Sink], int] | None = getattr(
        reader, "feed", None
    )
    if own_feed is not None:
        return own_feed(lines, number, fallback, sink)
    for data in lines:
        number += 1
        try:
            events = reader.read(data, number)
        except DECODE_ERRORS:
            events = fallback(data, number)
        sink.add(events)
    return number
