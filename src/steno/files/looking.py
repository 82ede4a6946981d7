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

from .index import Index, Notice
from .inside import Root
from .rules import Rules
from .watch import Watcher

LISTENS = 5.0  # seconds for the system to begin to watch a folder
COARSE = 10_000_000  # nanoseconds by which the clock of a file system may be behind


class Looking:
    """Looks from `start` to `stop`. What was changed after it was made counts, even if that was before `start`."""

    def __init__(self, root: Root, rules: Rules, take: Callable[[list[Notice]], None], failed: Callable[[str], None]) -> None:
        self._since = time.time_ns() - COARSE
        self._index, self._take = Index(root, rules), take
        self._hints: SimpleQueue[list[str] | None] = SimpleQueue()
        self._watcher = Watcher(root.real, self._hints.put, failed)
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._look, name="steno look", daemon=True)

    def start(self, since_ns: int | None = None) -> None:
        """Begin to look; `since_ns`: what was changed from then on counts (nanoseconds since 1970)."""
        self._since = self._since if since_ns is None else since_ns - COARSE
        self._watcher.start()
        self._thread.start()

    def ready(self, seconds: float) -> bool:
        """Wait until everything was looked at once: from then on it is known what is new, and what is gone."""
        return self._begun.wait(seconds)

    def stop(self, seconds: float | None) -> bool:
        """Look at everything once more, and then no longer; whether there was time for it."""
        self._watcher.stop(1.0)
        self._hints.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _look(self) -> None:
        """Once the folder is watched, look at all of it: what stirs meanwhile is looked at again afterwards."""
        self._watcher.ready(LISTENS)
        self._index.begin()
        self._begun.set()
        self._give([Notice(name, "modified") for name, state in self._index.seen.items() if state[1] >= self._since])
        while (paths := self._hints.get()) is not None:
            self._give([notice for path in paths for notice in self._index.hint(path)])
        self._give(self._index.news())

    def _give(self, notices: list[Notice]) -> None:
        if notices:
            self._take(notices)
