"""Writes the file that a user named: whole or not at all."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import StenoError


def write_file(target: str, chunks: Iterable[bytes]) -> None:
    """Replace a file atomically. Links are followed; devices and pipes are written directly."""
    path = Path(os.path.realpath(target)) if not target.startswith("/dev/") else Path(target)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.writelines(chunks)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_current_umask()
        _replace_atomically(path, chunks, mode)
    except OSError as error:
        raise StenoError(f"{target}: cannot write: {error.strerror or error}") from None


def _replace_atomically(path: Path, chunks: Iterable[bytes], mode: int) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _current_umask() -> int:
    """The umask can be read only by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
