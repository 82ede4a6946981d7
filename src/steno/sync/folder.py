"""A folder as a destination.

A file appears there complete or not at all: it is written to a temporary file, synced to disk and
renamed. Folders are opened one by one without following links, so nothing is written outside.
"""

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import SyncError
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import (
    OPEN_DIR,
    OPEN_DIR_NOFOLLOW,
    OPEN_FILE_NOFOLLOW,
    is_safe_name,
    open_subdir,
)
from .content import CHUNK_BYTES, Content, sha256_of
from .errors import convert_errors
from .temp_files import create_temp_file, remove_stale_temp_files

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
