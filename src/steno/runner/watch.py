"""Monitors a stream that passes through: parses it, and optionally records it.

A recording is written by a separate thread, so that a slow disk does not delay the stream, and
added to the ledger when the stream has ended.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .. import event as ev
from ..agents import CLAUDE, Agent
from ..agents.sink import Sink
from ..config.files import new_recording_path, new_run_id
from ..errors import LedgerError, StenoError
from ..ledger.row_sink import LedgerRowSink
from ..process.process_tree import start_time_of
from ..recording.format import Header, Record, Recorder
from ..recording.parse import RunParser
from ..report import Report
from . import run_registry
from .hooks import BackgroundQueue
from .passthrough import PassThrough

MAX_QUEUED_BYTES = 64 << 20  # a stalled disk costs the recording, not the stream
FLUSH_TIMEOUT_SECONDS = 30.0


class StreamRecorder:
    """Records one stream. StenoError: the recording cannot be created."""

    def __init__(self, agent: Agent | None, ledger: str | None) -> None:
        self.warnings: list[str] = []
        self._agent = agent
        self._ledger = ledger
        self._started_at = time.time()
        self._started_monotonic = time.monotonic()
        self.id = new_run_id(self._started_at)
        self.recording_path: Path = new_recording_path(self.id, self._started_at)
        cwd = os.getcwd()  # noqa: PTH109  # as a string
        name = agent.name if agent is not None else None
        self.header = Header(agent=name, run_id=self.id, cwd=cwd, started_at=self._started_at)
        try:
            self._recorder = Recorder(self.recording_path, self.header)
        except OSError as error:
            raise StenoError(
                f"{self.recording_path}: cannot create the recording: {error.strerror or error}"
            ) from None
        self._write_queue: BackgroundQueue[Record] = BackgroundQueue(
            self._recorder.write, MAX_QUEUED_BYTES, "steno recording"
        )
        self._is_truncated = False
        self._run_info = self._register(cwd)
        self._rows: LedgerRowSink | None = None

    def _register(self, cwd: str) -> run_registry.RunInfo:
        """Register the active run, so that `steno logs` finds it."""
        pid = os.getpid()
        info = run_registry.RunInfo(
            run=self.id,
            task=self.id,
            agent=(self._agent or CLAUDE).name,
            host=run_registry.host_id(),
            steno_pid=pid,
            steno_born=start_time_of(pid) or 0,
            tape=str(self.recording_path),
            cwd=cwd,
            started=self._started_at,
        )
        try:
            run_registry.write_run_info(info)
        except (OSError, StenoError) as error:
            self.warnings.append(f"cannot register the run for steno logs: {error}")
        return info

    # -- during the stream -------------------------------------------------------------------------

    def record_chunk(self, chunk: bytes) -> Record:
        """Record bytes that have passed."""
        return self._write_record(Record(time.monotonic() - self._started_monotonic, "out", chunk))

    def add_events(self, events: list[ev.Event], agent: Agent) -> None:
        """Collect rows for the ledger."""
        if self._rows is None and events:
            self._rows = LedgerRowSink(agent, self.id, int(self._started_at * 1000), self.id)
            self._rows.start_folder = self.header.cwd
        if self._rows is not None:
            self._rows.add(events)

    def _write_record(self, record: Record) -> Record:
        """Queue a record; after one is lost, the rest is dropped: a gap would go unnoticed."""
        if not self._is_truncated and not self._write_queue.put(record, len(record.data)):
            self._is_truncated = True
        return record

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, pass_through: PassThrough) -> list[Record]:
        """Complete the recording; its last records."""
        elapsed = time.monotonic() - self._started_monotonic
        reason = _interruption_reason(pass_through)
        records = []
        if reason is not None:
            records.append(self._write_record(Record(elapsed, "note", reason.encode())))
        is_flushed = self._write_queue.finish(FLUSH_TIMEOUT_SECONDS)
        try:
            if self._is_truncated or not is_flushed or self._write_queue.problem is not None:
                raise self._write_queue.problem or OSError("the disk is too slow")
            self._recorder.close()
        except Exception as error:
            text = getattr(error, "strerror", None) or error
            self.warnings.append(f"recording truncated: {text} ({self.recording_path})")
            return records
        return [*records, Record(None, "end")]

    def write_to_ledger(self, report: Report) -> None:
        """Add the run to the ledger; after a failure the recording can be imported."""
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
        except LedgerError as error:
            self.warnings.append(
                f"not in the ledger: {error}; to add it: steno ledger import {self.recording_path}"
            )

    def close(self) -> None:
        """Remove the run from the list of active runs."""
        run_registry.remove_run_info(self._run_info)


def _interruption_reason(pass_through: PassThrough) -> str | None:
    """Why a stream stopped before the end of its input."""
    if pass_through.stop_signal is not None:
        return f"watch: ended by {signal.Signals(pass_through.stop_signal).name}"
    if pass_through.is_reader_gone:
        return "watch: the reader closed the pipe"
    return f"watch: {pass_through.problem}" if pass_through.problem is not None else None


BatchSink = Callable[[list[ev.Event]], None]


class ForkingSink:
    """Passes everything to the accumulator, and event objects to `on_events` as well.

    Frequent kinds (calls, results, text, usage) reach the accumulator without event objects.
    """

    needs_tool_output = False

    def __init__(self, accumulator: Sink, on_events: BatchSink) -> None:
        self.tool_call = accumulator.tool_call
        self.tool_result = accumulator.tool_result
        self.tool_error = accumulator.tool_error
        self.text = accumulator.text
        self.thinking = accumulator.thinking
        self.usage = accumulator.usage
        self._accumulator = accumulator
        self._on_events = on_events

    def add(self, found: Iterable[ev.Event], /) -> None:
        """Events of any kind."""
        events = list(found)
        self._accumulator.add(events)
        self._on_events(events)


class StreamMonitor:
    """Parses a stream while it passes through. `with_report`: accumulate for a report.

    `sinks` get every event. `filtered_sinks` may miss the frequent kinds (see ForkingSink).
    """

    def __init__(
        self,
        pass_through: PassThrough,
        agent: Agent | None = None,
        with_report: bool = True,
        recorder: StreamRecorder | None = None,
    ) -> None:
        self.pass_through = pass_through
        self.parser = RunParser(agent)
        self.sinks: list[BatchSink] = []
        self.filtered_sinks: list[BatchSink] = []
        self.warnings: list[str] = []
        self._with_report = with_report
        self._recorder = recorder

    def run(self) -> None:
        """Process the stream until it ends."""
        if not (self._with_report or self.sinks or self.filtered_sinks or self._recorder):
            self.pass_through.drain()
            return
        try:
            self._process_stream()
        except Exception as error:  # the stream must pass, whatever fails here
            self.warnings.append(f"parsing stopped: {type(error).__name__}: {error}")
            self._pass_through_unread()

    def _process_stream(self) -> None:
        if self._recorder is None and not self.sinks:
            self.parser.feed_sink(
                self.pass_through.lines(),
                ForkingSink(self.parser.accumulator, self._dispatch_events),
            )
            return
        batches = self._events_from_lines()
        if self._recorder is not None:
            batches = self._events_from_recording(self._recorder)
        for events in batches:
            if self._with_report:
                self.parser.accumulator.add(events)
            self._dispatch_events(events)

    def _events_from_lines(self) -> Iterator[list[ev.Event]]:
        """Events in batches, as the lines arrived."""
        for group in self.pass_through.lines():
            yield [
                event
                for data in group
                for event in self.parser.parse_line(data, data[-1:] != b"\n")
            ]
        yield self.parser.flush()

    def _events_from_recording(self, recorder: StreamRecorder) -> Iterator[list[ev.Event]]:
        """The events as a replay of the recording gives them, with its times."""
        self.parser.begin_recording(recorder.header)
        for record in map(recorder.record_chunk, self.pass_through.chunks()):
            yield self._add_ledger_rows(recorder, self.parser.interpret_record(record))
        for record in recorder.finish(self.pass_through):
            yield self._add_ledger_rows(recorder, self.parser.interpret_record(record))
        yield self._add_ledger_rows(recorder, self.parser.flush())

    def _add_ledger_rows(self, recorder: StreamRecorder, events: list[ev.Event]) -> list[ev.Event]:
        recorder.add_events(events, self.parser.agent)
        return events

    def _dispatch_events(self, events: list[ev.Event]) -> None:
        for sink in (*self.sinks, *self.filtered_sinks):
            try:
                sink(events)
            except Exception as error:
                self.sinks = [other for other in self.sinks if other is not sink]
                self.filtered_sinks = [other for other in self.filtered_sinks if other is not sink]
                self.warnings.append(f"dropped an output: {type(error).__name__}: {error}")

    def _pass_through_unread(self) -> None:
        if self._recorder is None:
            self.pass_through.drain()
            return
        for chunk in self.pass_through.chunks():
            self._recorder.record_chunk(chunk)
        self._recorder.finish(self.pass_through)
