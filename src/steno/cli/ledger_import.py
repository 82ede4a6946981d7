"""`steno ledger import`: imports transcripts and recordings into the ledger."""

import argparse
import os
import time

from ..ledger.discovery import transcript_folders
from ..ledger.importer import ImportResult, import_sources
from ..ledger.store import Store, open_ledger
from .exit_codes import EXIT_USAGE_ERROR
from .options import CommandParser, number_type
from .terminal import Progress, print_error, print_json, print_lines

EXAMPLES = """examples:
  steno ledger import                   new transcripts of the agents on this machine
  steno ledger import runs/ run.steno   recordings and transcripts, also those below a folder
  steno ledger import --watch           keep importing until Ctrl-C
  steno ledger import --ledger postgresql://db.example/steno

Only new data is read. Rewritten, truncated and moved files are detected; a message found in several
files counts once. A file that cannot be imported is reported and skipped; the exit code is then 2.
After Ctrl-C the next import continues where this one stopped.
"""
DEFAULT_POLL_SECONDS = 2.0


def run(args: list[str]) -> int:
    """Run `steno ledger import` and return its exit code."""
    options = _parse_args(args)
    store = open_ledger(options.ledger)
    try:
        if options.watch:
            return _watch(store, options)
        return _report_result(options, _import_once(store, options))
    finally:
        store.close()


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger import", "Import transcripts and recordings into the ledger.", EXAMPLES
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders (default: the agents' transcript folders)",
    )
    parser.add_argument("--watch", action="store_true", help="keep importing as files grow")
    parser.add_argument(
        "--every",
        type=number_type("seconds from 0.05 to 86400", 0.05, 86_400),
        default=DEFAULT_POLL_SECONDS,
        metavar="SECONDS",
        help=f"interval of --watch (default: {DEFAULT_POLL_SECONDS:g})",
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_json("print the result as one JSON object")
    parser.add_ledger(can_import=False)
    return parser.parse_with_paths(args, "paths")


def _import_once(store: Store, options: argparse.Namespace) -> ImportResult:
    progress = Progress(0, not options.quiet)
    try:
        return import_sources(store, options.paths or None, progress.update)
    finally:
        progress.clear()


def _report_result(options: argparse.Namespace, result: ImportResult) -> int:
    for text in result.troubles:
        print_error(text)
    if options.form == "json":
        from msgspec.json import encode

        print_json(encode(result))
    elif not options.quiet and not _has_only_errors(options, result):
        print_lines([_summary(options, result)])
    return EXIT_USAGE_ERROR if result.troubles else 0


def _has_only_errors(options: argparse.Namespace, result: ImportResult) -> bool:
    return bool(options.paths and result.troubles and not result.files and not result.unchanged)


def _summary(options: argparse.Namespace, result: ImportResult) -> str:
    if not result.files and not result.unchanged and not options.paths:
        folders = ", ".join(folder for _, folder in transcript_folders(os.environ))
        if folders:
            return f"nothing to import: no transcripts in {folders}"
        return "nothing to import: no transcript folders found"
    unknown = f", {result.unknown} not recognised" if result.unknown else ""
    return (
        f"{result.files} new or changed files ({result.size / 1e6:,.1f} MB), "
        f"{result.unchanged} unchanged{unknown}; {result.requests:,} new requests, "
        f"{result.calls:,} tool calls, {result.runs:,} runs"
    )


def _watch(store: Store, options: argparse.Namespace) -> int:
    reported: list[str] = []
    while True:
        result = import_sources(store, options.paths or None)
        for text in result.troubles:
            if text not in reported:
                print_error(text)
        reported = result.troubles
        if result.files and not options.quiet:
            print_lines([time.strftime("%H:%M:%S ") + _summary(options, result)])
        time.sleep(options.every)
