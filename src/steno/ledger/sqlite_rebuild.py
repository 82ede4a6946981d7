"""The copies in which a SQLite ledger is rebuilt: two files in a folder next to it.

The folder contains a lock file, locked by the process that rebuilds. The system unlocks it when
that process ends, however it ends.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ..errors import LedgerError
from ..private_files import create_private_folder, try_lock
from .protocol import Store
from .sqlite import REBUILD_SUFFIX, SQLiteStore

LOCK_NAME = "lock"
OLD_NAME = "old.db"
NEW_NAME = "new.db"


class SQLiteRebuildArea:
    """See RebuildArea. The folder is deleted at the end of the `with` block."""

    new = "rebuild_new"
    old = "rebuild_old"
    store: Store

    def __init__(self, ledger: SQLiteStore) -> None:
        self._ledger = ledger
        self._folder = Path(f"{ledger.name}{REBUILD_SUFFIX}")
        self._old_path = self._folder / OLD_NAME
        self._new_path = self._folder / NEW_NAME
        self._lock = -1

    def __enter__(self) -> "SQLiteRebuildArea":
        try:
            self._lock = _create_locked(self._folder)
        except OSError as error:
            reason = error.strerror or error
            raise LedgerError(f"{self._folder}: cannot create folder: {reason}") from None
        if self._lock < 0:
            raise LedgerError(f"{self._ledger.name}: another process is rebuilding it")
        try:
            self._old_path.touch(0o600)
            self._new_path.touch(0o600)
            self._ledger.execute("VACUUM INTO ?", (str(self._old_path),))
            shutil.copyfile(self._old_path, self._new_path)
            self.store = SQLiteStore(str(self._new_path))
            self.store.execute("PRAGMA synchronous = OFF")  # lost in a crash anyway
        except OSError as error:
            self._remove()
            raise LedgerError(f"{self._folder}: {error.strerror or error}") from None
        except BaseException:
            self._remove()
            raise
        return self

    def attach(self) -> None:
        self.store.close()
        for path, name in ((self._old_path, self.old), (self._new_path, self.new)):
            self._ledger.execute(f"ATTACH ? AS {name}", (str(path),))

    def keep_backup(self) -> str:
        path = self._ledger.reserve_backup(0)
        self._old_path.replace(path)
        return path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.store.close()
        for name in (self.old, self.new):
            with suppress(LedgerError):  # not attached yet
                self._ledger.execute(f"DETACH {name}")
        self._remove()

    def _remove(self) -> None:
        _remove_folder(self._folder)
        os.close(self._lock)


def _create_locked(folder: Path) -> int:
    """Create the folder and return its lock; -1 if another process has it. OSError."""
    while True:
        create_private_folder(folder)
        try:
            lock = os.open(folder / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:
            continue  # another process has just deleted the folder
        if not try_lock(lock):
            os.close(lock)
            return -1
        if _is_current(lock, folder):
            _remove_copies(folder)  # left by a process that was killed
            return lock
        os.close(lock)


def _is_current(lock: int, folder: Path) -> bool:
    """Whether the lock is that of the folder, and not of one that was deleted meanwhile."""
    try:
        return os.path.samestat(os.fstat(lock), (folder / LOCK_NAME).stat())
    except FileNotFoundError:
        return False


def remove_unused_folder(ledger: str) -> None:
    """Delete the folder of a rebuild that was killed."""
    folder = Path(f"{ledger}{REBUILD_SUFFIX}")
    with suppress(OSError):  # not ours, or deleted by another process
        try:
            lock = os.open(folder / LOCK_NAME, os.O_RDWR)
        except FileNotFoundError:
            folder.rmdir()
            return
        try:
            if try_lock(lock):
                _remove_folder(folder)
        finally:
            os.close(lock)


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):
        _remove_copies(folder)
        (folder / LOCK_NAME).unlink()
        folder.rmdir()


def _remove_copies(folder: Path) -> None:
    for base in (OLD_NAME, NEW_NAME):
        for suffix in ("", "-wal", "-shm", "-journal"):
            (folder / f"{base}{suffix}").unlink(missing_ok=True)
