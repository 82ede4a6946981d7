"""The rows that `--prices` adds to a card: the price table's figure beside the agent's, and what the cache saved."""

import sys
from collections.abc import Callable

import msgspec

from ..agents import Agent
from ..analysis import usage as meter
from ..analysis.accumulator import Accumulator
from ..errors import StenoError
from ..event import ModelUsage
from ..pricing import price
from ..recording.open import RecordingInput, open_recording
from ..recording.parse import RunParser
from ..report import EXIT_CODES, ModelSummary, Report
from ..views.formatting import UNKNOWN, format_money
from ..views.layout import PageStyle, SectionRow
from .terminal import (
    Progress,
    is_terminal,
    print_error,
    print_json,
    print_lines,
    stdin_bytes,
    write_bytes,
)


def price_rows(report: Report, fold: Accumulator) -> list[SectionRow]:
    """What the run's tokens cost by the table, and what they would have cost without cache reads."""
    shares = [(name, _model_usage(name, model, fold)) for name, model in report.models.items()]
    told = _total_nano(report, shares)
    without = _total_nano(report, [(name, _without_cache_reads(share)) for name, share in shares])
    saved = None if told is None or without is None else without - told
    return [
        SectionRow(f"by the price table {_format_nano(told)}"),
        SectionRow(
            f"cache reads saved {_format_nano(saved)}"
            if saved is not None
            else f"saved by cache reads: {UNKNOWN}"
        ),
    ]


def _format_nano(nano: int | None) -> str:
    return format_money(meter.nano_to_usd(nano))


def _total_nano(report: Report, shares: list[tuple[str, ModelUsage]]) -> int | None:
    parts = [price(name, share, report.started_at) for name, share in shares]
    return sum(part or 0 for part in parts) if parts and None not in parts else None


def _model_usage(name: str, model: ModelSummary, fold: Accumulator) -> ModelUsage:
    """A model's tokens. Only the single requests tell which cache writes are kept for an hour, at another price."""
    own = [
        request
        for request in fold.requests.values()
        if request.model == meter.base_model_name(name)
    ]
    hour = min(sum(request.cache_write_1h or 0 for request in own), model.cache_write or 0)
    return ModelUsage(
        model.input, model.cache_write, model.cache_read, model.output, cache_write_1h=hour
    )


def _without_cache_reads(share: ModelUsage) -> ModelUsage:
    from msgspec.structs import replace

    known = share.input is not None and share.cache_read is not None
    return replace(
        share, input=(share.input or 0) + (share.cache_read or 0) if known else None, cache_read=0
    )


MAX_CARDS = 3  # sources up to this number get a card each, more get a line each
STDIN_NAME = "stdin"
STREAMING_VIEWS = ("events", "timeline")  # views that print while they read


class StoredInput(RecordingInput):
    """A run or session that the ledger knows, with what it keeps of it.

    `report` is a run's own; `page` and `json` stand for a session of which nothing else is left.
    """

    report: Report | None = None
    render_page: Callable[[PageStyle], list[str]] | None = None
    json: bytes = b""
    render_notes: Callable[[PageStyle], list[str]] = staticmethod(lambda look: [])


