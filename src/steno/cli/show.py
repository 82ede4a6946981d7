"""`steno show`: shows the reports of recordings, runs and sessions."""

import argparse
import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

from ..agents import get_agent
from ..errors import StenoError
from ..event import EVENT_KINDS, Event
from ..recording.identify import skipped_message
from ..recording.open import find_recordings
from .commands import EXIT_USAGE_ERROR
from .options import AGENT_HELP, NO_ADVICE_HELP, CommandParser, option_name
from .output_options import (
    DOCUMENTS,
    add_otel_options,
    add_output_options,
    outputs_from_options,
)
from .show_views import (
    MAX_SUMMARIES,
    PROGRAM_VIEWS,
    SILENT_VIEW,
    STREAMING_VIEWS,
    SourcePrinter,
    SourceRef,
)
from .terminal import detect_style, is_terminal, pager, print_error, print_lines

VIEWS = {
    "summary": f"summary per source (default for up to {MAX_SUMMARIES} sources, else a table)",
    "events": "events as JSON, one per line, as they are read",
    "tools": "table of tool calls",
    "files": "table of changed files",
    "timeline": "one line per important event",
    "transcript": "the whole conversation: prompts, answers, tool calls with their output",
    "text": "only the agent's answer",
}
ID_PATTERN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{3,}")  # of a run or session
EXAMPLES = """examples:
  steno show run.jsonl                     a recording
  claude -p "..." --output-format stream-json --verbose | steno show
  steno show --json runs/ | jq .verdict    all recordings below a folder, one JSON line each
  steno show --timeline run.jsonl.gz       one line per event
  steno show --transcript 3f9a21c0         the conversation, through the pager
  steno show --text run.jsonl              only the agent's answer
  steno show --events --only tool_call,tool_result run.jsonl | jq .
  steno show 3f9a21c0                      a run or session in the ledger, by ID prefix
  steno show --exit-from verdict run/      exit with 0 only if the run succeeded
  steno show --otel=http://localhost:4318 3f9a21c0   send its trace to a collector
  steno show --junit report.xml runs/      each run as a test case, failed by its verdict

A source is the output of an agent (plain, gzip or zstd, also inside a log), a recording, an agent's
transcript, a folder with a file `stdout`, or a folder of any of these. The exit code is 0 if all
sources could be shown, whatever their verdicts, and 2 if one could not be read. With
`--exit-from verdict` it is the highest code of the verdicts; 2 takes precedence.
"""


def run(args: list[str]) -> int:
    """Run `steno show` and return its exit code."""
    options = _parse_args(args)
    agent = get_agent(options.agent)
    stdout_option = f"--{options.view}" if options.view in PROGRAM_VIEWS else None
    outputs = outputs_from_options(options, "steno show", stdout_option)
    has_otel = options.otel is not None
    options.needs_report = options.exit_from is not None or outputs.is_requested or has_otel
    sources, has_errors = resolve_sources(options)
    view = SILENT_VIEW if outputs.uses_stdout else options.view
    printer = SourcePrinter(view, detect_style(), len(sources))
    printer.agent = agent
    printer.input_format = options.format
    printer.use_heuristics = not options.no_advice
    is_summary = options.view in (None, "summary")
    printer.show_prices = options.prices or (options.full and is_summary)
    printer.is_full = options.full
    printer.event_kinds = options.only
    printer.keeps_reports = outputs.is_active
    if has_otel:
        from .otel import OtelOutput, parse_otel_option

        target = parse_otel_option(options.otel)
        if target is not None:
            printer.create_otel = lambda: OtelOutput(target, options.otel_content)
            printer.create_otel()  # its packages are missing: says so before anything is read
    try:
        with pager() if options.view == "transcript" else nullcontext():
            for source in sources:
                has_errors = not printer.show(source) or has_errors
            print_lines(printer.footer())
    finally:
        printer.progress.clear()
    if printer.reports:
        from ..export.results import result_of

        outputs.write([result_of(name, report) for name, report in printer.reports])
    if has_errors:
        return EXIT_USAGE_ERROR
    return printer.highest_exit_code if options.exit_from == "verdict" else 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "show",
        "Show the report of a recording, run or session: verdict, cost, context, tools, files.",
        EXAMPLES,
    )
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="file, folder, - (stdin, the default), or run or session ID",
    )
    views = parser.add_argument_group("view (default: --summary)")
    group = views.add_mutually_exclusive_group()
    for name, text in VIEWS.items():
        group.add_argument(f"--{name}", dest="view", action="store_const", const=name, help=text)
    views.add_argument(
        "--json",
        action="store_true",
        help="report as JSON, one line per source (events are JSON anyway)",
    )
    views.add_argument(
        "--only",
        metavar="KIND[,KIND]",
        type=event_kinds_type,
        help="with --events: only events of these kinds, such as tool_call,file_change",
    )
    parser.add_argument(
        "--prices",
        action="store_true",
        help="also show the cost at list prices and what the cache saved",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="long texts of --transcript in full; in the summary, also what --prices shows, and a "
        "rating of the cache hit rate",
    )
    parser.add_argument("--agent", metavar="NAME", help=AGENT_HELP)
    parser.add_argument(
        "--format",
        choices=("stream", "json"),
        help="read as lines, or as one JSON document (default: detected)",
    )
    parser.add_argument("--no-advice", action="store_true", help=NO_ADVICE_HELP)
    parser.add_argument(
        "--exit-from",
        choices=("verdict",),
        help="exit with the verdict's code, as `steno run` does (the highest of several sources)",
    )
    add_output_options(parser)
    add_otel_options(parser)
    parser.add_ledger()
    options = parser.parse_with_rest(args, "sources", are_paths=True)
    _add_json_view(parser, options)
    _check(parser, options)
    return options


