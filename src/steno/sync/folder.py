"""A folder as a destination. A file appears there whole or not at all, and nothing is written outside of it.

Every folder on the way is opened by its own name from the one above, following no link. What is written goes to a file
with a name of ours, to the disk, and then in one step to its own name.
"""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import SyncError
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import OPEN_DIR_NOFOLLOW, OPEN_FILE_NOFOLLOW, is_safe_name, open_subdir
from .content import CHUNK_BYTES, Content, sha256_of

CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PERMANENT_ERRNOS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.EILSEQ,
    errno.EINVAL,
)  # waiting mends none of these
NOT_FOUND_ERRORS = (FileNotFoundError, NotADirectoryError)


class FolderDestination:
    """A destination. `replace`: what stands in the way (a folder for a file, a file for a folder) may be removed."""

    is_cheap_to_compare = True  # asking what is there costs nothing
    can_compare = can_delete = True
    commits_on_close = False

    def __init__(self, path: str, replace: bool) -> None:
        self.name = f"dir:{path}"
        self.path, self._can_replace = os.path.abspath(path), replace  # noqa: PTH100
        self._cleaned_dirs: set[str] = (
            set()
        )  # folders in which we looked for what others left half written
        self._lock = threading.Lock()

    def open(self) -> None:
        """Make the folder. If it goes away later, it is not made again: it may be on a disk that was taken out."""
        with _convert_os_errors():
            os.makedirs(self.path, exist_ok=True)  # noqa: PTH103

    def has_same(self, name: str, content: Content) -> bool:
        """Whether these bytes are there already, with this mode."""
        with _convert_os_errors():
            try:
                with self._open_parent(name) as (folder, last):
                    return _has_content(folder, last, content)
            except NOT_FOUND_ERRORS:
                return False

    def put(self, name: str, content: Content) -> None:
        """Put a file there."""
        with _convert_os_errors(), self._open_parent(name, create=True) as (folder, last):
            self._clean_once(folder, name.rpartition("/")[0])
            self._write(folder, last, content)

    def delete(self, name: str) -> bool:
        """Take a file away, and the folders that are empty then."""
        with _convert_os_errors():
            try:
                with self._open_parent(name) as (folder, last):
                    os.unlink(last, dir_fd=folder)
            except (*NOT_FOUND_ERRORS, IsADirectoryError):
                return False
            parts = name.split("/")[:-1]
            with suppress(OSError):  # one that is not empty stays
                while parts:
                    with self._open_parent("/".join(parts)) as (folder, last):
                        os.rmdir(last, dir_fd=folder)
                    parts.pop()
        return True

    def list_names(self) -> list[str]:
        """Every file that is there."""
        with _convert_os_errors():
            try:
                return [
                    name
                    for name in self._walk()
                    if not name.rpartition("/")[2].startswith(TEMP_PREFIX)
                ]
            except FileNotFoundError:
                return []

    def close(self) -> None:
        """Nothing is held open."""

    # -- on the way ----------------------------------------------------------------------------------------------

    @contextmanager
    def _open_parent(self, name: str, create: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder that a name lies in, and its last part."""
        if not is_safe_name(name):
            raise SyncError("this can be no name in a folder", is_permanent=True)
        *parts, last = name.split("/")
        top = os.open(self.path, OPEN_DIR_FLAGS)
        try:
            folder = self._make_dirs(top, parts) if create else open_subdir(top, parts)
        finally:
            os.close(top)
        try:
            yield folder, last
        finally:
            os.close(folder)

    def _make_dirs(self, top: int, parts: list[str]) -> int:
        """The folder this deep below another, made where it is not there."""
        at = os.dup(top)
        for part in parts:
            try:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
                deeper = self._open_subdir(at, part)
            finally:
                os.close(at)
            at = deeper
        return at

    def _open_subdir(self, folder: int, part: str) -> int:
        try:
            return os.open(part, OPEN_DIR_NOFOLLOW, dir_fd=folder)
        except OSError as problem:
            if problem.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
            raise SyncError(
                f"{part} is a link in the destination, and links are not followed there",
                is_permanent=True,
            )
        if not self._can_replace:
            raise SyncError(
                f"{part} is a file in the destination, and only --delete removes it",
                is_permanent=True,
            )
        os.unlink(part, dir_fd=folder)
        os.mkdir(part, dir_fd=folder)
        return os.open(part, OPEN_DIR_NOFOLLOW, dir_fd=folder)

    def _clean_once(self, folder: int, name: str) -> None:
        """Once for each folder."""
        with self._lock:
            if name not in self._cleaned_dirs:
                self._cleaned_dirs.add(name)
                remove_stale_temp_files(folder)

    def _write(self, folder: int, last: str, content: Content) -> None:
        file, temporary = _create_temp_file(folder)
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
                    "a folder stands there in the destination, and only --delete removes it",
                    is_permanent=True,
                ) from None
            shutil.rmtree(last, dir_fd=folder)
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)

    def _walk(self) -> Iterator[str]:
        def unread(problem: OSError) -> None:
            if not isinstance(problem, FileNotFoundError):  # gone meanwhile
                raise SyncError(
                    f"{problem.filename}: {problem.strerror}, so nothing is deleted there"
                )

        for folder, _, files, _ in os.fwalk(self.path, onerror=unread, follow_symlinks=False):
            inner = os.path.relpath(folder, self.path)
            yield from (file if inner == "." else f"{inner}/{file}" for file in files)


@contextmanager
def _convert_os_errors() -> Iterator[None]:
    """What the system says, as trouble."""
    try:
        yield
    except OSError as problem:
        raise SyncError(
            problem.strerror or str(problem), is_permanent=problem.errno in PERMANENT_ERRNOS
        ) from None


def _has_content(folder: int, last: str, content: Content) -> bool:
    try:
        file = os.open(last, OPEN_FILE_NOFOLLOW, dir_fd=folder)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return False
        raise
    about = os.fstat(file)
    if (
        not stat.S_ISREG(about.st_mode)
        or about.st_size != content.size
        or about.st_mode & 0o777 != content.mode
    ):
        os.close(file)
        return False
    with os.fdopen(file, "rb") as found:
        return sha256_of(found) == content.digest


def _create_temp_file(folder: int) -> tuple[int, str]:
    """A new file with a name of ours, and its lock: as long as it is held, nobody takes the file for a leftover."""
    while True:
        name = TEMP_PREFIX + secrets.token_hex(8)
        file = os.open(name, CREATE_FLAGS, 0o600, dir_fd=folder)
        if lock_own_file(file, name, folder):
            return file, name
        os.close(file)  # it was taken for one before it was locked, and is removed


def lock_own_file(file: int, name: str | Path, folder: int | None = None) -> bool:
    """Lock a file that we made; whether it is ours: another who tidies up may have locked it first, and removed it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False


def _write_content(file: int, content: Content) -> None:
    """All the bytes into a file, and onto the disk."""
    source = content.rewind()
    while data := source.read(CHUNK_BYTES):
        while data:
            data = data[os.write(file, data) :]
    os.fchmod(file, content.mode)
    os.fsync(file)


def remove_stale_temp_files(folder: int) -> None:
    """Remove what a steno that was killed left half written: whoever still writes holds a lock."""
    for name in os.listdir(folder):
        if name.startswith(TEMP_PREFIX):
            with (
                suppress(OSError),
                os.fdopen(os.open(name, OPEN_FILE_NOFOLLOW, dir_fd=folder), "rb") as file,
            ):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
