"""Files on their way to a destination: what to read, temporary names, and errors."""

import errno
import fcntl
import hashlib
import os
import secrets
import tempfile
import time
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
MAX_READS = 3  # in a row, of a file that changes while it is read
# Times of files advance in steps of up to 10 ms: a second write in the same step doesn't show.
SETTLED_NS = 20_000_000
CHANGING_MESSAGE = "changes while it is read"


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
    """Read a file, again if it changed meanwhile. OSError if it cannot be read.

    SyncError if it keeps changing: half of one version and half of the next is neither. A file that
    only grows is read as far as it goes.
    """
    earlier: tuple[int, bytes] | None = None  # size and hash
    for _ in range(MAX_READS):
        file = root.open(name)
        try:
            _wait_until_settled(file)
            before = os.fstat(file)
            is_settled = _age_ns(before) >= SETTLED_NS
            content = _copy_content(file, before.st_mode & 0o777)
            is_same = is_settled and _version(before) == _version(os.fstat(file))
        finally:
            os.close(file)
        if (is_same and content.size == before.st_size) or _starts_with(content, earlier):
            return content
        earlier = (content.size, content.digest)
        content.close()
    raise SyncError(CHANGING_MESSAGE)


def _wait_until_settled(file: int) -> None:
    age = _age_ns(os.fstat(file))
    if age < SETTLED_NS:
        time.sleep((SETTLED_NS - age) / 1e9)


def _age_ns(status: os.stat_result) -> int:
    """Time since its last change; a change in the future counts as long ago."""
    age = time.time_ns() - status.st_ctime_ns
    return age if age >= 0 else SETTLED_NS


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _starts_with(content: Content, earlier: tuple[int, bytes] | None) -> bool:
    """Whether the content is that of an earlier reading, and more."""
    rest, earlier_digest = earlier or (content.size, b"")
    if content.size <= rest:
        return False
    source = content.rewind()
    digest = hashlib.sha256()
    while rest:
        data = source.read(min(rest, CHUNK_BYTES))
        digest.update(data)
        rest -= len(data)
    return digest.digest() == earlier_digest


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
