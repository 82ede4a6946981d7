"""`steno usage`: reports tokens and cost by day, project, model and so on."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from ..ledger.queries import usage as queries
from ..ledger.queries.filters import Filters, TimeZone
from ..ledger.store import Store
from ..ledger.totals import GROUPINGS, TIME_GROUPINGS, UsageReport, UsageRow, UsageTotals
from ..views import usage as view
from .options import CommandParser, number_type
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
  steno usage                              by day
  steno usage month --timezone Asia/Tokyo
  steno usage model --last 7d              by model, last seven days
  steno usage project --since 2026-11-01 --top 5
  steno usage tool --json | jq '.rows[] | select(.error_rate > 0.1)'
  steno usage --no-ledger ~/.claude/projects   read these files, without the ledger

Weeks are ISO 8601 weeks. Requests of a model without a known price are counted as unpriced, never
as free. Wasted is the cost of failed runs (and not of attempts whose task succeeded).
"""
KEYS_WITH_TREND = ("project", "model", "agent")  # shown with their cost over time
SORT_KEYS: dict[str, Callable[[UsageTotals], Any]] = {
    "cost": lambda totals: -(totals.cost_nano or 0),
    "tokens": lambda totals: -(totals.tokens.total or 0),
    "requests": lambda totals: -totals.requests,
    "saved": lambda totals: -totals.saved_nano,
}


def run(args: list[str]) -> int:
    """Run `steno usage` and return its exit code."""
    options = _parse_args(args)
    tools = options.by == "tool"
    store = (
        open_memory_ledger(options.no_ledger, tools)
        if options.no_ledger
        else open_updated_ledger(options, only_sums=not tools)
    )
    zone, span = time_range_from_options(options)
    start = time.perf_counter()
    filters = parse_filters(store, options, span)
    print_report = _print_tools if options.by == "tool" else _print_usage
    print_report(store, options, zone, filters, start)
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "usage", "Report requests, tokens and cost, grouped by time, project or model.", EXAMPLES
    )
    parser.add_argument(
        "by",
        nargs="?",
        default="day",
        choices=(*GROUPINGS, "tool"),
        metavar="BY",
        help=f"group by {', '.join(GROUPINGS)} or tool (default: day)",
    )
    parser.add_argument(
        "--top",
        type=number_type("a whole number above 0", 1, sys.maxsize, whole=True),
        metavar="N",
        help="only the first N rows; for days, weeks and months the last N",
    )
    parser.add_argument(
        "--sort",
        choices=(*SORT_KEYS, "name"),
        help="sort order (default: time for days, weeks and months, else cost)",
    )
    parser.add_argument(
        "--no-ledger",
        nargs="+",
        metavar="PATH",
        help="read these transcripts or folders instead of the ledger",
    )
    parser.add_time_range()
    parser.add_filters("project", "model", "agent")
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_intermixed_args(args)
    if options.by == "tool" and options.model:
        parser.error("--model: tool calls are not counted by model; remove it or group otherwise")
    return options


def _print_usage(
    store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> None:
    report = queries.usage_report(store, options.by, zone, filters)
    rows = _sort_and_limit(report.rows, options)
    if options.by == "session":
        queries.fill_session_details(store, rows)
    left_off = len(report.rows) - len(rows)
    report.rows = rows
    trends = (
        queries.spend_history(store, options.by, filters, view.TREND_STEPS)
        if options.form is None and options.by in KEYS_WITH_TREND
        else None
    )
    extra = {
        "by": options.by,
        **_query_metadata(zone, filters, start),
        **_usage_extras(report),
        "left_off": left_off,
    }
    write_result(
        options.form,
        lambda: (
            view.usage_page(report, detect_style(), left_off, trends)
            if rows
            else no_rows_message(store, "spend")
        ),
        lambda: [row.as_json(options.by) for row in rows],
        total=report.total.as_json(),
        extra=extra,
        leading_columns=(options.by,),
    )


def _sort_and_limit(rows: list[UsageRow], options: argparse.Namespace) -> list[UsageRow]:
    if options.sort == "name":
        rows = sorted(rows, key=lambda row: row.key or "")
    elif options.sort is not None:
        rows = sorted(rows, key=lambda row: SORT_KEYS[options.sort](row.totals))
    if options.top is None:
        return rows
    if options.by in TIME_GROUPINGS and options.sort is None:
        return rows[-options.top :]
    return rows[: options.top]


def _query_metadata(zone: TimeZone, filters: Filters, start: float) -> dict[str, Any]:
    span = filters.time_range
    query_ms = round((time.perf_counter() - start) * 1000, 3)
    return {
        "timezone": zone.name,
        "since": format_iso(span.since, zone),
        "until": format_iso(span.until, zone),
        "query_ms": query_ms,
    }


def _usage_extras(report: UsageReport) -> dict[str, Any]:
    costs = [(row.key, row.totals.as_json()["cost"]) for row in report.unpriced]
    unpriced = [
        {"model": key, "requests": cost["unpriced_requests"], "tokens": cost["unpriced_tokens"]}
        for key, cost in costs
    ]
    return {
        "wasted": report.wasted.as_json(),
        "peak_context": report.peak_context,
        "unpriced": unpriced,
        "untold_runs": report.runs_without_usage,
    }


def _print_tools(
    store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> None:
    tools, total = queries.tool_sums(store, filters)
    if options.sort == "name":
        tools = sorted(tools, key=lambda tool: tool.name or "")
    rows = tools[: options.top]
    left_off = len(tools) - len(rows)
    extra = {"by": "tool", **_query_metadata(zone, filters, start), "left_off": left_off}
    write_result(
        options.form,
        lambda: (
            view.tools_page(rows, total, detect_style(), left_off) if rows else ["No tool calls."]
        ),
        lambda: [{"tool": row.name, **row.as_json()} for row in rows],
        total=total.as_json(),
        extra=extra,
        leading_columns=("tool",),
    )
