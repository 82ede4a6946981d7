"""How the files of a folder stand on the disk, and what is different from the last look. It only reads.

What a watcher says is taken for a hint where to look: the disk itself says what is there.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

from msgspec import Struct

from .ignore_rules import IgnoreRules, is_always_ignored
from .safe_path import RootFolder

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
            gone = (
                [] if name in self.states else self._remove(self._names_below(name))
            )  # a folder may have stood there
            return gone + self._compare({name: state}, {}) if self.rules.includes(name) else gone
        here = dict(self._scan_dir(name)) if self.root.is_folder(name) else {}
        before = (
            {known: self.states[known] for known in self._names_below(name)}
            if name not in self.states or here
            else {}
        )
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
        if (
            stat.S_ISDIR(found.st_mode)
            and stat.S_ISLNK(link.st_mode)
            and not self.root.contains(path)
        ):
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

    def _compare(
        self, here: dict[str, FileState], before: dict[str, FileState]
    ) -> list[ObservedChange]:
        found = self._remove([name for name in before if name not in here])
        for name, state in here.items():
            if before.get(name) != state:
                found.append(ObservedChange(name, "modified" if name in self.states else "created"))
                self.states[name] = state
        return found


STEP_MS, DEBOUNCE_MS = (
    10,
    30,
)  # milliseconds: quiet for the first, or the second at most, and what was heard is told
READY_TIMEOUT_MS = 100  # milliseconds after which it says that it listens, if nothing stirred


def preload() -> None:
    """Load what watches, which takes 20 ms: before anything comes that must not wait."""
    with suppress(ImportError):  # it is told when it is needed
        import watchfiles  # noqa: F401


class FileWatcher:
    """Listens from `start` to `stop`. `take` gets paths, the first time perhaps none: from then on nothing is missed."""

    def __init__(
        self, root: str, take: Callable[[list[str]], None], failed: Callable[[str], None]
    ) -> None:
        self._root, self._on_paths, self._on_error = root, take, failed
        self._stop_event = threading.Event()
        self._ready_event = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steno watch", daemon=True)

    def start(self) -> None:
        """Begin to listen. StenoError if watchfiles is not there is told by `failed`."""
        self._thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """Wait until it listens, or has failed."""
        return self._ready_event.wait(seconds)

    def stop(self, seconds: float) -> None:
        """Hear what has stirred until now, then listen no more."""
        self._stop_event.wait(2 * DEBOUNCE_MS / 1000)
        self._stop_event.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            from watchfiles import watch
        except ImportError:
            self._on_error(
                "what tools do not tell is looked for at the end only: pip install 'steno[watch]' watches all the time"
            )
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
        except Exception as problem:  # whatever the system lacks for it (its watches may be used up): the end finds the rest
            self._on_error(
                f"the folder cannot be watched, so the rest is found at the end: {problem}"
            )
        finally:
            self._ready_event.set()  # also where it was stopped before it heard anything


def is_relevant(path: str, skip: int = 0) -> bool:
    """Whether a path is worth a look: the names that everybody ignores make most of the noise."""
    return not any(map(is_always_ignored, path[skip:].split("/")))


WATCH_READY_SECONDS = 5.0  # seconds for the system to begin to watch a folder
CLOCK_TOLERANCE_NS = 10_000_000  # nanoseconds by which the clock of a file system may be behind


class ChangeWatcher:
    """Looks from `start` to `stop`. What was changed after it was made counts, even if that was before `start`."""

    def __init__(
        self,
        root: RootFolder,
        rules: IgnoreRules,
        take: Callable[[list[ObservedChange]], None],
        failed: Callable[[str], None],
    ) -> None:
        self._since_ns = time.time_ns() - CLOCK_TOLERANCE_NS
        self._index, self._on_changes = FileIndex(root, rules), take
        self._changed_paths: SimpleQueue[list[str] | None] = SimpleQueue()
        self._watcher = FileWatcher(root.real_path, self._changed_paths.put, failed)
        self._first_scan_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steno look", daemon=True)

    def start(self, since_ns: int | None = None) -> None:
        """Begin to look; `since_ns`: what was changed from then on counts (nanoseconds since 1970)."""
        self._since_ns = self._since_ns if since_ns is None else since_ns - CLOCK_TOLERANCE_NS
        self._watcher.start()
        self._thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """Wait until everything was looked at once: from then on it is known what is new, and what is gone."""
        return self._first_scan_done.wait(seconds)

    def stop(self, seconds: float | None) -> bool:
        """Look at everything once more, and then no longer; whether there was time for it."""
        self._watcher.stop(1.0)
        self._changed_paths.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Once the folder is watched, look at all of it: what stirs meanwhile is looked at again afterwards."""
        self._watcher.wait_ready(WATCH_READY_SECONDS)
        self._index.scan()
        self._first_scan_done.set()
        self._emit(
            [
                ObservedChange(name, "modified")
                for name, state in self._index.states.items()
                if state[1] >= self._since_ns
            ]
        )
        while (paths := self._changed_paths.get()) is not None:
            self._emit([notice for path in paths for notice in self._index.check_path(path)])
        self._emit(self._index.rescan())

    def _emit(self, notices: list[ObservedChange]) -> None:
        if notices:
            self._on_changes(notices)
