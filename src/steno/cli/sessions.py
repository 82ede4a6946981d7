"""`steno sessions`: the conversations that are in the ledger, the newest first. It parses and prints; the ledger answers."""

import argparse
from functools import partial

from ..ledger.ask import sessions as asks
from ..screen import listing
from .asked import asked_filters, asked_span, empty, iso, opened, take_number, when, write
from .options import Parser
from .terminal import look

EXAMPLES = """examples:
  steno sessions                        the sessions that were at work last
  steno sessions --project . --last 7d  of this folder, in the last seven days
  steno sessions --top cost --last 10   the ten that cost most
  steno sessions --json | jq '.rows[] | select(.context.fraction > 0.7) | .session_id'

With a span of time, the sessions that were at work in it are listed; their figures are of the whole session.
HP is the part of the context window that is free.
"""


def run(words: list[str]) -> int:
    """Carry out `steno sessions` and return its exit code."""
    options = _options(words)
    store = opened(options)
    most = take_number(options)
    zone, span = asked_span(options)
    where = asks.conditions(asked_filters(store, options, span))
    found = asks.sessions(store, where, most, options.top)
    many, sums = asks.total(store, where)
    write(
        options.form,
        lambda: listing.sessions(found, many, sums, look(), when(zone)) if found else empty(store, "sessions"),
        lambda: [one.as_json(partial(iso, zone=zone)) for one in found],
        {"sessions": many, **sums.as_json()},
        {"timezone": zone.name, "left_off": many - len(found)},
        ("session_id",),
    )
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("sessions", "List the agents' conversations that are in the ledger, the newest first.", EXAMPLES)
    parser.add_argument("--top", choices=asks.TOP, metavar="WHAT", help=f"the most first, by: {', '.join(asks.TOP)}")
    parser.add_span("only the last N sessions (50), or those of the last hours, days, weeks or months (24h, 7d, 2w, 3m)")
    parser.add_filters("project", "model", "agent")
    parser.add_forms()
    parser.add_ledger()
    return parser.given(words)
