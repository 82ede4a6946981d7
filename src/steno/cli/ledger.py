"""`steno ledger`: import, prune, rebuild or query the ledger, and attach notes."""

import argparse
import os
import time
from pathlib import Path
from typing import Any

from ..config.files import list_recordings
from ..errors import SourceError
from ..ledger.discovery import transcript_folders
from ..ledger.importer import ImportResult, import_sources
from ..ledger.protocol import now_ms
from ..ledger.queries import ledger as queries
from ..ledger.queries import runs as run_queries
from ..ledger.queries.filters import TimeZone, resolve_projects, time_before
from ..ledger.queries.ledger import MAX_QUERY_SECONDS, run_query
from ..ledger.rebuild import RebuildResult, rebuild
from ..ledger.source_watcher import changed_sources
from ..ledger.store import Store, check_named_ledger
from ..recording.identify import skipped_message
from ..runner.run_registry import finished_recordings
from ..views.formatting import format_compact, format_count, format_number
from ..views.table import Column, render_table
from ..workspace import git
from .commands import EXIT_USAGE_ERROR
from .options import CommandParser, number_type, show_subcommands
from .query_options import (
    format_iso,
    open_updated_ledger,
    open_waiting_ledger,
    time_formatter,
    write_result,
)
from .terminal import Progress, detect_style, print_error, print_json, print_lines

EXAMPLES = """commands:
{summaries}

examples:
  steno ledger import
  steno ledger prune --older-than 90d
  steno ledger sql "SELECT verdict, count(*) FROM runs GROUP BY verdict"

Run `steno ledger COMMAND --help` for the options of a command. The ledger is a SQLite file in the
user's data directory, or the one given by --ledger or STENO_LEDGER.
"""


def run(args: list[str]) -> int:
    """Run the given ledger command; without one, print the help."""
    if args and args[0] in RUNNERS:
        return RUNNERS[args[0]](args[1:])
    return show_subcommands("ledger", "Import, prune, rebuild or query the ledger.", EXAMPLES, args)


IMPORT_EXAMPLES = """examples:
  steno ledger import                   new transcripts of the agents, and recordings of steno
  steno ledger import runs/ run.steno   recordings and transcripts, also those below a folder
  steno ledger import --watch           keep importing until Ctrl-C
  steno ledger import --ledger postgresql://db.example/steno

Only new data is read. Rewritten, truncated and moved files are detected; a message found in several
files counts once. A file that cannot be imported is reported and skipped; the exit code is then 2.
After Ctrl-C the next import continues where this one stopped.
"""


def run_import(args: list[str]) -> int:
    """Run `steno ledger import` and return its exit code."""
    options = _parse_import_args(args)
    store = open_waiting_ledger(options.ledger)
    try:
        if options.watch:
            return _watch_sources(store, options)
        return _print_import_result(options, _import_once(store, options))
    finally:
        store.close()


