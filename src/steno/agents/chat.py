"""The chats that some agents keep: lines of one shape, and what joins them. Pure: it never opens a file."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.json import encode

from ..decode import decode_lenient, decoder
from ..event import Event, Started, Usage, UserMessage
from .values import LineReader, read_objects_lenient

LineT = TypeVar("LineT", bound=Struct)
StateT = TypeVar("StateT", bound=Struct)


class TranscriptReader(ABC, Generic[LineT, StateT]):
    """Turns the lines of one chat into events. `shape` is what a line is, `kept` what joins the lines."""

    def __init__(self, shape: type[LineT], kept: StateT) -> None:
        self._line_type, self._state = shape, kept
        self._decode_line = decoder(shape).decode

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(self._decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The same without what is of a wrong type; never raises."""
        return self._events(decode_lenient(data, self._line_type), data, number, at)

    def state(self) -> bytes:
        """What must be remembered to go on with the next lines another time."""
        return encode(self._state)

    def restore(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._state = decoder(type(self._state)).decode(state)

    @abstractmethod
    def _events(self, line: LineT, data: bytes, number: int, at: datetime | None) -> list[Event]: ...


def scan_requests(chat: LineReader, lines: Iterable[bytes]) -> Iterator[Event]:
    """The requests that a chat tells of, and where it began."""
    for number, data in enumerate(lines, 1):
        yield from (event for event in read_objects_lenient(chat, data, number) if isinstance(event, Started | Usage | UserMessage))
