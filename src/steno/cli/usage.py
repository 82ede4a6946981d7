"""`steno usage`: reports tokens and cost by day, project, model and so on."""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..ledger.queries import usage as queries
from ..ledger.queries.filters import Filters, TimeZone
from ..ledger.queries.runs import short_ids
from ..ledger.store import Store
from ..ledger.totals import (
    GROUPINGS,
    TIME_GROUPINGS,
    UsageReport,
    UsageRow,
    UsageTotals,
    sum_totals,
)
from ..views import usage as view
from .options import CommandParser, number_type, option_name
from .output_file import write_file
from .query_options import (
    NAME_FILTERS,
    format_iso,
    no_rows_message,
    open_memory_ledger,
    open_updated_ledger,
    parse_filters,
    time_formatter,
    time_range_from_options,
    write_result,
)
from .terminal import detect_style, write_bytes

EXAMPLES = """examples:
  steno usage                              by day
  steno usage --breakdown --last 7d        each day by model
  steno usage block --top 5                five-hour blocks; pace and projection of the active one
  steno usage --html usage.html --last 30d a report with charts, for CI or a mail
  steno usage --textfile /var/lib/node_exporter/steno.prom   for Prometheus, such as from cron
  steno usage month --timezone Asia/Tokyo
  steno usage model --last 7d              by model, last seven days
  steno usage project --since 2026-11-01 --top 5
  steno usage branch --repository myapp    by git branch; also host, user, repository, tag
  steno usage tool --json | jq '.rows[] | select(.error_rate > 0.1)'
  steno usage --no-ledger ~/.claude/projects   read these files, without the ledger

Weeks are ISO 8601 weeks. Requests of a model without a known price are counted as unpriced, never
as free. Wasted is the cost of failed runs, without failed attempts of tasks that succeeded. A run
with two tags counts in both rows of `usage tag`, and once in the total. A block is five hours, like
the limit of a subscription: it starts at the full hour (UTC) of the first request after the
previous block.
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
    if options.textfile is not None:
        return _write_textfile(store, options, zone)
    start = time.perf_counter()
    filters = parse_filters(store, options, span)
    if options.html is not None:
        return _write_html(store, options, zone, filters)
    print_report = {"tool": _print_tools, "block": _print_blocks}.get(options.by, _print_usage)
    print_report(store, options, zone, filters, start)
    return 0


def _write_html(store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters) -> int:
    """Write the report with charts; - is stdout."""
    from ..export.usage_html import usage_html

    data = usage_html(store, zone, filters, now_ms()).encode("utf-8", "replace")
    if options.html == "-":
        write_bytes(data)
        return 0
    try:
        Path(options.html).write_bytes(data)
    except OSError as error:
        raise StenoError(f"{options.html}: cannot write: {error.strerror or error}") from None
    return 0


def _write_textfile(store: Store, options: argparse.Namespace, zone: TimeZone) -> int:
    """Write metrics of the whole ledger for Prometheus; - is stdout."""
    from ..export.prometheus import prometheus_text
    from ..runner.run_registry import active_runs

    text = prometheus_text(store, zone, now_ms(), [info.agent for info in active_runs()])
    if options.textfile == "-":
        write_bytes(text.encode())
    else:
        write_file(options.textfile, [text.encode()])
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "usage", "Report requests, tokens and cost, grouped by time, project or model.", EXAMPLES
    )
    parser.add_argument(
        "by",
        nargs="?",
        default="day",
        choices=(*GROUPINGS, "tool", "block"),
        metavar="BY",
        help=f"group by {', '.join(GROUPINGS)}, tool or block (default: day)",
    )
    parser.add_argument(
        "--breakdown", action="store_true", help="add a line for each model of a row"
    )
    parser.add_argument(
        "--top",
        type=number_type("a whole number above 0", 1, sys.maxsize, whole=True),
        metavar="N",
        help="only the first N rows; for days, weeks, months and blocks the last N",
    )
    parser.add_argument(
        "--sort",
        choices=(*SORT_KEYS, "name"),
        help="sort order (default: time for days, weeks and months, calls for tools, else cost)",
    )
    parser.add_argument(
        "--no-ledger",
        nargs="+",
        metavar="PATH",
        help="read these transcripts or folders instead of the ledger",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a report with charts as one HTML file; - is stdout"
    )
    parser.add_argument(
        "--textfile",
        metavar="FILE",
        help="write metrics of the whole ledger in the text format of Prometheus; - is stdout",
    )
    parser.add_time_range()
    parser.add_filters("project", "model", "agent")
    parser.add_origin_filters()
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_intermixed_args(args)
    if options.textfile is not None:
        names = ("since", "until", "last", *NAME_FILTERS, "tag", "html", "form", "no_ledger")
        unused = [name for name in names if getattr(options, name)]
        if unused:
            label = f"--{options.form}" if unused[0] == "form" else option_name(unused[0])
            parser.error(f"--textfile writes the whole ledger and cannot be used with {label}")
    if options.breakdown and options.by in ("model", "tool", "block"):
        parser.error(f"--breakdown: not available for {options.by}; group by day, project or agent")
    if options.sort and options.by == "block":
        parser.error("--sort: not available for block; blocks are sorted by time")
    if options.sort not in (None, "name") and options.by == "tool":
        parser.error(
            f"--sort {options.sort}: not available for tool; tools are sorted by calls, "
            "or with --sort name"
        )
    if options.by == "tool" and options.model:
        parser.error("--model: tool calls are not counted by model; remove it or group otherwise")
    for name in ("host", "user", "repository", "branch", "tag"):
        if options.by == "tool" and getattr(options, name):
            parser.error(
                f"--{name}: tool calls are not counted by {name}; remove it or group otherwise"
            )
    return options


def _print_usage(
    store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> None:
    report = queries.usage_report(
        store, options.by, zone, filters, limit=options.top, order=options.sort
    )
    rows = _sort_and_limit(report.rows, options)
    if options.by == "session":
        queries.fill_session_details(store, rows)
    left_off = len(report.rows) - len(rows) + report.left_off
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
            view.usage_page(
                report,
                detect_style(),
                left_off,
                trends,
                options.breakdown,
                _short_session_ids(store, report),
            )
            if rows
            else no_rows_message(store, "spend")
        ),
        lambda: [row.as_json(options.by, options.breakdown) for row in rows],
        total=report.total.as_json(),
        extra=extra,
        leading_columns=(options.by,),
    )


def _short_session_ids(store: Store, report: UsageReport) -> dict[str, str]:
    """The unique prefix of each session on the page."""
    ids = [row.key for row in report.rows if row.key] if report.by == "session" else []
    if report.peak_context is not None:
        ids.append(report.peak_context.session)
    return short_ids(store, "sessions", ids)


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


def _print_blocks(
    store: Store, options: argparse.Namespace, zone: TimeZone, filters: Filters, start: float
) -> None:
    found = queries.usage_blocks(store, zone, filters, now_ms())
    blocks = found[-options.top :] if options.top else found
    total = sum_totals(block.row.totals for block in found) if found else UsageTotals()
    left_off = len(found) - len(blocks)
    extra = {"by": "block", **_query_metadata(zone, filters, start), "left_off": left_off}
    write_result(
        options.form,
        lambda: (
            view.blocks_page(blocks, total, detect_style(), time_formatter(zone), left_off)
            if blocks
            else no_rows_message(store, "spend")
        ),
        lambda: [block.as_json(partial(format_iso, zone=zone)) for block in blocks],
        total=total.as_json(),
        extra=extra,
        leading_columns=("block",),
    )


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
