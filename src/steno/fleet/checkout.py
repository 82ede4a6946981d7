"""A task's own checkout of a repository: a worktree of it, or of a clone kept by steno."""

import hashlib
import os
import subprocess
from pathlib import Path

from ..config.files import data_folder
from ..errors import StenoError
from ..private_files import create_private_folder
from ..runner.prepare import ensure_worktree
from ..workspace.repository import find_git

CLONE_SECONDS = 900
ALLOWED_PROTOCOLS = "https:http:ssh:git:file"


def ensure_checkout(repository: str, commit: str | None, name: str) -> str:
    """The folder of the worktree `name`, at `commit` (default: HEAD), created if needed."""
    is_url = "://" in repository or ":" in repository.partition("/")[0]
    folder = _ensure_clone(repository, commit) if is_url else Path(repository)
    return ensure_worktree(str(folder), name, commit).cwd


def _ensure_clone(url: str, commit: str | None) -> Path:
    parent = data_folder() / "repositories"
    create_private_folder(parent)
    folder = parent / hashlib.sha256(url.encode()).hexdigest()[:16] / "clone"
    if not (folder / ".git").exists():
        draft = folder.with_name(f"clone.{os.getpid()}")
        _git("clone", "--quiet", "--no-checkout", "--", url, str(draft))
        try:
            draft.rename(folder)
        except OSError:  # another worker was faster
            if not (folder / ".git").exists():
                raise
    elif commit is not None:
        _git("-C", str(folder), "fetch", "--quiet", "origin")
    return folder


def _git(*arguments: str) -> None:
    git = find_git()
    if git is None:
        raise StenoError("git not found in PATH")
    env = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ALLOWED_PROTOCOLS,
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    try:
        done = subprocess.run(  # noqa: S603  # git, with a list of arguments
            [git, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CLONE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StenoError(f"git {arguments[0]}: not done within {CLONE_SECONDS} s") from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise StenoError(f"git {arguments[0]}: {reason[-1] if reason else 'failed'}")
