"""What `steno show` prints of each source, one function per view. It calls the library and the screen, and prints."""

import sys
from collections.abc import Callable

import msgspec

from ..agents import Agent
from ..prices import price
from ..reading import Reading
from ..report import EXIT_CODES, Report, StenoError
from ..screen.look import Look
from ..source import Input, open_input
from .progress import Progress
from .terminal import complain, is_terminal, put, put_bytes, put_json, stdin_bytes

MANY = 3  # sources up to this number get a card each, more get a line each
STDIN = "stdin"
STREAMS = ("events", "timeline")  # views that print while they read


class Kept(Input):
    """A run or session that the ledger knows, with what it keeps of it.

    `report` is a run's own; `page` and `json` stand for a session of which nothing else is left.
    """

    report: Report | None = None
    page: Callable[[Look], list[str]] | None = None
    json: bytes = b""
    notes: Callable[[Look], list[str]] = staticmethod(lambda look: [])


class Views:
    """One view of all the sources."""

    def __init__(self, view: str | None, look: Look, sources: int) -> None:
        self.look, self.several = look, sources > 1
        self.agent: Agent | None = None
        self.form: str | None = None
        self.advise, self.prices = True, False
        name = view or ("card" if sources <= MANY else "runs")
        self._print: Callable[[Input], None] = getattr(self, f"_{name}")
        self.progress = Progress(sources, shown=not (name in STREAMS and is_terminal(sys.stdout)))
        self._shown = 0
        self.highest = 0  # of the exit codes that the verdicts have
        self._end: Callable[[], list[str]] = list

    def show(self, source: str | Kept) -> bool:
        """Print one source; False if it could not be read, which is told on stderr."""
        try:
            self._print(self._open(source) if isinstance(source, str) else source)
        except StenoError as problem:
            self.progress.clear()
            complain(str(problem))
            return False
        except Exception as problem:
            problem.add_note(
                source if isinstance(source, str) else source.name
            )  # whatever it is: which of a thousand recordings it came from
            raise
        self.progress.done += 1
        return True

    def end(self) -> None:
        """Print what comes after the last source."""
        put(self._end())

    def _open(self, source: str) -> Input:
        given = open_input(stdin_bytes(), STDIN) if source == "-" else open_input(source)
        given.data = self.progress.through(given.data)
        return given

    # -- reading ------------------------------------------------------------------------------------------------

    def _report(self, given: Input) -> tuple[Report, Reading]:
        if isinstance(given, Kept) and given.report is not None:
            report, reading = given.report, Reading()
        else:
            reading = given.read(self.agent, self.form)
            reading.fold.facts.advise = self.advise
            report = reading.report(given.name, price)
            self._read(given, reading)
        self.highest = max(self.highest, EXIT_CODES[report.verdict])
        return report, reading

    def _read(self, given: Input, reading: Reading) -> None:
        """A source was read: the progress goes away, and what was odd about its lines is told."""
        self.progress.clear()
        where = f"{given.name}: " if self.several else ""
        odd = [event for event in reading.odd if not event.torn]
        for event in odd:
            complain(f"{where}skipping malformed line {event.line}: {event.head}")
        more = reading.lines.malformed - len(odd)
        if more > 0:
            complain(f"... and {more} more malformed lines in {given.name}")
        for what in given.cut or ["the last line is cut"] * reading.lines.torn:
            complain(f"{given.name}: {what}")

    def _apart(self, given: Input, blank: bool = True) -> None:
        """Where there are several sources: a rule with this one's name."""
        if self.several:
            from ..screen.page import rule

            put([""] * (blank and self._shown > 0) + [rule(self.look, given.name)])
        self._shown += 1

    # -- views for people -----------------------------------------------------------------------------------------

    def _card(self, given: Input) -> None:
        from ..screen.card import card

        if isinstance(given, Kept) and given.page is not None:
            self._apart(given)
            return put([*given.page(self.look), *given.notes(self.look)])
        report, reading = self._report(given)
        extra = []
        if self.prices:
            from .priced import rows

            extra = rows(report, reading.fold)
        self._apart(given)
        put(card(report, self.look, extra))
        return put(given.notes(self.look) if isinstance(given, Kept) else ())

    def _runs(self, given: Input) -> None:
        from ..screen import tables

        report, _ = self._report(given)
        if not self._shown:
            totals = tables.Totals()
            self._total, self._end = totals.add, lambda: ["", *totals.lines(self.look)]
            put([tables.runs_head(self.look)])
        self._shown += 1
        self._total(report)
        put([tables.run(report, self.look, given.name)])

    def _tools(self, given: Input) -> None:
        from ..screen import tables

        report, _ = self._report(given)
        self._apart(given)
        put(tables.tools(report, self.look))

    def _files(self, given: Input) -> None:
        from ..screen import tables

        report, _ = self._report(given)
        self._apart(given)
        put(tables.files(report, self.look))

    def _timeline(self, given: Input) -> None:
        from ..screen.timeline import Timeline

        timeline, reading = Timeline(self.look), Reading(self.agent, self.form)
        self._apart(given)
        for events in (reading.events(given.data), given.after):
            for event in events:
                line = timeline.line(event)
                if line is not None:
                    put([line])
        self._read(given, reading)

    def _text(self, given: Input) -> None:
        report, _ = self._report(given)
        text = report.text or report.result or ""
        if is_terminal(sys.stdout):
            from ..screen.clean import TAB, clean

            put(clean(line.expandtabs(TAB)) for line in text.replace("\r\n", "\n").split("\n"))
        else:
            put_bytes(text.encode("utf-8", "replace") + b"\n")

    # -- views for programs ---------------------------------------------------------------------------------------

    def _json(self, given: Input) -> None:
        if isinstance(given, Kept) and given.json:
            return put_json(given.json)
        report, _ = self._report(given)
        return put_json(report.to_json())

    def _events(self, given: Input) -> None:
        encode, reading = msgspec.json.Encoder().encode, Reading(self.agent, self.form)
        live = given.name == STDIN or is_terminal(sys.stdout)
        for events in (reading.events(given.data), given.after):
            for event in events:
                put_json(encode(event))
                if live:
                    sys.stdout.buffer.flush()
        self._read(given, reading)
