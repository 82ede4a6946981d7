"""Files on their way to a destination: what to read, temporary names, and errors."""

import errno
import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, LargeZipFile

from ..errors import SyncError
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import OPEN_FILE_NOFOLLOW, RootFolder

# Waiting does not fix these.
PERMANENT_ERRNOS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.EILSEQ,
    errno.EINVAL,
)
ARCHIVE_ERRORS = (BadZipFile, LargeZipFile, NotImplementedError, UnicodeError)
PERMANENT_ERRORS = (PermissionError, *ARCHIVE_ERRORS)


@contextmanager
def convert_errors(*others: type[Exception]) -> Iterator[None]:
    """Raise SyncError in place of OSError and `others`."""
    expected: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except SyncError:
        raise
    except expected as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        is_permanent = (
            isinstance(error, PERMANENT_ERRORS) or getattr(error, "errno", None) in PERMANENT_ERRNOS
        )
        raise SyncError(str(text), is_permanent=is_permanent) from error


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


MAX_MEMORY_BYTES = 1 << 22  # per file and thread; most source files are a thousandth of it
CHUNK_BYTES = 1 << 18
MAX_READS = 3  # of a file that changes while it is read; its next change is synced anyway


class Content:
    """Bytes that can be read any number of times."""

    def __init__(self, file: IO[bytes], size: int, digest: bytes, mode: int) -> None:
        self.file = file
        self.size = size
        self.digest = digest
        self.mode = mode

    @property
    def sha256(self) -> str:
        """The hash as hexadecimal digits."""
        return self.digest.hex()

    def rewind(self) -> IO[bytes]:
        """The file, at its start."""
        self.file.seek(0)
        return self.file

    def read_all(self) -> bytes:
        """All bytes."""
        return self.rewind().read()

    def close(self) -> None:
        """Free memory or the temporary file."""
        self.file.close()


def read_content(root: RootFolder, name: str) -> Content:
    """Read a file, again if it changed meanwhile. OSError if it cannot be read."""
    for attempt in range(1, MAX_READS + 1):
        file = root.open(name)
        try:
            before = os.fstat(file)
            content = _copy_content(file, before.st_mode & 0o777)
            after = os.fstat(file)
        finally:
            os.close(file)
        is_unchanged = (before.st_mtime_ns, before.st_size, content.size) == (
            after.st_mtime_ns,
            after.st_size,
            after.st_size,
        )
        if is_unchanged or attempt == MAX_READS:
            break
        content.close()
    return content


def _copy_content(file: int, mode: int) -> Content:
    copy = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115  # Content closes it
    digest = hashlib.sha256()
    size = 0
    try:
        while data := os.read(file, CHUNK_BYTES):
            copy.write(data)
            digest.update(data)
            size += len(data)
    except BaseException:
        copy.close()
        raise
    return Content(copy, size, digest.digest(), mode)


def sha256_of(file: IO[bytes]) -> bytes:
    """The hash of the rest of an open file."""
    digest = hashlib.sha256()
    while data := file.read(CHUNK_BYTES):
        digest.update(data)
    return digest.digest()
