"""How the files of a folder stand on the disk, and what is different from the last look. It only reads.

What a watcher says is taken for a hint where to look: the disk itself says what is there.
"""

import os
import stat
from collections.abc import Iterator

from msgspec import Struct

from .inside import Root
from .rules import Rules

State = tuple[int, int, int, int]  # size, time of change in nanoseconds, inode, mode


class Notice(Struct, frozen=True):
    """A file was seen to be created, modified or deleted, on the disk or by `git`. `name` is relative to the folder."""

    name: str
    change: str
    source: str = "filesystem"


class Index:
    """What was seen last of every file that counts."""

    def __init__(self, root: Root, rules: Rules) -> None:
        self.root, self.rules = root, rules
        self.seen: dict[str, State] = {}
        self.unread: dict[str, str] = {}  # folders that could not be looked into, and why

    def begin(self) -> None:
        """Look at everything for the first time."""
        self.seen = dict(self._below(""))

    def news(self) -> list[Notice]:
        """Look at everything again, and say what is different."""
        self.rules.forget()
        return self._compare(dict(self._below("")), dict(self.seen))

    def hint(self, path: str) -> list[Notice]:
        """Something stirred at this path: what is there now. A file is told even if it looks the same."""
        name = self.root.name(path)
        if name is None or self.rules.ignores(name):
            return []
        if name.endswith(".gitignore"):
            self.rules.forget()
        state = self._state(name)
        if state is not None:
            gone = [] if name in self.seen else self._drop(self._known_below(name))  # a folder may have stood there
            return gone + self._compare({name: state}, {}) if self.rules.wants(name) else gone
        here = dict(self._below(name)) if self.root.is_folder(name) else {}
        before = {known: self.seen[known] for known in self._known_below(name)} if name not in self.seen or here else {}
        found = self._drop([name]) if name in self.seen else []
        return found + self._compare(here, before)

    def names(self) -> list[str]:
        """Every file that counts, in order."""
        return sorted(self.seen)

    # -- what is there -------------------------------------------------------------------------------------------

    def _below(self, name: str) -> Iterator[tuple[str, State]]:
        """Every file that counts in a folder and the folders below it. What cannot be looked at is remembered as such."""
        try:
            with os.scandir(self.root.path(name).rstrip("/") or "/") as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile
            return
        except OSError as problem:
            self.unread[name] = str(problem.strerror)
            return
        for entry in found:
            inner = f"{name}/{entry.name}" if name else entry.name
            if entry.is_dir(follow_symlinks=False):
                if not self.rules.folder(inner):
                    yield from self._below(inner)
            elif self.rules.wants(inner) and (state := self._state(inner)) is not None:
                yield inner, state

    def _state(self, name: str) -> State | None:
        """A file, a link to one, or a link to a folder elsewhere; None for all else. Where it leads is asked when it is read."""
        path = self.root.path(name)
        try:
            link = found = os.lstat(path)
            if stat.S_ISLNK(link.st_mode):
                found = os.stat(path)  # noqa: PTH116
        except PermissionError as problem:
            self.unread[name.rpartition("/")[0]] = str(problem.strerror)
            return None
        except (OSError, ValueError):
            return None
        if stat.S_ISDIR(found.st_mode) and stat.S_ISLNK(link.st_mode) and not self.root.holds(path):
            found = link  # nothing below it is looked at, but whoever reads it says where it leads
        elif not stat.S_ISREG(found.st_mode):
            return None
        return found.st_size, found.st_mtime_ns, found.st_ino, found.st_mode

    # -- what is different ---------------------------------------------------------------------------------------

    def _known_below(self, name: str) -> list[str]:
        start = name + "/"
        return [known for known in self.seen if known.startswith(start)]

    def _drop(self, names: list[str]) -> list[Notice]:
        for name in names:
            del self.seen[name]
        return [Notice(name, "deleted") for name in names]

    def _compare(self, here: dict[str, State], before: dict[str, State]) -> list[Notice]:
        found = self._drop([name for name in before if name not in here])
        for name, state in here.items():
            if before.get(name) != state:
                found.append(Notice(name, "modified" if name in self.seen else "created"))
                self.seen[name] = state
        return found
