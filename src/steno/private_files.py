"""Folders that only their owner can read; temporary ones, deleted even after a kill; the cache."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIVATE_MODE = 0o700
TEMPORARY_PREFIX = "steno-tmp-"
LOCK_NAME = ".lock"
LOCK_POLL_SECONDS = 0.02
UNLOCKED_SECONDS = 3600.0  # a folder without a lock may have just been created


def create_private_folder(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700, whatever the umask. OSError."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(PRIVATE_MODE)
        except FileExistsError:  # created by another process
            continue
        new.chmod(PRIVATE_MODE)


def try_lock(descriptor: int) -> bool:
    """Lock a file until it is closed; False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def wait_for_lock(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a folder, among all processes; after this time, continue without it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        give_up_at = time.monotonic() + seconds
        while not try_lock(descriptor) and time.monotonic() < give_up_at:
            time.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[str]:
    """Create a folder with mode 0700 in `parent` (default: the system's) and delete it at the end.

    Folders of processes that were killed are deleted first. A process locks a file in its folder,
    and the system releases the lock, however the process ends.
    """
    import shutil  # lazy: many commands need none
    import tempfile

    parent = parent or tempfile.gettempdir()
    _remove_unused_folders(parent)
    folder = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent)
    # Locked before it has its name: others would take a folder with a free lock for unused.
    draft = Path(folder, f"{LOCK_NAME}.new")
    lock = os.open(draft, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try_lock(lock)
        draft.rename(Path(folder, LOCK_NAME))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_unused_folders(parent: str) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY_PREFIX):
                with suppress(OSError):  # deleted by another process
                    _remove_if_unused(Path(entry.path))


def _remove_if_unused(folder: Path) -> None:
    from shutil import rmtree

    info = folder.lstat()
    if info.st_uid != os.geteuid() or not stat.S_ISDIR(info.st_mode):
        return
    try:
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        if info.st_mtime < time.time() - UNLOCKED_SECONDS:
            rmtree(folder, ignore_errors=True)
        return
    try:
        if try_lock(lock):
            rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


# -- the user's cache directory --------------------------------------------------------------------


def cache_path(name: str) -> Path:
    """The path of a file; RuntimeError if the user has no home folder."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("steno", appauthor=False)) / name


def write_cache_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: another process sees the old or the new one."""
    create_private_folder(path.parent)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
