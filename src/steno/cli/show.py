"""`steno show`: what recordings say, for people or as JSON. It parses, loops and prints; the library does the work."""

import argparse
import os
import re
import sys
from pathlib import Path

from .. import agents
from ..errors import StenoError
from ..recording.discover import find_recordings
from .options import CommandParser
from .show_views import MAX_CARDS, STREAMING_VIEWS, SourcePrinter, StoredInput
from .terminal import detect_style, is_terminal, print_error

ID_PATTERN = re.compile(
    r"[0-9A-Za-z][0-9A-Za-z_-]{3,}"
)  # what may be the beginning of a run's or a session's id
EXAMPLES = """examples:
  steno show run.jsonl                     the report of a recording
  claude -p "..." --output-format stream-json --verbose | steno show
  steno show --json runs/ | jq .verdict    one line of JSON for each recording below a folder
  steno show --timeline run.jsonl.gz       what happened, one event to a line
  steno show --text run.jsonl              only what the agent answered
  steno show 3f9a21c0                      a run or session of the ledger, by the beginning of its id
  steno show --exit-from verdict run/      and exit as the run ended: 0 only for a success

A source is a file with what the agent printed (plain, gzip or zstd), a tape, one of the agent's own
transcripts, a folder that holds `stdout`, or a folder of any of these. The exit code is 0 when
everything could be shown, however the runs ended, and 2 when a source could not be read. With
`--exit-from verdict` it is the verdict's, of several sources the highest; 2 comes before all others.
"""


def run(words: list[str]) -> int:
    """Carry out `steno show` and return its exit code."""
    options = _parse_args(words)
    agent = agents.get_agent(options.agent)
    sources, bad = _resolve_sources(options)
    views = SourcePrinter(options.view, detect_style(), len(sources))
    views.agent, views.input_format, views.use_heuristics, views.show_prices = (
        agent,
        options.format,
        not options.no_advice,
        options.prices,
    )
    try:
        for source in sources:
            bad = not views.show(source) or bad
        views.print_footer()
    finally:
        views.progress.clear()
    return 2 if bad else views.highest_exit_code if options.exit_from == "verdict" else 0


# -- what was asked for ------------------------------------------------------------------------------------------


def _parse_args(words: list[str]) -> argparse.Namespace:
    what = "Say what really happened in a recording: verdict, cost, context, tools, files, and what to do next."
    parser = CommandParser("show", what, EXAMPLES)
    source = "file, folder, - for stdin (default: stdin), or the id of a run or session"
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help=source)
    _add_views(
        parser.add_argument_group(
            "what to show (default: a card for people)"
        ).add_mutually_exclusive_group()
    )
    parser.add_argument(
        "--prices",
        action="store_true",
        help="on the card, also the price table's cost and the cache's savings",
    )
    parser.add_argument(
        "--agent", metavar="NAME", help="the agent that wrote it (default: told by the bytes)"
    )
    form = "read it as lines and nothing else, or as one JSON document (default: told by the bytes)"
    parser.add_argument("--format", choices=("stream", "json"), help=form)
    parser.add_argument(
        "--no-advice", action="store_true", help="judge without `interactive` and `background_task`"
    )
    code = "exit with the verdict's code, as `steno run` does: 0 success, 1 failed, 3 not finished, 75, 77, ...; of several"
    parser.add_argument("--exit-from", choices=("verdict",), help=f"{code} sources the highest")
    parser.add_ledger()
    options = parser.parse_with_paths(words, "sources")
    if options.prices and options.view not in (None, "card"):
        parser.error(f"--prices belongs to the card and cannot be used with --{options.view}")
    if options.exit_from is not None and options.view in STREAMING_VIEWS:
        parser.error(f"--exit-from needs a report and cannot be used with --{options.view}")
    if not options.sources and is_terminal(sys.stdin):
        parser.error("nothing to read: give a file or a folder, or send a recording to stdin")
    return options


def _add_views(group: "argparse._MutuallyExclusiveGroup") -> None:
    views = {
        "json": "the report as JSON, one line for each source",
        "events": "the events as JSON, one line each, as they are read",
        "tools": "a table of the tool calls",
        "files": "a table of the files that were changed",
        "timeline": "what happened, one line for each event that matters",
        "text": "only the text of the agent's answer",
        "card": f"full cards, also for more than {MAX_CARDS} sources",
    }
    for name, what in views.items():
        group.add_argument(f"--{name}", dest="view", action="store_const", const=name, help=what)


def _resolve_sources(options: argparse.Namespace) -> tuple[list[str | StoredInput], bool]:
    """Every recording that is meant, and whether something given was none."""
    found: list[str | StoredInput] = []
    bad = False
    for name in options.sources or ["-"]:
        try:
            found += _resolve_source(name, options)
        except StenoError as problem:
            print_error(str(problem))
            bad = True
    return found, bad


def _resolve_source(name: str, options: argparse.Namespace) -> list[str | StoredInput]:
    """What one word stands for: stdin, the recordings at a path, or a run or session of the ledger."""
    if name == "-":
        return [name]
    if ID_PATTERN.fullmatch(name) and not os.path.lexists(name):
        from .show_ledger import find_in_ledger

        kept = find_in_ledger(name, options)
        if kept is not None and kept.render_page is not None and options.exit_from is not None:
            raise StenoError(
                f"{name}: the ledger has only its figures, and no verdict to exit with"
            )
        if kept is not None:
            return [kept]
    return [str(path) for path in find_recordings(Path(name))]
