"""Snapshots of a git repository before and after a run, and their difference.

A snapshot is a git tree made with a separate index: the user's index, branches and files are not
touched. A ref (`refs/steno/RUN/before`) protects it from garbage collection. Without a repository
or git, results are None.
"""

import os
import posixpath
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ..process.child import DEFAULT_TIMEOUT_SECONDS, RunOnce
from .changes import Change
from .ignore_rules import find_repository_root

CHANGE_BY_STATUS = {
    "A": "created",
    "D": "deleted",
    "M": "modified",
    "T": "modified",
    "R": "renamed",
    "C": "created",
}
GIT_OPTIONS = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "gc.auto=0",
    "-c",
    "core.quotePath=true",
)
GIT_ENV = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Set by a git hook that runs steno; its repository need not be the agent's.
UNSET_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
)
MAX_SNAPSHOT_BYTES = 50 << 20  # of files that git doesn't have yet; more would take long
REF_PREFIX = "refs/steno/"
RUN_ID_PATTERN = re.compile(r"([0-9a-f]{11})[0-9a-f]{8}")  # milliseconds, then random digits
SECONDS_PER_DAY = 86_400
MAX_PRUNED_RUNS = 50  # each takes two calls of git


class TreePair(Struct, frozen=True):
    """The snapshots of a run."""

    before: str
    after: str


def is_in_repository(cwd: str) -> bool:
    """Whether a folder is in a repository, without running git."""
    return find_repository_root(cwd) is not None


def snapshot(cwd: str, seconds: float = DEFAULT_TIMEOUT_SECONDS) -> str | None:
    """The id of a tree with all files of the repository of `cwd` that are not ignored.

    None also if there is no time for it, or too much is new.
    """
    deadline = time.monotonic() + seconds
    top = _decode(_git_output(cwd, "rev-parse", "--show-toplevel", deadline=deadline))
    if top is None:
        return None
    with tempfile.TemporaryDirectory(prefix="steno-git-") as folder:
        index = Path(folder, "index")
        _copy_index(top, index, deadline)
        env = {"GIT_INDEX_FILE": str(index)}
        list_new = ("ls-files", "-z", "--modified", "--others", "--exclude-standard")
        new = _git_output(top, *list_new, env=env, deadline=deadline)
        if new is None or _total_size(top, new.split(b"\0")) > MAX_SNAPSHOT_BYTES:
            return None
        code, _ = _run_git(top, ("add", "--all", "--ignore-errors", "--", "."), env, deadline)
        if code not in (0, 1):  # 1: a file cannot be read
            return None
        return _decode(_git_output(top, "write-tree", env=env, deadline=deadline))


def _copy_index(top: str, target: Path, deadline: float) -> None:
    """Start from the user's index, so that unchanged files are not read again."""
    command = ("rev-parse", "--path-format=absolute", "--git-path", "index")
    path = _decode(_git_output(top, *command, deadline=deadline))
    if path is not None:
        with suppress(OSError):  # a repository without a commit has no index
            shutil.copy2(path, target)


def _total_size(top: str, names: Iterable[bytes]) -> int:
    """The bytes of all files; those that are missing or unreadable count 0."""
    total = 0
    for name in filter(None, names):
        with suppress(OSError):
            path = os.path.join(os.fsencode(top), name)  # noqa: PTH118  # bytes
            total += os.lstat(path).st_size
    return total


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
    before, after = (
        _decode(_git_output(cwd, "rev-parse", "--verify", "--quiet", ref)) for ref in refs
    )
    return None if before is None or after is None else TreePair(before, after)


def delete_snapshots(cwd: str, runs: Collection[str]) -> int:
    """Delete the refs of runs, so that git can collect the trees; the number of runs with any."""
    if not runs or not Path(cwd).is_dir() or not is_in_repository(cwd):
        return 0
    matches = [ref for ref in _list_refs(cwd) if _run_of_ref(ref) in runs]
    for ref in matches:
        _git_output(cwd, "update-ref", "-d", ref)
    return len({_run_of_ref(ref) for ref in matches})


def prune_snapshots(cwd: str, max_days: int, max_runs: int) -> int:
    """Delete the refs of runs that are too old or too many; the number of runs deleted.

    A run without a snapshot after it may be active: only its age counts. At most MAX_PRUNED_RUNS
    are deleted at once, the oldest first: the others are for the next run.
    """
    refs = _list_refs(cwd)
    runs = sorted({run for ref in refs if _start_time_of(run := _run_of_ref(ref)) is not None})
    finished = [run for run in runs if f"{REF_PREFIX}{run}/after" in refs]
    oldest_kept = time.time() - max_days * SECONDS_PER_DAY
    excess = set(finished[: max(0, len(finished) - max_runs)])
    expired = [run for run in runs if run in excess or (_start_time_of(run) or 0) < oldest_kept]
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


def path_in_repository(cwd: str) -> str:
    """The path of `cwd` in its repository, with a slash at the end; empty at the top."""
    return _decode(_git_output(cwd, "rev-parse", "--show-prefix")) or ""


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


def _git_output(
    cwd: str, *command: str, env: dict[str, str] | None = None, deadline: float | None = None
) -> bytes | None:
    code, out = _run_git(cwd, command, env or {}, deadline)
    return out if code == 0 else None


def _run_git(
    cwd: str, command: tuple[str, ...], env: dict[str, str], deadline: float | None = None
) -> tuple[int, bytes]:
    timeout = DEFAULT_TIMEOUT_SECONDS
    if deadline is not None:
        timeout = max(0.0, deadline - time.monotonic())
    process = RunOnce(
        argv=("git", *GIT_OPTIONS, *command),
        cwd=cwd,
        extra_env={**GIT_ENV, **env},
        timeout=timeout,
        unset_env=UNSET_VARIABLES,
    )
    code, out, _ = process.run()
    return code, out


def _decode(out: bytes | None) -> str | None:
    text = (out or b"").decode("utf-8", "surrogateescape").removesuffix("\n")
    return text or None
