"""Options about copying files, declared once for `sync`, `watch --sync` and `run --sync`.

A light module: `steno.sync` is imported only if files are copied.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import files
from .options import CommandParser, number_type, option_name
from .terminal import print_error

if TYPE_CHECKING:
    from ..sync import SyncOptions

SELECTION = ("prefix", "include", "exclude", "no_ignore", "delete")
WHILE_RUNNING = (*SELECTION, "concurrency", "debounce", "final_pass")
WATCH_OPTIONS = (*WHILE_RUNNING, "limit", "dry_run")
RUN_OPTIONS = WHILE_RUNNING
SYNC_OPTIONS = (*SELECTION, "concurrency", "limit", "dry_run", "tries", "final_pass")

POSITIVE_INT = number_type("a whole number of at least 1", 1, 10**9, whole=True)
PATTERNS: dict[str, Any] = {"action": "append", "default": [], "metavar": "PATTERN"}
DECLARATIONS: dict[str, dict[str, Any]] = {
    "prefix": {
        "metavar": "FOLDER",
        "default": "",
        "help": "copy only files below this folder, under names relative to it",
    },
    "include": {**PATTERNS, "help": "copy only matching files (.gitignore syntax, repeatable)"},
    "exclude": {**PATTERNS, "help": "skip matching files (repeatable)"},
    "no_ignore": {"action": "store_true", "help": "do not read .gitignore files"},
    "delete": {"action": "store_true", "help": "delete files missing in the source"},
    "concurrency": {
        "metavar": "N",
        "type": number_type("a whole number from 1 to 64", 1, 64, whole=True),
        "default": 4,
        "help": "files to copy in parallel, per destination (default: 4)",
    },
    "debounce": {
        "metavar": "SECONDS",
        "type": number_type("seconds", 0, 3600),
        "help": "delay before copying a changed file, to collect further changes (default: 0.02)",
    },
    "final_pass": {"action": "store_true", "help": "compare every file by hash at the end"},
    "limit": {
        "metavar": "SECONDS",
        "type": number_type("seconds", 0, 1e9),
        "help": "maximum wait for unfinished copies at the end",
    },
    "tries": {"metavar": "N", "type": POSITIVE_INT, "help": "attempts per file"},
    "dry_run": {"action": "store_true", "help": "print what would be copied"},
}


def add_sync_options(
    group: "argparse._ArgumentGroup", names: tuple[str, ...], help_texts: dict[str, str]
) -> None:
    """Options of these names. `help_texts` replace those that are different for a command."""
    for name in names:
        declaration = DECLARATIONS[name]
        text = help_texts.get(name, declaration["help"])
        group.add_argument(option_name(name), **{**declaration, "help": text})


def add_sync_destinations(parser: CommandParser, names: tuple[str, ...]) -> None:
    """--sync and the options that need it."""
    group = parser.add_argument_group("copying changed files (see: steno sync --help)")
    group.add_argument(
        "--sync",
        metavar="DEST",
        action="append",
        default=[],
        help="copy changed files while the agent works: dir:PATH, cmd:PROGRAM ARGS, http(s)://... "
        "or an fsspec URL (repeatable)",
    )
    add_sync_options(group, names, {"delete": "delete files that the agent deletes"})


def check_sync_options(
    parser: CommandParser, options: argparse.Namespace, names: tuple[str, ...]
) -> None:
    """A usage error for an option that has no effect without --sync."""
    for name in () if options.sync else changed_options(parser, options, names):
        parser.error(f"{option_name(name)} needs --sync DEST")


def changed_options(
    parser: CommandParser, options: argparse.Namespace, names: tuple[str, ...]
) -> list[str]:
    """The names of the options that were given."""
    return [name for name in names if getattr(options, name) != parser.get_default(name)]


def build_sync_options(
    options: argparse.Namespace,
    destinations: list[str],
    names: tuple[str, ...],
    **fixed: Any,
) -> "SyncOptions":
    """The options of these names, as given; `fixed` ones belong to the command."""
    from ..sync import SyncOptions

    if any(text.startswith("cmd:") for text in destinations):
        stop_lost_commands()
    values = {name: getattr(options, name) for name in names}
    values = {name: value for name, value in values.items() if value is not None}
    values["ignore"] = not values.pop("no_ignore")
    values["include"] = tuple(options.include)
    values["exclude"] = tuple(options.exclude)
    return SyncOptions(
        destinations=tuple(destinations),
        journal=str(new_journal_path()),  # of failed files, for `steno sync --pending`
        **{**values, **fixed},
    )


def stop_lost_commands() -> None:
    """Terminate commands of a sync whose steno process was killed, and report them."""
    if journal_dir().is_dir():
        from ..sync.destination_queue import terminate_lost_commands

        for orphan in terminate_lost_commands(journal_dir()):
            print_error(f"stopped a command of a killed sync: {orphan.command} (pid {orphan.pid})")


def new_journal_path() -> Path:
    return journal_dir() / f"{files.new_run_id()}.journal"


def journal_dir() -> Path:
    return files.data_folder() / "sync"
