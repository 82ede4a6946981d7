"""The views of `steno show`: one method per view, and the rows of --prices."""

import sys
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..agents import Agent
from ..analysis.accumulator import Accumulator
from ..analysis.redact_report import redact_report
from ..analysis.usage import ModelKeys, base_model_name, nano_to_usd
from ..errors import StenoError
from ..event import Event, ModelUsage
from ..pricing import cache_saving, price, rates
from ..recording.open import RecordingInput, open_path, open_recording
from ..recording.parse import RunParser
from ..report import EXIT_CODES, ModelSummary, Report
from ..views.formatting import UNKNOWN, format_money
from ..views.table import PageStyle, SectionRow
from .terminal import (
    Progress,
    is_terminal,
    print_error,
    print_json,
    print_lines,
    print_text,
    stdin_bytes,
)

if TYPE_CHECKING:
    from ..export.conversation import Conversation
    from .otel import OtelOutput

MAX_SUMMARIES = 3  # more sources get a table
STDIN_NAME = "stdin"
STREAMING_VIEWS = ("events", "timeline")  # print while they read
PROGRAM_VIEWS = ("json", "events", "text")  # may be read by a program
SILENT_VIEW = "silent"  # reads reports and prints nothing
RECORDING_VIEWS = (*STREAMING_VIEWS, "transcript")  # need more than the report


def price_rows(report: Report, accumulator: Accumulator) -> list[SectionRow]:
    """The cost by the price table, and the savings of cache reads."""
    usages = []
    if _models_add_up(report):
        usages = [
            (name, _model_usage(name, model, accumulator)) for name, model in report.models.items()
        ]
    cost = _total_nano(report, usages)
    saved = _saved_nano(report)
    savings = f"saved by cache reads: {UNKNOWN}"
    if saved is not None:
        savings = f"cache reads saved {_format_nano(saved)}"
    rows = [SectionRow(savings)]
    if not _is_shown_cost(report, cost):
        rows.insert(0, SectionRow(f"by the price table {_format_nano(cost)}"))
    return rows


def _is_shown_cost(report: Report, cost: int | None) -> bool:
    """Whether the run's own cost, which is shown above, already is the one by the price table."""
    if report.cost.source != "computed":
        return False
    return cost is None or _format_nano(cost) == format_money(report.cost.usd)


def _models_add_up(report: Report) -> bool:
    """Whether the models have all tokens: old documents list only the output by model."""
    return all(
        sum(getattr(model, part) or 0 for model in report.models.values())
        == (getattr(report.tokens, part) or 0)
        for part in ("input", "cache_write", "cache_read", "output")
    )


def _format_nano(nano: int | None) -> str:
    return format_money(nano_to_usd(nano))


def _total_nano(report: Report, usages: list[tuple[str, ModelUsage]]) -> int | None:
    costs = [price(name, usage, report.started_at) for name, usage in usages]
    return sum(cost or 0 for cost in costs) if costs and None not in costs else None


def _model_usage(name: str, model: ModelSummary, accumulator: Accumulator) -> ModelUsage:
    """A model's tokens. One-hour cache writes, which have another price, come from its requests."""
    requests = [
        request
        for request in accumulator.requests.values()
        if request.model == base_model_name(name)
    ]
    one_hour = min(sum(request.cache_write_1h or 0 for request in requests), model.cache_write or 0)
    return ModelUsage(
        model.input, model.cache_write, model.cache_read, model.output, cache_write_1h=one_hour
    )


def _saved_nano(report: Report) -> int | None:
    """What cache reads saved, as the ledger counts it: reads of no model are the main one's."""
    if report.cost.source == "local":
        return 0
    reads = {name: model.cache_read or 0 for name, model in report.models.items()}
    main = ModelKeys(reads).find_or_add(report.model or "unknown")
    reads[main] = reads.get(main, 0) + (report.tokens.cache_read or 0) - sum(reads.values())
    known = ((rates(name, report.started_at), count) for name, count in reads.items())
    savings = [cache_saving(rate, count) for rate, count in known if rate is not None]
    return sum(savings) if savings else None


