"""`steno prune`: old details out of the ledger. It only tells what would go, unless it is told to do it."""

import argparse

from ..ledger.queries import prune as asks
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
  steno prune --older-than 90d             tell what would go
  steno prune --older-than 90d --yes       let it go
  steno prune --older-than 1y --project old-app --everything --yes

What goes is every session that was last at work before then, with its runs, requests, calls, texts and notes. The sums
by hour stay, so that `steno report` remains right for old days too; --everything takes them as well. The files that
were imported are not touched, and are not imported again. The states that git keeps of these runs (refs/steno) are let
go.
"""


def run(words: list[str]) -> int:
    """Carry out `steno prune` and return its exit code."""
    options = _parse_args(words)
    store, zone = open_updated_ledger(options), TimeZone(options.timezone)
    at = time_before(zone, now_ms(), options.older_than, "--older-than")
    old = asks.PruneSelection(at, resolve_projects(store, options.project))
    gone = asks.preview_prune(store, old, options.everything)
    total = {"rows": sum(one.rows for one in gone), "bytes": sum(one.bytes for one in gone)}
    if options.yes and total["rows"]:
        runs, folders = asks.runs_and_folders(store, old)
        asks.prune(store, old, options.everything)
        for folder in folders:
            git.delete_snapshots(folder, runs)
        asks.reclaim_space(store)
    write_result(
        options.form,
        lambda: _render(gone, total, options.yes, time_formatter(zone)(old.before)),
        lambda: gone,
        total,
        {"dry_run": not options.yes, "before": format_iso(old.before, zone), "timezone": zone.name},
        ("table",),
    )
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "prune",
        "Take old details out of the ledger. Without --yes, only tell what would go.",
        EXAMPLES,
    )
    parser.add_argument(
        "--older-than",
        metavar="SPAN",
        required=True,
        help="last at work so long ago: 90d, 12w, 6m, 1y",
    )
    parser.add_argument(
        "--project", metavar="NAME", help="only of this project: its folder, or the folder's name"
    )
    sums = parser.add_mutually_exclusive_group()
    sums.add_argument("--keep-sums", action="store_true", help="keep the sums by hour (default)")
    sums.add_argument("--everything", action="store_true", help="take the sums as well")
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument(
        "--timezone", metavar="NAME", help="the zone of the times (default: the system's)"
    )
    parser.add_output_format()
    parser.add_ledger(can_import=False)
    return parser.parse_utf8_args(words)


def _render(gone: list[asks.PrunedTable], total: dict[str, int], done: bool, at: str) -> list[str]:
    if not total["rows"]:
        return [f"Nothing is older than {at}."]
    rows = [
        [one.table, format_number(one.rows), f"{format_compact(one.bytes)}B"]
        for one in gone
        if one.rows
    ]
    foot = [["total", format_number(total["rows"]), f"{format_compact(total['bytes'])}B"]]
    lines = render_table(
        detect_style(), (Column("table"), Column("rows", True), Column("about", True)), rows, foot
    )
    word = "gone" if done else "would go; nothing was changed: --yes does it"
    return [*lines, "", f"Last at work before {at}: {word}."]
