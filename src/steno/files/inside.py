"""What lies inside a folder, by what the disk says: links and `..` are followed before a path is believed. It only reads.

A file is opened name by name from its folder, following no link, so that one that is put in its place meanwhile leads
nowhere.
"""

import os
import stat

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe that nobody writes must not stop us


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

    def is_folder(self, name: str) -> bool:
        """Whether a folder has this name, not only a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(self.path(name)).st_mode)
        except (OSError, ValueError):
            return False

    def open(self, name: str) -> int:
        """A plain file, open for reading. `Outside` if it leads out of the folder or is something else."""
        real = os.path.realpath(self.path(name))
        if not real.startswith(self._start):
            raise Outside(0, f"it leads out of the folder, to {real}")
        parts = real[len(self._start) :].split("/")
        top = os.open(self.real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            folder = descend(top, parts[:-1])
        finally:
            os.close(top)
        try:
            file = os.open(parts[-1], FILE, dir_fd=folder)
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise Outside(0, "it is no plain file")
        return file
