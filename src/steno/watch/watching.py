"""A stream that passes, understood on its way: each line goes to the report and to the sinks once its bytes are out.

Nothing here waits, and nothing here can stop the stream: a sink that fails is left out, and if we cannot understand it any
more, the bytes go on all the same.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from .. import event as ev
from ..agents import Agent
from ..agents.scribe import Sink
from ..reading import RunParser
from .tap import PassThrough

if TYPE_CHECKING:
    from .keep import StreamRecorder  # loaded by whoever records

BatchSink = Callable[[list[ev.Event]], None]


class ForkingSink:
    """The report's scribe, with somebody between who is told of all that does not go the short way to it."""

    def __init__(self, fold: Sink, hand: BatchSink) -> None:
        self.tool_call, self.tool_result, self.tool_error, self.text, self.thinking = fold.tool_call, fold.tool_result, fold.tool_error, fold.text, fold.thinking
        self.usage = fold.usage
        self._accumulator, self._on_events = fold, hand

    def add(self, found: Iterable[ev.Event], /) -> None:
        """Events of any kind."""
        events = list(found)
        self._on_events(events)
        self._accumulator.add(events)


class StreamMonitor:
    """A stream from its first byte to its last. `report`: what it adds up to is kept; `keep`: it is recorded.

    `sinks` are handed every event; `rare` need not be handed the plain ones: calls and their answers, words, usage.
    """

    def __init__(self, tap: PassThrough, agent: Agent | None = None, with_report: bool = True, keep: "StreamRecorder | None" = None) -> None:
        self.pass_through, self.parser = tap, RunParser(agent)
        self.sinks: list[BatchSink] = []
        self.filtered_sinks: list[BatchSink] = []
        self.warnings: list[str] = []  # troubles of our own
        self._with_report, self._recorder = with_report, keep

    def run(self) -> None:
        """Until it is over."""
        if not (self._with_report or self.sinks or self.filtered_sinks or self._recorder):
            self.pass_through.drain()  # nobody wants to know: the lines are not even cut
            return
        try:
            self._process_stream()
        except Exception as problem:  # the stream is worth more than what we make of it
            self.warnings.append(f"not understood to its end: {type(problem).__name__}: {problem}")
            self._pass_through_unread()

    def _process_stream(self) -> None:
        if self._recorder is None and not self.sinks:
            self.parser.feed_sink(self.pass_through.lines(), ForkingSink(self.parser.accumulator, self._dispatch_events))
            return
        for events in self._events_from_recording(self._recorder) if self._recorder is not None else self._events_from_lines():
            self._dispatch_events(events)
            if self._with_report:
                self.parser.accumulator.add(events)

    def _events_from_lines(self) -> Iterator[list[ev.Event]]:
        """The events of what arrived together."""
        for group in self.pass_through.lines():
            yield [event for data in group for event in self.parser.parse_line(data, data[-1:] != b"\n")]
        yield self.parser.flush()

    def _events_from_recording(self, keep: "StreamRecorder") -> Iterator[list[ev.Event]]:
        """The events as the tape will tell them: with the times that are on it."""
        self.parser.begin_recording(keep.header)
        for tick in map(keep.record_chunk, self.pass_through.chunks()):
            yield self._add_ledger_rows(keep, self.parser.interpret_record(tick))
        for tick in keep.finish(self.pass_through):
            yield self._add_ledger_rows(keep, self.parser.interpret_record(tick))
        yield self._add_ledger_rows(keep, self.parser.flush())

    def _add_ledger_rows(self, keep: "StreamRecorder", events: list[ev.Event]) -> list[ev.Event]:
        keep.add_events(events, self.parser.agent)
        return events

    def _dispatch_events(self, events: list[ev.Event]) -> None:
        for sink in (*self.sinks, *self.filtered_sinks):
            try:
                sink(events)
            except Exception as problem:
                self.sinks = [other for other in self.sinks if other is not sink]
                self.filtered_sinks = [other for other in self.filtered_sinks if other is not sink]
                what = f"{type(problem).__name__}: {problem}"
                self.warnings.append(f"something that was listening failed and is left out: {what}")

    def _pass_through_unread(self) -> None:
        if self._recorder is None:
            self.pass_through.drain()
            return
        for chunk in self.pass_through.chunks():
            self._recorder.record_chunk(chunk)
        self._recorder.finish(self.pass_through)
