"""`steno ledger rebuild`: rebuilds the ledger from its source files."""

import argparse

from ..config.data_dir import list_recordings
from ..ledger.importer import rebuild
from ..ledger.store import open_ledger
from .exit_codes import EXIT_USAGE_ERROR
from .options import CommandParser
from .terminal import Progress, print_error, print_json, print_lines

EXAMPLES = """examples:
  steno ledger rebuild
  steno ledger rebuild --ledger other.db

Reads every recording and transcript of the ledger again, and recordings it does not know yet.
Sessions with a missing source file, and pruned ones, are kept as they are. A backup of the old
ledger is kept next to it.
"""


def run(args: list[str]) -> int:
    """Run `steno ledger rebuild` and return its exit code."""
    options = _parse_args(args)
    store = open_ledger(options.ledger)
    progress = Progress(0, not options.quiet)
    try:
        result = rebuild(store, progress.update, [] if options.ledger else list_recordings())
    finally:
        progress.clear()
        store.close()
    for text in result.pulled.troubles:
        print_error(text)
    if options.form == "json":
        from msgspec.json import encode

        print_json(encode(result))
    elif not options.quiet:
        pruned = f", {result.pruned:,} kept (pruned)" if result.pruned else ""
        summary = (
            f"{result.sessions:,} sessions rebuilt, {result.kept:,} kept (source file missing)"
        )
        print_lines([f"{summary}{pruned}; backup: {result.copy}"])
    return EXIT_USAGE_ERROR if result.pulled.troubles else 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger rebuild", "Rebuild the ledger from its recordings and transcripts.", EXAMPLES
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_json("print the result as one JSON object")
    parser.add_ledger(can_import=False)
    return parser.parse_args(args)
