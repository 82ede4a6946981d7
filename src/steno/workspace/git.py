"""What a git repository can tell: how its files stood before and after a run, and the exact difference.

A state is a tree of git, made with an index of its own: the user's index, branches and files are not touched. A ref
(`refs/steno/RUN/before`) keeps it from being cleaned away. Where there is no repository, or no git, the answer is None.
"""

import os
import posixpath
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ..process.run_once import DEFAULT_TIMEOUT_SECONDS, RunOnce
from .changes import Change

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
# What a git that has called us says of its own repository: it need not be the agent's.
UNSET_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
)
MAX_SNAPSHOT_BYTES = (
    50 << 20
)  # bytes of files that git does not have yet: a copy of more is nobody's wish, and takes long
REF_PREFIX = "refs/steno/"


class TreePair(Struct, frozen=True):
    """The two states of a run."""

    before: str
    after: str


def is_in_repository(cwd: str) -> bool:
    """Whether a folder lies in a repository, by a look at the disk alone."""
    return any((folder / ".git").exists() for folder in (Path(cwd), *Path(cwd).parents))


def snapshot(cwd: str, seconds: float = DEFAULT_TIMEOUT_SECONDS) -> str | None:
    """The id of a tree with every file of the repository that `cwd` lies in, as they are now; ignored files are not in it.

    None also where there was no time for it, or where too much is new.
    """
    until = time.monotonic() + seconds
    top = _decode(_git_output(cwd, "rev-parse", "--show-toplevel", deadline=until))
    if top is None:
        return None
    with tempfile.TemporaryDirectory(prefix="steno-git-") as folder:
        index = Path(folder, "index")
        used = _decode(
            _git_output(
                top, "rev-parse", "--path-format=absolute", "--git-path", "index", deadline=until
            )
        )
        if used is not None:
            with suppress(OSError):  # a repository without a commit has none
                shutil.copy2(used, index)  # what it knows of the files saves reading them all
        own = {"GIT_INDEX_FILE": str(index)}
        new = _git_output(
            top,
            "ls-files",
            "-z",
            "--modified",
            "--others",
            "--exclude-standard",
            env=own,
            deadline=until,
        )
        if new is None or _total_size(top, new.split(b"\0")) > MAX_SNAPSHOT_BYTES:
            return None
        added = _run_git(top, ("add", "--all", "--ignore-errors", "--", "."), own, until)[0]
        return (
            _decode(_git_output(top, "write-tree", env=own, deadline=until))
            if added in (0, 1)
            else None
        )  # 1: a file cannot be read


def _total_size(top: str, names: Iterable[bytes]) -> int:
    """The bytes of files; those that are gone, or cannot be looked at, weigh nothing."""
    found = 0
    for name in names:
        with suppress(OSError):
            found += os.lstat(os.path.join(os.fsencode(top), name)).st_size if name else 0  # noqa: PTH118  # bytes
    return found


def save_tree(cwd: str, run: str, moment: str, tree: str) -> bool:
    """Keep a tree as the state of a run at a moment: before or after."""
    return _git_output(cwd, "update-ref", f"{REF_PREFIX}{run}/{moment}", tree) is not None


