"""Folders and archives as destinations.

A file appears there complete or not at all: it is written to a temporary file, synced to disk and
renamed. Folders are opened one by one without following links, so nothing is written outside.
"""

import errno
import hashlib
import os
import shutil
import stat
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
from ..workspace.safe_path import (
    OPEN_DIR,
    OPEN_DIR_NOFOLLOW,
    OPEN_FILE_NOFOLLOW,
    is_safe_name,
    open_subdir,
)
from .files import (
    ARCHIVE_ERRORS,
    CHUNK_BYTES,
    CREATE_FLAGS,
    Content,
    convert_errors,
    create_temp_file,
    lock_own_file,
    remove_stale_temp_files,
    sha256_of,
)

NOT_FOUND_ERRORS = (FileNotFoundError, NotADirectoryError)


class FolderDestination:
    """A destination. `replace`: a folder in the place of a file, or the reverse, is removed."""

    is_cheap_to_compare = True
    can_compare = True
    can_delete = True
    commits_on_close = False

    def __init__(self, path: str, replace: bool) -> None:
        self.name = f"dir:{path}"
        self.path = os.path.abspath(path)  # noqa: PTH100  # links stay as given
        self._can_replace = replace
        self._cleaned_dirs: set[str] = set()  # checked for stale temporary files
        self._lock = threading.Lock()

    def open(self) -> None:
        """Create the folder. It is not created again later: it may be on an ejected disk."""
        with convert_errors():
            os.makedirs(self.path, exist_ok=True)  # noqa: PTH103  # `path` is a string

    def has_same(self, name: str, content: Content) -> bool:
        """Whether a file has these bytes and this mode."""
        with convert_errors():
            try:
                with self._open_parent(name) as (folder, last):
                    return _has_content(folder, last, content)
            except NOT_FOUND_ERRORS:
                return False

    def put(self, name: str, content: Content) -> None:
        """Write a file."""
        with convert_errors(), self._open_parent(name, create=True) as (folder, last):
            self._clean_once(folder, name.rpartition("/")[0])
            self._write(folder, last, content)

    def delete(self, name: str) -> bool:
        """Delete a file and the folders that are empty then; False if it didn't exist."""
        with convert_errors():
            try:
                with self._open_parent(name) as (folder, last):
                    os.unlink(last, dir_fd=folder)
            except (*NOT_FOUND_ERRORS, IsADirectoryError):
                return False
            parts = name.split("/")[:-1]
            with suppress(OSError):  # not empty
                while parts:
                    with self._open_parent("/".join(parts)) as (folder, last):
                        os.rmdir(last, dir_fd=folder)
                    parts.pop()
        return True

    def list_names(self) -> list[str]:
        """Every file."""
        with convert_errors():
            try:
                return [
                    name
                    for name in self._walk()
                    if not name.rpartition("/")[2].startswith(TEMP_PREFIX)
                ]
            except FileNotFoundError:
                return []

    def close(self) -> None:
        """Nothing is open."""

    # -- folders -----------------------------------------------------------------------------------

    @contextmanager
    def _open_parent(self, name: str, create: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a file, and the last part of its name."""
        if not is_safe_name(name):
            raise SyncError("invalid file name", is_permanent=True)
        *parts, last = name.split("/")
        root = os.open(self.path, OPEN_DIR)
        try:
            folder = open_subdir(root, parts, self._make_subdir if create else None)
        finally:
            os.close(root)
        try:
            yield folder, last
        finally:
            os.close(folder)

    def _make_subdir(self, folder: int, name: str) -> int:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        try:
            return os.open(name, OPEN_DIR_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise SyncError(
                f"{name} is a symbolic link in the destination; links are not followed",
                is_permanent=True,
            )
        if not self._can_replace:
            raise SyncError(
                f"{name} is a file in the destination; use --delete to replace it",
                is_permanent=True,
            )
        os.unlink(name, dir_fd=folder)
        os.mkdir(name, dir_fd=folder)
        return os.open(name, OPEN_DIR_NOFOLLOW, dir_fd=folder)

    def _clean_once(self, folder: int, name: str) -> None:
        with self._lock:
            if name not in self._cleaned_dirs:
                self._cleaned_dirs.add(name)
                remove_stale_temp_files(folder)

    def _walk(self) -> Iterator[str]:
        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):  # deleted meanwhile
                raise SyncError(f"{error.filename}: {error.strerror}; nothing is deleted there")

        for folder, _, files, _ in os.fwalk(self.path, onerror=fail, follow_symlinks=False):
            inner = os.path.relpath(folder, self.path)
            yield from (file if inner == "." else f"{inner}/{file}" for file in files)

    # -- files -------------------------------------------------------------------------------------

    def _write(self, folder: int, last: str, content: Content) -> None:
        file, temporary = create_temp_file(folder)
        try:
            _write_content(file, content)
            self._rename(folder, temporary, last)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(file)
        os.fsync(folder)

    def _rename(self, folder: int, temporary: str, last: str) -> None:
        try:
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except IsADirectoryError:
            if not self._can_replace:
                raise SyncError(
                    "there is a folder of this name in the destination; use --delete to replace it",
                    is_permanent=True,
                ) from None
            shutil.rmtree(last, dir_fd=folder)
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)


def _has_content(folder: int, last: str, content: Content) -> bool:
    try:
        descriptor = os.open(last, OPEN_FILE_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return False
        raise
    status = os.fstat(descriptor)
    is_candidate = (
        stat.S_ISREG(status.st_mode)
        and status.st_size == content.size
        and status.st_mode & 0o777 == content.mode
    )
    if not is_candidate:
        os.close(descriptor)
        return False
    with os.fdopen(descriptor, "rb") as file:
        return sha256_of(file) == content.digest


def _write_content(file: int, content: Content) -> None:
    source = content.rewind()
    while data := source.read(CHUNK_BYTES):
        while data:
            data = data[os.write(file, data) :]
    os.fchmod(file, content.mode)
    os.fsync(file)


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
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:  # while it is written, it would make the archive unusable
            raise SyncError(
                "the name is not UTF-8, as archives need it", is_permanent=True
            ) from None
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