def _add_json_view(parser: CommandParser, options: argparse.Namespace) -> None:
    """Take --json for a view; with --events it changes nothing."""
    if options.json and options.view not in (None, "events"):
        parser.error(f"--{options.view}: not allowed with --json")
    if options.json and options.view is None:
        options.view = "json"


def _check(parser: CommandParser, options: argparse.Namespace) -> None:
    """Refuse options that do not fit the view."""
    if options.only is not None and options.view != "events":
        parser.error("--only needs --events")
    if options.prices and options.view not in (None, "summary"):
        parser.error(f"--prices needs the summary and cannot be used with --{options.view}")
    if options.full and options.view not in (None, "summary", "transcript"):
        parser.error(f"--full cannot be used with --{options.view}")
    if options.view in STREAMING_VIEWS:
        for name in ("exit_from", *DOCUMENTS, "github", "otel"):
            if getattr(options, name):
                label = option_name(name)
                parser.error(f"{label} needs a report and cannot be used with --{options.view}")
    if options.otel and options.view == "transcript":
        parser.error("--otel cannot be used with --transcript")
    if not options.sources and is_terminal(sys.stdin):
        parser.error("nothing to read: give a file or folder, or pipe a recording to stdin")


def event_kinds_type(text: str) -> tuple[type[Event], ...]:
    """An argparse type for the event kinds of --only."""
    names = [name for name in map(str.strip, text.split(",")) if name]
    for name in names or [text]:
        if name not in EVENT_KINDS:
            from ..config import closest_name

            expected = f"expected one of {', '.join(EVENT_KINDS)}; found {name!r}"
            match = closest_name(name.lower().replace("-", "_"), EVENT_KINDS)
            hint = f"; did you mean {match}?" if match is not None else ""
            raise argparse.ArgumentTypeError(expected + hint)
    return tuple(EVENT_KINDS[name] for name in names)


def resolve_sources(options: argparse.Namespace) -> tuple[list[SourceRef], bool]:
    """stdin, recordings at a path, runs and sessions; and whether one could not be found."""
    sources: list[SourceRef] = []
    has_errors = False
    for name in options.sources or ["-"]:
        try:
            if name == "-":
                sources.append(name)
            elif ID_PATTERN.fullmatch(name) and not os.path.lexists(name):
                from .show_ledger import find_in_ledger

                sources.append(find_in_ledger(name, options))
            else:
                skipped: list[Path] = []
                sources += find_recordings(Path(name), skipped)
                if skipped:
                    print_error(skipped_message(skipped))
        except StenoError as error:
            print_error(str(error))
            has_errors = True
    return sources, has_errors
