"""`steno report`: what was spent, by day, project, model and so on. It parses and prints; the ledger adds up."""

import argparse
import time
from collections.abc import Callable
from typing import Any

from ..ledger.queries import usage as sums
from ..ledger.queries.filters import Filters
from ..ledger.queries.time_range import TimeZone
from ..ledger.queries.usage import tool_sums
from ..ledger.store import Store
from ..ledger.totals import GROUPINGS, TIME_GROUPINGS, UsageReport, UsageRow, UsageTotals
from ..views import usage as page
from .options import CommandParser
from .query_options import (
    format_iso,
    no_rows_message,
    open_memory_ledger,
    open_updated_ledger,
    parse_filters,
    time_range_from_options,
    write_result,
)
from .terminal import detect_style

EXAMPLES = """examples:
  steno report                              what each day cost
  steno report month --timezone Asia/Tokyo  months as they begin and end in Tokyo
  steno report model --last 7d              by model, over the last seven days
  steno report project --since 2026-11-01 --top 5
  steno report tool --json | jq '.rows[] | select(.error_rate > 0.1)'
  steno report --no-ledger ~/.claude/projects   read these, and keep nothing

Days, weeks (ISO 8601) and months are those of the time zone. Requests whose model has no known price are counted
as unpriced, never as free. Wasted is what runs cost that did not end in success.
"""
KEYS_WITH_TREND = ("project", "model", "agent")  # what has its cost over the time beside it
SORT_KEYS: dict[str, Callable[[UsageTotals], Any]] = {
    "cost": lambda sums: -(sums.cost_nano or 0),
    "tokens": lambda sums: -(sums.tokens.total or 0),
    "requests": lambda sums: -sums.requests,
    "saved": lambda sums: -sums.saved_nano,
}


def run(words: list[str]) -> int:
    """Carry out `steno report` and return its exit code."""
    options = _parse_args(words)
    tools = options.by == "tool"
    store = (
        open_memory_ledger(options.no_ledger, tools)
        if options.no_ledger
        else open_updated_ledger(options, only_sums=not tools)
    )
    zone, span = time_range_from_options(options)
    start = time.perf_counter()
    filters = parse_filters(store, options, span)
    answer = _report_tools if options.by == "tool" else _report_usage
    answer(store, options, zone, filters, start)
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "report",
        "Say what was spent: requests, tokens, cost and where it comes from, cache, waste.",
        EXAMPLES,
    )
    what = f"one line for each {', '.join(GROUPINGS)} or tool (default: day)"
    parser.add_argument(
        "by", nargs="?", default="day", choices=(*GROUPINGS, "tool"), metavar="BY", help=what
    )
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        help="only the first N lines; of days, weeks and months the last N",
    )
    parser.add_argument(
        "--sort",
        choices=(*SORT_KEYS, "name"),
        help="the order of the lines (default: time, else cost)",
    )
    parser.add_argument(
        "--no-ledger",
        nargs="+",
        metavar="PATH",
        help="read these transcripts or folders instead, and keep nothing",
    )
    parser.add_time_range()
    parser.add_filters("project", "model", "agent")
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_intermixed_args(words)
    if options.top is not None and options.top < 1:
        parser.error("--top wants a number above 0")
    if options.by == "tool" and options.model:
        parser.error(
            "--model: calls are not counted by model; take it away, or ask for another report"
        )
    return options


def _report_usage(
    store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> None:
    answer = sums.usage_report(store, options.by, zone, filters)
    shown = _sort_and_limit(answer.rows, options)
    if options.by == "session":
        sums.fill_session_details(store, shown)
    left_off, answer.rows = len(answer.rows) - len(shown), shown
    courses = (
        sums.spend_history(store, options.by, filters, page.TREND_STEPS)
        if options.form is None and options.by in KEYS_WITH_TREND
        else None
    )
    more = {
        "by": options.by,
        **_query_metadata(options, zone, filters, start),
        **_usage_extras(answer),
        "left_off": left_off,
    }
    write_result(
        options.form,
        lambda: (
            page.usage_page(answer, detect_style(), left_off, courses)
            if shown
            else no_rows_message(store, "spend")
        ),
        lambda: [line.as_json(options.by) for line in shown],
        answer.total.as_json(),
        more,
        (options.by,),
    )


def _sort_and_limit(lines: list[UsageRow], options: argparse.Namespace) -> list[UsageRow]:
    """The lines in the order that was asked for, and no more than were asked for."""
    if options.sort == "name":
        lines = sorted(lines, key=lambda line: line.key or "")
    elif options.sort is not None:
        lines = sorted(lines, key=lambda line: SORT_KEYS[options.sort](line.totals))
    if options.top is None:
        return lines
    return (
        lines[-options.top :]
        if options.by in TIME_GROUPINGS and options.sort is None
        else lines[: options.top]
    )


def _query_metadata(
    options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> dict[str, Any]:
    """What was asked, and how long the ledger took to answer."""
    span = filters.time_range
    took = round((time.perf_counter() - start) * 1000, 3)
    return {
        "timezone": zone.name,
        "since": format_iso(span.since, zone),
        "until": format_iso(span.until, zone),
        "query_ms": took,
    }


def _usage_extras(answer: UsageReport) -> dict[str, Any]:
    costs = [(line.key, line.totals.as_json()["cost"]) for line in answer.unpriced]
    unpriced = [
        {"model": key, "requests": cost["unpriced_requests"], "tokens": cost["unpriced_tokens"]}
        for key, cost in costs
    ]
    beside = {
        "wasted": answer.wasted.as_json(),
        "peak_context": answer.peak_context,
        "unpriced": unpriced,
    }
    return {**beside, "untold_runs": answer.runs_without_usage}


def _report_tools(
    store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> None:
    lines, total = tool_sums(store, filters)
    if options.sort == "name":
        lines = sorted(lines, key=lambda line: line.name or "")
    shown = lines[: options.top]
    left_off = len(lines) - len(shown)
    more = {"by": "tool", **_query_metadata(options, zone, filters, start), "left_off": left_off}
    write_result(
        options.form,
        lambda: (
            page.tools_page(shown, total, detect_style(), left_off)
            if shown
            else ["No tool was called there."]
        ),
        lambda: [{"tool": line.name, **line.as_json()} for line in shown],
        total.as_json(),
        more,
        ("tool",),
    )
