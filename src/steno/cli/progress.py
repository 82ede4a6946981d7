"""A line on stderr while long work goes on: files, bytes, rate. Only where a person sees it; never on stdout."""

import sys
import time
from collections.abc import Iterable, Iterator

from .terminal import is_terminal

QUIET = 1.0  # seconds before anything is shown: most work is over by then
EVERY = 0.1  # seconds between two pictures
STEP = 1 << 20  # bytes between two looks at the clock


class Progress:
    """How far the work is."""

    def __init__(self, total: int, shown: bool = True) -> None:
        self.total, self.done, self.size = total, 0, 0
        self.whole = 0  # bytes in all, where that is known
        self.shown = shown and is_terminal(sys.stderr)
        self.start = time.monotonic()
        self._next, self._drawn = self.start + QUIET, False

    def through(self, data: Iterable[bytes]) -> Iterable[bytes]:
        """The same bytes, counted as they pass."""
        return self._counted(data) if self.shown else data

    def _counted(self, data: Iterable[bytes]) -> Iterator[bytes]:
        mark = self.size
        for piece in data:
            self.size += len(piece)
            if self.size >= mark:
                mark = self.size + STEP
                self._draw()
            yield piece

    def bytes(self, size: int, whole: int) -> None:
        """So many bytes of so many are done."""
        self.size, self.whole = size, whole
        if self.shown:
            self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self._drawn = now + EVERY, True
        rate = self.size / 1e6 / (now - self.start)
        what = f"{self.done} of {self.total} read, {self.size / 1e6:,.1f} MB"
        if self.whole:
            what = f"{self.size / 1e6:,.1f} of {self.whole / 1e6:,.1f} MB ({self.size / self.whole:.0%})"
        sys.stderr.write(f"\r\x1b[Ksteno: {what}, {rate:,.1f} MB/s")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away, before something else is written."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False


class Steps:
    """How many of some things are done, where a person waits for it: `with Steps("texts") as steps: ... steps.show(3, 10)`."""

    def __init__(self, noun: str) -> None:
        self.noun, self.shown = noun, is_terminal(sys.stderr)
        self._next, self._drawn = time.monotonic() + QUIET, False

    def __enter__(self) -> "Steps":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, done: int, total: int) -> None:
        """Draw the line, if it is time for it."""
        now = time.monotonic()
        if self.shown and now >= self._next:
            self._next, self._drawn = now + EVERY, True
            sys.stderr.write(f"\r\x1b[Ksteno: {done:,} of {total:,} {self.noun}")
            sys.stderr.flush()
