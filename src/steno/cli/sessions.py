"""`steno sessions`: lists agent sessions in the ledger."""

import argparse
from functools import partial

from ..ledger.queries import sessions as queries
from ..views import runs as view
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
  steno sessions
  steno sessions --project . --last 7d  this folder, last seven days
  steno sessions --top cost --last 10   the ten most expensive sessions
  steno sessions --json | jq '.rows[] | select(.context.fraction > 0.7) | .session_id'

With a time range, sessions active in it are listed; their figures cover the whole session. HP
("hit points") is the free part of the context window in percent.
"""


def run(args: list[str]) -> int:
    """Run `steno sessions` and return its exit code."""
    options = _parse_args(args)
    store = open_updated_ledger(options)
    limit = pop_row_limit(options)
    zone, span = time_range_from_options(options)
    where = queries.sessions_where(parse_filters(store, options, span))
    sessions = partial(queries.iterate_sessions, store, where, limit, options.top)
    count, totals = queries.sum_sessions(store, where)
    includes_pruned = queries.sum_includes_pruned(store, where)
    shown = count if limit is None else min(limit, count)
    write_result(
        options.form,
        lambda: (
            view.sessions_table(
                list(sessions()),
                count,
                totals,
                detect_style(),
                time_formatter(zone),
                includes_pruned,
            )
            if shown
            else no_rows_message(store, "sessions")
        ),
        lambda: (session.as_json(partial(format_iso, zone=zone)) for session in sessions()),
        total={"sessions": count, "includes_pruned": includes_pruned, **totals.as_json()},
        extra={"timezone": zone.name, "left_off": count - shown},
        leading_columns=("session_id",),
    )
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("sessions", "List agent sessions in the ledger, newest first.", EXAMPLES)
    parser.add_argument(
        "--top",
        choices=queries.SESSION_RANKINGS,
        metavar="KEY",
        help=f"sort by {', '.join(queries.SESSION_RANKINGS)}: highest first",
    )
    parser.add_time_range("number of sessions, or time span: 100, 24h, 7d, 2w, 3m")
    parser.add_filters("project", "model", "agent")
    parser.add_origin_filters()
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(args)
