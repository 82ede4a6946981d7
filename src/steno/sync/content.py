"""The bytes of a file at one moment, with their hash, independent of the file itself.

Small files are kept in memory, large ones in a temporary file: sending may be slow and retried.
"""

import hashlib
import os
import tempfile
from typing import IO

from ..workspace.safe_path import RootFolder

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
