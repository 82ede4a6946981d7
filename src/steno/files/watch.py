"""A thread that says when something stirs below a folder, by watchfiles. It says where, never what: `index` looks."""

import threading
from collections.abc import Callable
from contextlib import suppress

from .rules import is_noise

STEP, DEBOUNCE = 10, 30  # milliseconds: quiet for the first, or the second at most, and what was heard is told
READY = 100  # milliseconds after which it says that it listens, if nothing stirred


def load() -> None:
    """Load what watches, which takes 20 ms: before anything comes that must not wait."""
    with suppress(ImportError):  # it is told when it is needed
        import watchfiles  # noqa: F401


class Watcher:
    """Listens from `start` to `stop`. `take` gets paths, the first time perhaps none: from then on nothing is missed."""

    def __init__(self, root: str, take: Callable[[list[str]], None], failed: Callable[[str], None]) -> None:
        self._root, self._take, self._failed = root, take, failed
        self._end = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="steno watch", daemon=True)

    def start(self) -> None:
        """Begin to listen. StenoError if watchfiles is not there is told by `failed`."""
        self._thread.start()

    def ready(self, seconds: float) -> bool:
        """Wait until it listens, or has failed."""
        return self._ready.wait(seconds)

    def stop(self, seconds: float) -> None:
        """Hear what has stirred until now, then listen no more."""
        self._end.wait(2 * DEBOUNCE / 1000)
        self._end.set()
        self._thread.join(seconds)

    def _listen(self) -> None:
        try:
            from watchfiles import watch
        except ImportError:
            self._failed("what tools do not tell is looked for at the end only: pip install 'steno[watch]' watches all the time")
            self._ready.set()
            return
        try:
            for changes in watch(
                self._root,
                watch_filter=lambda change, path: counts(path, len(self._root)),
                debounce=DEBOUNCE,
                step=STEP,
                stop_event=self._end,
                rust_timeout=READY,
                yield_on_timeout=True,
                raise_interrupt=False,
            ):
                if changes or not self._ready.is_set():
                    self._take(sorted({path for _, path in changes}))
                    self._ready.set()
        except Exception as problem:  # whatever the system lacks for it (its watches may be used up): the end finds the rest
            self._failed(f"the folder cannot be watched, so the rest is found at the end: {problem}")
        finally:
            self._ready.set()  # also where it was stopped before it heard anything


def counts(path: str, skip: int = 0) -> bool:
    """Whether a path is worth a look: the names that everybody ignores make most of the noise."""
    return not any(map(is_noise, path[skip:].split("/")))
