"""Which paths are inside a folder, after resolving links and `..`. Read-only.

Files are opened folder by folder without following links, so that a link created meanwhile does not
lead outside.
"""

import errno
import os
import stat
from collections.abc import Callable

from ..errors import MissingFolderError, OutsideFolderError

OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_DIR_NOFOLLOW = OPEN_DIR | os.O_NOFOLLOW
# O_NONBLOCK: opening a named pipe must not wait for its writer.
OPEN_FILE_NOFOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

FOLDER_MISSING = "folder not found"
FOLDER_REPLACED = "replaced by another folder"


def is_safe_name(name: str) -> bool:
    """Whether a name is relative and stays below its folder: no `..`, no empty part."""
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def open_subdir(
    folder: int, parts: list[str], open_one: Callable[[int, str], int] | None = None
) -> int:
    """Open a folder below an open one, part by part, without following links.

    `open_one` opens a part in the open folder above it, and may create it first.
    """
    current = os.dup(folder)
    for part in parts:
        try:
            below = (open_one or _open_one)(current, part)
        finally:
            os.close(current)
        current = below
    return current


def _open_one(folder: int, name: str) -> int:
    return os.open(name, OPEN_DIR_NOFOLLOW, dir_fd=folder)


class RootFolder:
    """A folder: the path as given, and with links resolved."""

    def __init__(self, path: str) -> None:
        self.given_path = os.path.abspath(path)  # noqa: PTH100  # Path.resolve follows links
        self.real_path = os.path.realpath(self.given_path)
        self._prefix = self.real_path.rstrip("/") + "/"
        self._identity = _folder_identity(self.real_path)

    def relative_name(self, path: str) -> str | None:
        """The name of a path below the folder; None if it is outside.

        Links in its folders are resolved, the last part is not.
        """
        if "\0" in path:
            return None
        try:
            absolute = os.path.join(self.given_path, path)  # noqa: PTH118  # pathlib drops "."
            folder, last = os.path.split(absolute)
            if last in ("", ".", ".."):
                folder, last = os.path.split(os.path.realpath(absolute))
            real = os.path.join(os.path.realpath(folder), last)  # noqa: PTH118  # strings
            os.fsencode(real)
        except ValueError:  # characters that no file system has
            return None
        return real[len(self._prefix) :] if real.startswith(self._prefix) else None

    def absolute_path(self, name: str) -> str:
        """The path of a name."""
        return self._prefix + name

    def contains(self, path: str) -> bool:
        """Whether a path, with links resolved, is the folder or below it."""
        return (os.path.realpath(path) + "/").startswith(self._prefix)

    def is_folder(self, name: str) -> bool:
        """Whether this is a folder, not a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(self.absolute_path(name)).st_mode)
        except (OSError, ValueError):
            return False

    def problem(self) -> str | None:
        """Whether the folder itself is missing or has been replaced; None if it is fine."""
        identity = _folder_identity(self.real_path)
        self._identity = self._identity or identity
        if identity is None:
            return FOLDER_MISSING
        return FOLDER_REPLACED if identity != self._identity else None

    def open(self, name: str) -> int:
        """Open a regular file for reading.

        OutsideFolderError: a link out of the folder, or not a regular file. FileNotFoundError: the
        file is missing. MissingFolderError: the folder itself is missing.
        """
        real = os.path.realpath(self.absolute_path(name))
        top = self._open_root()
        try:
            if not real.startswith(self._prefix):
                raise OutsideFolderError(0, f"link to {real}, outside the folder")
            return _open_regular_file(top, real[len(self._prefix) :].split("/"))
        except (OutsideFolderError, FileNotFoundError, NotADirectoryError):
            is_same = _folder_identity(top) == self._identity
            if not is_same or os.path.realpath(self.real_path) != self.real_path:
                raise MissingFolderError(0, f"{self.given_path}: {FOLDER_REPLACED}") from None
            raise
        finally:
            os.close(top)

    def _open_root(self) -> int:
        """Open the folder. If it was created only now, it is the one from now on."""
        try:
            top = os.open(self.real_path, OPEN_DIR_NOFOLLOW)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            raise MissingFolderError(0, f"{self.given_path}: {FOLDER_MISSING}") from None
        self._identity = self._identity or _folder_identity(top)
        return top


def _open_regular_file(top: int, parts: list[str]) -> int:
    folder = open_subdir(top, parts[:-1])
    try:
        file = os.open(parts[-1], OPEN_FILE_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OutsideFolderError(0, "not a regular file")
    return file


def _folder_identity(folder: str | int) -> tuple[int, int] | None:
    """Device and inode, which differ for a folder created later; None if there is no folder."""
    try:
        is_descriptor = isinstance(folder, int)
        status = os.stat(folder, follow_symlinks=is_descriptor)  # noqa: PTH116  # or descriptor
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None
