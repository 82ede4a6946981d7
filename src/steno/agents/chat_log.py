"""Calls by their ids, for agents on any model: a local model may use one id again for every call. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Raw, Struct
from msgspec.json import encode

from ..codec.decode import decode_lenient, decoder
from ..event import NO_JSON, Event, Started, Usage, UserMessage
from .base import LineReader, read_objects_lenient


class PendingCall(Struct, gc=False):
    """A call without its answer: the name that it has here, its tool, and what was asked."""

    id: str
    tool: str = ""
    input: Raw = NO_JSON


class CallTracker:
    """The calls of one run. It keeps a number for each id, and of a call only what its answer does not repeat."""

    def __init__(self) -> None:
        self._use_counts: dict[str, int] = {}
        self._pending: dict[str, PendingCall] = {}

    def open(self, id_: str, tool: str, given: Raw) -> str:
        """The name of a call: its id, with a number where that id was used and answered before."""
        known = self._pending.get(id_)
        if known is not None:
            return known.id
        uses = self._use_counts[id_] = self._use_counts.get(id_, 0) + 1
        name = id_ if uses == 1 else f"{id_}#{uses}"
        self._pending[id_] = PendingCall(name, tool, given)
        return name

    def close(self, id_: str) -> PendingCall:
        """The call that an answer belongs to."""
        return self._pending.pop(id_, None) or PendingCall(id_)


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
    def _events(
        self, line: LineT, data: bytes, number: int, at: datetime | None
    ) -> list[Event]: ...


def scan_requests(chat: LineReader, lines: Iterable[bytes]) -> Iterator[Event]:
    """The requests that a chat tells of, and where it began."""
    for number, data in enumerate(lines, 1):
        yield from (
            event
            for event in read_objects_lenient(chat, data, number)
            if isinstance(event, Started | Usage | UserMessage)
        )