def save_snapshot(
    cwd: str, run: str, moment: str, seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> str | None:
    """Take the state of the files now and keep it: `mark(cwd, run, "before")` when a run begins, "after" when it ended."""
    tree = snapshot(cwd, seconds)
    return tree if tree is not None and save_tree(cwd, run, moment, tree) else None


def load_trees(cwd: str, run: str, last: str | None = None) -> TreePair | None:
    """The two states of a run, or of runs from a first to a `last` one; None where they were not kept, or not here."""
    if not Path(cwd).is_dir():
        return None
    refs = (f"{REF_PREFIX}{run}/before", f"{REF_PREFIX}{last or run}/after")
    found = [_decode(_git_output(cwd, "rev-parse", "--verify", "--quiet", ref)) for ref in refs]
    return TreePair(found[0], found[1]) if found[0] is not None and found[1] is not None else None


def delete_snapshots(cwd: str, runs: Collection[str]) -> int:
    """Let go of the states of runs: git cleans them away in its own time. How many runs had any here."""
    if not runs or not Path(cwd).is_dir() or not is_in_repository(cwd):
        return 0
    refs = (
        (_git_output(cwd, "for-each-ref", "--format=%(refname)", REF_PREFIX) or b"")
        .decode("utf-8", "surrogateescape")
        .split()
    )
    found = [ref for ref in refs if _run_of_ref(ref) in runs]
    for ref in found:
        _git_output(cwd, "update-ref", "-d", ref)
    return len({_run_of_ref(ref) for ref in found})


def _run_of_ref(ref: str) -> str:
    return ref.removeprefix(REF_PREFIX).partition("/")[0]


def path_in_repository(cwd: str) -> str:
    """The name of `cwd` below the top of its repository, with a slash behind; empty at the top."""
    return _decode(_git_output(cwd, "rev-parse", "--show-prefix")) or ""


def diff_trees(cwd: str, trees: TreePair) -> list[Change]:
    """Every file that is different, with renames found. Paths are relative to `cwd`."""
    words = ("diff-tree", "-r", "-M", "-z", "--raw", "--numstat", trees.before, trees.after)
    inner = path_in_repository(cwd)
    return [_relative_to(change, inner) for change in parse_diff(_git_output(cwd, *words) or b"")]


def _relative_to(change: Change, inner: str) -> Change:
    """A change with its path as seen from a folder below the top of the repository."""
    if inner:
        change.inside = change.path.startswith(inner)
        change.path = posixpath.relpath(change.path, inner)
        change.was = None if change.was is None else posixpath.relpath(change.was, inner)
    return change


def diff_patch(cwd: str, trees: TreePair) -> bytes | None:
    """The exact difference: binary files, renames and modes too. `git apply -R` at the top of the repository undoes it."""
    words = (
        "diff-tree",
        "-r",
        "-M",
        "-p",
        "--binary",
        "--full-index",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
    )
    return _git_output(cwd, *words, "--src-prefix=a/", "--dst-prefix=b/", trees.before, trees.after)


def parse_diff(out: bytes) -> list[Change]:
    """What `--raw --numstat -z` says: each file's modes and names, and then its lines."""
    parts = [part.decode("utf-8", "surrogateescape") for part in out.split(b"\0")]
    found: dict[str, Change] = {}
    at = 0
    while at < len(parts) and parts[at]:
        if parts[at].startswith(":"):
            at += _parse_raw(parts, at, found)
        else:
            at += _parse_numstat(parts, at, found)
    return list(found.values())


def _parse_raw(parts: list[str], at: int, found: dict[str, Change]) -> int:
    """One `:100644 100644 ID ID M`, name, and for a rename the new name; how many parts it took."""
    was_mode, mode, _, _, word = parts[at][1:].split(" ")
    moved = word[0] in "RC"
    name = parts[at + 2] if moved else parts[at + 1]
    shown = None if mode == was_mode or word[0] in "AD" else f"{was_mode} → {mode}"
    was = parts[at + 1] if word[0] == "R" else None
    found[name] = Change(
        path=name,
        change=CHANGE_BY_STATUS.get(word[0], "modified"),
        source="git",
        was=was,
        mode=shown,
    )
    return 3 if moved else 2


def _parse_numstat(parts: list[str], at: int, found: dict[str, Change]) -> int:
    """One `added TAB removed TAB name`; for a rename both names follow; `-` stands for a binary file."""
    added, removed, name = parts[at].split("\t", 2)
    took = 1 if name else 3
    change = found.get(name or parts[at + 2])
    if change is not None:
        change.binary = added == "-"
        change.added, change.removed = (None, None) if change.binary else (int(added), int(removed))
    return took


def _git_output(
    cwd: str, *words: str, env: dict[str, str] | None = None, deadline: float | None = None
) -> bytes | None:
    code, out = _run_git(cwd, words, env or {}, deadline)
    return out if code == 0 else None


def _run_git(
    cwd: str, words: tuple[str, ...], more: dict[str, str], until: float | None = None
) -> tuple[int, bytes]:
    left = DEFAULT_TIMEOUT_SECONDS if until is None else max(0.0, until - time.monotonic())
    code, out, _ = RunOnce(
        ("git", *GIT_OPTIONS, *words), cwd, {**GIT_ENV, **more}, left, UNSET_VARIABLES
    ).run()
    return code, out


def _decode(out: bytes | None) -> str | None:
    found = (out or b"").decode("utf-8", "surrogateescape").removesuffix("\n")
    return found or None
