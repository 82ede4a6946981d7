"""What is kept of a stream that passes: a tape, a mark while it goes on, a row in the ledger at its end.

The tape is written by a thread of its own, so that a slow disk delays nobody. The ledger is opened when the stream is over.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .. import event as ev
from ..agents import CLAUDE, Agent
from ..agents.sink import Sink
from ..config.data_dir import new_recording_path, new_run_id
from ..errors import LedgerError, StenoError
from ..ledger.row_sink import LedgerRowSink
from ..process.process_table import start_time_of
from ..recording.format import Header, Record
from ..recording.parse import RunParser
from ..recording.record import Recorder
from ..report import Report
from . import run_registry as marks
from .background_queue import BackgroundQueue
from .passthrough import PassThrough

MAX_QUEUED_BYTES = (
    64 << 20
)  # bytes that may wait for the disk: a stalled one costs the tape, not the stream
FLUSH_TIMEOUT_SECONDS = 30.0  # seconds at the end for the disk


class StreamRecorder:
    """The record of one stream. StenoError: it cannot be made, and nothing was."""

    def __init__(self, agent: Agent | None, ledger: str | None) -> None:
        self.warnings: list[str] = []
        self._agent, self._ledger = agent, ledger
        self._started_at, self._started_monotonic = time.time(), time.monotonic()
        self.id = new_run_id(self._started_at)
        self.recording_path: Path = new_recording_path(self.id, self._started_at)
        cwd = os.getcwd()  # noqa: PTH109
        name = agent.name if agent is not None else None
        self.header = Header(agent=name, run_id=self.id, cwd=cwd, started_at=self._started_at)
        try:
            self._recorder = Recorder(self.recording_path, self.header)
        except OSError as problem:
            raise StenoError(
                f"{self.recording_path}: the tape cannot be made: {problem.strerror or problem}"
            ) from None
        self._write_queue: BackgroundQueue[Record] = BackgroundQueue(
            self._recorder.write, MAX_QUEUED_BYTES, "steno tape"
        )
        self._is_cut = False
        self._run_info = self._register(cwd)
        self._rows: LedgerRowSink | None = None

    def _register(self, cwd: str) -> marks.RunInfo:
        """So that others can follow it (`steno tail`, `steno on`). One that cannot be written only means that they cannot."""
        pid = os.getpid()
        mark = marks.RunInfo(
            run=self.id,
            task=self.id,
            agent=(self._agent or CLAUDE).name,
            host=marks.host_id(),
            steno_pid=pid,
            steno_born=start_time_of(pid) or 0,
            tape=str(self.recording_path),
            cwd=cwd,
            started=self._started_at,
        )
        try:
            marks.write_run_info(mark)
        except (OSError, StenoError) as problem:
            self.warnings.append(f"it cannot be followed from outside: {problem}")
        return mark

    # -- while it goes on ------------------------------------------------------------------------------------------

    def record_chunk(self, chunk: bytes) -> Record:
        """Bytes that have passed, as a tick that goes to the tape."""
        return self._write_record(Record(time.monotonic() - self._started_monotonic, "out", chunk))

    def add_events(self, events: list[ev.Event], agent: Agent) -> None:
        """Events, for the ledger, and whose they are: with the first one that is known."""
        if self._rows is None and events:
            self._rows = LedgerRowSink(agent, self.id, int(self._started_at * 1000), self.id)
            self._rows.start_folder = self.header.cwd
        if self._rows is not None:
            self._rows.add(events)

    def _write_record(self, tick: Record) -> Record:
        """What cannot be written cuts the tape: one with a hole would play as if it were whole."""
        if not self._is_cut and not self._write_queue.put(tick, len(tick.data)):
            self._is_cut = True
        return tick

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self, tap: PassThrough) -> list[Record]:
        """The last ticks of the tape, which is whole then."""
        after, why = time.monotonic() - self._started_monotonic, _interruption_reason(tap)
        found = [Record(after, "note", why.encode())] if why is not None else []
        for tick in found:
            self._write_record(tick)
        done = self._write_queue.finish(FLUSH_TIMEOUT_SECONDS)
        try:
            if self._is_cut or not done or self._write_queue.problem is not None:
                raise self._write_queue.problem or OSError(
                    "the disk did not take what came in time"
                )
            self._recorder.close()
        except Exception as problem:
            told = getattr(problem, "strerror", None) or problem
            self.warnings.append(f"the tape is cut: {told} ({self.recording_path})")
            return found
        return [*found, Record(None, "end")]

    def write_to_ledger(self, report: Report) -> None:
        """A row in the ledger. One that fails is told of: the tape can be imported later."""
        from ..ledger.run_record import upsert_run
        from ..ledger.store import open_ledger
        from ..ledger.upsert import Pricer

        at = int(self._started_at * 1000)
        rows = self._rows or LedgerRowSink(self._agent or CLAUDE, self.id, at, self.id)
        try:
            store = open_ledger(self._ledger)
            try:
                with store.transaction():
                    upsert_run(store, report, rows.batch(), at, Pricer())
            finally:
                store.close()
        except LedgerError as problem:
            self.warnings.append(
                f"the ledger is left out: {problem}; later: steno import {self.recording_path}"
            )

    def close(self) -> None:
        """It is over: nobody needs to find it any more."""
        marks.remove_run_info(self._run_info)


def _interruption_reason(tap: PassThrough) -> str | None:
    """Why a stream ended that did not end by itself."""
    if tap.stop_signal is not None:
        return f"watch: ended by {signal.Signals(tap.stop_signal).name}"
    if tap.is_reader_gone:
        return "watch: whoever read it was gone"
    return f"watch: {tap.problem}" if tap.problem is not None else None


if TYPE_CHECKING:
    pass  # loaded by whoever records

BatchSink = Callable[[list[ev.Event]], None]


class ForkingSink:
    """The report's scribe, with somebody between who is told of all that does not go the short way to it."""

    needs_tool_output = False

    def __init__(self, fold: Sink, hand: BatchSink) -> None:
        self.tool_call, self.tool_result, self.tool_error, self.text, self.thinking = (
            fold.tool_call,
            fold.tool_result,
            fold.tool_error,
            fold.text,
            fold.thinking,
        )
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

    def __init__(
        self,
        tap: PassThrough,
        agent: Agent | None = None,
        with_report: bool = True,
        keep: "StreamRecorder | None" = None,
    ) -> None:
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
            self.parser.feed_sink(
                self.pass_through.lines(),
                ForkingSink(self.parser.accumulator, self._dispatch_events),
            )
            return
        for events in (
            self._events_from_recording(self._recorder)
            if self._recorder is not None
            else self._events_from_lines()
        ):
            self._dispatch_events(events)
            if self._with_report:
                self.parser.accumulator.add(events)

    def _events_from_lines(self) -> Iterator[list[ev.Event]]:
        """The events of what arrived together."""
        for group in self.pass_through.lines():
            yield [
                event
                for data in group
                for event in self.parser.parse_line(data, data[-1:] != b"\n")
            ]
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
