"""`steno diff`: shows the files a run changed, from the ledger, git snapshots or the recording."""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from msgspec import Struct

from ..errors import StenoError
from ..event import Event
from ..ledger.queries import diff as queries
from ..ledger.queries import runs, sessions
from ..ledger.queries.filters import TimeZone
from ..ledger.store import Store
from ..recording.format import RecordingFile
from ..recording.open import open_recording
from ..views import diff as view
from ..workspace import git
from ..workspace.changes import Change, ChangeTracker, PatchBuilder, merge_git_changes
from .options import CommandParser
from .query_options import format_iso, no_rows_message, open_updated_ledger, write_result
from .terminal import detect_style, is_terminal, print_error, print_lines, write_bytes

EXAMPLES = """examples:
  steno diff                        the latest task, with all its attempts
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


class ChangeSet(Struct):
    """Changes and their patch. `patch_source` is git or tools."""

    changes: list[Change]
    patch: bytes | None = None
    patch_source: str | None = None
    missing_content: list[str] = []


def run(args: list[str]) -> int:
    """Run `steno diff` and return its exit code."""
    options = _parse_args(args)
    if options.run and Path(options.run).exists():
        result: ChangeSet | None = _changes_of_recording(Path(options.run))
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
            "run or session ID, or recording (default: the latest run, with the other "
            "attempts of its task)"
        ),
    )
    parser.add_argument("--list", action="store_true", help="list the files without the patch")
    parser.add_argument(
        "--patch", metavar="FILE", help="write a patch for `git apply -R`; - is stdout"
    )
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(args)


# -- sources ---------------------------------------------------------------------------------


def _changes_of_recording(path: Path) -> ChangeSet:
    """The header of a recording names the run, which may have git snapshots."""
    header = RecordingFile(path).header if path.is_file() else None
    cwd = header.cwd if header is not None else None
    tracker, patch = _collect(open_recording(str(path)).events(), cwd)
    run_id = header.run_id if header is not None else None
    return _with_patch(tracker, patch, tracker.root, run_id)


def _collect(events: Iterable[Event], root: str | None) -> tuple[ChangeTracker, PatchBuilder]:
    tracker = ChangeTracker(root)
    patch = PatchBuilder(root)
    for event in events:
        tracker.add(event)
        patch.add(event)
    return tracker, patch


def _with_patch(
    tracker: ChangeTracker, patch: PatchBuilder, root: str | None, run_id: str | None
) -> ChangeSet:
    trees = git.load_trees(root, run_id) if root is not None and run_id is not None else None
    if trees is not None and root is not None:
        return ChangeSet(
            merge_git_changes(tracker.all_changes(), git.diff_trees(root, trees)),
            git.diff_patch(root, trees),
            "git",
        )
    return ChangeSet(tracker.all_changes(), *_patch_from_tools(patch, root))


def _patch_from_tools(
    patch: PatchBuilder, root: str | None
) -> tuple[bytes | None, str | None, list[str]]:
    """The patch of tool calls, with paths relative to the root of the repository, if any."""
    prefix = git.path_in_repository(root) if root is not None and Path(root).is_dir() else ""
    data = patch.build_patch(prefix)
    missing = patch.files_without_content()
    return (data, "tools", missing) if data else (None, None, missing)


def _changes_from_ledger(options: argparse.Namespace) -> ChangeSet | None:
    store = open_updated_ledger(options)
    try:
        match = (
            queries.newest_run_or_task(store)
            if options.run is None
            else runs.get_by_prefix(store, options.run)
        )
        if match is None:
            print_lines(no_rows_message(store, "runs"))
            return None
        return _stored_changes(store, *match)
    finally:
        store.close()


def _stored_changes(store: Store, table: str, id_: str) -> ChangeSet:
    """Changes in the ledger, completed from git snapshots or else from the recordings."""
    changes = queries.list_changes(store, table, id_)
    root = queries.project_folder(store, table, id_)
    run_ids = [id_]
    if table == "tasks":
        run_ids = [run_id for run_id, _ in queries.runs_of_task(store, id_)]
    if root is not None and table != "sessions":
        trees = git.load_trees(root, run_ids[0], run_ids[-1])
        if trees is not None:
            merged = merge_git_changes(changes, git.diff_trees(root, trees))
            writer = queries.find_sole_writer(store, table, id_)
            return ChangeSet(_attribute_to_call(merged, writer), git.diff_patch(root, trees), "git")
    sources = [
        source
        for source in _recording_paths(store, table, id_)
        if source is not None and Path(source).exists()
    ]
    if not sources:
        return ChangeSet(changes)
    _, patch = _collect(
        (event for source in sources for event in open_recording(source).events()), root
    )
    return ChangeSet(changes, *_patch_from_tools(patch, root))


def _recording_paths(store: Store, table: str, id_: str) -> list[str | None]:
    """Its recordings or transcript, in order."""
    if table == "tasks":
        return [source for _, source in queries.runs_of_task(store, id_)]
    if table == "runs":
        return [runs.get_run(store, id_).source]
    return [next(iter(sessions.transcript_paths(store, id_)), None)]


def _attribute_to_call(changes: list[Change], writer: tuple[str, str] | None) -> list[Change]:
    """Attribute changes known only from git to the one call that can have made them."""
    for change in changes:
        if writer is not None and change.source == "git" and change.call is None:
            change.call, change.tool = writer
    return changes


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
        write_bytes(result.patch)
    else:
        _write_file(target, result.patch)
    return 0


def _write_file(target: str, data: bytes) -> None:
    """Replace a file atomically. Links are followed; devices and pipes are written directly."""
    if not target:
        raise StenoError("--patch: empty file name; - is stdout")
    path = Path(os.path.realpath(target)) if not target.startswith("/dev/") else Path(target)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.write(data)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_current_umask()
        _replace_atomically(path, data, mode)
    except OSError as error:
        raise StenoError(f"{target}: cannot write: {error.strerror or error}") from None


def _replace_atomically(path: Path, data: bytes, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _current_umask() -> int:
    """The umask can be read only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
