"""`steno search`: searches prompts and answers in the ledger."""

import argparse
import time
from functools import partial

from ..ledger.queries import search as queries
from ..ledger.queries.filters import Filters
from ..ledger.queries.runs import short_ids
from ..ledger.results import SearchHit
from ..ledger.store import Store
from ..views.formatting import format_count, format_number
from ..views.search import search_results
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
from .terminal import StepProgress, detect_style, print_error

EXAMPLES = """examples:
  steno search retry limit                  texts with both words
  steno search '"connection refused"' --last 7d
  steno search --regex 'TODO\\(\\w+\\)' --project .
  steno search --tools "Permission denied"  search tool output too

Prompts and answers are in the ledger's full-text index. Tool output is not: --tools reads the
recordings and transcripts again, if they still exist.
"""


def run(args: list[str]) -> int:
    """Run `steno search` and return its exit code."""
    options = _parse_args(args)
    is_regex = options.regex is not None
    query = queries.parse_query(options.regex if is_regex else " ".join(options.text), is_regex)
    store = open_updated_ledger(options)
    limit = pop_row_limit(options)
    zone, span = time_range_from_options(options)
    filters = parse_filters(store, options, span)
    start = time.perf_counter()
    with StepProgress("texts") as steps:
        hits, total = queries.search_texts(store, query, filters, options.role, limit, steps.update)
    missing_files = 0
    if options.tools:
        tool_hits, missing_files = _search_tool_output(store, query, filters)
        hits = sorted([*hits, *tool_hits], key=lambda hit: -(hit.at or 0))[:limit]
        total += len(tool_hits)
    shorts = short_ids(store, "sessions", [hit.session for hit in hits])
    for hit in hits:
        hit.short_session_id = shorts[hit.session]
    query_ms = round((time.perf_counter() - start) * 1000, 3)
    write_result(
        options.form,
        lambda: (
            _render(search_results(hits, detect_style(), time_formatter(zone)), len(hits), total)
            if hits
            else _no_hits_message(store, options)
        ),
        lambda: [hit.as_json(partial(format_iso, zone=zone)) for hit in hits],
        total=total,
        extra={
            "timezone": zone.name,
            "query_ms": query_ms,
            "left_off": total - len(hits),
            "sources_gone": missing_files,
        },
        leading_columns=("at",),
    )
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("search", "Search prompts and answers in the ledger.", EXAMPLES)
    parser.add_argument(
        "text",
        nargs="*",
        metavar="TEXT",
        help='words that must all occur; "a phrase" in double quotes',
    )
    parser.add_argument(
        "--regex", metavar="PATTERN", help="search with a regular expression instead"
    )
    parser.add_argument(
        "--tools", action="store_true", help="search tool output too, in the original files"
    )
    parser.add_argument(
        "--role",
        choices=("prompt", "answer", "command"),
        help="only prompts, only answers, or only local commands such as /model, with their output",
    )
    parser.add_time_range("number of hits, or time span: 100, 24h, 7d, 2w, 3m")
    parser.add_filters("project", "agent")
    parser.add_origin_filters()
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_with_rest(args, "text")
    if (options.regex is None) == (not options.text):
        parser.error("nothing to search for: give TEXT or --regex PATTERN")
    return options


def _search_tool_output(
    store: Store, query: queries.SearchQuery, filters: Filters
) -> tuple[list[SearchHit], int]:
    from ..ledger.queries.search import search_tool_output

    with StepProgress("files") as steps:
        result = search_tool_output(store, query, filters, steps.update)
    if result.files_missing:
        print_error(f"{format_count(result.files_missing, 'source file')} of the ledger not found")
    return result.hits, result.files_missing


def _render(lines: list[str], shown: int, total: int) -> list[str]:
    more = f", {format_number(total - shown)} not shown (use --last N)" if total > shown else ""
    return [*lines, "", *detect_style().wrap(f"{format_count(total, 'hit')}{more}")]


def _no_hits_message(store: Store, options: argparse.Namespace) -> list[str]:
    if not queries.has_texts(store):
        return no_rows_message(store, "texts")
    hints = []
    if options.regex is None:
        hints.append("--regex finds parts of words")
    if not options.tools:
        hints.append("--tools searches tool output too")
    return [f"No matches{''.join(f'; {hint}' for hint in hints)}."]
