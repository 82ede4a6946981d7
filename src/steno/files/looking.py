"""What changes in a folder while somebody works there, as notices: the watcher says where, the index says what.

    looking = Looking(Root(cwd), Rules(cwd), notices.put, warnings.append)
    looking.start()
    ...
    looking.stop(10)        # looks at everything once more: nothing that happened before is missed

`take` is called from a thread of ours, with what was seen at one time. It only reads.
"""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from .index import FileIndex, ObservedChange
from .inside import RootFolder
from .rules import IgnoreRules
from .watch import FileWatcher

WATCH_READY_SECONDS = 5.0  # seconds for the system to begin to watch a folder
CLOCK_TOLERANCE_NS = 10_000_000  # nanoseconds by which the clock of a file system may be behind


class ChangeWatcher:
    """Looks from `start` to `stop`. What was changed after it was made counts, even if that was before `start`."""

    def __init__(self, root: RootFolder, rules: IgnoreRules, take: Callable[[list[ObservedChange]], None], failed: Callable[[str], None]) -> None:
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
        self._emit([ObservedChange(name, "modified") for name, state in self._index.states.items() if state[1] >= self._since_ns])
        while (paths := self._changed_paths.get()) is not None:
            self._emit([notice for path in paths for notice in self._index.check_path(path)])
        self._emit(self._index.rescan())

    def _emit(self, notices: list[ObservedChange]) -> None:
        if notices:
            self._on_changes(notices)
