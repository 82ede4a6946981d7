"""`steno sync`: copies a folder's files to other places, or finishes what an earlier sync left. It parses and prints."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ..config import data_dir as place
from ..errors import StenoError
from ..sync import FolderSync, SyncOptions, SyncSummary
from ..sync.destinations import check_prefix
from ..sync.journal import PendingSync, pending_syncs
from .options import CommandParser, seconds_type
from .terminal import print_error, print_json

EXAMPLES = """examples:
  steno sync . dir:/backup/project                  copy what is new or different
  steno sync . dir:/mnt/a sftp://host/files --delete
  steno sync . dir:/srv/site --prefix public --exclude '*.map'
  steno sync . 'cmd:rsync -a {path} host:inbox/'    a command for each file, without a shell
  steno sync . sftp://host/folder --dry-run         any URL that fsspec knows: pip install 'stenograph[sync]'
  steno sync --pending                              finish what failed, or was cut off

Files are compared by their content. What .gitignore files name and what tools make for themselves (.git, node_modules,
__pycache__, .venv ...) is left alone on both sides. The exit code is 0 when everything is where it should be, and 1 when
something is missing: it is kept, and `steno sync --pending` finishes it.
"""
EXIT_NOT_STARTED = 2  # the exit code where nothing could even be begun
JOURNALED_OPTIONS = (
    "prefix",
    "include",
    "exclude",
    "no_ignore",
    "delete",
    "concurrency",
)  # what a sync that was left knows itself
DEFAULT_TRIES = 8  # of one file, over half a minute: then it is left for `--pending`


def run(words: list[str]) -> int:
    """Carry out `steno sync` and return its exit code."""
    options = _parse_args(words)
    if options.pending:
        return _finish_pending(options)
    if not Path(options.places[0]).is_dir():
        raise StenoError(f"{options.places[0]}: there is no such folder")
    check_prefix(options.places[0], options.prefix)
    syncing = FolderSync(options.places[0], sync_options(options, tuple(options.places[1:])))
    return _finish(syncing, options.json)


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "sync",
        "Copy the files of a folder to other places, or finish what an earlier sync left.",
        EXAMPLES,
    )
    parser.add_argument(
        "places", nargs="*", metavar="SRC DEST", help="the folder, then one destination or more"
    )
    parser.add_argument("--pending", action="store_true", help="finish what earlier syncs left")
    add_sync_options(parser)
    parser.add_argument(
        "--final-pass",
        action="store_true",
        help="compare every file by its hash (here it is always done)",
    )
    parser.add_argument(
        "--tries",
        type=_positive_int,
        default=DEFAULT_TRIES,
        metavar="N",
        help=f"of one file (default: {DEFAULT_TRIES})",
    )
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    parser.add_debug()
    options = parser.parse_intermixed_args(words)
    if options.pending and options.places:
        parser.error("--pending takes no folder: it knows what was left, and where")
    given = [
        f"--{name.replace('_', '-')}"
        for name in JOURNALED_OPTIONS
        if getattr(options, name) != parser.get_default(name)
    ]
    if options.pending and given:
        parser.error(f"--pending takes no {given[0]}: it does what was asked for then")
    if not options.pending and len(options.places) < 2:
        parser.error(
            "expected a folder and a destination, such as: steno sync . dir:/backup/project"
        )
    return options


def add_sync_options(parser: CommandParser) -> None:
    """The options that say how files are copied."""
    group = parser.add_argument_group("how files are copied")
    group.add_argument(
        "--prefix",
        default="",
        metavar="FOLDER",
        help="only what lies below it, and without it in the names",
    )
    group.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only files that fit (as in .gitignore)",
    )
    group.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="no files that fit"
    )
    group.add_argument("--no-ignore", action="store_true", help="do not heed .gitignore files")
    group.add_argument("--delete", action="store_true", help="delete there what is gone here")
    group.add_argument(
        "--concurrency",
        type=_positive_int,
        default=4,
        metavar="N",
        help="files at the same time (default: 4)",
    )
    group.add_argument(
        "--limit", type=seconds_type(1e9), metavar="SECONDS", help="the longest that it may take"
    )
    group.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and do nothing"
    )


def sync_options(options: argparse.Namespace, destinations: tuple[str, ...]) -> SyncOptions:
    """What the options ask for: every file, compared by content."""
    return SyncOptions(
        destinations=destinations,
        prefix=options.prefix,
        include=tuple(options.include),
        exclude=tuple(options.exclude),
        ignore=not options.no_ignore,
        delete=options.delete,
        concurrency=options.concurrency,
        dry_run=options.dry_run,
        limit=options.limit,
        tries=options.tries,
        debounce=0.0,
        final_pass=True,
        watch_files=False,
        journal=str(new_journal_path()),
    )


def new_journal_path() -> Path:
    """A new place for a journal."""
    return journal_dir() / f"{place.new_run_id()}.journal"


def journal_dir() -> Path:
    """Where journals lie."""
    return place.data_folder() / "sync"


# -- doing it --------------------------------------------------------------------------------------------------------


def _finish_pending(options: argparse.Namespace) -> int:
    """Finish each sync that left something; what is still left has a journal of its own then."""
    codes: list[int] = []

    def unread(text: str) -> None:
        print_error(text)
        codes.append(EXIT_NOT_STARTED)

    for one in pending_syncs(journal_dir(), unread) if journal_dir().is_dir() else []:
        try:
            codes.append(_finish(_resume(one, options), options.json, one.path))
        except (
            StenoError
        ) as problem:  # each stands for itself: the others are finished all the same
            unread(f"{problem}; it is still kept in {one.path}")
    if not codes:
        sys.stderr.write("nothing is left to be copied\n")
    return EXIT_NOT_STARTED if codes and min(codes) == EXIT_NOT_STARTED else int(any(codes))


def _resume(left: PendingSync, options: argparse.Namespace) -> FolderSync:
    from msgspec.structs import replace

    if not Path(left.root).is_dir():
        raise StenoError(f"{left.root}: there is no such folder")
    if left.options.delete and not any(Path(left.root).iterdir()):
        raise StenoError(
            f"{left.root}: nothing lies in this folder, which may be that of a disk that is not there"
        )
    again = replace(
        left.options,
        journal=str(new_journal_path()),
        watch_files=False,
        final_pass=left.needs_full_scan,
        debounce=0.0,
        dry_run=options.dry_run,
        limit=options.limit,
        tries=options.tries,
    )
    syncing = FolderSync(left.root, again)
    for lane, names in left.names_by_destination.items():
        for name in names:
            syncing.enqueue(name, lane)
    return syncing


def _finish(syncing: FolderSync, as_json: bool, old: Path | None = None) -> int:
    def tell() -> None:
        for line in syncing.take_messages():
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    summary = syncing.finish(tell)
    tell()
    if old is not None and not syncing.options.dry_run and not syncing.has_unsaved_files:
        old.unlink(missing_ok=True)
    _print_summary(summary, as_json)
    return summary.exit_code(strict=True)


def _print_summary(summary: SyncSummary, as_json: bool) -> None:
    import msgspec

    if as_json:
        told = {"schema": "steno.sync/1", "ok": summary.ok, **msgspec.to_builtins(summary)}
        print_json(msgspec.json.encode(_escape_surrogates(told)))
    else:
        sys.stderr.write(summary.line() + "\n")
    if summary.journal is not None:
        print_error("what is missing is kept; to finish it: steno sync --pending")


def _escape_surrogates(value: Any) -> Any:
    """The same value, with the bytes of names that are no UTF-8 written out: \\xe9."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_escape_surrogates(item) for item in value]
    return (
        {key: _escape_surrogates(item) for key, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, found {text!r}")
    return int(text)
