"""`steno diff`: shows the files a run changed, from the ledger, git snapshots or the recording."""

import argparse
import sys
from functools import partial
from pathlib import Path

from ..errors import StenoError
from ..ledger.change_set import ChangeSet, changes_of_recording, stored_changes
from ..ledger.queries import diff as queries
from ..ledger.queries import runs
from ..ledger.queries.filters import TimeZone, WhereClause, has_rows
from ..ledger.store import Store
from ..views import diff as view
from .ci_log import has_command
from .options import CommandParser
from .output_file import write_file
from .query_options import (
    format_iso,
    no_rows_message,
    open_updated_ledger,
    this_folder,
    write_result,
)
from .terminal import detect_style, is_terminal, print_error, print_lines, write_bytes

EXAMPLES = """examples:
  steno diff                        the latest task of this folder, with all its attempts
  steno diff 3f9a21c0 --list        only the list of files
  steno diff 3f9a21c0 --patch - | git apply -R      undo all changes
  steno diff run.jsonl --patch work.patch           a recording: changes made by tools
  steno diff --json | jq -r '.rows[] | select(.source != "tool") | .path'

RUN is a prefix of a run or session ID, or a recording. The source of a change is `tool` (reported
by a tool call), `filesystem` (seen on disk while a tool call ran) or `git` (difference between the
snapshots before and after the run). `steno run` takes the snapshots in a git repository; `steno
ledger prune` deletes them. `steno run --changes all` watches the file system too. A patch from git
is exact, with binary files, renames and modes; without git it contains the changes of Write, Edit
and NotebookEdit.
"""


def run(args: list[str]) -> int:
    """Run `steno diff` and return its exit code."""
    options = _parse_args(args)
    if options.run and Path(options.run).exists():
        result: ChangeSet | None = changes_of_recording(Path(options.run))
    else:
        result = _changes_from_ledger(options)
    if result is None:
        return 0
    if options.patch is not None:
        return _write_patch(result, options.patch)
    zone = TimeZone()
    changes = result.changes
    write_result(
        options.form,
        lambda: _render(result, options.list),
        lambda: [change.as_json(partial(format_iso, zone=zone)) for change in changes],
        extra={"patch": result.patch_source, "timezone": zone.name},
        leading_columns=("path", "change"),
    )
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("diff", "Show the files a run changed, with a patch.", EXAMPLES)
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help=(
            "run or session ID, or recording (default: the latest run of this folder, with the "
            "other attempts of its task)"
        ),
    )
    parser.add_argument("--list", action="store_true", help="list the files without the patch")
    parser.add_argument(
        "--patch", metavar="FILE", help="write a patch that `git apply -R` undoes; - is stdout"
    )
    parser.add_all_folders()
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(args)


# -- sources ---------------------------------------------------------------------------------


def _changes_from_ledger(options: argparse.Namespace) -> ChangeSet | None:
    store = open_updated_ledger(options)
    try:
        match = _selected_run(store, options)
        if match is None:
            print_lines(_no_runs_message(store, options))
            return None
        if options.form is None and options.patch is None:
            print_lines(_run_line(store, match))
        return stored_changes(store, *match)
    finally:
        store.close()


def _selected_run(store: Store, options: argparse.Namespace) -> runs.LedgerId | None:
    if options.run is not None:
        return runs.get_by_prefix(store, options.run)
    return queries.newest_run_or_task(store, WhereClause() if options.all else this_folder())


def _no_runs_message(store: Store, options: argparse.Namespace) -> list[str]:
    if not options.all and has_rows(store, "runs"):
        return ["No runs in this folder. The latest run of all folders: steno diff --all"]
    return no_rows_message(store, "runs")


def _run_line(store: Store, match: runs.LedgerId) -> list[str]:
    """The last run of what is shown, with its title."""
    column = {"runs": "id", "sessions": "session", "tasks": "task"}[match.table]
    found = runs.list_runs(store, WhereClause().add(f"{column} = ?", match.id), 1)
    return [*view.run_line(found[0], detect_style()), ""] if found else []


# -- output ----------------------------------------------------------------------------------


def _render(result: ChangeSet, only_list: bool) -> list[str]:
    if not result.changes:
        return ["No changes found."]
    lines = view.changes_table(result.changes, detect_style())
    if only_list or result.patch is None:
        return lines
    return [*lines, "", *view.patch_lines(result.patch.removesuffix(b"\n"), detect_style())]


def _write_patch(result: ChangeSet, target: str) -> int:
    if result.patch is None:
        if not result.changes:
            raise StenoError("no patch: no changes found")
        raise StenoError("no patch: neither git nor the recording has the content of the changes")
    without_content = {
        change.path
        for change in result.changes
        if result.patch_source == "tools" and change.source != "tool"
    }
    for path in sorted({*result.missing_content, *without_content}):
        print_error(f"{path}: content unknown, not included in the patch")
    if target == "-" and is_terminal(sys.stdout):
        print_lines(view.patch_lines(result.patch.removesuffix(b"\n"), detect_style()))
    elif target == "-":
        if has_command(sys.stdout.fileno(), result.patch):  # a changed patch would not apply
            raise StenoError(
                "--patch -: the patch contains a command of this CI system, such as ::error:: or "
                "##[...]; write it to a file: --patch FILE"
            )
        write_bytes(result.patch)
    else:
        if not target:
            raise StenoError("--patch: empty file name; - is stdout")
        write_file(target, [result.patch])
    return 0
