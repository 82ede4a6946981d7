"""`steno import`: takes transcripts, recordings and tapes into the ledger. It parses and prints; the ledger does the work."""

import argparse
import os
import time

from ..ledger.discovery import transcript_folders
from ..ledger.importer import ImportResult, import_sources
from ..ledger.store import Store, open_ledger
from .options import CommandParser
from .terminal import Progress, print_error, print_json, print_lines

EXAMPLES = """examples:
  steno import                       what the agents on this machine have written since the last time
  steno import runs/ tape.steno      recordings, tapes, transcripts, and every one below a folder
  steno import --watch               go on importing as files grow, until Ctrl-C
  steno import --ledger postgresql://db.example/steno

Only what is new is read. A file that was rewritten, cut or moved is noticed; a message that stands in several files
counts once. A file that cannot be imported is told, and all others are; the exit code is then 2. Ctrl-C keeps what was
done; the next import goes on from there.
"""
DEFAULT_POLL_SECONDS = 2.0  # seconds between two looks with --watch


def run(words: list[str]) -> int:
    """Carry out `steno import` and return its exit code."""
    options = _parse_args(words)
    store = open_ledger(options.ledger)
    try:
        if options.watch:
            return _watch(store, options)
        return _report_result(options, _import_once(store, options))
    finally:
        store.close()


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "import",
        "Take what agents wrote into the ledger: transcripts, recordings and tapes.",
        EXAMPLES,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders (default: where the agents keep transcripts)",
    )
    parser.add_argument("--watch", action="store_true", help="go on importing as files grow")
    parser.add_argument(
        "--every",
        type=_parse_seconds,
        default=DEFAULT_POLL_SECONDS,
        metavar="SECONDS",
        help="with --watch: how often to look",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="say nothing unless something is wrong"
    )
    parser.add_argument(
        "--json",
        dest="form",
        action="store_const",
        const="json",
        help="what was done, as one JSON object",
    )
    parser.add_ledger(can_import=False)
    return parser.parse_with_paths(words, "paths")


def _parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds from 0.05 to 86400, found {text!r}")
    return value


def _import_once(store: Store, options: argparse.Namespace) -> ImportResult:
    progress = Progress(0, not options.quiet)
    try:
        return import_sources(store, options.paths or None, progress.update)
    finally:
        progress.clear()


def _report_result(options: argparse.Namespace, done: ImportResult) -> int:
    for trouble in done.troubles:
        print_error(trouble)
    if options.form == "json":
        from msgspec.json import encode

        print_json(encode(done))
    elif not options.quiet and not _has_only_errors(options, done):
        print_lines(_summary_lines(options, done))
    return 2 if done.troubles else 0


def _has_only_errors(options: argparse.Namespace, done: ImportResult) -> bool:
    """Whether nothing that was named is a recording: what is wrong has been said."""
    return bool(options.paths and done.troubles and not done.files and not done.unchanged)


def _summary_lines(options: argparse.Namespace, done: ImportResult) -> list[str]:
    if not done.files and not done.unchanged and not options.paths:
        where = ", ".join(folder for _, folder in transcript_folders(os.environ))
        return [
            f"nothing to import: no transcripts in {where}"
            if where
            else "nothing to import: no agent keeps transcripts here"
        ]
    found = (
        f"{done.files} new or changed files ({done.size / 1e6:,.1f} MB), {done.unchanged} unchanged"
    )
    found += f", {done.unknown} not recognised" if done.unknown else ""
    return [
        f"{found}; {done.requests:,} new requests, {done.calls:,} tool calls, {done.runs:,} runs"
    ]


def _watch(store: Store, options: argparse.Namespace) -> int:
    told: list[str] = []
    while True:
        done = import_sources(store, options.paths or None)
        for trouble in done.troubles:
            if trouble not in told:  # once, not every two seconds
                print_error(trouble)
        told = done.troubles
        if done.files and not options.quiet:
            print_lines([time.strftime("%H:%M:%S ") + _summary_lines(options, done)[0]])
        time.sleep(options.every)
