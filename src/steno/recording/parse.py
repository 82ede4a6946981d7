"""Lines to events to a report, counting every line. Pure: bytes come in from outside, nothing is opened.

One reader for all that an agent prints (I1): a stream, a single result object, an array of events, a
pretty-printed document, a tape. What is odd about a line costs only that line (I3).
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from .. import agents
from .. import event as ev
from ..agents import Agent, EnrichingReader
from ..agents.sink import Sink, feed
from ..analysis.accumulator import Accumulator
from ..analysis.build_report import build_report
from ..analysis.cost import PriceLookup
from ..codec.decode import DECODE_ERRORS, decode_lenient, decoder, iter_json_values
from ..codec.lines import LineSplitter
from ..report import LineCounts, Report
from .format import Header, Record, parse_header, parse_record

MAX_MALFORMED_SHOWN = (
    20  # malformed lines that are told to people one by one; the rest is only counted
)
FILE_CHANGE_SOURCES = {
    "file": "filesystem",
    "git": "git",
}  # ticks that tell of a file, and who saw it
MAX_MALFORMED_HEAD_BYTES = 200  # bytes of a malformed line that are shown (I3)
AGENT_DETECTION_LINES = 100  # lines that are asked whose they are; what nobody knew until then is read by the first agent's reader
_decode_array = decoder(list[msgspec.Raw]).decode
# Terminal noise that was seen glued before a line: control sequences such as ESC[?25l.
_NOISE_PREFIX = rb"^(?:\xef\xbb\xbf|\x1b\[[0-9;?]*[A-Za-z]|[\s\x00])+"


def iter_json_objects(data: bytes) -> Iterator[bytes]:
    """The objects that stand on one line, each as clean JSON, as far as they can be read; noise may stand before them."""
    clean = re.sub(_NOISE_PREFIX, b"", data)
    if clean[:1] == b"{":
        with suppress(ValueError, *DECODE_ERRORS):
            yield from (value for value in iter_json_values(clean) if value[:1] == b"{")


class RunParser:
    """One run being read: feed it bytes, take events or the report.

    `form` says what the bytes are where that must not be told by themselves: "stream" is lines and nothing
    else, "json" is one document however it is laid out.
    """

    def __init__(self, agent: Agent | None = None, input_format: str | None = None) -> None:
        self.agent = agent or agents.CLAUDE
        self._is_agent_known = agent is not None  # it is known whose lines these are
        self.lines = LineCounts()
        self.malformed_events: list[
            ev.Malformed
        ] = []  # the first malformed lines, for whoever tells people about them
        self.header: Header | None = None
        self._has_end_record = True  # a tape is whole once its end was seen
        self._has_damaged_record = False  # a tick of the tape cannot be read
        self._stderr_splitter = LineSplitter()  # cuts what a tape holds of stderr into lines
        self.accumulator = Accumulator(self.agent)
        self._reader = self.agent.reader()
        self._splitter = LineSplitter()
        self._stdout_splitter: LineSplitter | None = (
            None  # cuts what a tape's ticks hold into lines
        )
        self._document_lines: list[bytes] | None = (
            [] if input_format == "json" else None
        )  # lines of a pretty-printed document
        self._input_format = input_format
        self._is_agent_given = agent is not None  # the caller said which agent it is
        self._transcript_chunks: list[bytes] = []  # what a tape holds of the agent's own files
        self._replay_time_shift: timedelta | None = (
            None  # from the times of a recording that was played to those of its playing
        )

    # -- bytes in ---------------------------------------------------------------------------------------

    def events(self, lines: Iterable[bytes]) -> Iterator[ev.Event]:
        """The events of a whole input, given as lines with their newlines; each as soon as its line is there."""
        for found in self.batches(lines):
            yield from found

    def batches(self, lines: Iterable[bytes]) -> Iterator[list[ev.Event]]:
        """The same, line by line, and at the end what was held back until then."""
        for data in lines:
            yield self.parse_line(data, data[-1:] != b"\n")
        yield self.flush()

    def feed_lines(self, lines: Iterable[bytes]) -> None:
        """Fold a whole input, given as lines with their newlines, into the report."""
        self.feed_sink((lines,), self.accumulator)

    def feed_sink(self, groups: Iterable[Iterable[bytes]], scribe: Sink) -> None:
        """Tell a scribe a whole input, in groups of lines: one is told before the next one is asked for."""
        for group in groups:
            rest = iter(group)
            while not self._is_line_stream and (data := next(rest, None)) is not None:
                scribe.add(self.parse_line(data, data[-1:] != b"\n"))
            self.lines.read = feed(
                self._reader, rest, self.lines.read, self._on_decode_error, scribe
            )
        scribe.add(self.flush())

    def state(self) -> bytes:
        """What must be remembered to go on with a transcript that grew since."""
        return self._reader.state()

    def restore(self, state: bytes, lines: int) -> None:
        """Go on after `lines` lines of a transcript, with what was remembered of them."""
        self._reader.restore(state)
        self.lines.read = lines

    def _on_decode_error(self, data: bytes, number: int) -> list[ev.Event]:
        self.lines.read = number
        return self._parse_lenient(data, data[-1:] != b"\n", None)

    def feed(self, chunk: bytes) -> list[ev.Event]:
        """The events of the lines that this chunk completes, folded in as well."""
        return self._accumulate(
            [event for line in self._splitter.feed(chunk) for event in self.parse_line(line)]
        )

    def close(self) -> list[ev.Event]:
        """End the input that was fed, and fold in what was held back."""
        rest = self._splitter.flush()
        return self._accumulate(
            [*(self.parse_line(rest, final=True) if rest else ()), *self.flush()]
        )

    def flush(self) -> list[ev.Event]:
        """The events of what was held back until the end of the input: a document, the last line on a tape."""
        found: list[ev.Event] = []
        if self._stdout_splitter is not None:
            inner, self._stdout_splitter = self._stdout_splitter, None
            self.accumulator.facts.is_recording_truncated = (
                self._has_damaged_record or not self._has_end_record
            )
            self.lines.torn = self.lines.torn or self.accumulator.facts.is_recording_truncated
            found += self.interpret_stderr(_stderr_events([self._stderr_splitter.flush()], None))
            rest = inner.flush()
            if rest:
                found += self._parse_stdout_line(rest, True, None)
            if self._transcript_chunks:
                found += self.enrich(b"".join(self._transcript_chunks).splitlines(keepends=True))
        if self._document_lines is not None:
            held, self._document_lines = b"\n".join(self._document_lines), None
            found += self._parse_agent_line(held, final=True)
        return found

    def add_events(self, found: Iterable[ev.Event]) -> None:
        """Fold in events that did not come from stdout: stderr, the exit, our own stop."""
        self.accumulator.add(self.interpret_stderr(found))

    def report(self, source: str | None = None, price: PriceLookup | None = None) -> Report:
        """The report of all that was folded in."""
        report = build_report(self.accumulator, self.lines, price)
        report.source = source
        if not (self._is_agent_given or self.accumulator.has_known_events):
            report.agent = None
        if self.header is not None:
            self._apply_header(report, self.header)
        return report

    def _apply_header(self, report: Report, header: Header) -> None:
        """What a tape's header knows and the agent did not say."""
        report.run_id, report.cwd = header.run_id, report.cwd or header.cwd
        if header.run_id is not None:  # we started it, and know what
            report.agent = report.agent or header.agent
        if report.started_at is None:
            report.started_at = self._time(Record(0.0, "start"))

    def _accumulate(self, found: list[ev.Event]) -> list[ev.Event]:
        self.accumulator.add(found)
        return found

    def _set_agent(self, agent: Agent | None) -> None:
        """Read on as what this agent printed."""
        if agent is None:
            return
        self._is_agent_known = True
        if agent is not self.agent:
            self.agent = self.accumulator.agent = agent
            self._reader = agent.reader()

    def interpret_stderr(self, found: Iterable[ev.Event]) -> Iterator[ev.Event]:
        """What came beside stdout, with what the agent means by the words on its stderr."""
        for event in found:
            yield event
            if type(event) is ev.Stderr:
                self._detect_stderr(event.text)
                keeper = self._transcript_reader
                yield from (
                    self.agent.read_stderr(event) if keeper is None else keeper.read_stderr(event)
                )

    def _detect_stderr(self, text: str) -> None:
        """A line of stderr can say whose run it is, where nothing on stdout does."""
        if self._is_agent_given or (self._is_agent_known and self.header is None):
            return
        found = agents.detect_stderr(text)
        if not self._is_agent_known:
            self._set_agent(found)
        self._is_agent_given = found is self.agent

    # -- what the agent keeps ---------------------------------------------------------------------------

    @property
    def _transcript_reader(self) -> EnrichingReader | None:
        return (
            None if self.agent.transcripts.pattern is None else cast(EnrichingReader, self._reader)
        )

    def transcript_pattern(self, session: str | None = None) -> str | None:
        """Which files below the agent's folders tell more of this run; `session` is for a stream that names none."""
        keeper, beside = self._transcript_reader, self.agent.transcripts.pattern
        if keeper is None or beside is None:
            return None
        session = keeper.session or session
        return (
            beside(session)
            if session is not None and (session == "*" or self.agent.is_session_id(session))
            else None
        )

    def enrich(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What those files say that the stream did not."""
        return [] if self._transcript_reader is None else self._transcript_reader.enrich(lines)

    # -- one line ---------------------------------------------------------------------------------------

    @property
    def _is_line_stream(self) -> bool:
        """Whether the rest is lines of the agent, one by one: neither a tape nor a document, begun, and known whose."""
        if (
            self.header is not None
            or self._document_lines is not None
            or self.lines.read <= self.lines.blank
        ):
            return False
        return self._is_agent_known or self.lines.read >= AGENT_DETECTION_LINES

    def parse_line(self, data: bytes, final: bool = False) -> list[ev.Event]:
        """The events of one line of the input; `final`: it is the last and has no newline."""
        if self._stdout_splitter is not None:
            return self._parse_record_line(data, final)
        if (
            not self.lines.read
            and self._document_lines is None
            and data[:1] == b"{"
            and self._input_format != "stream"
        ):
            self.header = parse_header(data)
            if self.header is not None:
                self.begin_recording(self.header)
                return []
        return self._parse_stdout_line(data, final, None)

    def _parse_stdout_line(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """A line that the agent printed; the first can be the opening of a pretty-printed document."""
        if self._document_lines is not None:
            return self._buffer_document_line(data)
        if self._input_format == "stream":
            return self._parse_agent_line(data, final, at)
        if self.lines.read == self.lines.blank and data.removeprefix(b"\xef\xbb\xbf").strip() in (
            b"{",
            b"[",
        ):
            self._document_lines = [data.rstrip(b"\n")]
            return []
        return self._parse_agent_line(data, final, at)

    def _buffer_document_line(self, data: bytes) -> list[ev.Event]:
        """Keep a pretty-printed document's lines; one that opens an object in the first column shows that it was a stream."""
        held = self._document_lines if self._document_lines is not None else []
        if data[:2] != b'{"' or self._input_format == "json":
            held.append(data.rstrip(b"\n"))
            return []
        self._document_lines = None
        return [event for line in (*held, data) for event in self._parse_agent_line(line)]

    def _parse_agent_line(
        self, data: bytes, final: bool = False, at: datetime | None = None
    ) -> list[ev.Event]:
        lines = self.lines
        lines.read += 1
        if not self._is_agent_known and lines.read <= AGENT_DETECTION_LINES:
            self._set_agent(agents.detect_agent(re.sub(_NOISE_PREFIX, b"", data)))
        try:
            return self._reader.read(data, lines.read, at)
        except DECODE_ERRORS:
            return self._parse_lenient(data, final, at)

    def _parse_lenient(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """A line that did not fit: blank, broken, glued, not an object, or with fields of a wrong type."""
        clean = re.sub(_NOISE_PREFIX, b"", data)
        if not clean:
            self.lines.blank += 1
            return []
        if (
            clean[:1] == b"["
            and self._input_format != "stream"
            and self.lines.read - self.lines.blank == 1
        ):
            found = self._parse_array(clean)
            if found is not None:
                return found
        found, objects = [], 0
        try:
            for value in iter_json_values(clean):
                if value[:1] == b"{":
                    objects += 1
                    found += self._reader.read_lenient(value, self.lines.read, at)
        except (ValueError, *DECODE_ERRORS):
            return [*found, self._malformed(data, final)]
        if not objects:
            self.lines.not_object += 1
        return found

    def _malformed(self, data: bytes, final: bool) -> ev.Malformed:
        torn = (final or b"\n" in data[:-1]) and data.lstrip(b"\xef\xbb\xbf \t\r\x00")[:1] in (
            b"{",
            b"[",
        )
        if torn:
            self.lines.torn = True
        else:
            self.lines.malformed += 1
        head = data[:MAX_MALFORMED_HEAD_BYTES].rstrip(b"\r\n").decode("utf-8", "replace")
        event = ev.Malformed(self.lines.read, None, None, None, head, torn)
        if len(self.malformed_events) < MAX_MALFORMED_SHOWN:
            self.malformed_events.append(event)
        return event

    def _parse_array(self, data: bytes) -> list[ev.Event] | None:
        """An array of events, given as the whole input: each element counts as a line."""
        try:
            items = _decode_array(data)
        except DECODE_ERRORS:
            return None
        if not items or any(bytes(item)[:1] != b"{" for item in items):
            return None
        self.lines.read -= 1
        return [event for item in items for event in self._parse_agent_line(bytes(item))]

    # -- tapes ------------------------------------------------------------------------------------------

    def begin_recording(self, header: Header) -> None:
        """What follows are ticks, live or from a tape: see `tick`."""
        self.header, self._stdout_splitter, self._has_end_record = header, LineSplitter(), False
        self.accumulator.start_folder = header.cwd
        if header.backend is not None:
            self.accumulator.is_free, self.accumulator.context_window = (
                header.backend.local,
                header.backend.window,
            )
        if not self._is_agent_known and header.agent is not None and header.agent in agents.AGENTS:
            self._set_agent(agents.AGENTS[header.agent])

    def _parse_record_line(self, data: bytes, final: bool) -> list[ev.Event]:
        """What one line of a tape means. One that is cut off means nothing: the tape ends before it."""
        tick = None if final else parse_record(data)
        if tick is None:
            self._has_damaged_record = self._has_damaged_record or bool(data.strip())
            return []
        return self.interpret_record(tick)

    def interpret_record(self, tick: Record) -> list[ev.Event]:
        """What one tick means. Live or read from a tape, it means the same."""
        if tick.code == "end":
            self._has_end_record = True
            return []
        at = self._time(tick)
        if tick.code == "out" and self._stdout_splitter is not None:
            lines = self._stdout_splitter.feed(tick.data)
            found = [event for line in lines for event in self._parse_stdout_line(line, False, at)]
            return (
                self._shift_times(found, at)
                if self.header is not None and self.header.played
                else found
            )
        if tick.code == "err":
            return list(
                self.interpret_stderr(_stderr_events(self._stderr_splitter.feed(tick.data), at))
            )
        if tick.code == "kept":
            self._transcript_chunks.append(tick.data)
            return []
        if tick.code in FILE_CHANGE_SOURCES:
            return [
                _file_changed_event(tick, at, self.header.cwd if self.header is not None else None)
            ]
        return record_to_events(tick, at)

    def _shift_times(self, found: list[ev.Event], at: datetime | None) -> list[ev.Event]:
        """What a recording says that was played as the agent: its times, as if they were of now."""
        told: list[ev.Event] = []
        for event in found:
            if at is not None and event.at is not None and event.at != at:
                self._replay_time_shift = (
                    at - event.at if self._replay_time_shift is None else self._replay_time_shift
                )
                event = replace(event, at=event.at + self._replay_time_shift)
            told.append(event)
        return told

    def _time(self, tick: Record) -> datetime | None:
        """When a tick came in, where the tape knows both its start and the tick's distance from it."""
        if self.header is None or self.header.started_at is None or tick.offset_seconds is None:
            return None
        try:
            return datetime.fromtimestamp(
                self.header.started_at + tick.offset_seconds, timezone.utc
            )
        except (OverflowError, OSError, ValueError):
            return None  # a time that no calendar has


class SchemaCheckPayload(Struct):
    """What a tick says of an answer that was held against a schema."""

    value: Raw = ev.NO_JSON
    wrong: list[str] = []


def _stderr_events(lines: list[bytes], at: datetime | None) -> list[ev.Event]:
    return [
        ev.Stderr(0, None, None, at, line.decode("utf-8", "replace").rstrip("\r"))
        for line in lines
        if line.strip()
    ]


def record_to_events(tick: Record, at: datetime | None) -> list[ev.Event]:
    """The events of a tick that holds no output."""
    if tick.code == "exit":
        return [ev.Exited(0, None, None, at, tick.number)]
    if tick.code == "stop":
        return [
            ev.StopRequested(0, None, None, at, tick.data.decode("utf-8", "replace"), tick.number)
        ]
    if tick.code in ("left", "note"):
        return [ev.Notice(0, None, None, at, tick.code, tick.data.decode("utf-8", "replace"))]
    if tick.code == "in":
        return []
    if tick.code == "checked":
        try:
            told = decode_lenient(tick.data, SchemaCheckPayload)
            return [ev.SchemaChecked(0, None, None, at, told.value, tuple(told.wrong))]
        except DECODE_ERRORS:  # no JSON: kept below as what nobody knows
            pass
    if tick.code == "file":
        return [_file_changed_event(tick, at)]
    return [ev.Unknown(0, None, None, at, f"tick {tick.code}", tick.data)]


def _file_changed_event(
    tick: Record, at: datetime | None, cwd: str | None = None
) -> ev.FileChanged:
    """A file that was seen to change; its name is one below the folder that the agent was started in."""
    change, _, path = tick.data.decode("utf-8", "backslashreplace").partition(" ")
    return ev.FileChanged(
        0,
        None,
        None,
        at,
        posixpath.join(cwd or "", path),
        change,
        None,
        FILE_CHANGE_SOURCES[tick.code],
    )
