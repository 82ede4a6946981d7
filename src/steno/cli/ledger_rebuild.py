"""`steno rebuild`: makes the ledger anew from the files it was made of. It parses and prints; the ledger does the work."""

import argparse

from ..config.data_dir import list_recordings
from ..ledger.importer import rebuild
from ..ledger.store import open_ledger
from .options import CommandParser
from .terminal import Progress, print_error, print_json, print_lines

EXAMPLES = """examples:
  steno rebuild                      read every tape, recording and transcript of the ledger again, and tapes it does not know
  steno rebuild --ledger other.db

Sessions of which a file is gone, or of which something was pruned, stay as they are. The ledger as it was is kept beside
it.
"""


def run(words: list[str]) -> int:
    """Carry out `steno rebuild` and return its exit code."""
    options = _parse_args(words)
    store = open_ledger(options.ledger)
    progress = Progress(0, not options.quiet)
    try:
        done = rebuild(store, progress.update, [] if options.ledger else list_recordings())
    finally:
        progress.clear()
        store.close()
    for trouble in done.pulled.troubles:
        print_error(trouble)
    if options.form == "json":
        from msgspec.json import encode

        print_json(encode(done))
    elif not options.quiet:
        pruned = f", {done.pruned:,} because they were pruned" if done.pruned else ""
        found = f"{done.sessions:,} sessions read again, {done.kept:,} kept because a file is gone{pruned}"
        print_lines([f"{found}; as it was before: {done.copy}"])
    return 2 if done.pulled.troubles else 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "rebuild",
        "Make the ledger anew from the tapes, recordings and transcripts that it was made of.",
        EXAMPLES,
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
    return parser.parse_args(words)
