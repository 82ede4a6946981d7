"""The chats that some agents keep: lines of one shape, and what joins them. Pure: it never opens a file."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.json import encode

from ..decode import decoder, lenient
from ..event import Event, Started, Usage, UserMessage
from .values import LineReader, salvaged

Line = TypeVar("Line", bound=Struct)
Kept = TypeVar("Kept", bound=Struct)


class Chat(ABC, Generic[Line, Kept]):
    """Turns the lines of one chat into events. `shape` is what a line is, `kept` what joins the lines."""

    def __init__(self, shape: type[Line], kept: Kept) -> None:
        self._shape, self._kept = shape, kept
        self._line = decoder(shape).decode

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(self._line(data), data, number, at)

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The same without what is of a wrong type; never raises."""
        return self._events(lenient(data, self._shape), data, number, at)

    def state(self) -> bytes:
        """What must be remembered to go on with the next lines another time."""
        return encode(self._kept)

    def go_on(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._kept = decoder(type(self._kept)).decode(state)

    @abstractmethod
    def _events(self, line: Line, data: bytes, number: int, at: datetime | None) -> list[Event]: ...


def requests(chat: LineReader, lines: Iterable[bytes]) -> Iterator[Event]:
    """The requests that a chat tells of, and where it began."""
    for number, data in enumerate(lines, 1):
        yield from (event for event in salvaged(chat, data, number) if isinstance(event, Started | Usage | UserMessage))
