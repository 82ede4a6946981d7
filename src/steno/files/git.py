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

from ..answer.changed import Change
from ..process.once import PATIENCE, Once

WORDS = {"A": "created", "D": "deleted", "M": "modified", "T": "modified", "R": "renamed", "C": "created"}
QUIETLY = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "core.quotePath=true")
SETTINGS = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# What a git that has called us says of its own repository: it need not be the agent's.
OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE")
HEAVY = 50 << 20  # bytes of files that git does not have yet: a copy of more is nobody's wish, and takes long
KEPT = "refs/steno/"


class Trees(Struct, frozen=True):
    """The two states of a run."""

    before: str
    after: str


def in_repository(cwd: str) -> bool:
    """Whether a folder lies in a repository, by a look at the disk alone."""
    return any((folder / ".git").exists() for folder in (Path(cwd), *Path(cwd).parents))


def snapshot(cwd: str, seconds: float = PATIENCE) -> str | None:
    """The id of a tree with every file of the repository that `cwd` lies in, as they are now; ignored files are not in it.

    None also where there was no time for it, or where too much is new.
    """
    until = time.monotonic() + seconds
    top = _text(_git(cwd, "rev-parse", "--show-toplevel", until=until))
    if top is None:
        return None
    with tempfile.TemporaryDirectory(prefix="steno-git-") as folder:
        index = Path(folder, "index")
        used = _text(_git(top, "rev-parse", "--path-format=absolute", "--git-path", "index", until=until))
        if used is not None:
            with suppress(OSError):  # a repository without a commit has none
                shutil.copy2(used, index)  # what it knows of the files saves reading them all
        own = {"GIT_INDEX_FILE": str(index)}
        new = _git(top, "ls-files", "-z", "--modified", "--others", "--exclude-standard", more=own, until=until)
        if new is None or _weight(top, new.split(b"\0")) > HEAVY:
            return None
        added = _asked(top, ("add", "--all", "--ignore-errors", "--", "."), own, until)[0]
        return _text(_git(top, "write-tree", more=own, until=until)) if added in (0, 1) else None  # 1: a file cannot be read


def _weight(top: str, names: Iterable[bytes]) -> int:
    """The bytes of files; those that are gone, or cannot be looked at, weigh nothing."""
    found = 0
    for name in names:
        with suppress(OSError):
            found += os.lstat(os.path.join(os.fsencode(top), name)).st_size if name else 0  # noqa: PTH118  # bytes
    return found


def keep(cwd: str, run: str, moment: str, tree: str) -> bool:
    """Keep a tree as the state of a run at a moment: before or after."""
    return _git(cwd, "update-ref", f"{KEPT}{run}/{moment}", tree) is not None


def mark(cwd: str, run: str, moment: str, seconds: float = PATIENCE) -> str | None:
    """Take the state of the files now and keep it: `mark(cwd, run, "before")` when a run begins, "after" when it ended."""
    tree = snapshot(cwd, seconds)
    return tree if tree is not None and keep(cwd, run, moment, tree) else None


def kept(cwd: str, run: str, last: str | None = None) -> Trees | None:
    """The two states of a run, or of runs from a first to a `last` one; None where they were not kept, or not here."""
    if not Path(cwd).is_dir():
        return None
    refs = (f"{KEPT}{run}/before", f"{KEPT}{last or run}/after")
    found = [_text(_git(cwd, "rev-parse", "--verify", "--quiet", ref)) for ref in refs]
    return Trees(found[0], found[1]) if found[0] is not None and found[1] is not None else None


def forget(cwd: str, runs: Collection[str]) -> int:
    """Let go of the states of runs: git cleans them away in its own time. How many runs had any here."""
    if not runs or not Path(cwd).is_dir() or not in_repository(cwd):
        return 0
    refs = (_git(cwd, "for-each-ref", "--format=%(refname)", KEPT) or b"").decode("utf-8", "surrogateescape").split()
    found = [ref for ref in refs if _whose(ref) in runs]
    for ref in found:
        _git(cwd, "update-ref", "-d", ref)
    return len({_whose(ref) for ref in found})


def _whose(ref: str) -> str:
    return ref.removeprefix(KEPT).partition("/")[0]


def prefix(cwd: str) -> str:
    """The name of `cwd` below the top of its repository, with a slash behind; empty at the top."""
    return _text(_git(cwd, "rev-parse", "--show-prefix")) or ""


def differences(cwd: str, trees: Trees) -> list[Change]:
    """Every file that is different, with renames found. Paths are relative to `cwd`."""
    words = ("diff-tree", "-r", "-M", "-z", "--raw", "--numstat", trees.before, trees.after)
    inner = prefix(cwd)
    return [_below(change, inner) for change in parsed(_git(cwd, *words) or b"")]


def _below(change: Change, inner: str) -> Change:
    """A change with its path as seen from a folder below the top of the repository."""
    if inner:
        change.inside = change.path.startswith(inner)
        change.path = posixpath.relpath(change.path, inner)
        change.was = None if change.was is None else posixpath.relpath(change.was, inner)
    return change


def patch(cwd: str, trees: Trees) -> bytes | None:
    """The exact difference: binary files, renames and modes too. `git apply -R` at the top of the repository undoes it."""
    words = ("diff-tree", "-r", "-M", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
    return _git(cwd, *words, "--src-prefix=a/", "--dst-prefix=b/", trees.before, trees.after)


def parsed(out: bytes) -> list[Change]:
    """What `--raw --numstat -z` says: each file's modes and names, and then its lines."""
    parts = [part.decode("utf-8", "surrogateescape") for part in out.split(b"\0")]
    found: dict[str, Change] = {}
    at = 0
    while at < len(parts) and parts[at]:
        if parts[at].startswith(":"):
            at += _raw(parts, at, found)
        else:
            at += _lines(parts, at, found)
    return list(found.values())


def _raw(parts: list[str], at: int, found: dict[str, Change]) -> int:
    """One `:100644 100644 ID ID M`, name, and for a rename the new name; how many parts it took."""
    was_mode, mode, _, _, word = parts[at][1:].split(" ")
    moved = word[0] in "RC"
    name = parts[at + 2] if moved else parts[at + 1]
    shown = None if mode == was_mode or word[0] in "AD" else f"{was_mode} → {mode}"
    was = parts[at + 1] if word[0] == "R" else None
    found[name] = Change(path=name, change=WORDS.get(word[0], "modified"), source="git", was=was, mode=shown)
    return 3 if moved else 2


def _lines(parts: list[str], at: int, found: dict[str, Change]) -> int:
    """One `added TAB removed TAB name`; for a rename both names follow; `-` stands for a binary file."""
    added, removed, name = parts[at].split("\t", 2)
    took = 1 if name else 3
    change = found.get(name or parts[at + 2])
    if change is not None:
        change.binary = added == "-"
        change.added, change.removed = (None, None) if change.binary else (int(added), int(removed))
    return took


def _git(cwd: str, *words: str, more: dict[str, str] | None = None, until: float | None = None) -> bytes | None:
    code, out = _asked(cwd, words, more or {}, until)
    return out if code == 0 else None


def _asked(cwd: str, words: tuple[str, ...], more: dict[str, str], until: float | None = None) -> tuple[int, bytes]:
    left = PATIENCE if until is None else max(0.0, until - time.monotonic())
    code, out, _ = Once(("git", *QUIETLY, *words), cwd, {**SETTINGS, **more}, left, OTHERS).run()
    return code, out


def _text(out: bytes | None) -> str | None:
    found = (out or b"").decode("utf-8", "surrogateescape").removesuffix("\n")
    return found or None