def _parse_import_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger import", "Import transcripts and recordings into the ledger.", IMPORT_EXAMPLES
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and folders (default: the agents' transcripts, and steno's recordings)",
    )
    parser.add_argument("--watch", action="store_true", help="keep importing as files grow")
    parser.add_argument(
        "--every",
        type=number_type("seconds from 0.05 to 86400", 0.05, 86_400),
        metavar="SECONDS",
        help="with --watch: check all files at this interval (default: when one changes)",
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_json("print the result as one JSON object")
    parser.add_ledger(can_import=False)
    return parser.parse_with_rest(args, "paths", are_paths=True)


def _import_once(store: Store, options: argparse.Namespace) -> ImportResult:
    progress = Progress(0, not options.quiet)
    try:
        return import_sources(
            store, options.paths or None, progress.update, recordings=_own_recordings(options)
        )
    finally:
        progress.clear()


def _own_recordings(options: argparse.Namespace) -> list[str]:
    return [] if options.paths else finished_recordings()


def _print_import_result(options: argparse.Namespace, result: ImportResult) -> int:
    for text in result.troubles:
        print_error(text)
    if result.skipped and not options.quiet:
        print_error(skipped_message([Path(path) for path in result.skipped]))
    if options.form == "json":
        from msgspec.json import encode

        print_json(encode(result))
    elif not options.quiet and not _has_only_errors(options, result):
        print_lines([_import_summary(options, result)])
    return EXIT_USAGE_ERROR if result.troubles else 0


def _has_only_errors(options: argparse.Namespace, result: ImportResult) -> bool:
    return bool(options.paths and result.troubles and not result.files and not result.unchanged)


def _import_summary(options: argparse.Namespace, result: ImportResult) -> str:
    if not result.files and not result.unchanged and not options.paths:
        folders = ", ".join(folder for _, folder in transcript_folders(os.environ))
        if folders:
            return f"nothing to import: no transcripts in {folders}"
        return "nothing to import: no transcript folders found"
    unknown = f", {result.unknown} not recognised" if result.unknown else ""
    return (
        f"{result.files} new or changed files ({result.size / 1e6:,.1f} MB), "
        f"{result.unchanged} unchanged{unknown}; {result.requests:,} new requests, "
        f"{result.calls:,} tool calls, {result.runs:,} runs"
    )


def _watch_sources(store: Store, options: argparse.Namespace) -> int:
    reported: list[str] = []
    for changed in changed_sources(options.paths, options.every):
        if changed is None:
            recordings = _own_recordings(options)
            result = import_sources(store, options.paths or None, recordings=recordings)
        else:
            try:
                result = import_sources(store, changed)
            except SourceError:  # deleted meanwhile
                continue
        for text in result.troubles:
            if text not in reported:
                print_error(text)
        reported = result.troubles
        if result.files and not options.quiet:
            print_lines([time.strftime("%H:%M:%S ") + _import_summary(options, result)])
    return 0


PRUNE_EXAMPLES = """examples:
  steno ledger prune --older-than 90d          show what would be deleted
  steno ledger prune --older-than 90d --yes    delete it
  steno ledger prune --older-than 1y --project old-app --everything --yes

Deletes every session that has been inactive for that long, with its runs, requests, tool calls,
texts and notes, and the git snapshots of its runs (refs/steno). Hourly totals are kept, so
`steno usage` stays correct for old days; --everything deletes them too. Imported files are not
touched and not imported again.
"""


def run_prune(args: list[str]) -> int:
    """Run `steno ledger prune` and return its exit code."""
    options = _parse_prune_args(args)
    store = open_updated_ledger(options)
    zone = TimeZone(options.timezone)
    before = time_before(zone, now_ms(), options.older_than, "--older-than")
    selection = queries.PruneSelection(before, resolve_projects(store, options.project))
    tables = queries.preview_prune(store, selection, options.everything)
    total = {
        "rows": sum(table.rows for table in tables),
        "bytes": sum(table.bytes for table in tables),
    }
    if options.yes and total["rows"]:
        runs, folders = queries.runs_and_folders(store, selection)
        queries.prune(store, selection, options.everything)
        for folder in folders:
            git.delete_snapshots(folder, runs)
        queries.forget_missing_files(store, before)
        queries.reclaim_space(store)
    write_result(
        options.form,
        lambda: _render_prune(tables, total, options.yes, time_formatter(zone)(before)),
        lambda: tables,
        total=total,
        extra={
            "dry_run": not options.yes,
            "before": format_iso(before, zone),
            "timezone": zone.name,
        },
        leading_columns=("table",),
    )
    return 0


def _parse_prune_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger prune",
        "Delete old sessions but keep their totals; without --yes, show what would be deleted.",
        PRUNE_EXAMPLES,
    )
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        required=True,
        help="delete sessions inactive for at least this long: 90d, 12w, 6m, 1y",
    )
    parser.add_argument(
        "--project", metavar="NAME", help="only this project: a folder, or its name"
    )
    totals = parser.add_mutually_exclusive_group()
    totals.add_argument("--keep-sums", action="store_true", help="keep hourly totals (default)")
    totals.add_argument("--everything", action="store_true", help="delete hourly totals too")
    parser.add_argument("--yes", action="store_true", help="delete instead of a dry run")
    parser.add_timezone()
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(args)


def _render_prune(
    tables: list[queries.PrunedTable], total: dict[str, int], deleted: bool, before: str
) -> list[str]:
    if not total["rows"]:
        return [f"Nothing inactive since {before}."]
    rows = [
        [table.table, format_number(table.rows), f"{format_compact(table.bytes)}B"]
        for table in tables
        if table.rows
    ]
    footer = [["total", format_number(total["rows"]), f"{format_compact(total['bytes'])}B"]]
    columns = (Column("table"), Column("rows", True), Column("about", True))
    lines = render_table(detect_style(), columns, rows, footer)
    if deleted:
        return [*lines, "", f"Deleted sessions inactive since {before}."]
    summary = f"Dry run: would delete sessions inactive since {before}; run again with --yes."
    return [*lines, "", summary]


REBUILD_EXAMPLES = """examples:
  steno ledger rebuild
  steno ledger rebuild --ledger other.db

Reads every recording and transcript of the ledger again, and recordings it does not know yet.
Sessions with a missing source file, and pruned ones, are kept as they are. Queries use the old
ledger until the new one replaces it in one step: Ctrl-C or a crash changes nothing. Runs that
finish meanwhile are kept. A backup of the old ledger is kept next to it.
"""


