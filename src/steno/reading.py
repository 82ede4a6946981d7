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

from . import agents
from . import event as ev
from .account import Price
from .agents import Agent, Keeper
from .agents.scribe import Scribe, dictate
from .closing import close
from .decode import MISFIT, decoder, lenient, values
from .fold import Fold
from .report import Lines, Report
from .split import Splitter
from .tick import Header, Tick, read_header, read_tick

ODD_KEPT = 20  # malformed lines that are told to people one by one; the rest is only counted
SEEN = {"file": "filesystem", "git": "git"}  # ticks that tell of a file, and who saw it
HEAD_SHOWN = 200  # bytes of a malformed line that are shown (I3)
LOOKED_AT = 100  # lines that are asked whose they are; what nobody knew until then is read by the first agent's reader
_objects = decoder(list[msgspec.Raw]).decode
# Terminal noise that was seen glued before a line: control sequences such as ESC[?25l.
_NOISE = rb"^(?:\xef\xbb\xbf|\x1b\[[0-9;?]*[A-Za-z]|[\s\x00])+"


def objects(data: bytes) -> Iterator[bytes]:
    """The objects that stand on one line, each as clean JSON, as far as they can be read; noise may stand before them."""
    clean = re.sub(_NOISE, b"", data)
    if clean[:1] == b"{":
        with suppress(ValueError, *MISFIT):
            yield from (value for value in values(clean) if value[:1] == b"{")


