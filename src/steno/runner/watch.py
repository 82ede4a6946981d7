"""`steno watch`: passes a stream through unchanged, and records and reports it on its way.

`PassThrough` copies one descriptor to another. Each chunk is written before anything else sees it.
Like `cat`, it waits for its reader, and for nothing else.

Measured against `cat` with `benchmarks.passing` (1,000 lines/s, 2 busy CPUs): p50 at most +5 µs,
p99 +14 µs. tee(2) and wider pipes gave nothing above the noise.
"""

import io
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from select import select

import msgspec

from .. import event as ev
from ..agents import CLAUDE, Agent
from ..agents.sink import Sink
from ..analysis.live_state import ContextAlerts
from ..codec.decode import MAX_LINE_BYTES, cut_long_lines
from ..codec.redact import redact, redact_value
from ..config.files import new_recording_path, new_run_id
from ..errors import LedgerError, SourceError, StenoError
from ..ledger.row_sink import LedgerRowSink
from ..ledger.rows import fill_ids
from ..ledger.store import ledger_location
from ..process.process_tree import start_time_of
from ..recording.format import Header, Record, Recorder, encode_alert
from ..recording.open import local_transcript_lines
from ..recording.parse import RunParser
from ..report import Report
from ..workspace.origin import collect_origin
from . import run_registry
from .hooks import BackgroundQueue, deliver

MAX_READ_BYTES = 1 << 16  # what a pipe holds; more would not fit malloc's small blocks
MAX_UNSEEN_BYTES = 1 << 16  # passed on without being parsed, while input keeps coming
IDLE_SECONDS = 0.0001  # of silence before parsing: until then the CPU belongs to the reader


class SignalReceived(Exception):  # noqa: N818  # control flow inside this module, not an error
    """`stop` was called during a write."""


class PassThrough:
    """One stream, consumed once: by `chunks`, `lines` or `drain`.

    Once it `is_finished`, both descriptors are released, so that the processes at the other ends
    notice first. The cause: end of input, `is_reader_gone`, `stop_signal` or `problem`. `protect`
    may change what is written, not what is consumed.
    """

    def __init__(
        self,
        source: int = 0,
        target: int = 1,
        protect: Callable[[bytes], bytes] = lambda data: data,
    ) -> None:
        self.is_finished = False
        self.is_reader_gone = False
        self.stop_signal: int | None = None
        self.problem: SourceError | OSError | None = None
        self._source = source
        self._target = target
        self._protect = protect
        self._is_writing = False
        self._wakeup_read, self.wakeup_fd = _make_wakeup_pipe(self)

    # -- consumers ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Pass everything on without looking at it."""
        while not self.is_finished:
            self._pass_chunk()

    def chunks(self) -> Iterator[bytes]:
        """The bytes, as they came."""
        for chunks in self._batches():
            yield from chunks

    def lines(self) -> Iterator[list[bytes]]:
        """Complete lines with their newlines, cut to MAX_LINE_BYTES, in batches."""
        held = bytearray()  # the start of a line whose end has not come
        for chunks in self._batches():
            data = b"".join(chunks)
            if len(held) + len(data) > MAX_LINE_BYTES:
                data = cut_long_lines(data, len(held))
            lines = _complete_lines(held, io.BytesIO(data).readlines())
            if lines:
                yield lines
        if held:
            yield [bytes(held)]

    def _batches(self) -> Iterator[list[bytes]]:
        """Chunks that have passed, when there is time to parse them: input pauses, or is a lot."""
        chunks: list[bytes] = []
        size = 0
        while not self.is_finished:
            data = self._pass_chunk()
            if data:
                chunks.append(data)
                size += len(data)
            if chunks and (self.is_finished or size >= MAX_UNSEEN_BYTES or self._is_idle()):
                yield chunks
                chunks = []
                size = 0

    def _is_idle(self) -> bool:
        return not select([self._source], [], [], IDLE_SECONDS)[0]

    # -- bytes -------------------------------------------------------------------------------------

    def _pass_chunk(self) -> bytes:
        """Read once and write all of it. What was read counts even if it cannot be written."""
        data = b""
        try:
            data = self._read()
            self._write(data)
        except SignalReceived:
            pass
        except BrokenPipeError:
            self.is_reader_gone = True
        except (SourceError, OSError) as error:
            self.problem = error
        if not data or self.is_reader_gone or self.problem is not None or self.stop_signal:
            self._release()
        return data

    def _read(self) -> bytes:
        """The next chunk; empty at the end of the input and after `stop`."""
        try:
            while self.stop_signal is None:
                ready = select([self._source, self._wakeup_read], [], [])[0]
                if self._wakeup_read in ready:  # the signal's handler runs before the next round
                    os.read(self._wakeup_read, 64)
                    continue
                try:
                    return os.read(self._source, MAX_READ_BYTES)
                except BlockingIOError:  # O_NONBLOCK is shared with the process that set it
                    continue
        except OSError as error:
            raise SourceError(f"stdin cannot be read: {error.strerror or error}") from None
        return b""

    def _write(self, data: bytes) -> None:
        rest = memoryview(self._protect(data))
        self._is_writing = True
        while rest:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:
                select([], [self._target], [])
        self._is_writing = False

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, number: int) -> None:
        """End the stream; called from a signal handler.

        A write to a reader that doesn't read is aborted. A wait for input ends by `wakeup_fd`,
        which belongs into signal.set_wakeup_fd: Python's own handlers miss a signal that comes
        just before the wait.
        """
        self.stop_signal = number
        with suppress(BlockingIOError):  # full: it wakes up anyway
            os.write(self.wakeup_fd, b"\0")
        if self._is_writing:
            self._is_writing = False
            raise SignalReceived

    def _release(self) -> None:
        """Close both ends by putting /dev/null in their place, so that no new file gets 0 or 1."""
        self.is_finished = True
        self._is_writing = False
        try:
            null = os.open(os.devnull, os.O_RDWR)
        except OSError:  # too many open files
            os.close(self._source)
            os.close(self._target)
            return
        os.dup2(null, self._source)
        os.dup2(null, self._target)
        os.close(null)