class StoredInput(RecordingInput):
    """A run or session in the ledger.

    `report` belongs to a run; `complete` and `facts` add to a session's transcript what the ledger
    knows; `render_page` and `json` to a session without a transcript.
    """

    report: Report | None = None
    complete: Callable[[Report], Report] = staticmethod(lambda report: report)
    facts: Mapping[str, str] = {}
    render_page: Callable[[PageStyle], list[str]] | None = None
    json: bytes = b""
    render_notes: Callable[[PageStyle], list[str]] = staticmethod(lambda style: [])


SourceRef = Path | StoredInput | str  # a file or folder, a run in the ledger, or - for stdin


def open_source(source: SourceRef) -> RecordingInput:
    if isinstance(source, StoredInput):
        return source
    if isinstance(source, Path):
        return open_path(source)
    return open_recording(stdin_bytes(), STDIN_NAME)


def load_conversation(
    recording: RecordingInput,
    agent: Agent | None = None,
    input_format: str | None = None,
    use_heuristics: bool = True,
) -> "Conversation":
    """The conversation of a source; of a session with what the ledger knows of it."""
    from ..export.conversation import read_conversation

    conversation = read_conversation(recording, agent, input_format, price, use_heuristics)
    if isinstance(recording, StoredInput):
        conversation.report = recording.complete(conversation.report)
    for text in recording.problems:
        print_error(f"{recording.name}: {text}")
    return conversation


