"""A local zip archive as a destination.

zipfile writes to a locked copy beside the archive, which replaces it on `close`: after a crash the
archive is unchanged. Nothing is deleted from it: a file that was put twice is in it twice, and
readers take the last one.
"""

import hashlib
import os
import shutil
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..errors import SyncError
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import OPEN_DIR, is_safe_name
from .content import CHUNK_BYTES, Content, sha256_of
from .errors import ARCHIVE_ERRORS, convert_errors
from .temp_files import CREATE_FLAGS, lock_own_file, remove_stale_temp_files

CLOSED_MESSAGE = "the archive is closed"
IN_USE_MESSAGE = "another sync is writing this archive"


class ArchiveDestination:
    """A destination."""

    is_cheap_to_compare = True
    can_compare = True
    can_delete = False
    commits_on_close = True

    def __init__(self, path: str, inner: str) -> None:
        self.path = os.path.realpath(path)
        self.name = f"zip://{inner}::{self.path}"
        self._inner_path = inner
        self._folder = Path(self.path).parent
        # The same for every process, so that only one writes this archive at a time.
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        self._copy_path = self._folder / f"{TEMP_PREFIX}{name}"
        self._lock = threading.Lock()
        self._copy_file: IO[bytes] | None = None
        self._writer: zipfile.ZipFile | None = None
        self._reader: zipfile.ZipFile | None = None
        self._failure: str | None = None  # why the copy is unusable
        self._has_writes = False

    def open(self) -> None:
        """Copy the archive."""
        with self._locked():
            if self._writer is not None:
                return
            if self._failure is not None:
                raise SyncError(self._failure, is_permanent=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            with _open_dir(self._folder) as folder:
                remove_stale_temp_files(folder)
            self._writer = self._open_copy()

    def has_same(self, name: str, content: Content) -> bool:
        """Whether the archive has these bytes."""
        path = self._archive_path(name)
        with self._locked(), suppress(KeyError):
            archive = self._open_reader()
            if archive is not None and archive.getinfo(path).file_size == content.size:
                with archive.open(path) as file:
                    return sha256_of(file) == content.digest
        return False

    def put(self, name: str, content: Content) -> None:
        """Add a file to the copy."""
        info = zipfile.ZipInfo(self._archive_path(name), time.localtime()[:6])
        info.external_attr = (0o100000 | content.mode) << 16
        info.file_size = content.size
        with self._locked():
            if self._failure is not None or self._writer is None:
                raise SyncError(self._failure or CLOSED_MESSAGE, is_permanent=True)
            try:
                _write_entry(self._writer, info, content)
            except BaseException as error:  # the copy now ends with half a file
                self._failure = getattr(error, "strerror", None) or str(error)
                raise
            self._has_writes = True

    def delete(self, name: str) -> bool:
        """Not supported."""
        raise SyncError("archives don't support deletion", is_permanent=True)

    def list_names(self) -> list[str]:
        """Every file in the archive."""
        with self._locked():
            archive = self._open_reader()
            prefix = f"{self._inner_path}/" if self._inner_path else ""
            names = dict.fromkeys(archive.namelist() if archive is not None else ())
            return [
                name.removeprefix(prefix)
                for name in names
                if name.startswith(prefix) and not name.endswith("/")
            ]

    def close(self) -> None:
        """Replace the archive by the copy, if it is complete."""
        with self._locked():
            if self._reader is not None:
                self._reader.close()
            if self._writer is None:
                self._failure = self._failure or CLOSED_MESSAGE
                return
            try:
                self._commit(self._writer)
            finally:
                self._writer.fp = None  # or its destructor would write to the closed file
                self._writer = None
                self._failure = self._failure or CLOSED_MESSAGE
                self._discard_copy()

    # -- the copy ----------------------------------------------------------------------------------

    def _open_copy(self) -> zipfile.ZipFile:
        """Create the copy; its lock marks it as in use."""
        try:
            descriptor = os.open(self._copy_path, CREATE_FLAGS, 0o666)
        except FileExistsError:
            raise SyncError(IN_USE_MESSAGE) from None
        file = self._copy_file = os.fdopen(descriptor, "r+b")
        try:
            if not lock_own_file(file.fileno(), self._copy_path):
                raise SyncError(IN_USE_MESSAGE)
            with suppress(FileNotFoundError), Path(self.path).open("rb") as old:
                if os.fstat(old.fileno()).st_size and not zipfile.is_zipfile(old):
                    raise zipfile.BadZipFile(f"{self.path} is not a zip archive")
                old.seek(0)
                shutil.copyfileobj(old, file)
                os.fchmod(file.fileno(), os.fstat(old.fileno()).st_mode & 0o777)
            return zipfile.ZipFile(file, "a")
        except BaseException:
            self._discard_copy()
            raise

    def _discard_copy(self) -> None:
        """Close the copy and remove it, unless it has become the archive."""
        if self._copy_file is not None:
            with suppress(OSError):
                if self._owns_copy(self._copy_file):
                    self._copy_path.unlink()
            with suppress(OSError):
                self._copy_file.close()
            self._copy_file = None

    def _owns_copy(self, file: IO[bytes]) -> bool:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(self._copy_path))

    def _commit(self, writer: zipfile.ZipFile) -> None:
        if self._failure is not None:
            raise SyncError(self._failure, is_permanent=True)
        if self._has_writes and self._copy_file is not None:
            writer.close()
            self._copy_file.flush()
            os.fsync(self._copy_file.fileno())
            if not self._owns_copy(self._copy_file):
                raise SyncError("the temporary copy was removed by another process")
            self._copy_path.replace(self.path)
            with _open_dir(self._folder) as folder:
                os.fsync(folder)

    def _open_reader(self) -> zipfile.ZipFile | None:
        """The current content; None if there is no archive yet."""
        if self._writer is None and self._reader is None and Path(self.path).exists():
            self._reader = zipfile.ZipFile(self.path)
        return self._writer or self._reader

    def _archive_path(self, name: str) -> str:
        if not is_safe_name(name):
            raise SyncError("invalid file name for an archive", is_permanent=True)
        return f"{self._inner_path}/{name}" if self._inner_path else name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock, convert_errors(*ARCHIVE_ERRORS):
            yield


def _write_entry(writer: zipfile.ZipFile, info: zipfile.ZipInfo, content: Content) -> None:
    source = content.rewind()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate name
        with writer.open(info, "w") as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)


@contextmanager
def _open_dir(path: Path) -> Iterator[int]:
    descriptor = os.open(path, OPEN_DIR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