class SourcePrinter:
    """One view of all the sources."""

    def __init__(self, view: str | None, look: PageStyle, sources: int) -> None:
        self.style, self.has_several = look, sources > 1
        self.agent: Agent | None = None
        self.input_format: str | None = None
        self.use_heuristics, self.show_prices = True, False
        name = view or ("card" if sources <= MAX_CARDS else "runs")
        self._print_view: Callable[[RecordingInput], None] = getattr(self, f"_{name}")
        self.progress = Progress(
            sources, is_shown=not (name in STREAMING_VIEWS and is_terminal(sys.stdout))
        )
        self._printed_count = 0
        self.highest_exit_code = 0  # of the exit codes that the verdicts have
        self._footer: Callable[[], list[str]] = list

    def show(self, source: str | StoredInput) -> bool:
        """Print one source; False if it could not be read, which is told on stderr."""
        try:
            self._print_view(self._open_source(source) if isinstance(source, str) else source)
        except StenoError as problem:
            self.progress.clear()
            print_error(str(problem))
            return False
        except Exception as problem:
            problem.add_note(
                source if isinstance(source, str) else source.name
            )  # whatever it is: which of a thousand recordings it came from
            raise
        self.progress.done_files += 1
        return True

    def print_footer(self) -> None:
        """Print what comes after the last source."""
        print_lines(self._footer())

    def _open_source(self, source: str) -> RecordingInput:
        given = (
            open_recording(stdin_bytes(), STDIN_NAME) if source == "-" else open_recording(source)
        )
        given.lines = self.progress.track(given.lines)
        return given

    # -- reading ------------------------------------------------------------------------------------------------

    def _build_report(self, given: RecordingInput) -> tuple[Report, RunParser]:
        if isinstance(given, StoredInput) and given.report is not None:
            report, reading = given.report, RunParser()
        else:
            reading = given.read(self.agent, self.input_format)
            reading.accumulator.facts.use_heuristics = self.use_heuristics
            report = reading.report(given.name, price)
            self._report_bad_lines(given, reading)
        self.highest_exit_code = max(self.highest_exit_code, EXIT_CODES[report.verdict])
        return report, reading

    def _report_bad_lines(self, given: RecordingInput, reading: RunParser) -> None:
        """A source was read: the progress goes away, and what was odd about its lines is told."""
        self.progress.clear()
        where = f"{given.name}: " if self.has_several else ""
        odd = [event for event in reading.malformed_events if not event.torn]
        for event in odd:
            print_error(f"{where}skipping malformed line {event.line}: {event.head}")
        more = reading.lines.malformed - len(odd)
        if more > 0:
            print_error(f"... and {more} more malformed lines in {given.name}")
        for what in given.problems or ["the last line is cut"] * reading.lines.torn:
            print_error(f"{given.name}: {what}")

    def _print_separator(self, given: RecordingInput, blank: bool = True) -> None:
        """Where there are several sources: a rule with this one's name."""
        if self.has_several:
            from ..views.layout import titled_rule

            print_lines(
                [""] * (blank and self._printed_count > 0) + [titled_rule(self.style, given.name)]
            )
        self._printed_count += 1

    # -- views for people -----------------------------------------------------------------------------------------

    def _card(self, given: RecordingInput) -> None:
        from ..views.summary import card

        if isinstance(given, StoredInput) and given.render_page is not None:
            self._print_separator(given)
            return print_lines([*given.render_page(self.style), *given.render_notes(self.style)])
        report, reading = self._build_report(given)
        extra = []
        if self.show_prices:
            extra = price_rows(report, reading.accumulator)
        self._print_separator(given)
        print_lines(card(report, self.style, extra))
        return print_lines(given.render_notes(self.style) if isinstance(given, StoredInput) else ())

    def _runs(self, given: RecordingInput) -> None:
        from ..views import show as tables

        report, _ = self._build_report(given)
        if not self._printed_count:
            totals = tables.RunTotals()
            self._add_to_totals, self._footer = totals.add, lambda: ["", *totals.lines(self.style)]
            print_lines([tables.runs_header(self.style)])
        self._printed_count += 1
        self._add_to_totals(report)
        print_lines([tables.run_line(report, self.style, given.name)])

    def _tools(self, given: RecordingInput) -> None:
        from ..views import show as tables

        report, _ = self._build_report(given)
        self._print_separator(given)
        print_lines(tables.tools_table(report, self.style))

    def _files(self, given: RecordingInput) -> None:
        from ..views import show as tables

        report, _ = self._build_report(given)
        self._print_separator(given)
        print_lines(tables.files_table(report, self.style))

    def _timeline(self, given: RecordingInput) -> None:
        from ..views.timeline import Timeline

        timeline, reading = Timeline(self.style), RunParser(self.agent, self.input_format)
        self._print_separator(given)
        for events in (reading.events(given.lines), given.extra_events):
            for event in events:
                line = timeline.line(event)
                if line is not None:
                    print_lines([line])
        self._report_bad_lines(given, reading)

    def _text(self, given: RecordingInput) -> None:
        report, _ = self._build_report(given)
        text = report.text or report.result or ""
        if is_terminal(sys.stdout):
            from ..views.sanitize import TAB_WIDTH, clean

            print_lines(
                clean(line.expandtabs(TAB_WIDTH)) for line in text.replace("\r\n", "\n").split("\n")
            )
        else:
            write_bytes(text.encode("utf-8", "replace") + b"\n")

    # -- views for programs ---------------------------------------------------------------------------------------

    def _json(self, given: RecordingInput) -> None:
        if isinstance(given, StoredInput) and given.json:
            return print_json(given.json)
        report, _ = self._build_report(given)
        return print_json(report.to_json())

    def _events(self, given: RecordingInput) -> None:
        encode, reading = msgspec.json.Encoder().encode, RunParser(self.agent, self.input_format)
        live = given.name == STDIN_NAME or is_terminal(sys.stdout)
        for events in (reading.events(given.lines), given.extra_events):
            for event in events:
                print_json(encode(event))
                if live:
                    sys.stdout.buffer.flush()
        self._report_bad_lines(given, reading)
