"""A git worktree for a run, beside its repository: what the agent changes there touches nobody else's files.

It makes one, or finds the one of that name again; it never removes one. Not below `.git`: agents do not write there unasked.
"""

import os
import re
from pathlib import Path

from msgspec import Struct

from ..process.once import RunOnce
from ..report import StenoError

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Worktree(Struct, frozen=True):
    """Where it is, the folder to run in, its branch, and whether it is new."""

    path: str
    cwd: str
    branch: str
    is_new: bool


def check_worktree_name(name: str) -> None:
    """StenoError if this cannot be the name of a worktree."""
    if not _NAME_PATTERN.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise StenoError(f"--worktree={name}: expected a name of letters, digits, dots, dashes and underscores")


def ensure_worktree(cwd: str, name: str) -> Worktree:
    """The worktree of that name for the repository that `cwd` lies in."""
    top, inside = _git_output(cwd, "rev-parse", "--show-toplevel"), _git_output(cwd, "rev-parse", "--show-prefix")
    main = Path(_git_output(cwd, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    root = main.parent if main.name == ".git" else Path(top)  # worktrees of a worktree stand beside the first
    path, branch = root.with_name(f"{root.name}-worktrees") / name, f"steno/{name}"
    new = not (path / ".git").exists()
    if new:
        known = _run_git(cwd, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}")[0] == 0
        _git_output(cwd, "worktree", "add", "--quiet", *((str(path), branch) if known else ("-b", branch, str(path))))
    within = path / inside
    return Worktree(str(path), str(within if within.is_dir() else path), branch, new)


def _git_output(cwd: str, *words: str) -> str:
    code, out, err = _run_git(cwd, *words)
    if code != 0:
        told = err.strip().splitlines()[-1:] or [f"git {words[0]} failed with exit code {code}"]
        raise StenoError(f"--worktree: {cwd}: {told[0].removeprefix('fatal: ')}")
    return os.fsdecode(out).strip()


def _run_git(cwd: str, *words: str) -> tuple[int, bytes, str]:
    return RunOnce(("git", *words), cwd, {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}).run()
