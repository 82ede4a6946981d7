"""`steno sessions`: the conversations that are in the ledger, the newest first. It parses and prints; the ledger answers."""

import argparse
from functools import partial

from ..ledger.queries import sessions as asks
from ..views import runs as listing
from .options import CommandParser
from .query_options import (
    format_iso,
    no_rows_message,
    open_updated_ledger,
    parse_filters,
    pop_row_limit,
    time_formatter,
    time_range_from_options,
    write_result,
)
from .terminal import detect_style

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
    options = _parse_args(words)
    store = open_updated_ledger(options)
    most = pop_row_limit(options)
    zone, span = time_range_from_options(options)
    where = asks.sessions_where(parse_filters(store, options, span))
    found = asks.list_sessions(store, where, most, options.top)
    many, sums = asks.sum_sessions(store, where)
    write_result(
        options.form,
        lambda: (
            listing.sessions_table(found, many, sums, detect_style(), time_formatter(zone))
            if found
            else no_rows_message(store, "sessions")
        ),
        lambda: [one.as_json(partial(format_iso, zone=zone)) for one in found],
        {"sessions": many, **sums.as_json()},
        {"timezone": zone.name, "left_off": many - len(found)},
        ("session_id",),
    )
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "sessions",
        "List the agents' conversations that are in the ledger, the newest first.",
        EXAMPLES,
    )
    parser.add_argument(
        "--top",
        choices=asks.SESSION_RANKINGS,
        metavar="WHAT",
        help=f"the most first, by: {', '.join(asks.SESSION_RANKINGS)}",
    )
    parser.add_time_range(
        "only the last N sessions (50), or those of the last hours, days, weeks or months (24h, 7d, 2w, 3m)"
    )
    parser.add_filters("project", "model", "agent")
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(words)
