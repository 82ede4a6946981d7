"""`steno changes`: what a run changed, with a patch that undoes it. It parses and prints; the ledger, git and the tape answer."""

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
from ..ledger.queries import diff as asks
from ..ledger.queries import runs, sessions
from ..ledger.queries.time_range import TimeZone
from ..ledger.store import Store
from ..recording.open import open_recording
from ..recording.record import RecordingFile
from ..views import diff as changed
from ..workspace import git
from ..workspace.changes import Change, ChangeTracker, merge_git_changes
from ..workspace.patch import PatchBuilder
from .options import CommandParser
from .query_options import format_iso, no_rows_message, open_updated_ledger, write_result
from .terminal import detect_style, is_terminal, print_error, print_lines, write_bytes

EXAMPLES = """examples:
  steno changes                        what was changed last, with the difference: by all attempts of a `steno run`
  steno changes 3f9a21c0 --list        only the list
  steno changes 3f9a21c0 --patch - | git apply -R      undo all of it, where it was changed
  steno changes run.jsonl --patch work.patch           of a recording, as far as its tools told
  steno changes --json | jq -r '.rows[] | select(.source != "tool") | .path'

RUN is the beginning of a run's or a session's id, or a recording. Each change names its source: `tool` (a tool said
so), `filesystem` (it was seen while the call ran) or `git` (the state after the run differs from the one before).
`steno run` keeps both states where it runs in a repository, until `steno prune` takes the run; `--changes all` has it
look at the file system too. A patch from git is exact, with binary files, renames and modes; without git it holds what
Write, Edit and NotebookEdit told.
"""


class ChangeSet(Struct):
    """What is known: the changes, the patch, where the patch comes from (git or tools), and what it lacks."""

    changes: list[Change]
    patch: bytes | None = None
    patch_source: str | None = None
    missing_content: list[str] = []


def run(words: list[str]) -> int:
    """Carry out `steno changes` and return its exit code."""
    options = _parse_args(words)
    told = (
        _changes_of_recording(Path(options.run))
        if options.run and os.path.exists(options.run)  # noqa: PTH110
        else _changes_from_ledger(options)
    )
    if told is None:
        return 0
    if options.patch is not None:
        return _write_patch(told, options.patch)
    zone = TimeZone()
    more = {"patch": told.patch_source, "timezone": zone.name}
    write_result(
        options.form,
        lambda: _render(told, options.list),
        lambda: [change.as_json(partial(format_iso, zone=zone)) for change in told.changes],
        None,
        more,
        ("path", "change"),
    )
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser("changes", "Show the files that a run changed, and how.", EXAMPLES)
    what = "the beginning of a run's or a session's id, or a recording (default: the newest run, with its task's other attempts)"
    parser.add_argument("run", nargs="?", metavar="RUN", help=what)
    parser.add_argument("--list", action="store_true", help="without the difference")
    parser.add_argument(
        "--patch", metavar="FILE", help="write a patch that `git apply -R` undoes; - is stdout"
    )
    parser.add_output_format()
    parser.add_ledger()
    return parser.parse_utf8_args(words)


# -- where it is known from ------------------------------------------------------------------------------------------


def _changes_of_recording(path: Path) -> ChangeSet:
    """What a recording tells; a tape of ours also names its run, whose states git may have kept."""
    header = RecordingFile(path).header if path.is_file() else None
    changes, stories = _collect(
        open_recording(str(path)).events(), header.cwd if header is not None else None
    )
    return _with_patch(
        changes, stories, changes.root, header.run_id if header is not None else None
    )


def _collect(events: Iterable[Event], root: str | None) -> tuple[ChangeTracker, PatchBuilder]:
    changes, stories = ChangeTracker(root), PatchBuilder(root)
    for event in events:
        changes.add(event)
        stories.add(event)
    return changes, stories


def _with_patch(
    changes: ChangeTracker, stories: PatchBuilder, root: str | None, run_id: str | None
) -> ChangeSet:
    trees = git.load_trees(root, run_id) if root is not None and run_id is not None else None
    if trees is not None and root is not None:
        return ChangeSet(
            merge_git_changes(changes.all_changes(), git.diff_trees(root, trees)),
            git.diff_patch(root, trees),
            "git",
        )
    return ChangeSet(changes.all_changes(), *_patch_from_tools(stories, root))


