"""What lies inside a folder, by what the disk says: links and `..` are followed before a path is believed. It only reads.

A file is opened name by name from its folder, following no link, so that one that is put in its place meanwhile leads
nowhere.
"""

import errno
import os
import stat

from ..errors import MissingFolderError, OutsideFolderError

OPEN_DIR_NOFOLLOW = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE_NOFOLLOW = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # a pipe that nobody writes must not stop us

FOLDER_MISSING, FOLDER_REPLACED = "there is no such folder", "another folder stands there now"


def is_safe_name(name: str) -> bool:
    """Whether a name can be that of a file below a folder: no `..`, no empty part, not absolute."""
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def open_subdir(folder: int, parts: list[str]) -> int:
    """The folder that lies this deep below an open one, as a new descriptor. No link is followed."""
    at = os.dup(folder)
    for part in parts:
        try:
            deeper = os.open(part, OPEN_DIR_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = deeper
    return at


class RootFolder:
    """A folder: as it was named, and where it really is."""

    def __init__(self, path: str) -> None:
        self.given_path = os.path.abspath(path)  # noqa: PTH100  # pathlib would change what was given
        self.real_path = os.path.realpath(self.given_path)
        self._prefix = self.real_path.rstrip("/") + "/"
        self._identity = _folder_identity(self.real_path)

    def relative_name(self, path: str) -> str | None:
        """A path, absolute or below the folder, as a name in it; None where it lies outside.

        Folders on the way are followed to where they really are; the last part is not.
        """
        if "\0" in path:
            return None
        try:
            whole = os.path.join(self.given_path, path)  # noqa: PTH118
            folder, last = os.path.split(whole)
            if last in ("", ".", ".."):
                folder, last = os.path.split(os.path.realpath(whole))
            real = os.path.join(os.path.realpath(folder), last)  # noqa: PTH118
            os.fsencode(real)
        except ValueError:  # letters that no file system has
            return None
        return real[len(self._prefix) :] if real.startswith(self._prefix) else None

    def absolute_path(self, name: str) -> str:
        """The whole path of a name."""
        return self._prefix + name

    def contains(self, path: str) -> bool:
        """Whether a path really leads into the folder, or to itself."""
        return (os.path.realpath(path) + "/").startswith(self._prefix)

    def is_folder(self, name: str) -> bool:
        """Whether a folder has this name, not only a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(self.absolute_path(name)).st_mode)
        except (OSError, ValueError):
            return False

    def problem(self) -> str | None:
        """What is wrong with the folder itself, if it is not there, or not the one that it was."""
        found = _folder_identity(self.real_path)
        self._identity = self._identity or found
        if found is None:
            return FOLDER_MISSING
        return FOLDER_REPLACED if found != self._identity else None

    def open(self, name: str) -> int:
        """A plain file, open for reading. `Outside` if it leads out of the folder or is something else.

        FileNotFoundError is said of a file alone: where the folder itself is gone, it is `Missing`.
        """
        real = os.path.realpath(self.absolute_path(name))
        top = self._open_root()
        try:
            if not real.startswith(self._prefix):
                raise OutsideFolderError(0, f"it leads out of the folder, to {real}")
            return _open_regular_file(top, real[len(self._prefix) :].split("/"))
        except (OutsideFolderError, FileNotFoundError, NotADirectoryError):
            if (
                _folder_identity(top) != self._identity
                or os.path.realpath(self.real_path) != self.real_path
            ):
                raise MissingFolderError(0, f"{self.given_path}: {FOLDER_REPLACED}") from None
            raise
        finally:
            os.close(top)

    def _open_root(self) -> int:
        """The folder itself. One that came only after it was named is known from now on."""
        try:
            top = os.open(self.real_path, OPEN_DIR_NOFOLLOW)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            raise MissingFolderError(0, f"{self.given_path}: {FOLDER_MISSING}") from None
        self._identity = self._identity or _folder_identity(top)
        return top


def _open_regular_file(top: int, parts: list[str]) -> int:
    """The plain file this deep below an open folder."""
    folder = open_subdir(top, parts[:-1])
    try:
        file = os.open(parts[-1], OPEN_FILE_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OutsideFolderError(0, "it is no plain file")
    return file


def _folder_identity(folder: str | int) -> tuple[int, int] | None:
    """What tells a folder from another that has its name later; None where there is none."""
    try:
        found = os.stat(folder, follow_symlinks=isinstance(folder, int))  # noqa: PTH116  # it may be open
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None
