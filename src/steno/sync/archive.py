"""A zip archive on this machine as a destination. It is written as a copy beside it, which takes its place at the end.

So the archive is as it was, or whole, whatever happens. Nothing is ever deleted in it: of a file that was put again, the
archive holds the older bytes too, and its last word counts.
"""

import hashlib
import os
import re
import shutil
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..errors import StenoError, SyncError
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import is_safe_name
from .content import CHUNK_BYTES, Content, sha256_of
from .destinations import parse_local_path
from .folder import CREATE_FLAGS, OPEN_DIR_FLAGS, lock_own_file, remove_stale_temp_files

CLOSED_MESSAGE = "the archive is closed"
IN_USE_MESSAGE = "another sync writes this archive"
_ARCHIVE_URL = re.compile(r"zip(?:://(?P<inner>[^:]*))?::(?P<place>.+)", re.S)


class ArchiveDestination:
    """A destination."""

    is_cheap_to_compare = True  # asking what is there costs nothing
    can_compare = True
    can_delete = False
    commits_on_close = True

    def __init__(self, path: str, inner: str) -> None:
        self.path, self._inner_path = os.path.realpath(path), inner
        self.name = f"zip://{inner}::{self.path}"
        self._folder = Path(self.path).parent
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        self._copy_path = (
            self._folder / f"{TEMP_PREFIX}{name}"
        )  # the same for all who write this archive: one at a time
        self._lock = threading.Lock()
        self._copy_file: IO[bytes] | None = None
        self._writer: zipfile.ZipFile | None = None
        self._reader: zipfile.ZipFile | None = None
        self._failure: str | None = None  # why the copy is of no use
        self._has_writes = False

    def open(self) -> None:
        """Make the copy, with all that the archive has."""
        with self._locked():
            if self._writer is not None:
                return
            if self._failure is not None:
                raise SyncError(self._failure, is_permanent=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            with _open_dir(self._folder) as at:
                remove_stale_temp_files(at)
            self._writer = self._open_copy()

    def has_same(self, name: str, content: Content) -> bool:
        """Whether these bytes are there already."""
        path = self._archive_path(name)
        with self._locked(), suppress(KeyError):
            found = self._open_reader()
            if found is not None and found.getinfo(path).file_size == content.size:
                with found.open(path) as file:
                    return sha256_of(file) == content.digest
        return False

    def put(self, name: str, content: Content) -> None:
        """Put a file there."""
        about = zipfile.ZipInfo(self._archive_path(name), time.localtime()[:6])
        about.external_attr, about.file_size = (0o100000 | content.mode) << 16, content.size
        with self._locked():
            if self._failure is not None or self._writer is None:
                raise SyncError(self._failure or CLOSED_MESSAGE, is_permanent=True)
            try:
                self._write(self._writer, about, content)
            except BaseException as problem:  # what follows would stand behind half a file
                self._failure = getattr(problem, "strerror", None) or str(problem)
                raise
            self._has_writes = True

    def delete(self, name: str) -> bool:
        """Nothing is."""
        raise SyncError("nothing can be deleted in an archive", is_permanent=True)

    def list_names(self) -> list[str]:
        """Every file that is there."""
        with self._locked():
            found = self._open_reader()
            start = f"{self._inner_path}/" if self._inner_path else ""
            every = dict.fromkeys(found.namelist()) if found is not None else {}
            return [
                name[len(start) :]
                for name in every
                if name.startswith(start) and not name.endswith("/")
            ]

    def close(self) -> None:
        """The copy takes the archive's place, if it is whole."""
        with self._locked():
            if self._reader is not None:
                self._reader.close()
            if self._writer is None:
                self._failure = self._failure or CLOSED_MESSAGE
                return
            try:
                self._commit(self._writer)
            finally:
                self._writer.fp = None  # so that it writes no more, whatever went wrong
                self._writer, self._failure = None, self._failure or CLOSED_MESSAGE
                self._discard_copy()

    # -- the archive ---------------------------------------------------------------------------------------------

    def _open_copy(self) -> zipfile.ZipFile:
        """The copy, open; as long as its lock is held, nobody takes it for a leftover."""
        try:
            file = self._copy_file = os.fdopen(os.open(self._copy_path, CREATE_FLAGS, 0o666), "r+b")
        except FileExistsError:
            raise SyncError(IN_USE_MESSAGE) from None
        try:
            if not lock_own_file(file.fileno(), self._copy_path):
                raise SyncError(IN_USE_MESSAGE)
            with suppress(FileNotFoundError), open(self.path, "rb") as old:  # noqa: PTH123
                if os.fstat(old.fileno()).st_size and not zipfile.is_zipfile(old):
                    raise zipfile.BadZipFile(f"{self.path} is no zip archive")
                old.seek(0)
                shutil.copyfileobj(old, file)
                os.fchmod(file.fileno(), os.fstat(old.fileno()).st_mode & 0o777)
            return zipfile.ZipFile(file, "a")
        except BaseException:
            self._discard_copy()
            raise

    def _discard_copy(self) -> None:
        """Let go of the copy, which is removed if it is still one, and ours."""
        if self._copy_file is not None:
            with suppress(OSError):
                if self._owns_copy(self._copy_file):
                    self._copy_path.unlink()
            with suppress(OSError):
                self._copy_file.close()
            self._copy_file = None

    def _owns_copy(self, file: IO[bytes]) -> bool:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(self._copy_path))

    def _commit(self, found: zipfile.ZipFile) -> None:
        if self._failure is not None:
            raise SyncError(self._failure, is_permanent=True)
        if self._has_writes and self._copy_file is not None:
            found.close()
            self._copy_file.flush()
            os.fsync(self._copy_file.fileno())
            if not self._owns_copy(self._copy_file):
                raise SyncError("its copy was removed while it was written")
            self._copy_path.replace(self.path)
            with _open_dir(self._folder) as at:
                os.fsync(at)

    def _open_reader(self) -> zipfile.ZipFile | None:
        """The archive as it is now; None where there is none yet."""
        if self._writer is None and self._reader is None and Path(self.path).exists():
            self._reader = zipfile.ZipFile(self.path)
        return self._writer or self._reader

    def _write(self, into: zipfile.ZipFile, about: zipfile.ZipInfo, content: Content) -> None:
        source = content.rewind()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the name is there already
            with into.open(about, "w") as file:
                while data := source.read(CHUNK_BYTES):
                    file.write(data)

    def _archive_path(self, name: str) -> str:
        if not is_safe_name(name):
            raise SyncError("this can be no name in an archive", is_permanent=True)
        return f"{self._inner_path}/{name}" if self._inner_path else name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time; whatever goes wrong is told as trouble."""
        with self._lock:
            try:
                yield
            except OSError as problem:
                raise SyncError(problem.strerror or str(problem)) from None
            except (
                zipfile.BadZipFile,
                zipfile.LargeZipFile,
                NotImplementedError,
                UnicodeError,
            ) as problem:
                raise SyncError(f"{problem}", is_permanent=True) from None


@contextmanager
def _open_dir(path: Path) -> Iterator[int]:
    found = os.open(path, OPEN_DIR_FLAGS)
    try:
        yield found
    finally:
        os.close(found)


def parse_archive_url(url: str) -> tuple[str, str]:
    """The archive that a URL means, and the folder in it. StenoError where it is none on this machine."""
    found = _ARCHIVE_URL.fullmatch(url)
    place = found["place"] if found is not None else ""
    path = (
        parse_local_path(place if place.startswith(("file://", "local://")) else f"dir:{place}")
        if place
        else ""
    )
    inner = (found["inner"] or "").strip("/") if found is not None else ""
    if (
        not path
        or path.endswith("/")
        or "://" in path
        or "::" in path
        or (inner and not is_safe_name(inner))
    ):
        raise StenoError(
            f"{url}: an archive is written on this machine only, such as zip://::file:///backup/project.zip"
        )
    return path, inner
