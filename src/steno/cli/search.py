"""`steno search`: find words in what people and agents said. It parses and prints; the ledger searches."""

import argparse
import time
from functools import partial

from ..ledger.queries import search as asks
from ..ledger.queries.filters import Filters
from ..ledger.queries.runs import short_ids
from ..ledger.results import SearchHit
from ..ledger.store import Store
from ..views.formatting import format_count, format_number
from ..views.sanitize import wrap
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
  steno search retry limit                  texts that have both words
  steno search '"connection refused"' --last 7d
  steno search --regex 'TODO\\(\\w+\\)' --project .
  steno search --tools "Permission denied"  also in what tools printed

Prompts and answers are in the ledger's full-text index. What tools printed is not kept there: with --tools the
recordings and transcripts are read again, as far as they still exist.
"""


def run(words: list[str]) -> int:
    """Carry out `steno search` and return its exit code."""
    options = _parse_args(words)
    what = asks.parse_query(
        options.regex if options.regex is not None else " ".join(options.text),
        options.regex is not None,
    )
    store = open_updated_ledger(options)
    most = pop_row_limit(options)
    zone, span = time_range_from_options(options)
    filters = parse_filters(store, options, span)
    start = time.perf_counter()
    with StepProgress("texts") as steps:
        found, total = asks.search_texts(store, what, filters, options.role, most, steps.update)
    gone = 0
    if options.tools:
        scanned, gone = _search_tool_output(store, what, filters)
        found, total = (
            sorted([*found, *scanned], key=lambda hit: -(hit.at or 0))[:most],
            total + len(scanned),
        )
    shorts = short_ids(store, "sessions", [hit.session for hit in found])
    for hit in found:
        hit.short_session_id = shorts[hit.session]
    took = round((time.perf_counter() - start) * 1000, 3)
    write_result(
        options.form,
        lambda: (
            _render(search_results(found, detect_style(), time_formatter(zone)), len(found), total)
            if found
            else _no_hits_message(store, options)
        ),
        lambda: [hit.as_json(partial(format_iso, zone=zone)) for hit in found],
        total,
        {
            "timezone": zone.name,
            "query_ms": took,
            "left_off": total - len(found),
            "sources_gone": gone,
        },
        ("at",),
    )
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser("search", "Find words in what people and agents said.", EXAMPLES)
    parser.add_argument(
        "text",
        nargs="*",
        metavar="TEXT",
        help='words that must all occur; "a phrase" in double quotes',
    )
    parser.add_argument(
        "--regex", metavar="PATTERN", help="look at every text by this regular expression instead"
    )
    parser.add_argument(
        "--tools", action="store_true", help="also search what tools printed, in the original files"
    )
    parser.add_argument(
        "--role",
        choices=("prompt", "answer"),
        help="only what people said, or only what agents said",
    )
    parser.add_time_range(
        "only the last N hits (50), or those of the last hours, days, weeks or months (24h, 7d, 2w, 3m)"
    )
    parser.add_filters("project", "agent")
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_with_rest(words, "text")
    if (options.regex is None) == (not options.text):
        parser.error("give words to search for, or --regex PATTERN")
    return options


def _search_tool_output(
    store: Store, what: asks.SearchQuery, filters: Filters
) -> tuple[list[SearchHit], int]:
    from ..ledger.queries.search import search_tool_output

    with StepProgress("files") as steps:
        done = search_tool_output(store, what, filters, steps.update)
    if done.files_missing:
        print_error(
            f"{format_count(done.files_missing, 'source')} of the ledger {'is' if done.files_missing == 1 else 'are'} not there any more"
        )
    return done.hits, done.files_missing


def _render(lines: list[str], shown: int, total: int) -> list[str]:
    more = (
        f", {format_number(total - shown)} more are not shown: --last N shows N of them"
        if total > shown
        else ""
    )
    return [*lines, "", *wrap(f"{format_count(total, 'hit')}{more}", detect_style().columns)]


def _no_hits_message(store: Store, options: argparse.Namespace) -> list[str]:
    if not asks.has_texts(store):
        return no_rows_message(store, "texts")
    hint = "" if options.tools else "; --tools also searches what tools printed"
    part = "" if options.regex is not None else "; --regex finds parts of words"
    return [f"Nothing was found{part}{hint}."]
