"""Snapshots of a git repository before and after a run, and their difference.

A snapshot is a git tree made with a separate index: the user's index, branches and files are not
touched. A ref (`refs/steno/RUN/before`) protects it from garbage collection. Without a repository
or git, results are None.
"""

import os
import posixpath
import re
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ..process.child import DEFAULT_TIMEOUT_SECONDS
from .changes import Change
from .origin import find_repository_root
from .repository import GitError, Repository, find_git, open_repository, path_in_repository
from .snapshot import take_snapshot

CHANGE_BY_STATUS = {
    "A": "created",
    "D": "deleted",
    "M": "modified",
    "T": "modified",
    "R": "renamed",
    "C": "created",
}
MAX_SNAPSHOT_BYTES = 50 << 20  # of files that git doesn't have yet; more would take long
REF_PREFIX = "refs/steno/"
RUN_ID_PATTERN = re.compile(r"[0-9a-f]{8}([0-9a-f]{11})")  # random digits, then milliseconds
SECONDS_PER_DAY = 86_400
MAX_PRUNED_RUNS = 50  # each ref is a file to lock and delete


class TreePair(Struct, frozen=True):
    """The snapshots of a run."""

    before: str
    after: str


def is_in_repository(cwd: str) -> bool:
    """Whether a folder is in a repository, without running git."""
    return find_repository_root(cwd) is not None


def is_installed(cwd: str) -> bool:
    """Whether git is in PATH, outside of the repository of `cwd`."""
    return find_git(find_repository_root(os.path.realpath(cwd)) or Path(cwd)) is not None


def snapshot(cwd: str, seconds: float = DEFAULT_TIMEOUT_SECONDS) -> str | None:
    """The id of a tree with all files of the repository of `cwd` that are not ignored.

    Bytes are stored as they are, without filters or line-ending conversion. Untracked files that
    look like secrets are left out. None also if there is no time for it, or too much is new.
    """
    with open_repository(cwd, seconds) as repository, suppress(GitError):
        return None if repository is None else take_snapshot(repository, MAX_SNAPSHOT_BYTES)
    return None


