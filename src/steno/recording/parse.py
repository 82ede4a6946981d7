"""Lines of an agent's output to events: agent detection, damaged lines, line counts. Pure."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import cast

from msgspec import Raw

from .. import agents
from .. import event as ev
from ..agents import Agent, EnrichingReader
from ..agents.sink import Sink, feed
from ..analysis.accumulator import MILLISECOND, Accumulator
from ..analysis.build_report import build_report
from ..analysis.list_price import PriceLookup
from ..analysis.usage import needs_earlier_totals
from ..codec.decode import (
    DECODE_ERRORS,
    MAX_LINE_BYTES,
    LineSplitter,
    decoder,
    iter_json_values,
)
from ..report import LineCounts, Report
from .format import Header, Record, RecordDecoder, line_cut_notice, parse_header

MAX_MALFORMED_SHOWN = 20  # malformed lines kept for display; the rest is only counted
MAX_MALFORMED_HEAD_BYTES = 200  # shown of each malformed line
AGENT_DETECTION_LINES = 100  # lines checked for their agent before the default reader is kept
ALLOW_OPTION = "--allow"  # of `steno run`
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_decode_array = decoder(list[Raw]).decode
# Terminal noise seen in front of a line: control sequences such as ESC[?25l.
# Atomic: the state to go back would take 100 bytes for each byte of noise.
_NOISE_PREFIX = re.compile(rb"^(?>\xef\xbb\xbf|\x1b\[[0-9;?]*+[A-Za-z]|[\s\x00]++)++")


def iter_json_objects(data: bytes) -> Iterator[bytes]:
    """The readable JSON objects on one line, each as clean JSON, without noise in front."""
    clean = _NOISE_PREFIX.sub(b"", data)
    if clean[:1] == b"{":
        with suppress(ValueError, *DECODE_ERRORS):
            yield from (value for value in iter_json_values(clean) if value[:1] == b"{")


class RunParser:
    """Parses one run: feed it bytes, take events or the report.

    `input_format` overrides detection: "stream" is lines and nothing else, "json" is one document
    in any layout.

    Attributes: `agent`, `accumulator`, `lines` (counts), `malformed_events` (the first ones, for
    display), and `header`, if the input is a recording file.
    """

    def __init__(self, agent: Agent | None = None, input_format: str | None = None) -> None:
        self.agent = agent or agents.CLAUDE
        self.accumulator = Accumulator(self.agent)
        self.lines = LineCounts()
        self.malformed_events: list[ev.Malformed] = []  # the first ones, for display
        self.header: Header | None = None  # if the input is a recording file
        self._reader = self.agent.reader()
        self._is_agent_known = agent is not None
        self._is_agent_given = agent is not None  # by the caller, or named on stderr
        self._records = RecordDecoder()
        self._splitter = LineSplitter()
        self._input_format = input_format
        # The lines so far of a document that spans several lines.
        self._document: list[bytes] | None = [] if input_format == "json" else None
        self._document_bytes = 0

    # -- input ------------------------------------------------------------------------------------

    def events(self, lines: Iterable[bytes]) -> Iterator[ev.Event]:
        """The events of a whole input, given as lines with their newlines; one line at a time."""
        for batch in self.batches(lines):
            yield from batch

    def batches(self, lines: Iterable[bytes]) -> Iterator[list[ev.Event]]:
        """The events of each line, then those held back until the end."""
        rest = iter(lines)
        while not self._is_line_stream and (data := next(rest, None)) is not None:
            yield self.parse_line(data, data[-1:] != b"\n")
        parse = self._parse  # skips the checks of parse_line: 5 % of steno.events
        for data in rest:
            yield parse(data, data[-1:] != b"\n")
        yield self.flush()

    def feed_lines(self, lines: Iterable[bytes]) -> None:
        """Accumulate a whole input, given as lines with their newlines."""
        self.feed_sink((lines,), self.accumulator)

    def feed_sink(self, groups: Iterable[Iterable[bytes]], sink: Sink) -> None:
        """Pass a whole input to a sink, one group of lines after the other."""
        for group in groups:
            rest = iter(group)
            while not self._is_line_stream and (data := next(rest, None)) is not None:
                sink.add(self.parse_line(data, data[-1:] != b"\n"))
            reader = self._reader
            self.lines.read = feed(reader, rest, self.lines.read, self._on_decode_error, sink)
        sink.add(self.flush())

    def _on_decode_error(self, data: bytes, number: int) -> list[ev.Event]:
        self.lines.read = number
        return self._parse_lenient(data, data[-1:] != b"\n", None)

    def feed(self, chunk: bytes) -> list[ev.Event]:
        """Accumulate a chunk and return the events of the lines it completes."""
        lines = self._splitter.feed(chunk)
        return self._accumulate([event for line in lines for event in self.parse_line(line)])

    def close(self) -> list[ev.Event]:
        """End the fed input, and accumulate and return what was held back."""
        rest = self._splitter.flush()
        events = self.parse_line(rest, final=True) if rest else []
        return self._accumulate([*events, *self.flush()])

    def _accumulate(self, events: list[ev.Event]) -> list[ev.Event]:
        self.accumulator.add(events)
        return events

    def flush(self) -> list[ev.Event]:
        """The events held back until the end: a document, the last line of a recording file."""
        events: list[ev.Event] = []
        records = self._records
        if records.stdout is not None:
            rest = records.stdout.flush()
            records.stdout = None
            self.accumulator.facts.is_recording_truncated = records.is_truncated
            self.lines.torn = self.lines.torn or records.is_truncated
            events += self.interpret_stderr(records.flush_stderr())
            if rest:
                events += self._parse_stdout_line(rest, True, None)
            if records.transcript_chunks:
                transcript = b"".join(records.transcript_chunks)
                events += self.enrich(transcript.splitlines(keepends=True))
        if self._document is not None:
            document = b"\n".join(self._document)
            self._document = None
            events += self._parse(document, final=True)
        return events

    def state(self) -> bytes:
        """What must be stored to continue later, when a transcript has grown."""
        return self._reader.state()

    def restore(self, state: bytes, lines: int) -> None:
        """Continue after `lines` lines of a transcript with the stored state."""
        self._reader.restore(state)
        self.lines.read = lines

    # -- report -----------------------------------------------------------------------------------

    def add_events(self, events: Iterable[ev.Event]) -> None:
        """Accumulate events that don't come from stdout: stderr, the exit, a stop request."""
        self.accumulator.add(self.interpret_stderr(events))

    def report(self, source: str | None = None, price: PriceLookup | None = None) -> Report:
        """The report of everything accumulated so far."""
        report = build_report(self.accumulator, self.lines, price)
        report.source = source
        has_session = report.session_id is not None
        if not (self._is_agent_given or has_session or self.accumulator.has_activity):
            report.agent = None
        header = self.header
        if header is not None:
            report.run_id = header.run_id
            report.name = header.name
            report.tags = header.tags
            report.origin = header.origin.fill(report.origin)
            report.cwd = report.cwd or header.cwd
            if header.run_id is not None:  # started by steno
                report.agent = report.agent or header.agent
            started_at = self._records.time_of(Record(0.0, "start"))
            ended_at = self._records.ended_at
            if started_at is not None:
                is_stream = header.argv is None  # steno did not start the agent
                if is_stream and self.accumulator.results and ended_at is not None:
                    started_at = self._start_of_stream(report, started_at, ended_at)
                report.started_at = started_at
                if not self.accumulator.results and ended_at is not None:
                    report.duration_ms = max(0, (ended_at - started_at) // MILLISECOND)
        return report

    def _start_of_stream(self, report: Report, began: datetime, ended: datetime) -> datetime:
        """When the run of a stream from a pipe or a file started, at the latest.

        Its agent may have run before it was recorded; at the end of the recording it had ended.
        """
        starts = [began, self.accumulator.first_at or began]
        with suppress(OverflowError):
            starts.append(ended - MILLISECOND * (report.duration_ms or 0))
        return min(starts)

    # -- stderr and transcripts -------------------------------------------------------------------

    def interpret_stderr(self, events: Iterable[ev.Event]) -> Iterator[ev.Event]:
        """The events, each line of stderr followed by the events it stands for."""
        for event in events:
            yield event
            if type(event) is ev.Stderr:
                self._detect_stderr(event.text)
                reader = self._transcript_reader
                if reader is None:
                    yield from self.agent.read_stderr(event)
                else:
                    yield from reader.read_stderr(event)

    def _detect_stderr(self, text: str) -> None:
        """Detect the agent by a line of stderr if stdout does not show it."""
        if self._is_agent_given or (self._is_agent_known and self.header is None):
            return
        agent = agents.detect_stderr(text)
        if not self._is_agent_known:
            self._set_agent(agent)
        self._is_agent_given = agent is self.agent

    @property
    def _transcript_reader(self) -> EnrichingReader | None:
        if self.agent.transcripts.pattern is None:
            return None
        return cast(EnrichingReader, self._reader)

    def transcript_session(self, session: str | None = None) -> str | None:
        """The session whose transcripts complete this run; None if none do.

        `session` is used if the stream names none; "*" stands for any.
        """
        transcripts = self.agent.transcripts
        run = self.accumulator
        if transcripts.totals_only and not needs_earlier_totals(run.results, run.last_result):
            return None
        reader = self._transcript_reader
        if reader is None:
            return None
        session = reader.session or session
        if session is None or not (session == "*" or self.agent.is_session_id(session)):
            return None
        return session

    def transcript_pattern(self, session: str | None = None) -> str | None:
        """A glob, below the agent's folders, for the transcripts of that session."""
        pattern = self.agent.transcripts.pattern
        session = self.transcript_session(session)
        return None if pattern is None or session is None else pattern(session)

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """The events in transcript lines that the stream did not have."""
        return [] if self._transcript_reader is None else self._transcript_reader.enrich(lines)

    # -- lines and documents ----------------------------------------------------------------------

    @property
    def _is_line_stream(self) -> bool:
        """Whether the rest of the input can be passed to the reader line by line."""
        if self.header is not None or self._document is not None:
            return False
        if self.lines.read <= self.lines.blank:
            return False
        return self._is_agent_known or self.lines.read >= AGENT_DETECTION_LINES

    def parse_line(self, data: bytes, final: bool = False) -> list[ev.Event]:
        """The events of one line of the input; `final`: the last one, without a newline."""
        if self._records.stdout is not None:
            record = self._records.parse(data, final)
            return [] if record is None else self.interpret_record(record)
        may_have_header = self._document is None and self._input_format != "stream"
        if not self.lines.read and data[:1] == b"{" and may_have_header:
            header = parse_header(data)
            if header is not None:
                self.begin_recording(header)
                return []
        return self._parse_stdout_line(data, final, None)

    def _parse_stdout_line(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        if self._document is not None:
            return self._parse_document_line(self._document, data)
        is_first = self.lines.read == self.lines.blank
        if (
            is_first
            and self._input_format != "stream"
            and data.removeprefix(BYTE_ORDER_MARK).strip() in (b"{", b"[")
        ):
            self._document = [data.rstrip(b"\n")]
            return []
        return self._parse(data, final, at)

    def _parse_document_line(self, document: list[bytes], data: bytes) -> list[ev.Event]:
        """Keep a line of a document; one that starts with an object shows it is a stream."""
        if data[:2] != b'{"' or self._input_format == "json":
            if self._document_bytes < MAX_LINE_BYTES:  # a document is limited like a line
                document.append(data.rstrip(b"\n"))
                self._document_bytes += len(data) + 1
            return []
        self._document = None
        return [event for line in (*document, data) for event in self._parse(line)]

    # -- lines of the agent -----------------------------------------------------------------------

    def _set_agent(self, agent: Agent | None) -> None:
        """Read the following lines as output of this agent; None: keep the current one."""
        if agent is None:
            return
        self._is_agent_known = True
        if agent is not self.agent:
            self.agent = self.accumulator.agent = agent
            self._reader = agent.reader()

    def _parse(
        self, data: bytes, final: bool = False, at: datetime | None = None
    ) -> list[ev.Event]:
        """The events of one line; `final`: the last one, without a newline."""
        counts = self.lines
        counts.read += 1
        if not self._is_agent_known and counts.read <= AGENT_DETECTION_LINES:
            self._set_agent(agents.detect_agent(_NOISE_PREFIX.sub(b"", data)))
        try:
            return self._reader.read(data, counts.read, at)
        except DECODE_ERRORS:
            return self._parse_lenient(data, final, at)

    def _parse_lenient(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """The events of a line the reader refused: blank, damaged, several values, wrong types."""
        if len(data) >= MAX_LINE_BYTES:  # cut
            return [self._malformed(data, final), line_cut_notice(at)]
        clean = _NOISE_PREFIX.sub(b"", data)
        if not clean:
            self.lines.blank += 1
            return []
        is_first = self.lines.read - self.lines.blank == 1
        if clean[:1] == b"[" and self._input_format != "stream" and is_first:
            events = self._parse_array(clean)
            if events is not None:
                return events
        events = []
        has_objects = False
        try:
            for value in iter_json_values(clean):
                if value[:1] == b"{":
                    has_objects = True
                    events += self._reader.read_lenient(value, self.lines.read, at)
        except (ValueError, *DECODE_ERRORS):
            return [*events, self._malformed(data, final)]
        if not has_objects:
            self.lines.not_object += 1
        return events

    def _parse_array(self, data: bytes) -> list[ev.Event] | None:
        """An array of events as the whole input; each element counts as a line."""
        try:
            items = _decode_array(data)
        except DECODE_ERRORS:
            return None
        if not items or any(bytes(item)[:1] != b"{" for item in items):
            return None
        self.lines.read -= 1
        return [event for item in items for event in self._parse(bytes(item))]

    def _malformed(self, data: bytes, final: bool) -> ev.Malformed:
        opens_json = data.lstrip(BYTE_ORDER_MARK + b" \t\r\x00")[:1] in (b"{", b"[")
        torn = opens_json and (final or b"\n" in data[:-1])
        if torn:
            self.lines.torn = True
        else:
            self.lines.malformed += 1
        head = data[:MAX_MALFORMED_HEAD_BYTES].rstrip(b"\r\n").decode("utf-8", "replace")
        event = ev.Malformed(self.lines.read, None, None, None, head, torn)
        if len(self.malformed_events) < MAX_MALFORMED_SHOWN:
            self.malformed_events.append(event)
        return event

    # -- records ----------------------------------------------------------------------------------

    def begin_recording(self, header: Header) -> None:
        """Expect records, live or from a file: see `interpret_record`."""
        self._records = RecordDecoder(header)
        self.header = header
        self.accumulator.start_folder = header.cwd
        if header.backend is not None:
            self.accumulator.is_free = header.backend.local
            self.accumulator.context_window = header.backend.window
        if header.resumes is False:
            self.accumulator.earlier_totals = ev.CostState(
                0, None, None, None, cost_nano=0, models={}, is_earlier=True
            )
        if not self._is_agent_known and header.agent is not None:
            self._set_agent(agents.AGENTS.get(header.agent))
        agent = agents.AGENTS.get(header.agent or "")
        if header.task and agent and "allow" not in agent.launch.unsupported_options:
            self.accumulator.facts.allow_option = ALLOW_OPTION

    def interpret_record(self, record: Record) -> list[ev.Event]:
        """The events of one record, the same live and from a file."""
        records = self._records
        at = records.advance_time(record)
        if record.code == "out" and records.stdout is not None:
            lines = records.stdout.feed(record.data)
            events = [event for line in lines for event in self._parse_stdout_line(line, False, at)]
            return records.shift_times(events, at)
        return list(self.interpret_stderr(records.events(record, at)))