def run_rebuild(args: list[str]) -> int:
    """Run `steno ledger rebuild` and return its exit code."""
    from ..runner.run_registry import active_runs  # not needed by the other commands

    options = _parse_rebuild_args(args)
    store = open_waiting_ledger(options.ledger)
    progress = Progress(0, not options.quiet)
    recordings = [] if options.ledger else list_recordings()
    active = [info.tape for info in active_runs() if info.tape is not None]
    try:
        result = rebuild(store, progress.update, recordings, active)
    finally:
        progress.clear()
        store.close()
    for text in result.pulled.troubles:
        print_error(text)
    if options.form == "json":
        from msgspec.json import encode

        print_json(encode(result))
    elif not options.quiet:
        print_lines([_rebuild_summary(result)])
    return EXIT_USAGE_ERROR if result.pulled.troubles else 0


def _rebuild_summary(result: RebuildResult) -> str:
    pruned = f", {result.pruned:,} kept (pruned)" if result.pruned else ""
    changed = f", {result.changed:,} kept (written meanwhile)" if result.changed else ""
    return (
        f"{result.sessions:,} sessions rebuilt, {result.kept:,} kept (source file missing or run "
        f"active){pruned}{changed}; backup: {result.copy}"
    )


def _parse_rebuild_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger rebuild",
        "Rebuild the ledger from its recordings and transcripts.",
        REBUILD_EXAMPLES,
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    parser.add_json("print the result as one JSON object")
    parser.add_ledger(can_import=False)
    return parser.parse_args(args)


def run_secrets(args: list[str]) -> int:
    """Run `steno ledger secrets` and return its exit code."""
    from . import ledger_secrets

    return ledger_secrets.run(args)


SQL_EXAMPLES = """examples:
  steno ledger sql "SELECT verdict, count(*) FROM runs GROUP BY verdict"
  steno ledger sql "SELECT model, sum(output) AS output FROM spend GROUP BY model" --json
  steno ledger sql "SELECT path, count(*) FROM changes GROUP BY path ORDER BY 2 DESC LIMIT 10" --csv
  steno ledger sql "SELECT max(length(text)) FROM texts" --timeout 300

Tables: runs, sessions, tasks, requests, calls, changes, denials, texts, notes, budgets, sources,
and the hourly totals spend and tool_use. Times are milliseconds since 1970, amounts are
nano-dollars, and unknown values are NULL. The query can only read: on PostgreSQL, only functions
that compute something from their arguments are allowed, such as count, round, lower or to_char.
"""


def run_sql(args: list[str]) -> int:
    """Run `steno ledger sql` and return its exit code."""
    parser = CommandParser("ledger sql", "Run a read-only SQL query on the ledger.", SQL_EXAMPLES)
    parser.add_argument("sql", metavar="SQL", help="a single SELECT statement")
    parser.add_argument(
        "--timeout",
        type=number_type("seconds above 0", 0.001, 86_400),
        default=MAX_QUERY_SECONDS,
        metavar="SECONDS",
        help="time limit (default: %(default)g)",
    )
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    check_named_ledger(options.ledger)
    store = open_waiting_ledger(options.ledger, read_only=True)
    names, rows = run_query(store, options.sql, seconds=options.timeout)
    write_result(
        options.form,
        lambda: _render_query(names, rows),
        lambda: [dict(zip(names, row, strict=True)) for row in rows],
        leading_columns=names,
    )
    return 0


def _render_query(names: list[str], rows: list[list[Any]]) -> list[str]:
    columns = []
    for index, name in enumerate(names):
        is_numeric = bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        columns.append(Column(name, is_numeric, can_truncate=not is_numeric))
    cells = [[_format_value(value) for value in row] for row in rows]
    return [*render_table(detect_style(), columns, cells), "", format_count(len(rows), "row")]


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return f"({len(value):,} bytes)" if isinstance(value, bytes) else str(value)


NOTE_EXAMPLES = """examples:
  steno ledger note 3f9a21c0 "flaky: the network was down"
  steno ledger note 3f9a21c0 approved by Ada

An ID prefix is enough. `steno show ID` prints the notes below the summary.
"""


def run_note(args: list[str]) -> int:
    """Run `steno ledger note` and return its exit code."""
    parser = CommandParser("ledger note", "Attach a note to a run or session.", NOTE_EXAMPLES)
    parser.add_argument("id", metavar="ID", help="run or session")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="text of the note")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    store = open_updated_ledger(options)
    table, id_ = run_queries.get_by_prefix(store, options.id)
    run_queries.add_note(store, table, id_, now_ms(), " ".join(options.text))
    print_lines([f"note added to {'run' if table == 'runs' else 'session'} {id_}"])
    return 0


RUNNERS = {
    "import": run_import,
    "prune": run_prune,
    "rebuild": run_rebuild,
    "secrets": run_secrets,
    "sql": run_sql,
    "note": run_note,
}