def _make_wakeup_pipe(owner: PassThrough) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
        weakref.finalize(owner, os.close, end)
    return ends


def _complete_lines(held: bytearray, lines: list[bytes]) -> list[bytes]:
    """Complete lines, the first joined with `held`; the rest of the last one is held."""
    if held and lines and lines[0][-1:] == b"\n":
        lines[0] = bytes(held) + lines[0]
        held.clear()
    if lines and lines[-1][-1:] != b"\n":
        held += lines.pop()
    return lines


MAX_QUEUED_BYTES = 64 << 20  # a stalled disk costs the recording, not the stream
FLUSH_TIMEOUT_SECONDS = 30.0


class StreamRecorder:
    """Records one stream. StenoError: the recording cannot be created."""

    def __init__(
        self,
        agent: Agent | None,
        ledger: str | None,
        cwd: str | None = None,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self._agent = agent
        self._ledger = ledger
        self._started_at = time.time()
        self._started_monotonic = time.monotonic()
        self.id = new_run_id(self._started_at)
        self.recording_path: Path = new_recording_path(self.id, self._started_at)
        cwd = os.path.abspath(cwd or ".")  # noqa: PTH100  # Path.resolve would follow links
        self.header = Header(
            agent=agent.name if agent is not None else None,
            run_id=self.id,
            cwd=cwd,
            started_at=self._started_at,
            name=name and redact(name),
            tags=redact_value(dict(tags or {})),
            origin=collect_origin(cwd, os.environ),
        )
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
        self._is_in_ledger = True  # until writing to it fails
        self._run_info = self._register(cwd)
        self._rows: LedgerRowSink | None = None

    def _register(self, cwd: str) -> run_registry.RunInfo:
        """Register the active run: for `steno logs`, and to recover it if steno is killed."""
        pid = os.getpid()
        info = run_registry.RunInfo(
            run=self.id,
            task=self.id,
            agent=(self._agent or CLAUDE).name,
            host=run_registry.host_id(),
            steno_pid=pid,
            steno_born=start_time_of(pid) or 0,
            tape=str(self.recording_path),
            ledger=ledger_location(self._ledger),
            cwd=cwd,
            started=self._started_at,
            name=self.header.name,
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

    def record_alert(self, alert: ev.Alert) -> Record:
        """Record an alert of steno."""
        elapsed = time.monotonic() - self._started_monotonic
        return self._write_record(Record(elapsed, "alert", encode_alert(alert)))

    def record_transcript_line(self, line: bytes) -> Record:
        """Record a line of the agent's transcript that completes the stream."""
        elapsed = time.monotonic() - self._started_monotonic
        return self._write_record(Record(elapsed, "kept", line))

    def add_events(self, events: list[ev.Event], agent: Agent) -> None:
        """Collect rows for the ledger."""
        if self._rows is None and events:
            self._rows = LedgerRowSink(agent, "", int(self._started_at * 1000), self.id)
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

    def write_to_ledger(self, report: Report, on_wait: Callable[[str], None] | None = None) -> None:
        """Add the run to the ledger; after a failure the recording can be imported."""
        from ..ledger.run_record import upsert_run
        from ..ledger.store import LockPolicy, open_ledger
        from ..ledger.upsert import Pricer

        at = int(self._started_at * 1000)
        rows = self._rows or LedgerRowSink(self._agent or CLAUDE, "", at, self.id)
        batch = rows.batch()
        fill_ids(batch, self.id, report.session_id or self.id)
        try:
            store = open_ledger(self._ledger, locks=LockPolicy(on_wait=on_wait))
            try:
                with store.transaction():
                    upsert_run(store, report, batch, at, Pricer())
            finally:
                store.close()
        except LedgerError as error:
            self._is_in_ledger = False
            self.warnings.append(
                f"not in the ledger: {error}; to add it: steno ledger import {self.recording_path}"
            )

    def close(self) -> None:
        """Remove the run from the list of active runs, or mark it for recovery."""
        if self._is_in_ledger:
            run_registry.remove_run_info(self._run_info)
            return
        with suppress(OSError, StenoError):  # the entry stays, of a process that is gone
            run_registry.write_run_info(msgspec.structs.replace(self._run_info, over=True))


def _interruption_reason(pass_through: PassThrough) -> str | None:
    """Why a stream stopped before the end of its input."""
    if pass_through.stop_signal is not None:
        return f"watch: ended by {signal.Signals(pass_through.stop_signal).name}"
    if pass_through.is_reader_gone:
        return "watch: the reader closed the pipe"
    return f"watch: {pass_through.problem}" if pass_through.problem is not None else None


ALERT_SOURCES = (ev.Started, ev.Usage, ev.Compaction)  # what the use of the context depends on
BatchSink = Callable[[list[ev.Event]], None]


class ForkingSink:
    """Passes everything to the accumulator, and event objects and alerts to `on_events` as well.

    Frequent kinds (calls, results, text, usage) reach the accumulator without event objects.
    """

    needs_tool_output = False

    def __init__(self, accumulator: Sink, alerts: ContextAlerts, on_events: BatchSink) -> None:
        self.tool_call = accumulator.tool_call
        self.tool_result = accumulator.tool_result
        self.tool_error = accumulator.tool_error
        self.text = accumulator.text
        self.thinking = accumulator.thinking
        self._accumulator = accumulator
        self._alerts = alerts
        self._on_events = on_events

    def usage(self, event: ev.Usage, /) -> None:
        self._accumulator.usage(event)
        self._check_alerts(event)

    def add(self, found: Iterable[ev.Event], /) -> None:
        """Events of any kind."""
        for event in found:
            self._accumulator.add((event,))
            self._on_events([event])
            self._check_alerts(event)

    def _check_alerts(self, event: ev.Event) -> None:
        alerts = self._alerts.check(event)
        if alerts:
            self._on_events([*alerts])


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
        alert_at: tuple[float, ...] = (),
    ) -> None:
        self.pass_through = pass_through
        self.parser = RunParser(agent)
        self._alerts = ContextAlerts(self.parser.accumulator, alert_at)
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
            sink = ForkingSink(self.parser.accumulator, self._alerts, self._dispatch_events)
            self.parser.feed_sink(self.pass_through.lines(), sink)
            sink.add(self.parser.enrich(local_transcript_lines(self.parser)))
            return
        batches = self._events_from_lines()
        if self._recorder is not None:
            batches = self._events_from_recording(self._recorder)
        for events in batches:
            alerts = self._accumulate(events)
            self._dispatch_events(events)
            for alert in alerts:
                self._dispatch_events(self._record_alert(alert))

    def _accumulate(self, events: list[ev.Event]) -> list[ev.Alert]:
        """Accumulate events for the report; without one, only what the alerts depend on."""
        accumulator = self.parser.accumulator
        alerts: list[ev.Alert] = []
        for event in events:
            if self._with_report:
                accumulator.add((event,))
            elif type(event) in ALERT_SOURCES:
                accumulator.add((event,))
                accumulator.requests.clear()  # memory must not grow with the stream
            alerts += self._alerts.check(event)
        return alerts

    def _record_alert(self, alert: ev.Alert) -> list[ev.Event]:
        """The alert as its record gives it, if the stream is recorded."""
        if self._recorder is None:
            return [alert]
        return self.parser.interpret_record(self._recorder.record_alert(alert))

    def _events_from_lines(self) -> Iterator[list[ev.Event]]:
        """Events in batches, as the lines arrived."""
        for group in self.pass_through.lines():
            yield [
                event
                for data in group
                for event in self.parser.parse_line(data, data[-1:] != b"\n")
            ]
        yield self.parser.flush()
        yield self.parser.enrich(local_transcript_lines(self.parser))

    def _events_from_recording(self, recorder: StreamRecorder) -> Iterator[list[ev.Event]]:
        """The events as a replay of the recording gives them, with its times."""
        self.parser.begin_recording(recorder.header)
        for record in map(recorder.record_chunk, self.pass_through.chunks()):
            yield self._add_ledger_rows(recorder, self.parser.interpret_record(record))
        for record in map(recorder.record_transcript_line, local_transcript_lines(self.parser)):
            yield self._add_ledger_rows(recorder, self.parser.interpret_record(record))
        for record in recorder.finish(self.pass_through):
            yield self._add_ledger_rows(recorder, self.parser.interpret_record(record))
        yield self._add_ledger_rows(recorder, self.parser.flush())

    def _add_ledger_rows(self, recorder: StreamRecorder, events: list[ev.Event]) -> list[ev.Event]:
        recorder.add_events(events, self.parser.agent)
        return events

    def _dispatch_events(self, events: list[ev.Event]) -> None:
        for sinks in (self.sinks, self.filtered_sinks):
            deliver(sinks, lambda sink: sink(events), self.warnings)

    def _pass_through_unread(self) -> None:
        if self._recorder is None:
            self.pass_through.drain()
            return
        for chunk in self.pass_through.chunks():
            self._recorder.record_chunk(chunk)
        self._recorder.finish(self.pass_through)
