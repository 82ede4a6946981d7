"""`steno sync`: copies a folder's files to other destinations."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ..errors import StenoError
from ..sync import FolderSync, SyncSummary
from ..sync.destination_queue import PendingSync, pending_syncs
from ..sync.destinations import check_prefix
from .commands import EXIT_USAGE_ERROR
from .options import CommandParser, option_name
from .sync_options import (
    SELECTION,
    SYNC_OPTIONS,
    add_sync_options,
    build_sync_options,
    changed_options,
    journal_dir,
    new_journal_path,
    stop_lost_commands,
)
from .terminal import StopSignal, exit_by_signal, print_error, print_json, raise_on_signals

EXAMPLES = """examples:
  steno sync . dir:/backup/project                  copy new and changed files
  steno sync . dir:/mnt/a sftp://host/files --delete
  steno sync . dir:/srv/site --prefix public --exclude '*.map'
  steno sync . 'cmd:rsync -a {path} host:inbox/'    run a command for each file, without a shell
  steno sync . sftp://host/folder --dry-run         any fsspec URL (extra `sync`)
  steno sync --pending                              finish failed or interrupted syncs

Files are compared by content. Files ignored by .gitignore and tool folders (.git, node_modules,
__pycache__, .venv ...) are skipped on both sides. The exit code is 1 if a file could not be copied;
`steno sync --pending` retries it later. Ctrl-C terminates the commands of cmd: destinations; files
not copied yet stay pending.
"""
JOURNALED_OPTIONS = (*SELECTION, "concurrency")  # stored with a pending sync
DEFAULT_TRIES = 8  # per file, over half a minute


def run(args: list[str]) -> int:
    """Run `steno sync` and return its exit code."""
    options = _parse_args(args)
    stop_lost_commands()
    with raise_on_signals():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    if options.pending:
        return _finish_pending(options)
    if not Path(options.places[0]).is_dir():
        raise StenoError(f"{options.places[0]}: folder not found")
    check_prefix(options.places[0], options.prefix)
    sync_options = build_sync_options(
        options,
        options.places[1:],
        SYNC_OPTIONS,
        limit=options.limit,  # None: no limit
        debounce=0.0,
        final_pass=True,
        watch_files=False,
    )
    return _finish(FolderSync(options.places[0], sync_options), options.json)


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "sync",
        "Copy a folder's files to other destinations, or finish syncs that failed or "
        "were interrupted.",
        EXAMPLES,
    )
    parser.add_argument(
        "places", nargs="*", metavar="SRC DEST", help="folder and one or more destinations"
    )
    parser.add_argument(
        "--pending", action="store_true", help="finish syncs that failed or were interrupted"
    )
    add_sync_options(
        parser.add_argument_group("copying"),
        SYNC_OPTIONS,
        {
            "limit": "time limit for the whole sync",
            "tries": f"attempts per file (default: {DEFAULT_TRIES})",
            "final_pass": "compare every file by hash (always on for this command)",
        },
    )
    parser.set_defaults(tries=DEFAULT_TRIES)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_debug()
    options = parser.parse_intermixed_args(args)
    if options.pending and options.places:
        parser.error("--pending takes no folders: they are stored with the pending syncs")
    changed = changed_options(parser, options, JOURNALED_OPTIONS)
    if options.pending and changed:
        flag = option_name(changed[0])
        parser.error(f"--pending takes no {flag}: it is stored with the pending syncs")
    if not options.pending and len(options.places) < 2:
        parser.error(
            "expected a folder and a destination, for example: steno sync . dir:/backup/project"
        )
    return options


def _finish_pending(options: argparse.Namespace) -> int:
    """Finish each pending sync; what fails again gets a new journal."""
    codes: list[int] = []

    def on_error(text: str) -> None:
        print_error(text)
        codes.append(EXIT_USAGE_ERROR)

    for pending in pending_syncs(journal_dir(), on_error) if journal_dir().is_dir() else []:
        try:
            codes.append(_finish(_resume(pending, options), options.json, pending.path))
        except StenoError as error:
            on_error(f"{error}; still pending in {pending.path}")
    if not codes:
        sys.stderr.write("No pending syncs.\n")
    return EXIT_USAGE_ERROR if codes and min(codes) == EXIT_USAGE_ERROR else int(any(codes))


def _resume(pending: PendingSync, options: argparse.Namespace) -> FolderSync:
    from msgspec.structs import replace

    if not Path(pending.root).is_dir():
        raise StenoError(f"{pending.root}: folder not found")
    if pending.options.delete and not any(Path(pending.root).iterdir()):
        raise StenoError(f"{pending.root}: folder is empty (disk not mounted?); nothing deleted")
    sync_options = replace(
        pending.options,
        journal=str(new_journal_path()),
        watch_files=False,
        final_pass=pending.needs_full_scan,
        debounce=0.0,
        dry_run=options.dry_run,
        limit=options.limit,
        tries=options.tries,
    )
    sync = FolderSync(pending.root, sync_options)
    for destination, names in pending.names_by_destination.items():
        for name in names:
            sync.enqueue(name, destination)
    return sync


def _finish(sync: FolderSync, as_json: bool, old_journal: Path | None = None) -> int:
    def print_messages() -> None:
        for line in sync.take_messages():
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    stop_signal = None
    try:
        summary = sync.finish(print_messages)
    except StopSignal as received:
        stop_signal = received.number
        sync.stop("interrupted")
        summary = sync.finish(print_messages)
    print_messages()
    if old_journal is not None and not sync.options.dry_run and not sync.has_unsaved_files:
        old_journal.unlink(missing_ok=True)
    _print_summary(summary, as_json)
    if stop_signal is not None:
        exit_by_signal(stop_signal)
    return summary.exit_code(strict=True)


def _print_summary(summary: SyncSummary, as_json: bool) -> None:
    import msgspec

    if as_json:
        result = {"schema": "steno.sync/1", "ok": summary.ok, **msgspec.to_builtins(summary)}
        print_json(msgspec.json.encode(_escape_surrogates(result)))
    else:
        sys.stderr.write(summary.line() + "\n")
    if summary.journal is not None:
        print_error("some files were not copied; to retry: steno sync --pending")


def _escape_surrogates(value: Any) -> Any:
    """The same value, with bytes that are not UTF-8 escaped: \\xe9."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_escape_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: _escape_surrogates(item) for key, item in value.items()}
    return value
