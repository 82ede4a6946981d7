"""`steno runs`: the runs that are in the ledger, the newest first. It parses and prints; the ledger answers."""

import argparse
from functools import partial

from ..ledger.ask import runs as asks
from ..report import VERDICTS
from ..screen import listing
from .asked import asked_filters, asked_span, empty, iso, opened, take_number, when, write
from .options import Parser
from .steered import recovered
from .terminal import look

EXAMPLES = """examples:
  steno runs                          the newest runs
  steno runs --last 100 --failed      those of the last hundred that did not succeed
  steno runs --last 7d --verdict max_turns --verdict rate_limit
  steno runs --top cost --last 10     the ten that cost most (with --since: of that time)
  steno runs --project . --json | jq -r '.rows[] | select(.cost.usd > 1) | .run_id'

The beginning of an id is enough for `steno show`, `steno compare` and `steno note`.
"""


def run(words: list[str]) -> int:
    """Carry out `steno runs` and return its exit code."""
    options = _options(words)
    if not options.no_import:
        recovered(options.ledger)
    store = opened(options)
    most = take_number(options)
    zone, span = asked_span(options)
    filters = asked_filters(store, options, span)
    session = asks.session_named(store, options.session) if options.session else None
    where = asks.conditions(filters, options.verdict or [], options.failed, session)
    found = asks.runs(store, where, most, options.top)
    total = asks.total(store, where)
    write(
        options.form,
        lambda: listing.runs(found, total, look(), when(zone)) if found else empty(store, "runs"),
        lambda: [one.as_json(partial(iso, zone=zone)) for one in found],
        total,
        {"timezone": zone.name, "left_off": total["runs"] - len(found)},
        ("run_id",),
    )
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("runs", "List the runs that are in the ledger, the newest first.", EXAMPLES)
    kinds = (*VERDICTS, "running")
    parser.add_argument("--verdict", action="append", choices=kinds, metavar="WORD", help="only these verdicts (may be repeated)")
    parser.add_argument("--failed", action="store_true", help="only runs that ended and did not succeed")
    parser.add_argument("--session", metavar="ID", help="only runs of this session")
    parser.add_argument("--top", choices=asks.TOP, metavar="WHAT", help=f"the most first, by: {', '.join(asks.TOP)}")
    parser.add_span("only the last N runs (50), or those of the last hours, days, weeks or months (24h, 7d, 2w, 3m)")
    parser.add_filters("project", "model", "agent")
    parser.add_forms()
    parser.add_ledger()
    return parser.given(words)