class SourcePrinter:
    """Prints all sources in one view."""

    def __init__(self, view: str | None, style: PageStyle, source_count: int) -> None:
        self.style = style
        self.has_several = source_count > 1
        self.agent: Agent | None = None
        self.input_format: str | None = None
        self.use_heuristics = True
        self.show_prices = False
        self.is_full = False
        self.event_kinds: tuple[type[Event], ...] | None = None  # None: all
        name = view or ("summary" if source_count <= MAX_SUMMARIES else "runs")
        self._print_view: Callable[[RecordingInput], None] = getattr(self, f"_{name}")
        self.progress = Progress(
            source_count, is_shown=not (name in STREAMING_VIEWS and is_terminal(sys.stdout))
        )
        self._printed_count = 0
        self.highest_exit_code = 0  # of the verdicts
        self.keeps_reports = False
        self.reports: list[tuple[str, Report]] = []  # with the names of their sources
        self.create_otel: Callable[[], OtelOutput | None] = lambda: None
        self.footer: Callable[[], list[str]] = list  # lines after the last source

    def show(self, source: SourceRef) -> bool:
        """Print one source; False if it could not be read, which is reported on stderr."""
        try:
            recording = open_source(source)
            if self.progress.is_shown and recording is not source:
                recording.lines = self.progress.track(recording.lines)
            self._print_view(recording)
        except StenoError as error:
            self.progress.clear()
            print_error(str(error))
            return False
        except Exception as error:
            error.add_note(source.name if isinstance(source, StoredInput) else str(source))
            raise
        self.progress.done_files += 1
        return True

    def _build_report(self, recording: RecordingInput) -> tuple[Report, RunParser]:
        otel = self.create_otel()
        if isinstance(recording, StoredInput) and recording.report is not None:
            report = recording.report
            parser = RunParser()
        else:
            sink = None if otel is None else otel.add
            parser = recording.read(self.agent, self.input_format, sink)
            parser.accumulator.facts.use_heuristics = self.use_heuristics
            report = parser.report(recording.name, price)
            if isinstance(recording, StoredInput):
                report = redact_report(recording.complete(report))
            self._report_bad_lines(recording, parser)
        self._add_report(recording, report)
        if otel is not None:
            otel.finish(report, print_error)
        return report, parser

    def _add_report(self, recording: RecordingInput, report: Report) -> None:
        self.highest_exit_code = max(self.highest_exit_code, EXIT_CODES[report.verdict])
        if self.keeps_reports:
            self.reports.append((recording.name, report))

    def _report_bad_lines(self, recording: RecordingInput, parser: RunParser) -> None:
        self.progress.clear()
        prefix = f"{recording.name}: " if self.has_several else ""
        malformed = [event for event in parser.malformed_events if not event.torn]
        for event in malformed:
            print_error(f"{prefix}skipping malformed line {event.line}: {event.head}")
        more = parser.lines.malformed - len(malformed)
        if more > 0:
            print_error(f"... and {more} more malformed lines in {recording.name}")
        for text in recording.problems or ["the last line is incomplete"] * parser.lines.torn:
            print_error(f"{recording.name}: {text}")

    def _print_separator(self, recording: RecordingInput) -> None:
        """Print a rule with the name of the source, if there are several."""
        if self.has_several:
            from ..views.table import titled_rule

            rule = titled_rule(self.style, recording.name)
            print_lines(["", rule] if self._printed_count else [rule])
        self._printed_count += 1

    # -- views for people ------------------------------------------------------------------------

    def _summary(self, recording: RecordingInput) -> None:
        from ..views.summary import card

        stored = recording if isinstance(recording, StoredInput) else None
        if stored is not None and stored.render_page is not None:
            lines = stored.render_page(self.style)
        else:
            report, parser = self._build_report(recording)
            extra = price_rows(report, parser.accumulator) if self.show_prices else []
            facts = stored.facts if stored is not None else {}
            lines = card(report, self.style, extra, facts, is_full=self.is_full)
        if stored is not None:
            lines += stored.render_notes(self.style)
        self._print_separator(recording)
        print_lines(lines)

    def _runs(self, recording: RecordingInput) -> None:
        from ..views import show as tables

        report, _ = self._build_report(recording)
        if not self._printed_count:
            totals = tables.RunTotals()
            self._add_to_totals = totals.add
            self.footer = lambda: ["", *totals.lines(self.style)]
            print_lines([tables.runs_header(self.style)])
        self._printed_count += 1
        self._add_to_totals(report)
        print_lines([tables.run_line(report, self.style, recording.name)])

    def _tools(self, recording: RecordingInput) -> None:
        from ..views import show as tables

        report, _ = self._build_report(recording)
        self._print_separator(recording)
        print_lines(tables.tools_table(report, self.style))

    def _files(self, recording: RecordingInput) -> None:
        from ..views import show as tables

        report, _ = self._build_report(recording)
        self._print_separator(recording)
        print_lines(tables.files_table(report, self.style))

    def _timeline(self, recording: RecordingInput) -> None:
        from ..views.timeline import Timeline

        timeline = Timeline(self.style)
        recording.require_recording(self.agent)
        parser = RunParser(self.agent, self.input_format)
        self._print_separator(recording)
        for event in chain.from_iterable(recording.batches(parser)):
            line = timeline.line(event)
            if line is not None:
                print_lines([line])
        self._report_bad_lines(recording, parser)

    def _transcript(self, recording: RecordingInput) -> None:
        from ..export.text import transcript_lines

        with load_conversation(
            recording, self.agent, self.input_format, self.use_heuristics
        ) as conversation:
            self.progress.clear()
            self._add_report(recording, conversation.report)
            self._print_separator(recording)
            for line in transcript_lines(conversation, self.style, self.is_full):
                print_lines([line])

    def _text(self, recording: RecordingInput) -> None:
        report, _ = self._build_report(recording)
        text = report.text or report.result or ""
        print_text(text if is_terminal(sys.stdout) else text + "\n")

    def _silent(self, recording: RecordingInput) -> None:
        self._build_report(recording)

    # -- views for programs ----------------------------------------------------------------------

    def _json(self, recording: RecordingInput) -> None:
        if isinstance(recording, StoredInput) and recording.json:
            return print_json(recording.json)
        report, _ = self._build_report(recording)
        return print_json(report.to_json())

    def _events(self, recording: RecordingInput) -> None:
        encode = msgspec.json.Encoder().encode
        recording.require_recording(self.agent)
        parser = RunParser(self.agent, self.input_format)
        live = recording.name == STDIN_NAME or is_terminal(sys.stdout)
        kinds = self.event_kinds
        for event in chain.from_iterable(recording.batches(parser)):
            if kinds is not None and type(event) not in kinds:
                continue
            print_json(encode(event))
            if live:
                sys.stdout.buffer.flush()
        self._report_bad_lines(recording, parser)
