"""`steno search`: find words in what people and agents said. It parses and prints; the ledger searches."""

import argparse
import time
from functools import partial

from ..answer.finds import Hit
from ..ledger.ask import search as asks
from ..ledger.ask.runs import shortened
from ..ledger.ask.where import Filters
from ..ledger.store import Store
from ..screen.clean import wrap
from ..screen.hits import hits
from ..screen.words import number, several
from .asked import asked_filters, asked_span, empty, iso, opened, take_number, when, write
from .options import Parser
from .progress import Steps
from .terminal import complain, look

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
    options = _options(words)
    what = asks.wanted(options.regex if options.regex is not None else " ".join(options.text), options.regex is not None)
    store = opened(options)
    most = take_number(options)
    zone, span = asked_span(options)
    filters = asked_filters(store, options, span)
    start = time.perf_counter()
    with Steps("texts") as steps:
        found, total = asks.search(store, what, filters, options.role, most, steps.show)
    gone = 0
    if options.tools:
        scanned, gone = _scanned(store, what, filters)
        found, total = sorted([*found, *scanned], key=lambda hit: -(hit.at or 0))[:most], total + len(scanned)
    shorts = shortened(store, "sessions", [hit.session for hit in found])
    for hit in found:
        hit.short = shorts[hit.session]
    took = round((time.perf_counter() - start) * 1000, 3)
    write(
        options.form,
        lambda: _page(hits(found, look(), when(zone)), len(found), total) if found else _none(store, options),
        lambda: [hit.as_json(partial(iso, zone=zone)) for hit in found],
        total,
        {"timezone": zone.name, "query_ms": took, "left_off": total - len(found), "sources_gone": gone},
        ("at",),
    )
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("search", "Find words in what people and agents said.", EXAMPLES)
    parser.add_argument("text", nargs="*", metavar="TEXT", help='words that must all occur; "a phrase" in double quotes')
    parser.add_argument("--regex", metavar="PATTERN", help="look at every text by this regular expression instead")
    parser.add_argument("--tools", action="store_true", help="also search what tools printed, in the original files")
    parser.add_argument("--role", choices=("prompt", "answer"), help="only what people said, or only what agents said")
    parser.add_span("only the last N hits (50), or those of the last hours, days, weeks or months (24h, 7d, 2w, 3m)")
    parser.add_filters("project", "agent")
    parser.add_forms()
    parser.add_ledger()
    options = parser.read(words, "text")
    if (options.regex is None) == (not options.text):
        parser.error("give words to search for, or --regex PATTERN")
    return options


def _scanned(store: Store, what: asks.Wanted, filters: Filters) -> tuple[list[Hit], int]:
    from ..ledger.ask.scan import scan

    with Steps("files") as steps:
        done = scan(store, what, filters, steps.show)
    if done.gone:
        complain(f"{several(done.gone, 'source')} of the ledger {'is' if done.gone == 1 else 'are'} not there any more")
    return done.hits, done.gone


def _page(lines: list[str], shown: int, total: int) -> list[str]:
    more = f", {number(total - shown)} more are not shown: --last N shows N of them" if total > shown else ""
    return [*lines, "", *wrap(f"{several(total, 'hit')}{more}", look().columns)]


def _none(store: Store, options: argparse.Namespace) -> list[str]:
    if not store.rows("SELECT 1 FROM texts LIMIT 1"):
        return empty(store, "texts")
    hint = "" if options.tools else "; --tools also searches what tools printed"
    part = "" if options.regex is not None else "; --regex finds parts of words"
    return [f"Nothing was found{part}{hint}."]
