"""From many lines to whoever takes down what they say, by the shortest way that a reader knows. It reads no file.

Most of a stream is calls, plain answers, text and thinking. Who only adds up, as a report and the ledger do, needs of them
a few fields and no event: a scribe takes these as they are read, and all else as events.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Raw

from ..codec.decode import DECODE_ERRORS
from ..event import Event, OptionalStr, OptionalTime, Usage
from .base import LineReader

LineFallback = Callable[[bytes, int], list[Event]]


class Sink(Protocol):
    """Takes down what lines say, in their order. What `add` makes of an event, the others make of its fields."""

    def add(self, found: Iterable[Event], /) -> None:
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
        given: Raw,
        /,
    ) -> None:
        """A `ToolCall` that nobody sent to the background and that a tool can answer."""

    def tool_result(self, at: OptionalTime, id_: str, /) -> None:
        """A `ToolResult` that is no error."""

    def tool_error(self, at: OptionalTime, id_: str, content: Raw, /) -> None:
        """A `ToolResult` that is an error, and no refusal."""

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
        """A `Text` of the model's own."""

    def thinking(self, at: OptionalTime, /) -> None:
        """A `Thinking`."""


def feed(
    reader: LineReader, lines: Iterable[bytes], number: int, odd: LineFallback, scribe: Sink
) -> int:
    """Tell a scribe what many lines say: by the reader's own short way where it has one, else line by line.

    `number` is that of the line before, and it returns that of the last; `odd` is asked for the events of a line that
    does not fit.
    """
    short: Callable[[Iterable[bytes], int, LineFallback, Sink], int] | None = getattr(
        reader, "feed", None
    )
    if short is not None:
        return short(lines, number, odd, scribe)
    for data in lines:
        number += 1
        try:
            found = reader.read(data, number)
        except DECODE_ERRORS:
            found = odd(data, number)
        scribe.add(found)
    return number
