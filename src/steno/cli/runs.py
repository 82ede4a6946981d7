"""`steno runs`: the runs that are in the ledger, the newest first. It parses and prints; the ledger answers."""

import argparse
from functools import partial

from ..ledger.queries import runs as asks
from ..report import VERDICTS
from ..views import runs as listing
from .live_runs import recover_finished_runs
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
  steno runs                          the newest runs
  steno runs --last 100 --failed      those of the last hundred that did not succeed
  steno runs --last 7d --verdict max_turns --verdict rate_limit
  steno runs --top cost --last 10     the ten that cost most (with --since: of that time)
  steno runs --project . --json | jq -r '.rows[] | select(.cost.usd > 1) | .run_id'

The beginning of an id is enough for `steno show`, `steno compare` and `steno note`.
"""


def run(words: list[str]) -> int:
    """Carry out `steno runs` and return its exit code."""
    options = _parse_args(words)
    if not options.no_import:
        recover_finished_runs(options.ledger)
    store = open_updated_ledger(options)
    most = pop_row_limit(options)
    zone, span = time_range_from_options(options)
    filters = parse_filters(store, options, span)
    session = asks.get_session_by_prefix(store, options.session) if options.session else None
    where = asks.runs_where(filters, options.verdict or [], options.failed, session)
    found = asks.list_runs(store, where, most, options.top)
    total = asks.sum_runs(store, where)
    write_result(
        options.form,
        lambda: (
            listing.runs_table(found, total, detect_style(), time_formatter(zone))
            if found
            else no_rows_message(store, "runs")
        ),
        lambda: [one.as_json(partial(format_iso, zone=zone)) for one in found],
        total,
        {"timezone": zone.name, "left_off": total["runs"] - len(found)},
        ("run_id",),
    )
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "runs", "List the runs that are in the ledger, the newest first.", EXAMPLES
    )
    kinds = (*VERDICTS, "running")
    parser.add_argument(
        "--verdict",
        action="append",
        choices=kinds,
        metavar="WORD",
        help="only these verdicts (may be repeated)",
    )
    parser.add_argument(
        "--failed", action="store_true", help="only runs that ended and did not succeed"
    )
    parser.add_argument("--session", metavar="ID", help="only runs of this session")
    parser.add_argument(
        "--top",
        choices=asks.RUN_RANKINGS,
        metavar="WHAT",
        help=f"the most first, by: {', '.join(asks.RUN_RANKINGS)}",
    )
    parser.add_time_range(
        "only the last N runs (50), or those of the last hours, days, weeks or months (24h, 7d, 2w, 3m)"
    )
    parser.add_filters("project", "model", "agent")
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(words)
