"""The reader skeleton for agents whose lines all decode to one struct. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.json import encode

from ..codec.decode import DECODE_ERRORS, decode_lenient, decoder
from ..event import Event
from .base import LineReader, read_objects_lenient

LineT = TypeVar("LineT", bound=Struct)
StateT = TypeVar("StateT", bound=Struct)


class TypedLineReader(ABC, Generic[LineT, StateT]):
    """A `LineReader` for lines of `line_type`; `state` is what must survive between two lines."""

    def __init__(self, line_type: type[LineT], state: StateT) -> None:
        self._line_type = line_type
        self._decode_line = decoder(line_type).decode
        self._state = state

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        return self._events(self._decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """Return the events of one JSON object, ignoring fields of a wrong type."""
        return self._events(decode_lenient(data, self._line_type), data, number, at)

    def state(self) -> bytes:
        """Return the state as JSON, to continue with later lines of the same file."""
        return encode(self._state)

    def restore(self, state: bytes) -> None:
        """Continue from a stored state."""
        self._state = decoder(type(self._state)).decode(state)

    @abstractmethod
    def _events(
        self, line: LineT, data: bytes, number: int, at: datetime | None
    ) -> list[Event]: ...


def scan_events(
    reader: LineReader,
    lines: Iterable[bytes],
    kinds: tuple[type[Event], ...],
    markers: tuple[bytes, ...] = (),
) -> Iterator[Event]:
    """Yield the events of some kinds. With `markers`, only lines that contain one are decoded."""
    for number, data in enumerate(lines, 1):
        if markers and not any(marker in data for marker in markers):
            continue
        try:
            events = reader.read(data, number)
        except DECODE_ERRORS:
            events = read_objects_lenient(reader, data, number)
        for event in events:
            if isinstance(event, kinds):
                yield event
