"""A stream that passes, understood on its way: each line goes to the report and to the sinks once its bytes are out.

Nothing here waits, and nothing here can stop the stream: a sink that fails is left out, and if we cannot understand it any
more, the bytes go on all the same.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from .. import event as ev
from ..agents import Agent
from ..agents.scribe import Scribe
from ..reading import Reading
from .tap import Tap

if TYPE_CHECKING:
    from .keep import Keep  # loaded by whoever records

Sink = Callable[[list[ev.Event]], None]


class Between:
    """The report's scribe, with somebody between who is told of all that does not go the short way to it."""

    def __init__(self, fold: Scribe, hand: Sink) -> None:
        self.call, self.answer, self.fail, self.say, self.think = fold.call, fold.answer, fold.fail, fold.say, fold.think
        self.use = fold.use
        self._fold, self._hand = fold, hand

    def add(self, found: Iterable[ev.Event], /) -> None:
        """Events of any kind."""
        events = list(found)
        self._hand(events)
        self._fold.add(events)


class Watching:
    """A stream from its first byte to its last. `report`: what it adds up to is kept; `keep`: it is recorded.

    `sinks` are handed every event; `rare` need not be handed the plain ones: calls and their answers, words, usage.
    """

    def __init__(self, tap: Tap, agent: Agent | None = None, report: bool = True, keep: "Keep | None" = None) -> None:
        self.tap, self.reading = tap, Reading(agent)
        self.sinks: list[Sink] = []
        self.rare: list[Sink] = []
        self.warnings: list[str] = []  # troubles of our own
        self._report, self._keep = report, keep

    def run(self) -> None:
        """Until it is over."""
        if not (self._report or self.sinks or self.rare or self._keep):
            self.tap.drain()  # nobody wants to know: the lines are not even cut
            return
        try:
            self._understand()
        except Exception as problem:  # the stream is worth more than what we make of it
            self.warnings.append(f"not understood to its end: {type(problem).__name__}: {problem}")
            self._pass_on()

    def _understand(self) -> None:
        if self._keep is None and not self.sinks:
            self.reading.tell(self.tap.lines(), Between(self.reading.fold, self._hand))
            return
        for events in self._recorded(self._keep) if self._keep is not None else self._read():
            self._hand(events)
            if self._report:
                self.reading.fold.add(events)

    def _read(self) -> Iterator[list[ev.Event]]:
        """The events of what arrived together."""
        for group in self.tap.lines():
            yield [event for data in group for event in self.reading.line(data, data[-1:] != b"\n")]
        yield self.reading.end()

    def _recorded(self, keep: "Keep") -> Iterator[list[ev.Event]]:
        """The events as the tape will tell them: with the times that are on it."""
        self.reading.begin(keep.header)
        for tick in map(keep.take, self.tap.chunks()):
            yield self._noted(keep, self.reading.tick(tick))
        for tick in keep.end(self.tap):
            yield self._noted(keep, self.reading.tick(tick))
        yield self._noted(keep, self.reading.end())

    def _noted(self, keep: "Keep", events: list[ev.Event]) -> list[ev.Event]:
        keep.add(events, self.reading.agent)
        return events

    def _hand(self, events: list[ev.Event]) -> None:
        for sink in (*self.sinks, *self.rare):
            try:
                sink(events)
            except Exception as problem:
                self.sinks = [other for other in self.sinks if other is not sink]
                self.rare = [other for other in self.rare if other is not sink]
                what = f"{type(problem).__name__}: {problem}"
                self.warnings.append(f"something that was listening failed and is left out: {what}")

    def _pass_on(self) -> None:
        if self._keep is None:
            self.tap.drain()
            return
        for chunk in self.tap.chunks():
            self._keep.take(chunk)
        self._keep.end(self.tap)
