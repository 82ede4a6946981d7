"""`steno ledger prune`: deletes old details from the ledger; without --yes it is a dry run."""

import argparse

from ..ledger.queries import prune as queries
from ..ledger.queries.filters import resolve_projects
from ..ledger.queries.time_range import TimeZone, time_before
from ..ledger.timestamps import now_ms
from ..views.formatting import format_compact, format_number
from ..views.table import Column, render_table
from ..workspace import git
from .options import CommandParser
from .query_options import format_iso, open_updated_ledger, time_formatter, write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno ledger prune --older-than 90d          show what would be deleted
  steno ledger prune --older-than 90d --yes    delete it
  steno ledger prune --older-than 1y --project old-app --everything --yes

Deletes every session that has been inactive for that long, with its runs, requests, tool calls,
texts and notes, and the git snapshots of its runs (refs/steno). Hourly totals are kept, so
`steno usage` stays correct for old days; --everything deletes them too. Imported files are not
touched and not imported again.
"""


def run(args: list[str]) -> int:
    """Run `steno ledger prune` and return its exit code."""
    options = _parse_args(args)
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
        queries.reclaim_space(store)
    write_result(
        options.form,
        lambda: _render(tables, total, options.yes, time_formatter(zone)(before)),
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


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "ledger prune",
        "Delete old details from the ledger; without --yes, show what would be deleted.",
        EXAMPLES,
    )
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        required=True,
        help="inactive for at least this long: 90d, 12w, 6m, 1y",
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


def _render(
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