def add_worktree(repository: Repository, path: Path, branch: str, commit: str = "HEAD") -> None:
    """Create a worktree of a commit with the files as git stores them: no filter or hook runs."""
    ref = f"refs/heads/{branch}"
    if not repository.succeeds("show-ref", "--verify", "--quiet", ref):
        id_ = repository.text("rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
        repository.output("update-ref", ref, id_)
    with repository.shared_worktrees(path):
        repository.output("worktree", "add", "--quiet", "--no-checkout", str(path), branch)
    with open_repository(str(path)) as worktree:
        if worktree is None:
            return
        try:
            worktree.output("read-tree", "-u", "--reset", ref)
            worktree.save_index()
        except (GitError, OSError):  # such as an object that a partial clone doesn't have
            shutil.rmtree(path, ignore_errors=True)
            shutil.rmtree(worktree.git_dir, ignore_errors=True)
            raise


def has_commit(repository: Repository, commit: str) -> bool:
    name = f"{commit}^{{commit}}"
    return repository.succeeds("rev-parse", "--verify", "--quiet", "--end-of-options", name)


def remove_worktree(repository: Repository, path: Path, branch: str) -> None:
    """Delete a worktree, its registration and its branch. Nothing in its files is trusted."""
    shutil.rmtree(path, ignore_errors=True)
    registered = repository.common_dir / "worktrees" / path.name
    with suppress(OSError):
        if (registered / "gitdir").read_bytes().strip() == os.fsencode(path / ".git"):
            shutil.rmtree(registered)
    with suppress(GitError):
        repository.output("update-ref", "-d", f"refs/heads/{branch}")


def save_tree(cwd: str, run: str, moment: str, tree: str) -> bool:
    """Keep a tree as the snapshot of a run; `moment` is before or after."""
    return _git_output(cwd, "update-ref", f"{REF_PREFIX}{run}/{moment}", tree) is not None


def save_snapshot(
    cwd: str, run: str, moment: str, seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> str | None:
    """Take and keep a snapshot: `moment` "before" when a run starts, "after" when it ended."""
    tree = snapshot(cwd, seconds)
    return tree if tree is not None and save_tree(cwd, run, moment, tree) else None


def load_trees(cwd: str, run: str, last: str | None = None) -> TreePair | None:
    """The snapshots of a run, or of runs up to `last`; None if they are not in this repository."""
    if not Path(cwd).is_dir():
        return None
    refs = (f"{REF_PREFIX}{run}/before", f"{REF_PREFIX}{last or run}/after")
    command = ("for-each-ref", "--format=%(refname) %(objectname)", *refs)
    lines = (_git_output(cwd, *command) or b"").decode("utf-8", "replace").splitlines()
    ids = dict(line.split(" ") for line in lines)
    return TreePair(ids[refs[0]], ids[refs[1]]) if ids.keys() >= set(refs) else None


def delete_snapshots(cwd: str, runs: Collection[str]) -> int:
    """Delete the refs of runs, so that git can collect the trees; the number of runs with any."""
    if not runs or not Path(cwd).is_dir() or not is_in_repository(cwd):
        return 0
    matches = [ref for ref in _list_refs(cwd) if _run_of_ref(ref) in runs]
    if matches:
        lines = "".join(f"delete {ref}\n" for ref in matches)
        _git_output(cwd, "update-ref", "--stdin", stdin=lines.encode())
    return len({_run_of_ref(ref) for ref in matches})


def prune_snapshots(cwd: str, max_days: int, max_runs: int) -> int:
    """Delete the refs of runs that are too old or too many; the number of runs deleted.

    A run without a snapshot after it may be active: only its age counts. At most MAX_PRUNED_RUNS
    are deleted at once, the oldest first: the others are for the next run.
    """
    refs = _list_refs(cwd)
    started = {run: at for run in map(_run_of_ref, refs) if (at := _start_time_of(run)) is not None}
    runs = sorted(started, key=lambda run: started[run])
    finished = [run for run in runs if f"{REF_PREFIX}{run}/after" in refs]
    oldest_kept = time.time() - max_days * SECONDS_PER_DAY
    excess = set(finished[: max(0, len(finished) - max_runs)])
    expired = [run for run in runs if run in excess or started[run] < oldest_kept]
    return delete_snapshots(cwd, expired[:MAX_PRUNED_RUNS])


def _list_refs(cwd: str) -> list[str]:
    out = _git_output(cwd, "for-each-ref", "--format=%(refname)", REF_PREFIX) or b""
    return out.decode("utf-8", "surrogateescape").split()


def _run_of_ref(ref: str) -> str:
    return ref.removeprefix(REF_PREFIX).partition("/")[0]


def _start_time_of(run: str) -> float | None:
    """The time in a run's id, in seconds since 1970; None if it is another name."""
    match = RUN_ID_PATTERN.fullmatch(run)
    return int(match[1], 16) / 1000 if match is not None else None


def diff_trees(cwd: str, trees: TreePair) -> list[Change]:
    """Every changed file, with renames detected. Paths are relative to `cwd`."""
    command = ("diff-tree", "-r", "-M", "-z", "--raw", "--numstat", trees.before, trees.after)
    inner = path_in_repository(cwd)
    out = _git_output(cwd, *command) or b""
    return [_relative_to(change, inner) for change in parse_diff(out)]


def _relative_to(change: Change, inner: str) -> Change:
    """The change with its paths relative to a folder in the repository."""
    if inner:
        change.inside = change.path.startswith(inner)
        change.path = posixpath.relpath(change.path, inner)
        change.was = None if change.was is None else posixpath.relpath(change.was, inner)
    return change


def diff_patch(cwd: str, trees: TreePair) -> bytes | None:
    """A patch with binary files, renames and modes. `git apply -R` at the top undoes it."""
    command = (
        "diff-tree",
        "-r",
        "-M",
        "-p",
        "--binary",
        "--full-index",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    )
    return _git_output(cwd, *command, trees.before, trees.after)


def parse_diff(out: bytes) -> list[Change]:
    """The output of `--raw --numstat -z`: modes and names of all files, then line counts."""
    parts = [part.decode("utf-8", "surrogateescape") for part in out.split(b"\0")]
    changes: dict[str, Change] = {}
    position = 0
    while position < len(parts) and parts[position]:
        is_raw = parts[position].startswith(":")
        parse = _parse_raw if is_raw else _parse_numstat
        position += parse(parts, position, changes)
    return list(changes.values())


def _parse_raw(parts: list[str], position: int, changes: dict[str, Change]) -> int:
    """`:100644 100644 ID ID M`, name, and the new name of a rename or copy; parts consumed."""
    old_mode, mode, _, _, status = parts[position][1:].split(" ")
    kind = status[0]
    has_two_names = kind in "RC"
    name = parts[position + 2] if has_two_names else parts[position + 1]
    has_new_mode = mode != old_mode and kind not in "AD"
    changes[name] = Change(
        path=name,
        change=CHANGE_BY_STATUS.get(kind, "modified"),
        source="git",
        was=parts[position + 1] if kind == "R" else None,
        mode=f"{old_mode} → {mode}" if has_new_mode else None,
    )
    return 3 if has_two_names else 2


def _parse_numstat(parts: list[str], position: int, changes: dict[str, Change]) -> int:
    """`added TAB removed TAB name`, `-` for binary files; a rename has both names behind it."""
    added, removed, name = parts[position].split("\t", 2)
    change = changes.get(name or parts[position + 2])
    if change is not None:
        change.binary = added == "-"
        change.added = None if change.binary else int(added)
        change.removed = None if change.binary else int(removed)
    return 1 if name else 3


def _git_output(cwd: str, *command: str, stdin: bytes = b"") -> bytes | None:
    """What git printed; None if it failed, or without a repository."""
    with open_repository(cwd) as repository, suppress(GitError):
        return None if repository is None else repository.output(*command, stdin=stdin)
    return None
