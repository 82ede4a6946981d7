"""Temporary files in destinations: created locked, so that other processes leave them alone.

A lock is released when its process dies; an unlocked file is stale.
"""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import OPEN_FILE_NOFOLLOW

CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create_temp_file(folder: int) -> tuple[int, str]:
    """A new locked file in an open folder: its descriptor and name."""
    while True:
        name = TEMP_PREFIX + secrets.token_hex(8)
        file = os.open(name, CREATE_FLAGS, 0o600, dir_fd=folder)
        if lock_own_file(file, name, folder):
            return file, name
        os.close(file)  # removed as stale before it was locked


def lock_own_file(file: int, name: str | Path, folder: int | None = None) -> bool:
    """Lock a file we created; False if another process removed it first as stale."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False


def remove_stale_temp_files(folder: int) -> None:
    """Remove what a killed process left."""
    for name in os.listdir(folder):
        if name.startswith(TEMP_PREFIX):
            with (
                suppress(OSError),
                os.fdopen(os.open(name, OPEN_FILE_NOFOLLOW, dir_fd=folder), "rb") as file,
            ):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
