"""Is a worker alive? Each one holds a lock as long as it lives, and renews a lease.

A worker is dead when its lease has expired *and* its lock is free. The lock is an advisory lock of
PostgreSQL, or a locked file beside a fleet in SQLite: the system frees it when the process dies.
The lease covers the rest: a worker that cannot renew it kills its agents before it expires, so
that no other worker continues their work while they still run.
"""

import fcntl
import os
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import LedgerError
from ..private_files import create_private_folder
from .store import FleetStore, fleet_path, server_url

LOCK_CLASS = 0x464C  # of advisory locks; the other half is a hash of the worker's id
SERVER_LEASE_SECONDS = 30.0
FILE_LEASE_SECONDS = 5.0
FENCE_FRACTION = 0.6  # of the lease: time without renewal after which agents are killed
BEATS_PER_LEASE = 6


def boot_seconds() -> float:
    """A clock that also runs while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WorkerLock:
    """The lock of one worker, and the look at those of others."""

    def __init__(self, store: FleetStore, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._file: int | None = None
        self._connection: Any = None

    def acquire(self) -> None:
        """Take the lock, again after a lost connection."""
        if self._store.is_server:
            self._acquire_on_server()
        elif self._file is None:
            self._file = _lock_file(self._path(self._worker))

    def _acquire_on_server(self) -> None:
        import psycopg

        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
                return
            except psycopg.Error:
                self._connection = None
        try:
            connection = psycopg.connect(
                server_url(self._store.ledger), autocommit=True, connect_timeout=5
            )
            row = connection.execute(
                "SELECT pg_try_advisory_lock(%s, %s)", (LOCK_CLASS, _key(self._worker))
            ).fetchone()
        except psycopg.Error as error:
            raise LedgerError(f"lock of the worker: {' '.join(str(error).split())}") from None
        if row is None or not row[0]:
            connection.close()
            raise LedgerError("lock of the worker: not freed yet by its old connection")
        self._connection = connection

    def release(self) -> None:
        """Free the lock; its file is removed."""
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None
        if self._file is not None:
            self._path(self._worker).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def is_free(self, worker: str) -> bool:
        """Whether the lock of that worker is not held."""
        if self._store.is_server:
            ((is_free,),) = self._store.query(
                "SELECT pg_try_advisory_lock(?, ?)", (LOCK_CLASS, _key(worker))
            )
            if is_free:
                self._store.query("SELECT pg_advisory_unlock(?, ?)", (LOCK_CLASS, _key(worker)))
            return bool(is_free)
        path = self._path(worker)
        try:
            file = _lock_file(path)
        except BlockingIOError:
            return False
        os.close(file)
        return True

    def _path(self, worker: str) -> Path:
        path = fleet_path(self._store.ledger)
        if path is None:
            raise RuntimeError("a server has no lock files")
        folder = path.with_suffix(".workers")
        create_private_folder(folder)
        return folder / f"{worker}.lock"


def _lock_file(path: Path) -> int:
    """An open, locked file. BlockingIOError if another process has locked it."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def _key(worker: str) -> int:
    """A hash as a signed integer of 32 bits."""
    return zlib.crc32(worker.encode()) - (1 << 31)