def _patch_from_tools(
    stories: PatchBuilder, root: str | None
) -> tuple[bytes | None, str | None, list[str]]:
    """The patch of what tools told, with names as seen from the top of a repository, where there is one."""
    inner = git.path_in_repository(root) if root is not None and Path(root).is_dir() else ""
    data = stories.build_patch(inner)
    return (
        (data, "tools", stories.files_without_content())
        if data
        else (None, None, stories.files_without_content())
    )


def _changes_from_ledger(options: argparse.Namespace) -> ChangeSet | None:
    store = open_updated_ledger(options)
    try:
        meant = (
            asks.newest_run_or_task(store)
            if options.run is None
            else runs.get_by_prefix(store, options.run)
        )
        if meant is None:
            print_lines(no_rows_message(store, "runs"))
            return None
        return _stored_changes(store, *meant)
    finally:
        store.close()


def _stored_changes(store: Store, table: str, id_: str) -> ChangeSet:
    """What the ledger has of a run, a session or a task, with what git or the recordings add."""
    found, root = asks.list_changes(store, table, id_), asks.project_folder(store, table, id_)
    attempts = asks.runs_of_task(store, id_) if table == "tasks" else [(id_, None)]
    trees = (
        git.load_trees(root, attempts[0][0], attempts[-1][0])
        if root is not None and table != "sessions"
        else None
    )
    if trees is not None and root is not None:
        told = merge_git_changes(found, git.diff_trees(root, trees))
        return ChangeSet(
            _attribute_to_call(told, asks.find_sole_writer(store, table, id_)),
            git.diff_patch(root, trees),
            "git",
        )
    sources = [
        source
        for source in _recording_paths(store, table, id_)
        if source is not None and Path(source).exists()
    ]
    if not sources:
        return ChangeSet(found)
    _, stories = _collect(
        (event for source in sources for event in open_recording(source).events()), root
    )
    return ChangeSet(found, *_patch_from_tools(stories, root))


def _recording_paths(store: Store, table: str, id_: str) -> list[str | None]:
    """The recordings that tell of it, in order."""
    if table == "tasks":
        return [source for _, source in asks.runs_of_task(store, id_)]
    return [
        runs.get_run(store, id_).source
        if table == "runs"
        else next(iter(sessions.transcript_paths(store, id_)), None)
    ]


def _attribute_to_call(changes: list[Change], only: tuple[str, str] | None) -> list[Change]:
    """Where one call alone can have changed files without a word, what only git knows of is its work."""
    for change in changes:
        if only is not None and change.source == "git" and change.call is None:
            change.call, change.tool = only
    return changes


# -- what is printed -------------------------------------------------------------------------------------------------


def _render(told: ChangeSet, only_list: bool) -> list[str]:
    if not told.changes:
        return ["Nothing was changed, as far as it is known."]
    lines = changed.changes_table(told.changes, detect_style())
    if only_list or told.patch is None:
        return lines
    return [*lines, "", *changed.patch_lines(told.patch.removesuffix(b"\n"), detect_style())]


def _write_patch(told: ChangeSet, where: str) -> int:
    if told.patch is None:
        why = (
            "nothing was changed"
            if not told.changes
            else "no content is known: neither git nor the recording has it"
        )
        raise StenoError(f"there is no patch: {why}")
    untold = {
        change.path
        for change in told.changes
        if told.patch_source == "tools" and change.source != "tool"
    }
    for path in sorted({*told.missing_content, *untold}):
        print_error(f"{path}: its content was not told, so the patch leaves it out")
    if where == "-" and is_terminal(sys.stdout):
        print_lines(changed.patch_lines(told.patch.removesuffix(b"\n"), detect_style()))
    elif where == "-":
        write_bytes(told.patch)
    else:
        _write_file(where, told.patch)
    return 0


def _write_file(where: str, data: bytes) -> None:
    """All of a file or nothing. What is no file (a device, a pipe) is written to, and a link leads to what it names."""
    if not where:
        raise StenoError("--patch: no file is named; - is stdout")
    path = Path(os.path.realpath(where)) if not where.startswith("/dev/") else Path(where)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.write(data)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_current_umask()
        _replace_atomically(path, data, mode)
    except OSError as problem:
        raise StenoError(f"{where}: cannot be written: {problem.strerror or problem}") from None


def _replace_atomically(path: Path, data: bytes, mode: int) -> None:
    number, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        os.chmod(name, mode)  # noqa: PTH101
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _current_umask() -> int:
    """What this process takes away from new files; it can only be asked by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
