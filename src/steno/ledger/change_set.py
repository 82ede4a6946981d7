"""The changes of a run, session or task, with a patch from git snapshots or the recording."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from ..event import Event
from ..recording.format import RecordingFile
from ..recording.open import open_recording
from ..workspace import git
from ..workspace.changes import Change, ChangeTracker, PatchBuilder, merge_git_changes
from ..workspace.repository import path_in_repository
from .protocol import Store
from .queries import diff as queries
from .queries import runs, sessions


class ChangeSet(Struct):
    """Changes and their patch. `patch_source` is git or tools."""

    changes: list[Change]
    patch: bytes | None = None
    patch_source: str | None = None
    missing_content: list[str] = []


def changes_of_recording(path: Path) -> ChangeSet:
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
    prefix = path_in_repository(root) if root is not None and Path(root).is_dir() else ""
    data = patch.build_patch(prefix)
    missing = patch.files_without_content()
    return (data, "tools", missing) if data else (None, None, missing)


def stored_changes(store: Store, table: str, id_: str) -> ChangeSet:
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
    if not sources or not changes:
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
