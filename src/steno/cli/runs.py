"""`steno runs`: lists runs in the ledger."""

import argparse
from functools import partial
from typing import Any

from ..ledger.queries import runs as queries
from ..ledger.queries.filters import TimeZone, WhereClause
from ..ledger.results import RUN_COLUMN_TYPES, RunSummary
from ..ledger.store import Store
from ..report import VERDICTS
from ..views import runs as view
from .options import CommandParser
from .ps import recover_finished_runs
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
  steno runs
  steno runs --last 100 --failed      the latest 100 failed runs
  steno runs --last 7d --verdict max_turns --verdict rate_limit
  steno runs --top cost --last 10     the ten most expensive runs
  steno runs --tag team=core --branch main
  steno runs --project . --json | jq -r '.rows[] | select(.cost.usd > 1) | .run_id'

Earlier attempts of a task are listed below its last one; they count as failed only if no attempt
succeeded. An ID prefix is enough for `steno show`, `steno compare`,
`steno diff` and `steno ledger note`.
"""


def run(args: list[str]) -> int:
    """Run `steno runs` and return its exit code."""
    options = _parse_args(args)
    store, zone, where, limit = select_runs(options)
    runs = partial(queries.iterate_runs, store, where, limit, options.top)
    total = queries.sum_runs(store, where)
    shown = total["runs"] if limit is None else min(limit, total["runs"])
    write_result(
        options.form,
        lambda: (
            _table(list(runs()), total, zone, options.top is None)
            if shown
            else no_rows_message(store, "runs")
        ),
        lambda: (run.as_json(partial(format_iso, zone=zone)) for run in runs()),
        total=total,
        extra={"timezone": zone.name, "left_off": total["runs"] - shown},
        leading_columns=tuple(RUN_COLUMN_TYPES),
    )
    return 0


def _table(
    runs: list[RunSummary], total: dict[str, Any], zone: TimeZone, is_grouped: bool
) -> list[str]:
    return view.runs_table(runs, total, detect_style(), time_formatter(zone), is_grouped)


def select_runs(
    options: argparse.Namespace,
) -> tuple[Store, TimeZone, WhereClause, int | None]:
    """The ledger, the time zone, the condition for the runs, and their largest number."""
    if not options.no_import:
        recover_finished_runs(options.ledger)
    store = open_updated_ledger(options)
    limit = pop_row_limit(options)
    zone, span = time_range_from_options(options)
    filters = parse_filters(store, options, span)
    session = queries.get_session_by_prefix(store, options.session) if options.session else None
    where = queries.runs_where(filters, options.verdict or [], options.failed, session)
    return store, zone, where, limit


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("runs", "List runs in the ledger, newest first.", EXAMPLES)
    add_run_filters(parser)
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(args)


def add_run_filters(parser: CommandParser) -> None:
    """The options that select and sort runs."""
    parser.add_argument(
        "--verdict",
        action="append",
        choices=(*VERDICTS, "running"),
        metavar="VERDICT",
        help="only this verdict (repeatable)",
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="only failed runs, without failed attempts of tasks that succeeded",
    )
    parser.add_argument("--session", metavar="ID", help="only this session")
    parser.add_argument(
        "--top",
        choices=queries.RUN_RANKINGS,
        metavar="KEY",
        help=f"sort by {', '.join(queries.RUN_RANKINGS)}: highest first",
    )
    parser.add_time_range("number of runs, or time span: 100, 24h, 7d, 2w, 3m")
    parser.add_filters("project", "model", "agent")
    parser.add_origin_filters()
