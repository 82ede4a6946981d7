"""How the files of a folder stand on the disk, and what is different from the last look. It only reads.

What a watcher says is taken for a hint where to look: the disk itself says what is there.
"""

import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from .inside import RootFolder
from .rules import IgnoreRules

FileState = tuple[int, int, int, int]  # size, time of change in nanoseconds, inode, mode


class ObservedChange(Struct, frozen=True):
    """A file was seen to be created, modified or deleted, on the disk or by `git`. `name` is relative to the folder."""

    name: str
    change: str
    source: str = "filesystem"


class FileIndex:
    """What was seen last of every file that counts."""

    def __init__(self, root: RootFolder, rules: IgnoreRules) -> None:
        self.root, self.rules = root, rules
        self.states: dict[str, FileState] = {}
        self.unreadable_dirs: dict[str, str] = {}  # folders that could not be looked into, and why

    def scan(self) -> None:
        """Look at everything for the first time."""
        self.states = dict(self._scan_dir(""))

    def rescan(self) -> list[ObservedChange]:
        """Look at everything again, and say what is different."""
        self.rules.clear_cache()
        return self._compare(dict(self._scan_dir("")), dict(self.states))

    def check_path(self, path: str) -> list[ObservedChange]:
        """Something stirred at this path: what is there now. A file is told even if it looks the same."""
        name = self.root.relative_name(path)
        if name is None or self.rules.is_ignored(name):
            return []
        if name.endswith(".gitignore"):
            self.rules.clear_cache()
        state = self._file_state(name)
        if state is not None:
            gone = [] if name in self.states else self._remove(self._names_below(name))  # a folder may have stood there
            return gone + self._compare({name: state}, {}) if self.rules.includes(name) else gone
        here = dict(self._scan_dir(name)) if self.root.is_folder(name) else {}
        before = {known: self.states[known] for known in self._names_below(name)} if name not in self.states or here else {}
        found = self._remove([name]) if name in self.states else []
        return found + self._compare(here, before)

    def names(self) -> list[str]:
        """Every file that counts, in order."""
        return sorted(self.states)

    # -- what is there -------------------------------------------------------------------------------------------

    def _scan_dir(self, name: str) -> Iterator[tuple[str, FileState]]:
        """Every file that counts in a folder and the folders below it. What cannot be looked at is remembered as such."""
        try:
            with os.scandir(self.root.absolute_path(name).rstrip("/") or "/") as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile
            return
        except OSError as problem:
            self.unreadable_dirs[name] = str(problem.strerror)
            return
        for entry in found:
            inner = f"{name}/{entry.name}" if name else entry.name
            if entry.is_dir(follow_symlinks=False):
                if not self.rules.is_dir_ignored(inner):
                    yield from self._scan_dir(inner)
            elif self.rules.includes(inner) and (state := self._file_state(inner)) is not None:
                yield inner, state

    def _file_state(self, name: str) -> FileState | None:
        """A file, a link to one, or a link to a folder elsewhere; None for all else. Where it leads is asked when it is read."""
        path = self.root.absolute_path(name)
        try:
            link = found = os.lstat(path)
            if stat.S_ISLNK(link.st_mode):
                found = os.stat(path)  # noqa: PTH116
        except PermissionError as problem:
            self.unreadable_dirs[name.rpartition("/")[0]] = str(problem.strerror)
            return None
        except (OSError, ValueError):
            return None
        if stat.S_ISDIR(found.st_mode) and stat.S_ISLNK(link.st_mode) and not self.root.contains(path):
            found = link  # nothing below it is looked at, but whoever reads it says where it leads
        elif not stat.S_ISREG(found.st_mode):
            return None
        return found.st_size, found.st_mtime_ns, found.st_ino, found.st_mode

    # -- what is different ---------------------------------------------------------------------------------------

    def _names_below(self, name: str) -> list[str]:
        start = name + "/"
        return [known for known in self.states if known.startswith(start)]

    def _remove(self, names: list[str]) -> list[ObservedChange]:
        for name in names:
            del self.states[name]
        return [ObservedChange(name, "deleted") for name in names]

    def _compare(self, here: dict[str, FileState], before: dict[str, FileState]) -> list[ObservedChange]:
        found = self._remove([name for name in before if name not in here])
        for name, state in here.items():
            if before.get(name) != state:
                found.append(ObservedChange(name, "modified" if name in self.states else "created"))
                self.states[name] = state
        return found
