"""A thread that says when something stirs below a folder, by watchfiles. It says where, never what: `index` looks."""

import threading
from collections.abc import Callable
from contextlib import suppress

from .rules import is_always_ignored

STEP_MS, DEBOUNCE_MS = 10, 30  # milliseconds: quiet for the first, or the second at most, and what was heard is told
READY_TIMEOUT_MS = 100  # milliseconds after which it says that it listens, if nothing stirred


def preload() -> None:
    """Load what watches, which takes 20 ms: before anything comes that must not wait."""
    with suppress(ImportError):  # it is told when it is needed
        import watchfiles  # noqa: F401


class FileWatcher:
    """Listens from `start` to `stop`. `take` gets paths, the first time perhaps none: from then on nothing is missed."""

    def __init__(self, root: str, take: Callable[[list[str]], None], failed: Callable[[str], None]) -> None:
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
            self._on_error("what tools do not tell is looked for at the end only: pip install 'steno[watch]' watches all the time")
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
            self._on_error(f"the folder cannot be watched, so the rest is found at the end: {problem}")
        finally:
            self._ready_event.set()  # also where it was stopped before it heard anything


def is_relevant(path: str, skip: int = 0) -> bool:
    """Whether a path is worth a look: the names that everybody ignores make most of the noise."""
    return not any(map(is_always_ignored, path[skip:].split("/")))
