"""`steno export`: writes a conversation, or a list of runs, to a file."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from ..agents import get_agent
from ..errors import StenoError
from ..export.conversation import Conversation
from ..ledger.queries import runs as queries
from ..ledger.results import RUN_COLUMN_TYPES
from .ci_log import unguarded
from .commands import EXIT_USAGE_ERROR
from .options import CommandParser, option_name
from .output_file import write_file
from .query_options import format_iso
from .runs import add_run_filters, select_runs
from .show import resolve_sources
from .show_views import load_conversation, open_source
from .terminal import is_terminal, print_error, write_bytes

EXAMPLES = """examples:
  steno export 3f9a21c0 -o run.html            one HTML file, to open or to attach to a mail
  steno export 3f9a21c0 --format md | gh issue comment 12 --body-file -
  steno export run.jsonl --format json | jq '.steps[] | select(.kind == "tool") | .tool.name'
  steno export 3f9a21c0 --format atif -o run.atif    an ATIF trajectory, for other tools
  steno export --format csv --last 30d --failed > failed.csv
  steno export --format parquet --project . -o runs.parquet

SOURCE is a run or session ID, a recording or a transcript, as for `steno show`. The HTML file
loads nothing and has no scripts. Secrets are masked in all formats. Texts of more than a few
thousand characters are cut in the middle in html and md; --full keeps them. Without SOURCE, the
list of runs is exported (csv, parquet), with the filters of `steno runs`.
"""
LIST_FORMATS = ("csv", "parquet")
SUFFIX_FORMATS = {
    ".htm": "html",
    ".html": "html",
    ".md": "md",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".atif": "atif",
}
LIST_OPTIONS = (
    *("verdict", "failed", "session", "top", "since", "until", "last", "timezone"),
    *("project", "model", "host", "user", "repository", "branch", "tag"),
)
BINARY_FORMATS = ("html", "parquet")  # useless on a terminal


def run(args: list[str]) -> int:
    """Run `steno export` and return its exit code."""
    options = _parse_args(args)
    if options.format in LIST_FORMATS:
        data = _list_of_runs(options)
        with unguarded(sys.stdout) if options.format in BINARY_FORMATS else nullcontext():
            _write(options.output, [data])
        return 0
    options.sources = [options.source]
    options.view = "transcript"
    options.prices = False
    options.needs_report = False
    sources, has_errors = resolve_sources(options)
    if has_errors:
        return EXIT_USAGE_ERROR
    if len(sources) > 1:
        raise StenoError(f"{options.source}: {len(sources)} recordings; name one of them")
    recording = open_source(sources[0])
    with load_conversation(recording, get_agent(options.agent)) as conversation:
        _write(options.output, _writer(options.format)(conversation, options.full))
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "export",
        "Write the conversation of a run or session, or a list of runs, to a file.",
        EXAMPLES,
    )
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="run or session ID, file, folder, or - (stdin)",
    )
    parser.add_argument(
        "--format",
        choices=tuple(dict.fromkeys(SUFFIX_FORMATS.values())),
        help="format (default: by the file name of -o; else html, or csv without SOURCE)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="file to write (default: stdout)"
    )
    parser.add_argument("--full", action="store_true", help="do not cut long texts (html, md)")
    add_run_filters(parser)
    parser.add_ledger()
    options = parser.parse_utf8_args(args)
    _check(parser, options)
    return options


def _check(parser: CommandParser, options: argparse.Namespace) -> None:
    if options.output == "":
        parser.error("-o: empty file name; - is stdout")
    if options.format is None:
        default = "csv" if options.source is None else "html"
        options.format = SUFFIX_FORMATS.get(Path(options.output).suffix.lower(), default)
    if options.source is None and options.format not in LIST_FORMATS:
        parser.error(f"--format {options.format} needs SOURCE; csv and parquet export lists")
    if options.source is not None and options.format in LIST_FORMATS:
        parser.error(f"--format {options.format} exports a list of runs and takes no SOURCE")
    unused = [name for name in LIST_OPTIONS if getattr(options, name)]
    if options.source is not None and unused:
        parser.error(f"{option_name(unused[0])} selects runs of a list and takes no SOURCE")
    if options.full and options.format not in ("html", "md"):
        parser.error(f"--full is for html and md: {options.format} is never cut")
    if options.output == "-" and options.format in BINARY_FORMATS and is_terminal(sys.stdout):
        parser.error(f"{options.format} is not for a terminal; give a file with -o FILE")


def _list_of_runs(options: argparse.Namespace) -> bytes:
    from ..export.tables import as_csv, as_parquet

    options.form = options.format  # all rows, unless --last limits them
    store, zone, where, limit = select_runs(options)
    runs = queries.list_runs(store, where, limit, options.top)
    rows = [run.as_json(partial(format_iso, zone=zone)) for run in runs]
    store.close()
    if options.format == "parquet":
        return as_parquet(rows, RUN_COLUMN_TYPES)
    return as_csv(rows, tuple(RUN_COLUMN_TYPES))


def _writer(format_: str) -> Callable[[Conversation, bool], Iterable[bytes]]:
    if format_ == "html":
        from ..export.html import html_page

        return lambda conversation, full: _encode(html_page(conversation, full))
    if format_ == "md":
        from ..export.markdown import markdown_page

        return lambda conversation, full: _encode(markdown_page(conversation, full))
    if format_ == "atif":
        from ..export.atif import atif_document

        return lambda conversation, full: atif_document(conversation)
    from ..export.data import json_document, json_lines

    write = json_document if format_ == "json" else json_lines
    return lambda conversation, full: write(conversation)


def _encode(pieces: Iterable[str]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece.encode("utf-8", "replace")


def _write(target: str, chunks: Iterable[bytes]) -> None:
    if target == "-":
        for chunk in chunks:
            write_bytes(chunk)
        return
    write_file(target, chunks)
    print_error(f"wrote {target}")
