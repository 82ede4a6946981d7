"""What a file holds at one moment: its bytes, apart from the file itself, with their hash. It only reads.

Small files are held in memory, large ones in a temporary file: whoever sends them may take long, and try again.
"""

import hashlib
import os
import tempfile
from typing import IO

from ..workspace.safe_path import RootFolder

MAX_MEMORY_BYTES = (
    1 << 22
)  # bytes; four at a time of this size are nothing, and most source files are a thousandth of it
CHUNK_BYTES = 1 << 18
MAX_READS = 3  # a file that is written all the time is taken as it is after so many: its next change is told again


class Content:
    """The bytes of a file, which can be read any number of times."""

    def __init__(self, file: IO[bytes], size: int, digest: bytes, mode: int) -> None:
        self.file, self.size, self.digest, self.mode = file, size, digest, mode

    @property
    def sha256(self) -> str:
        """The hash of the bytes."""
        return self.digest.hex()

    def rewind(self) -> IO[bytes]:
        """The bytes from the beginning."""
        self.file.seek(0)
        return self.file

    def read_all(self) -> bytes:
        """The bytes in one piece."""
        return self.rewind().read()

    def close(self) -> None:
        """Let go of them."""
        self.file.close()


def read_content(root: RootFolder, name: str) -> Content:
    """What a file holds now, as it stood at one moment where that can be had. OSError where it cannot be read."""
    for look in range(MAX_READS):
        file = root.open(name)
        try:
            before = os.fstat(file)
            found = _copy_content(file, before.st_mode & 0o777)
            after = os.fstat(file)
        finally:
            os.close(file)
        if look == MAX_READS - 1 or (before.st_mtime_ns, before.st_size, found.size) == (
            after.st_mtime_ns,
            after.st_size,
            after.st_size,
        ):
            break
        found.close()
    return found


def _copy_content(file: int, mode: int) -> Content:
    kept = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115  # its content is what is asked for
    digest, size = hashlib.sha256(), 0
    try:
        while data := os.read(file, CHUNK_BYTES):
            kept.write(data)
            digest.update(data)
            size += len(data)
    except BaseException:
        kept.close()
        raise
    return Content(kept, size, digest.digest(), mode)


def sha256_of(file: IO[bytes]) -> bytes:
    """The hash of what is left of an open file."""
    digest = hashlib.sha256()
    while data := file.read(CHUNK_BYTES):
        digest.update(data)
    return digest.digest()
