"""A task's own checkout of a repository: a worktree of it, or of a clone kept by steno."""

import hashlib
import os
from pathlib import Path

from ..config.files import data_folder
from ..errors import StenoError
from ..private_files import create_private_folder
from ..runner.prepare import ensure_worktree
from ..workspace.repository import GitError, clone_repository, fetch_repository

CLONE_SECONDS = 900


def ensure_checkout(repository: str, commit: str | None, name: str) -> str:
    """The folder of the worktree `name`, at `commit` (default: HEAD), created if needed."""
    is_url = "://" in repository or ":" in repository.partition("/")[0]
    try:
        folder = _ensure_clone(repository, commit) if is_url else Path(repository)
    except GitError as error:
        raise StenoError(f"repository {repository}: {error}") from None
    return ensure_worktree(str(folder), name, commit).cwd


def _ensure_clone(url: str, commit: str | None) -> Path:
    folder = data_folder() / "repositories" / hashlib.sha256(url.encode()).hexdigest()[:16]
    create_private_folder(folder)
    clone = folder / "clone"
    if (clone / ".git").exists():
        if commit is not None:
            fetch_repository(clone, CLONE_SECONDS)
        return clone
    draft = folder / f"clone.{os.getpid()}.{os.urandom(4).hex()}"
    clone_repository(url, draft, CLONE_SECONDS)
    try:
        draft.rename(clone)
    except OSError:  # another worker was faster
        if not (clone / ".git").exists():
            raise
    return clone
