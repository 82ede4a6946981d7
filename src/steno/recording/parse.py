"""Lines of an agent's output to events: agent detection, damaged lines, line counts. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import cast

from msgspec import Raw, Struct

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
    decode_lenient,
    decoder,
    iter_json_values,
)
from ..codec.documents import (
    LinePrefix,
    ObjectScanner,
    find_start,
    is_json_text,
    skip_separators,
)
from ..report import LineCounts, Report
from .format import Header, Record, RecordDecoder, line_cut_notice, parse_header

MAX_MALFORMED_SHOWN = 20  # malformed lines kept for display; the rest is only counted
MAX_MALFORMED_HEAD_BYTES = 200  # shown of each malformed line
ALLOW_OPTION = "--allow"  # of `steno run`
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_decode_array = decoder(list[Raw]).decode
_decode_raw = decoder(Raw).decode
_OPEN_ARRAY = ord("[")
_OPEN_BRACKETS = b"{["
# Terminal noise seen in front of a line: control sequences such as ESC[?25l.
# Atomic: the state to go back would take 100 bytes for each byte of noise.
_NOISE_PREFIX = re.compile(rb"^(?>\xef\xbb\xbf|\x1b\[[0-9;?]*+[A-Za-z]|[\s\x00]++)++")


def split_objects(data: bytes) -> list[bytes] | None:
    """The objects on a line of valid JSON; None if it has to be scanned for them."""
    try:
        if data[:1] == b"{":
            _decode_raw(data)
            return [data]
        items = [bytes(item) for item in _decode_array(data)]
    except DECODE_ERRORS:
        return None
    if any(item[:1] == b"[" for item in items):
        return None
    return [item for item in items if item[:1] == b"{"]


class _TypeField(Struct):
    type: str | None = None


def _unknown(data: bytes, number: int, at: datetime | None) -> ev.Unknown:
    """The event of an object before the agent is known."""
    kind = decode_lenient(data, _TypeField).type  # raises if it is not JSON
    return ev.Unknown(number, None, None, at, kind or "no type", data)


class _Document:
    """A document that continues on the next line.

    `prefix`: what a log wrote before its first line. `is_proven`: a second line fits the first.
    """

    def __init__(
        self, scanner: ObjectScanner, prefix: bytes, first_line: bytes, has_objects: bool
    ) -> None:
        self.scanner = scanner
        self.prefix = LinePrefix(prefix)
        self.first_line = first_line
        self.has_objects = has_objects
        self.is_proven = has_objects


class _RenumberError(Exception):
    """Leaves a reader's own loop: a line was not one line, so that its numbers are wrong."""

    def __init__(self, events: list[ev.Event]) -> None:
        super().__init__()
        self.events = events


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
        self._document: _Document | None = None
        self._log_prefix = LinePrefix(b"")  # what a log wrote before the agent's lines
        self._detector = agents.AgentDetector()
        self.identifying_line: bytes | None = None  # the first object that shows the agent
        self.first_unknown: bytes | None = None  # the first object that shows none

    # -- input ------------------------------------------------------------------------------------

    def events(self, lines: Iterable[bytes]) -> Iterator[ev.Event]:
        """The events of a whole input, given as lines with their newlines; one line at a time."""
        for batch in self.batches(lines):
            yield from batch

    def batches(self, lines: Iterable[bytes]) -> Iterator[list[ev.Event]]:
        """The events of each line, then those held back until the end."""
        rest = iter(lines)
        parse = self._parse  # skips the checks of parse_line: 5 % of steno.events
        while (data := next(rest, None)) is not None:
            yield self.parse_line(data, data[-1:] != b"\n")
            if self._is_line_stream:
                for data in rest:
                    yield parse(data, data[-1:] != b"\n")
                    if self._document is not None:
                        break
        yield self.flush()

    def feed_lines(self, lines: Iterable[bytes]) -> None:
        """Accumulate a whole input, given as lines with their newlines."""
        self.feed_sink((lines,), self.accumulator)

    def feed_sink(self, groups: Iterable[Iterable[bytes]], sink: Sink) -> None:
        """Pass a whole input to a sink, one group of lines after the other."""
        for group in groups:
            rest = iter(group)
            while True:
                if self._is_line_stream:
                    self._feed_reader(rest, sink)
                data = next(rest, None)
                if data is None:
                    break
                sink.add(self.parse_line(data, data[-1:] != b"\n"))
        sink.add(self.flush())

    def _feed_reader(self, lines: Iterator[bytes], sink: Sink) -> None:
        """Pass lines to the reader, until a document begins or the lines end."""
        while True:
            try:
                self.lines.read = feed(
                    self._reader, lines, self.lines.read, self._on_decode_error, sink
                )
                return
            except _RenumberError as change:
                sink.add(change.events)
                if self._document is not None:
                    return

    def _on_decode_error(self, data: bytes, number: int) -> list[ev.Event]:
        self.lines.read = number
        events = self._parse_lenient(data, data[-1:] != b"\n", None)
        if self.lines.read != number or self._document is not None:
            raise _RenumberError(events)
        return events

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
            events += self._end_document(self._document, final=True)
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
    def is_in_document(self) -> bool:
        """Whether a document continues on the next line."""
        return self._document is not None

    @property
    def _is_line_stream(self) -> bool:
        """Whether the rest of the input can be passed to the reader line by line."""
        if self.header is not None or self._document is not None or not self._is_agent_known:
            return False
        return self.lines.read > self.lines.blank

    def parse_line(self, data: bytes, final: bool = False) -> list[ev.Event]:
        """The events of one line of the input; `final`: the last one, without a newline."""
        if self._records.stdout is not None:
            record = self._records.parse(data, final)
            return [] if record is None else self.interpret_record(record)
        if not self.lines.read and data[:1] == b"{" and self._input_format != "stream":
            header = parse_header(data)
            if header is not None:
                self.begin_recording(header)
                return []
        return self._parse_stdout_line(data, final, None)

    def _parse_stdout_line(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        if self._document is not None:
            return self._parse_document_line(self._document, data, final, at)
        return self._parse(data, final, at)

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
        if self._is_agent_known:
            with suppress(*DECODE_ERRORS):
                return self._reader.read(data, counts.read, at)
        return self._parse_lenient(data, final, at)

    def _parse_lenient(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """The events of a line the reader refused: blank, damaged, an array, within other text."""
        is_cut = len(data) >= MAX_LINE_BYTES
        clean = _NOISE_PREFIX.sub(b"", self._log_prefix.strip(data)).rstrip(b" \t\r\n\x00")
        if not clean:
            self.lines.blank += 1
            return []
        start = self._find_start(clean)
        if start >= 0:
            events = self._parse_objects(clean, start, None if is_cut else data, final, at)
        elif is_cut or not self._skip_value(clean):
            events = [self._malformed(data, final)]
        else:
            events = []
        return [*events, line_cut_notice(at)] if is_cut else events

    def _find_start(self, clean: bytes) -> int:
        """Where the first object of a line begins; -1 without any."""
        if clean[:1] == b"{" or (clean[:1] == b"[" and self._input_format != "stream"):
            return 0
        if self._input_format == "stream" or clean[:1] == b'"':
            return -1
        return find_start(clean)

    def _skip_value(self, clean: bytes) -> bool:
        """Count a line that is JSON, but no object; False if it is none."""
        try:
            for _ in iter_json_values(clean):
                pass
        except (ValueError, *DECODE_ERRORS):
            return False
        self.lines.not_object += 1
        return True

    def _parse_objects(
        self, clean: bytes, start: int, data: bytes | None, final: bool, at: datetime | None
    ) -> list[ev.Event]:
        """The events of the objects on a line, from where the first one begins.

        `data` is the line as it came; None: it was cut, so that no document can continue.
        """
        objects = None if start else split_objects(clean)
        if objects is not None:
            self.lines.not_object += not objects
            return self._read_objects(objects, clean[:1] == b"[", at)
        prefix = clean[:start]
        events: list[ev.Event] = []
        has_objects = False
        while start < len(clean):
            scanner = ObjectScanner()
            found, end = scanner.scan(clean, start)
            if prefix and found and not self._is_agents(found[0], prefix):
                break
            in_array = clean[start] == _OPEN_ARRAY and self._input_format != "stream"
            events += self._read_objects(found, in_array, at, has_objects)
            has_objects = has_objects or bool(found)
            may_continue = data is not None and not final and (in_array or not has_objects)
            if scanner.is_open and may_continue and self._reads_document(clean[start:]):
                self._document = _Document(scanner, prefix, data or b"", has_objects)
                self.lines.read -= not has_objects
                return events
            if end < 0 or scanner.is_open:
                break
            self.lines.not_object += not has_objects
            start = skip_separators(clean, end)
            if start < len(clean) and clean[start] not in _OPEN_BRACKETS:
                return [*events, self._malformed(clean[start:], final)]
        else:
            return events
        return [*events, self._malformed(clean if data is None else data, final)]

    def _reads_document(self, text: bytes) -> bool:
        """Whether a value that is open at the end of a line is continued on the next one."""
        return self._input_format != "stream" and is_json_text(text)

    def _is_agents(self, data: bytes, prefix: bytes) -> bool:
        """Whether an object within other text is an agent's; the text is then no longer noise."""
        try:
            if self._detector.detect(data) is None:
                return False
        except DECODE_ERRORS:
            return False
        self._log_prefix = LinePrefix(prefix)
        return True

    def _read_objects(
        self,
        objects: Sequence[bytes],
        in_array: bool,
        at: datetime | None,
        has_earlier: bool = False,
    ) -> list[ev.Event]:
        """The events of objects on one line; each element of an array counts as a line."""
        events: list[ev.Event] = []
        for data in objects:
            self.lines.read += in_array and has_earlier
            has_earlier = True
            events += self._read_object(data, at)
        return events

    def _read_object(self, data: bytes, at: datetime | None) -> list[ev.Event]:
        """The events of one object; it may be the first one that shows the agent."""
        number = self.lines.read
        with suppress(*DECODE_ERRORS):
            if not self._is_agent_known:
                self._detect_agent(data)
            if self._is_agent_known:
                return self._reader.read(data, number, at)
            return [_unknown(data, number, at)]
        try:
            clean = next(iter_json_values(data))
            if not self._is_agent_known:
                self._detect_agent(clean)
            if self._is_agent_known:
                return self._reader.read_lenient(clean, number, at)
            return [_unknown(clean, number, at)]
        except (ValueError, *DECODE_ERRORS):
            return [self._malformed(data, False)]

    def _detect_agent(self, data: bytes) -> None:
        agent = self._detector.detect(data)
        if agent is not None:
            self.identifying_line = data
            self._set_agent(agent)
        elif self.first_unknown is None:
            self.first_unknown = data

    # -- documents --------------------------------------------------------------------------------

    def _parse_document_line(
        self, document: "_Document", data: bytes, final: bool, at: datetime | None
    ) -> list[ev.Event]:
        """The events of a line after the first one of a document."""
        text = document.prefix.strip(data.rstrip(b"\r\n"))
        if not text.strip():
            return []
        scanner = document.scanner
        is_json = is_json_text(text)
        if not is_json and final:
            return self._end_document(document, final)
        if not is_json and document.is_proven:
            self.lines.read += 1
            return [self._malformed(data, False)]
        if not is_json or (self._input_format != "json" and scanner.contradicts(text)):
            return self._end_document(document) + self._parse_stdout_line(data, final, at)
        document.is_proven = True
        objects, end = scanner.scan(text)
        events: list[ev.Event] = []
        for value in objects:
            self.lines.read += 1
            document.has_objects = True
            events += self._read_object(value, at)
        if scanner.dropped:
            events += self._dropped_object(scanner, at)
        if end < 0:
            return events + self._end_document(document)
        if scanner.is_open:
            return events
        self._document = None
        self.lines.read += not document.has_objects
        self.lines.not_object += not document.has_objects
        rest = text[skip_separators(text, end) :]
        return events + self._parse(rest, final, at) if rest else events

    def _dropped_object(self, scanner: ObjectScanner, at: datetime | None) -> list[ev.Event]:
        scanner.dropped = 0
        self.lines.read += 1
        return [self._malformed(scanner.head, False), line_cut_notice(at)]

    def _end_document(self, document: "_Document", final: bool = False) -> list[ev.Event]:
        """End a document that is incomplete: the object or array at its end was cut."""
        self._document = None
        if not document.scanner.in_object and document.has_objects:
            self.lines.torn = self.lines.torn or final
            return []
        self.lines.read += 1
        head = document.scanner.head if document.has_objects else document.first_line
        return [self._malformed(head, final)]

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