class Reading:
    """One run being read: feed it bytes, take events or the report.

    `form` says what the bytes are where that must not be told by themselves: "stream" is lines and nothing
    else, "json" is one document however it is laid out.
    """

    def __init__(self, agent: Agent | None = None, form: str | None = None) -> None:
        self.agent = agent or agents.CLAUDE
        self._told = agent is not None  # it is known whose lines these are
        self.lines = Lines()
        self.odd: list[ev.Malformed] = []  # the first malformed lines, for whoever tells people about them
        self.tape: Header | None = None
        self._whole = True  # a tape is whole once its end was seen
        self._damaged = False  # a tick of the tape cannot be read
        self._errors = Splitter()  # cuts what a tape holds of stderr into lines
        self.fold = Fold(self.agent)
        self._reader = self.agent.reader()
        self._splitter = Splitter()
        self._inner: Splitter | None = None  # cuts what a tape's ticks hold into lines
        self._document: list[bytes] | None = [] if form == "json" else None  # lines of a pretty-printed document
        self._form = form
        self._given = agent is not None  # the caller said which agent it is
        self._kept: list[bytes] = []  # what a tape holds of the agent's own files
        self._shift: timedelta | None = None  # from the times of a recording that was played to those of its playing

    # -- bytes in ---------------------------------------------------------------------------------------

    def events(self, lines: Iterable[bytes]) -> Iterator[ev.Event]:
        """The events of a whole input, given as lines with their newlines; each as soon as its line is there."""
        for found in self.batches(lines):
            yield from found

    def batches(self, lines: Iterable[bytes]) -> Iterator[list[ev.Event]]:
        """The same, line by line, and at the end what was held back until then."""
        for data in lines:
            yield self.line(data, data[-1:] != b"\n")
        yield self.end()

    def take(self, lines: Iterable[bytes]) -> None:
        """Fold a whole input, given as lines with their newlines, into the report."""
        self.tell((lines,), self.fold)

    def tell(self, groups: Iterable[Iterable[bytes]], scribe: Scribe) -> None:
        """Tell a scribe a whole input, in groups of lines: one is told before the next one is asked for."""
        for group in groups:
            rest = iter(group)
            while not self._settled and (data := next(rest, None)) is not None:
                scribe.add(self.line(data, data[-1:] != b"\n"))
            self.lines.read = dictate(self._reader, rest, self.lines.read, self._misfit, scribe)
        scribe.add(self.end())

    def state(self) -> bytes:
        """What must be remembered to go on with a transcript that grew since."""
        return self._reader.state()

    def go_on(self, state: bytes, lines: int) -> None:
        """Go on after `lines` lines of a transcript, with what was remembered of them."""
        self._reader.go_on(state)
        self.lines.read = lines

    def _misfit(self, data: bytes, number: int) -> list[ev.Event]:
        self.lines.read = number
        return self._odd(data, data[-1:] != b"\n", None)

    def feed(self, chunk: bytes) -> list[ev.Event]:
        """The events of the lines that this chunk completes, folded in as well."""
        return self._folded([event for line in self._splitter.feed(chunk) for event in self.line(line)])

    def close(self) -> list[ev.Event]:
        """End the input that was fed, and fold in what was held back."""
        rest = self._splitter.rest()
        return self._folded([*(self.line(rest, final=True) if rest else ()), *self.end()])

    def end(self) -> list[ev.Event]:
        """The events of what was held back until the end of the input: a document, the last line on a tape."""
        found: list[ev.Event] = []
        if self._inner is not None:
            inner, self._inner = self._inner, None
            self.fold.facts.unended = self._damaged or not self._whole
            self.lines.torn = self.lines.torn or self.fold.facts.unended
            found += self.heard(_stderr([self._errors.rest()], None))
            rest = inner.rest()
            if rest:
                found += self._printed(rest, True, None)
            if self._kept:
                found += self.beside(b"".join(self._kept).splitlines(keepends=True))
        if self._document is not None:
            held, self._document = b"\n".join(self._document), None
            found += self._agent_line(held, final=True)
        return found

    def take_events(self, found: Iterable[ev.Event]) -> None:
        """Fold in events that did not come from stdout: stderr, the exit, our own stop."""
        self.fold.add(self.heard(found))

    def report(self, source: str | None = None, price: Price | None = None) -> Report:
        """The report of all that was folded in."""
        report = close(self.fold, self.lines, price)
        report.source = source
        if not (self._given or self.fold.understood):
            report.agent = None
        if self.tape is not None:
            self._titled(report, self.tape)
        return report

    def _titled(self, report: Report, header: Header) -> None:
        """What a tape's header knows and the agent did not say."""
        report.run_id, report.cwd = header.run_id, report.cwd or header.cwd
        if header.run_id is not None:  # we started it, and know what
            report.agent = report.agent or header.agent
        if report.started_at is None:
            report.started_at = self._time(Tick(0.0, "start"))

    def _folded(self, found: list[ev.Event]) -> list[ev.Event]:
        self.fold.add(found)
        return found

    def _be(self, agent: Agent | None) -> None:
        """Read on as what this agent printed."""
        if agent is None:
            return
        self._told = True
        if agent is not self.agent:
            self.agent = self.fold.dialect = agent
            self._reader = agent.reader()

    def heard(self, found: Iterable[ev.Event]) -> Iterator[ev.Event]:
        """What came beside stdout, with what the agent means by the words on its stderr."""
        for event in found:
            yield event
            if type(event) is ev.Stderr:
                self._blurted(event.text)
                keeper = self._keeper
                yield from self.agent.heard(event) if keeper is None else keeper.hear(event)

    def _blurted(self, text: str) -> None:
        """A line of stderr can say whose run it is, where nothing on stdout does."""
        if self._given or (self._told and self.tape is None):
            return
        found = agents.blurted(text)
        if not self._told:
            self._be(found)
        self._given = found is self.agent

    # -- what the agent keeps ---------------------------------------------------------------------------

    @property
    def _keeper(self) -> Keeper | None:
        return None if self.agent.beside is None else cast(Keeper, self._reader)

    def pattern(self, session: str | None = None) -> str | None:
        """Which files below the agent's folders tell more of this run; `session` is for a stream that names none."""
        keeper, beside = self._keeper, self.agent.beside
        if keeper is None or beside is None:
            return None
        session = keeper.session or session
        return beside(session) if session is not None and (session == "*" or self.agent.is_session(session)) else None

    def beside(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What those files say that the stream did not."""
        return [] if self._keeper is None else self._keeper.beside(lines)

    # -- one line ---------------------------------------------------------------------------------------

    @property
    def _settled(self) -> bool:
        """Whether the rest is lines of the agent, one by one: neither a tape nor a document, begun, and known whose."""
        if self.tape is not None or self._document is not None or self.lines.read <= self.lines.blank:
            return False
        return self._told or self.lines.read >= LOOKED_AT

    def line(self, data: bytes, final: bool = False) -> list[ev.Event]:
        """The events of one line of the input; `final`: it is the last and has no newline."""
        if self._inner is not None:
            return self._tick(data, final)
        if not self.lines.read and self._document is None and data[:1] == b"{" and self._form != "stream":
            self.tape = read_header(data)
            if self.tape is not None:
                self.begin(self.tape)
                return []
        return self._printed(data, final, None)

    def _printed(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """A line that the agent printed; the first can be the opening of a pretty-printed document."""
        if self._document is not None:
            return self._hold(data)
        if self._form == "stream":
            return self._agent_line(data, final, at)
        if self.lines.read == self.lines.blank and data.removeprefix(b"\xef\xbb\xbf").strip() in (b"{", b"["):
            self._document = [data.rstrip(b"\n")]
            return []
        return self._agent_line(data, final, at)

    def _hold(self, data: bytes) -> list[ev.Event]:
        """Keep a pretty-printed document's lines; one that opens an object in the first column shows that it was a stream."""
        held = self._document if self._document is not None else []
        if data[:2] != b'{"' or self._form == "json":
            held.append(data.rstrip(b"\n"))
            return []
        self._document = None
        return [event for line in (*held, data) for event in self._agent_line(line)]

    def _agent_line(self, data: bytes, final: bool = False, at: datetime | None = None) -> list[ev.Event]:
        lines = self.lines
        lines.read += 1
        if not self._told and lines.read <= LOOKED_AT:
            self._be(agents.sniff(re.sub(_NOISE, b"", data)))
        try:
            return self._reader.read(data, lines.read, at)
        except MISFIT:
            return self._odd(data, final, at)

    def _odd(self, data: bytes, final: bool, at: datetime | None) -> list[ev.Event]:
        """A line that did not fit: blank, broken, glued, not an object, or with fields of a wrong type."""
        clean = re.sub(_NOISE, b"", data)
        if not clean:
            self.lines.blank += 1
            return []
        if clean[:1] == b"[" and self._form != "stream" and self.lines.read - self.lines.blank == 1:
            found = self._array(clean)
            if found is not None:
                return found
        found, objects = [], 0
        try:
            for value in values(clean):
                if value[:1] == b"{":
                    objects += 1
                    found += self._reader.salvage(value, self.lines.read, at)
        except (ValueError, *MISFIT):
            return [*found, self._malformed(data, final)]
        if not objects:
            self.lines.not_object += 1
        return found

    def _malformed(self, data: bytes, final: bool) -> ev.Malformed:
        torn = (final or b"\n" in data[:-1]) and data.lstrip(b"\xef\xbb\xbf \t\r\x00")[:1] in (b"{", b"[")
        if torn:
            self.lines.torn = True
        else:
            self.lines.malformed += 1
        head = data[:HEAD_SHOWN].rstrip(b"\r\n").decode("utf-8", "replace")
        event = ev.Malformed(self.lines.read, None, None, None, head, torn)
        if len(self.odd) < ODD_KEPT:
            self.odd.append(event)
        return event

    def _array(self, data: bytes) -> list[ev.Event] | None:
        """An array of events, given as the whole input: each element counts as a line."""
        try:
            items = _objects(data)
        except MISFIT:
            return None
        if not items or any(bytes(item)[:1] != b"{" for item in items):
            return None
        self.lines.read -= 1
        return [event for item in items for event in self._agent_line(bytes(item))]

    # -- tapes ------------------------------------------------------------------------------------------

    def begin(self, header: Header) -> None:
        """What follows are ticks, live or from a tape: see `tick`."""
        self.tape, self._inner, self._whole = header, Splitter(), False
        self.fold.place = header.cwd
        if header.backend is not None:
            self.fold.free, self.fold.window = header.backend.local, header.backend.window
        if not self._told and header.agent is not None and header.agent in agents.AGENTS:
            self._be(agents.AGENTS[header.agent])

    def _tick(self, data: bytes, final: bool) -> list[ev.Event]:
        """What one line of a tape means. One that is cut off means nothing: the tape ends before it."""
        tick = None if final else read_tick(data)
        if tick is None:
            self._damaged = self._damaged or bool(data.strip())
            return []
        return self.tick(tick)

    def tick(self, tick: Tick) -> list[ev.Event]:
        """What one tick means. Live or read from a tape, it means the same."""
        if tick.code == "end":
            self._whole = True
            return []
        at = self._time(tick)
        if tick.code == "out" and self._inner is not None:
            lines = self._inner.feed(tick.data)
            found = [event for line in lines for event in self._printed(line, False, at)]
            return self._anew(found, at) if self.tape is not None and self.tape.played else found
        if tick.code == "err":
            return list(self.heard(_stderr(self._errors.feed(tick.data), at)))
        if tick.code == "kept":
            self._kept.append(tick.data)
            return []
        if tick.code in SEEN:
            return [_noticed(tick, at, self.tape.cwd if self.tape is not None else None)]
        return tick_events(tick, at)

    def _anew(self, found: list[ev.Event], at: datetime | None) -> list[ev.Event]:
        """What a recording says that was played as the agent: its times, as if they were of now."""
        told: list[ev.Event] = []
        for event in found:
            if at is not None and event.at is not None and event.at != at:
                self._shift = at - event.at if self._shift is None else self._shift
                event = replace(event, at=event.at + self._shift)
            told.append(event)
        return told

    def _time(self, tick: Tick) -> datetime | None:
        """When a tick came in, where the tape knows both its start and the tick's distance from it."""
        if self.tape is None or self.tape.started_at is None or tick.after is None:
            return None
        try:
            return datetime.fromtimestamp(self.tape.started_at + tick.after, timezone.utc)
        except (OverflowError, OSError, ValueError):
            return None  # a time that no calendar has


class Checked(Struct):
    """What a tick says of an answer that was held against a schema."""

    value: Raw = ev.NO_JSON
    wrong: list[str] = []


def _stderr(lines: list[bytes], at: datetime | None) -> list[ev.Event]:
    return [ev.Stderr(0, None, None, at, line.decode("utf-8", "replace").rstrip("\r")) for line in lines if line.strip()]


def tick_events(tick: Tick, at: datetime | None) -> list[ev.Event]:
    """The events of a tick that holds no output."""
    if tick.code == "exit":
        return [ev.Exited(0, None, None, at, tick.number)]
    if tick.code == "stop":
        return [ev.StopRequested(0, None, None, at, tick.data.decode("utf-8", "replace"), tick.number)]
    if tick.code in ("left", "note"):
        return [ev.Notice(0, None, None, at, tick.code, tick.data.decode("utf-8", "replace"))]
    if tick.code == "in":
        return []
    if tick.code == "checked":
        try:
            told = lenient(tick.data, Checked)
            return [ev.Checked(0, None, None, at, told.value, tuple(told.wrong))]
        except MISFIT:  # no JSON: kept below as what nobody knows
            pass
    if tick.code == "file":
        return [_noticed(tick, at)]
    return [ev.Unknown(0, None, None, at, f"tick {tick.code}", tick.data)]


def _noticed(tick: Tick, at: datetime | None, cwd: str | None = None) -> ev.FileChanged:
    """A file that was seen to change; its name is one below the folder that the agent was started in."""
    change, _, path = tick.data.decode("utf-8", "backslashreplace").partition(" ")
    return ev.FileChanged(0, None, None, at, posixpath.join(cwd or "", path), change, None, SEEN[tick.code])
