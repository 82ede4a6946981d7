"""What lies inside a folder, by what the disk says: links and `..` are followed before a path is believed. It only reads.

A file is opened name by name from its folder, following no link, so that one that is put in its place meanwhile leads
nowhere.
"""

import errno
import os
import stat

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe that nobody writes must not stop us

GONE, REPLACED = "there is no such folder", "another folder stands there now"


class Missing(OSError):  # noqa: N818  # it reads as what it says
    """The folder itself is gone, or another stands in its place: nobody can tell what became of the files in it."""


class Outside(OSError):  # noqa: N818  # it reads as what it says
    """Something that does not lie in the folder, or is no plain file there."""


def is_name(name: str) -> bool:
    """Whether a name can be that of a file below a folder: no `..`, no empty part, not absolute."""
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def descend(folder: int, parts: list[str]) -> int:
    """The folder that lies this deep below an open one, as a new descriptor. No link is followed."""
    at = os.dup(folder)
    for part in parts:
        try:
            deeper = os.open(part, FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = deeper
    return at


class Root:
    """A folder: as it was named, and where it really is."""

    def __init__(self, path: str) -> None:
        self.given = os.path.abspath(path)  # noqa: PTH100  # pathlib would change what was given
        self.real = os.path.realpath(self.given)
        self._start = self.real.rstrip("/") + "/"
        self._which = _which(self.real)

    def name(self, path: str) -> str | None:
        """A path, absolute or below the folder, as a name in it; None where it lies outside.

        Folders on the way are followed to where they really are; the last part is not.
        """
        if "\0" in path:
            return None
        try:
            whole = os.path.join(self.given, path)  # noqa: PTH118
            folder, last = os.path.split(whole)
            if last in ("", ".", ".."):
                folder, last = os.path.split(os.path.realpath(whole))
            real = os.path.join(os.path.realpath(folder), last)  # noqa: PTH118
            os.fsencode(real)
        except ValueError:  # letters that no file system has
            return None
        return real[len(self._start) :] if real.startswith(self._start) else None

    def path(self, name: str) -> str:
        """The whole path of a name."""
        return self._start + name

    def holds(self, path: str) -> bool:
        """Whether a path really leads into the folder, or to itself."""
        return (os.path.realpath(path) + "/").startswith(self._start)

    def is_folder(self, name: str) -> bool:
        """Whether a folder has this name, not only a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(self.path(name)).st_mode)
        except (OSError, ValueError):
            return False

    def amiss(self) -> str | None:
        """What is wrong with the folder itself, if it is not there, or not the one that it was."""
        found = _which(self.real)
        self._which = self._which or found
        if found is None:
            return GONE
        return REPLACED if found != self._which else None

    def open(self, name: str) -> int:
        """A plain file, open for reading. `Outside` if it leads out of the folder or is something else.

        FileNotFoundError is said of a file alone: where the folder itself is gone, it is `Missing`.
        """
        real = os.path.realpath(self.path(name))
        top = self._opened()
        try:
            if not real.startswith(self._start):
                raise Outside(0, f"it leads out of the folder, to {real}")
            return _file(top, real[len(self._start) :].split("/"))
        except (Outside, FileNotFoundError, NotADirectoryError):
            if _which(top) != self._which or os.path.realpath(self.real) != self.real:
                raise Missing(0, f"{self.given}: {REPLACED}") from None
            raise
        finally:
            os.close(top)

    def _opened(self) -> int:
        """The folder itself. One that came only after it was named is known from now on."""
        try:
            top = os.open(self.real, FOLDER)
        except OSError as problem:
            if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            raise Missing(0, f"{self.given}: {GONE}") from None
        self._which = self._which or _which(top)
        return top


def _file(top: int, parts: list[str]) -> int:
    """The plain file this deep below an open folder."""
    folder = descend(top, parts[:-1])
    try:
        file = os.open(parts[-1], FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Outside(0, "it is no plain file")
    return file


def _which(folder: str | int) -> tuple[int, int] | None:
    """What tells a folder from another that has its name later; None where there is none."""
    try:
        found = os.stat(folder, follow_symlinks=isinstance(folder, int))  # noqa: PTH116  # it may be open
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None
