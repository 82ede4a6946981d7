"""`steno prune`: old details out of the ledger. It only tells what would go, unless it is told to do it."""

import argparse

from ..files import git
from ..ledger.ask import prune as asks
from ..ledger.ask.spans import before
from ..ledger.ask.where import projects
from ..ledger.ask.zones import Zone
from ..screen.grid import Column, grid
from ..screen.words import compact, number
from .asked import iso, now, opened, when, write
from .options import Parser
from .terminal import look

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
    options = _options(words)
    store, zone = opened(options), Zone(options.timezone)
    at = before(zone, now(), options.older_than, "--older-than")
    old = asks.Old(at, projects(store, options.project))
    gone = asks.would_go(store, old, options.everything)
    total = {"rows": sum(one.rows for one in gone), "bytes": sum(one.bytes for one in gone)}
    if options.yes and total["rows"]:
        runs, folders = asks.states(store, old)
        asks.prune(store, old, options.everything)
        for folder in folders:
            git.forget(folder, runs)
        asks.give_back(store)
    write(
        options.form,
        lambda: _page(gone, total, options.yes, when(zone)(old.before)),
        lambda: gone,
        total,
        {"dry_run": not options.yes, "before": iso(old.before, zone), "timezone": zone.name},
        ("table",),
    )
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("prune", "Take old details out of the ledger. Without --yes, only tell what would go.", EXAMPLES)
    parser.add_argument("--older-than", metavar="SPAN", required=True, help="last at work so long ago: 90d, 12w, 6m, 1y")
    parser.add_argument("--project", metavar="NAME", help="only of this project: its folder, or the folder's name")
    sums = parser.add_mutually_exclusive_group()
    sums.add_argument("--keep-sums", action="store_true", help="keep the sums by hour (default)")
    sums.add_argument("--everything", action="store_true", help="take the sums as well")
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--timezone", metavar="NAME", help="the zone of the times (default: the system's)")
    parser.add_forms()
    parser.add_ledger(imports=False)
    return parser.given(words)


def _page(gone: list[asks.Gone], total: dict[str, int], done: bool, at: str) -> list[str]:
    if not total["rows"]:
        return [f"Nothing is older than {at}."]
    rows = [[one.table, number(one.rows), f"{compact(one.bytes)}B"] for one in gone if one.rows]
    foot = [["total", number(total["rows"]), f"{compact(total['bytes'])}B"]]
    lines = grid(look(), (Column("table"), Column("rows", True), Column("about", True)), rows, foot)
    word = "gone" if done else "would go; nothing was changed: --yes does it"
    return [*lines, "", f"Last at work before {at}: {word}."]
