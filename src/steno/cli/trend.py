"""`steno trend`: success rate, cost, turns and time of a task over time."""

import argparse
from collections.abc import Iterable

from ..checks.across import (
    RunOutcome,
    RunStatistics,
    list_baselines,
    statistics_json,
    summarize_outcomes,
)
from ..checks.repeat import TAG
from ..ledger.queries import trend as queries
from ..ledger.queries.filters import TimeZone, period_name
from ..views import trend as view
from ..views.trend import TrendRow
from .options import CommandParser
from .query_options import (
    no_rows_message,
    open_updated_ledger,
    parse_filters,
    time_range_from_options,
    write_result,
)
from .terminal import detect_style

PERIODS = ("day", "week", "month")
EXAMPLES = """examples:
  steno trend parser                       runs with this name (steno run --name parser)
  steno trend "fix the failing test"       or with this text in their prompt
  steno trend --tag suite=nightly --by week --last 3m
  steno trend parser --by repeat           one row per steno repeat
  steno trend --by baseline                all stored baselines, oldest first
  steno trend parser --json | jq '.rows[] | [.key, .success_rate]'

Figures are medians. Attempts of one task count as one run, with the verdict of the last. Runs that
a user interrupted are left out. Weeks are ISO 8601 weeks.
"""


def run(args: list[str]) -> int:
    """Run `steno trend` and return its exit code."""
    options = _parse_args(args)
    if options.by == "baseline":
        rows = [TrendRow(name, statistics) for name, statistics in list_baselines()]
        total = summarize_outcomes([])
        message = ["No baselines. Store one: steno repeat 10 --save-baseline NAME -- ..."]
        _print(options, "baselines", rows, total, message)
        return 0
    store = open_updated_ledger(options)
    zone, span = time_range_from_options(options)
    where = parse_filters(store, options, span).runs_where()
    if options.label is not None:
        queries.add_label(store, where, options.label)
    if options.name is not None:
        where.add("name = ?", options.name)
    outcomes = queries.list_outcomes(store, where)
    rows, total, interrupted = _group(outcomes, options.by, zone)
    title = options.label or options.name or ", ".join(options.tag or ()) or "all runs"
    message = [] if rows else no_rows_message(store, "runs")
    if interrupted and not rows:
        message = [f"No finished runs ({view.interrupted_text(interrupted)})."]
    _print(options, title, rows, total, message, interrupted)
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "trend", "Plot success rate, cost, turns and time of a task over time.", EXAMPLES
    )
    parser.add_argument(
        "label", nargs="?", metavar="TASK", help="name of the runs, or a part of their prompt"
    )
    parser.add_argument(
        "--by",
        choices=(*PERIODS, "repeat", "baseline"),
        default="day",
        help="a row per day, week, month, steno repeat, or stored baseline (default: day)",
    )
    parser.add_argument("--name", metavar="NAME", help="only runs with exactly this name")
    parser.add_time_range()
    parser.add_filters("project", "model", "agent")
    parser.add_origin_filters()
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(args)


def _group(
    outcomes: Iterable[queries.StoredOutcome], by: str, zone: TimeZone
) -> tuple[list[TrendRow], RunStatistics, int]:
    """The statistics by key, oldest first, those of all, and the number of interrupted runs.

    Runs that a user interrupted say nothing about the task: they are only counted.
    """
    groups: dict[str, list[RunOutcome]] = {}
    interrupted = 0
    for outcome in outcomes:
        if by == "repeat":
            key = outcome.tags.get(TAG)
        else:
            key = period_name(zone.to_local(outcome.at).date(), by)
        if key is not None and outcome.verdict == "interrupted":
            interrupted += 1
        elif key is not None:
            groups.setdefault(key, []).append(RunOutcome(*outcome[1:-1]))
    rows = [TrendRow(key, summarize_outcomes(group)) for key, group in groups.items()]
    everything = [outcome for group in groups.values() for outcome in group]
    return rows, summarize_outcomes(everything), interrupted


def _print(
    options: argparse.Namespace,
    title: str,
    rows: list[TrendRow],
    total: RunStatistics,
    empty_message: list[str],
    interrupted: int = 0,
) -> None:
    write_result(
        options.form,
        lambda: (
            view.trend_page(title, options.by, rows, total, detect_style(), interrupted)
            if rows
            else empty_message
        ),
        lambda: [{"key": row.key, **statistics_json(row.statistics)} for row in rows],
        total=statistics_json(total),
        extra={"by": options.by, "interrupted": interrupted},
        leading_columns=("key",),
    )
