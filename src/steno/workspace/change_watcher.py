"""Detects file changes in a folder: an index of file states, and a watcher that triggers checks.

A notification of the system only says where to look; the state on disk decides. Read-only.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

from msgspec import Struct

from ..installation import extra_command
from .ignore_rules import IgnoreRules, is_always_ignored, is_project_name
from .safe_path import RootFolder

STEP_MS = 10  # report changes after this long without another,
DEBOUNCE_MS = 30  # or after this long
READY_TIMEOUT_MS = 100  # report readiness after this long without changes
WATCH_READY_SECONDS = 5.0  # for the system to start watching a folder
CLOCK_TOLERANCE_NS = 10_000_000  # by which the clock of a file system may be behind
WATCHFILES_MISSING = (
    "changes made by shell commands are detected only at the end; "
    "file-system watching and .gitignore support: "
)


class FileState(NamedTuple):
    """What identifies a version of a file."""

    size: int
    mtime_ns: int
    inode: int
    mode: int


class ObservedChange(Struct, frozen=True):
    """A file created, modified or deleted, as seen on disk or by git; `name` is relative."""

    name: str
    change: str
    source: str = "filesystem"


class FileIndex:
    """The last seen state of every file that is not ignored.

    `ignored_names` lists ignored files and folders that were checked for changes, and those that a
    scan finds changed after `ignored_since_ns`.
    """

    def __init__(
        self, root: RootFolder, rules: IgnoreRules, ignored_since_ns: int | None = None
    ) -> None:
        self.root = root
        self.rules = rules
        self.ignored_since_ns = ignored_since_ns
        self.ignored_names: set[str] = set()
        self.states: dict[str, FileState] = {}
        self.unreadable_dirs: dict[str, str] = {}  # with the reason

    def scan(self) -> None:
        """Read all states."""
        self.states = dict(self._scan_dir(""))

    def rescan(self) -> list[ObservedChange]:
        """Read all states again; what changed."""
        self.rules.clear_cache()
        return self._compare(dict(self._scan_dir("")), dict(self.states))

    def check_path(self, path: str) -> list[ObservedChange]:
        """What changed at a path, file or folder. A file counts even if it looks the same."""
        name = self.root.relative_name(path)
        if name is None:
            return []
        ignored = self.rules.ignored_part(name)
        if ignored is not None:
            self.ignored_names.add(ignored)
            return []
        if name.endswith(".gitignore"):
            self.rules.clear_cache()
        state = self._file_state(name)
        if state is not None:
            return self._check_file(name, state)
        current = dict(self._scan_dir(name)) if self.root.is_folder(name) else {}
        before: dict[str, FileState] = {}
        if name not in self.states or current:
            before = {known: self.states[known] for known in self._names_below(name)}
        removed = self._remove([name]) if name in self.states else []
        return removed + self._compare(current, before)

    def _check_file(self, name: str, state: FileState) -> list[ObservedChange]:
        # It may have replaced a folder.
        removed = [] if name in self.states else self._remove(self._names_below(name))
        if not self.rules.includes(name):
            return removed
        return removed + self._compare({name: state}, {})

    def names(self) -> list[str]:
        """Every file, sorted."""
        return sorted(self.states)

    # -- states ------------------------------------------------------------------------------------

    def _scan_dir(self, name: str) -> Iterator[tuple[str, FileState]]:
        """Every file in a folder and below. Unreadable folders are recorded."""
        try:
            with os.scandir(self.root.absolute_path(name).rstrip("/") or "/") as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile
            return
        except OSError as error:
            self.unreadable_dirs[name] = str(error.strerror)
            return
        for entry in entries:
            inner = f"{name}/{entry.name}" if name else entry.name
            if entry.is_dir(follow_symlinks=False):
                if not self.rules.is_dir_ignored(inner):
                    yield from self._scan_dir(inner)
                else:
                    self._add_ignored(entry, f"{inner}/")
            elif self.rules.includes(inner):
                if (state := self._file_state(inner)) is not None:
                    yield inner, state
            elif (ignored := self.rules.ignored_part(inner)) is not None:
                self._add_ignored(entry, ignored)

    def _add_ignored(self, entry: "os.DirEntry[str]", name: str) -> None:
        if self.ignored_since_ns is not None and is_project_name(entry.name):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime_ns >= self.ignored_since_ns:
                    self.ignored_names.add(name)

    def _file_state(self, name: str) -> FileState | None:
        """The state of a file, a link to a file, or a link to a folder outside; else None."""
        path = self.root.absolute_path(name)
        try:
            link = status = os.lstat(path)
            if stat.S_ISLNK(link.st_mode):
                status = os.stat(path)  # noqa: PTH116  # `path` is a string
        except PermissionError as error:
            self.unreadable_dirs[name.rpartition("/")[0]] = str(error.strerror)
            return None
        except (OSError, ValueError):
            return None
        is_dir_link = stat.S_ISDIR(status.st_mode) and stat.S_ISLNK(link.st_mode)
        if is_dir_link and not self.root.contains(path):
            status = link  # not followed; sync reports where it leads
        elif not stat.S_ISREG(status.st_mode):
            return None
        return FileState(status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode)

    # -- differences -------------------------------------------------------------------------------

    def _names_below(self, name: str) -> list[str]:
        return [known for known in self.states if known.startswith(f"{name}/")]

    def _remove(self, names: list[str]) -> list[ObservedChange]:
        for name in names:
            del self.states[name]
        return [ObservedChange(name, "deleted") for name in names]

    def _compare(
        self, current: dict[str, FileState], before: dict[str, FileState]
    ) -> list[ObservedChange]:
        changes = self._remove([name for name in before if name not in current])
        for name, state in current.items():
            if before.get(name) != state:
                change = "modified" if name in self.states else "created"
                changes.append(ObservedChange(name, change))
                self.states[name] = state
        return changes


def preload() -> None:
    """Import watchfiles (20 ms) before there is anything to delay."""
    with suppress(ImportError):  # reported when it is used
        import watchfiles  # noqa: F401  # only loaded


class FileWatcher:
    """Reports changed paths from `start` to `stop`.

    The first call of `on_paths` may have none: from then on nothing is missed.
    """

    def __init__(
        self,
        root: str,
        on_paths: Callable[[list[str]], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._root = root
        self._on_paths = on_paths
        self._on_error = on_error
        self._stop_event = threading.Event()
        self._ready_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steno watch", daemon=True)

    def start(self) -> None:
        """Start watching in a thread."""
        self._thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """Wait until it is watching or has failed."""
        return self._ready_event.wait(seconds)

    def stop(self, seconds: float) -> None:
        """Report the changes until now, and stop."""
        self._stop_event.wait(2 * DEBOUNCE_MS / 1000)
        self._stop_event.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            from watchfiles import watch
        except ImportError:
            self._on_error(WATCHFILES_MISSING + extra_command("watch"))
            self._ready_event.set()
            return
        try:
            for changes in watch(
                self._root,
                watch_filter=lambda change, path: is_relevant(path, len(self._root)),
                debounce=DEBOUNCE_MS,
                step=STEP_MS,
                stop_event=self._stop_event,
                rust_timeout=READY_TIMEOUT_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
            ):
                if changes or not self._ready_event.is_set():
                    self._on_paths(sorted({path for _, path in changes}))
                    self._ready_event.set()
        except Exception as error:  # such as no inotify watches left; the final scan finds the rest
            self._on_error(
                f"file-system watching failed, changes are detected only at the end: {error}"
            )
        finally:
            self._ready_event.set()  # also if it was stopped before the first change


def is_relevant(path: str, skip: int = 0) -> bool:
    """Whether no part of a path is always ignored; most notifications are about such files."""
    return not any(map(is_always_ignored, path[skip:].split("/")))


class ChangeWatcher:
    """Reports changes from `start` to `stop`, and those since it was created."""

    def __init__(
        self,
        root: RootFolder,
        rules: IgnoreRules,
        on_changes: Callable[[list[ObservedChange]], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._since_ns = time.time_ns() - CLOCK_TOLERANCE_NS
        self._index = FileIndex(root, rules)
        self._on_changes = on_changes
        self._changed_paths: SimpleQueue[list[str] | None] = SimpleQueue()
        self._watcher = FileWatcher(root.real_path, self._changed_paths.put, on_error)
        self._first_scan_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steno changes", daemon=True)

    def start(self, since_ns: int | None = None) -> None:
        """Start in a thread; `since_ns`: report changes after this time (ns since 1970)."""
        if since_ns is not None:
            self._since_ns = since_ns - CLOCK_TOLERANCE_NS
        self._index.ignored_since_ns = self._since_ns
        self._watcher.start()
        self._thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """Wait for the first scan: from then on creations and deletions are detected."""
        return self._first_scan_done.wait(seconds)

    @property
    def ignored_names(self) -> set[str]:
        """Ignored files and folders that changed; complete after `stop`."""
        return self._index.ignored_names

    def stop(self, seconds: float | None) -> bool:
        """Do a last scan and stop; False if there was no time for it."""
        self._watcher.stop(1.0)
        self._changed_paths.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Watch first, then scan: what changes during the scan is checked again afterwards.
        self._watcher.wait_ready(WATCH_READY_SECONDS)
        self._index.scan()
        self._first_scan_done.set()
        self._emit(
            [
                ObservedChange(name, "modified")
                for name, state in self._index.states.items()
                if state.mtime_ns >= self._since_ns
            ]
        )
        while (paths := self._changed_paths.get()) is not None:
            self._emit([change for path in paths for change in self._index.check_path(path)])
        self._emit(self._index.rescan())

    def _emit(self, changes: list[ObservedChange]) -> None:
        if changes:
            self._on_changes(changes)
