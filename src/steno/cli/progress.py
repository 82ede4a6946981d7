"""A line on stderr while long work goes on: files, bytes, rate. Only where a person sees it; never on stdout."""

import sys
import time
from collections.abc import Iterable, Iterator

from .terminal import is_terminal

INITIAL_DELAY_SECONDS = 1.0  # seconds before anything is shown: most work is over by then
REDRAW_SECONDS = 0.1  # seconds between two pictures
CLOCK_CHECK_BYTES = 1 << 20  # bytes between two looks at the clock


class Progress:
    """How far the work is."""

    def __init__(self, total: int, is_shown: bool = True) -> None:
        self.total_files, self.done_files, self.done_bytes = total, 0, 0
        self.total_bytes = 0  # bytes in all, where that is known
        self.is_shown = is_shown and is_terminal(sys.stderr)
        self.started_at = time.monotonic()
        self._next_draw, self._is_drawn = self.started_at + INITIAL_DELAY_SECONDS, False

    def track(self, data: Iterable[bytes]) -> Iterable[bytes]:
        """The same bytes, counted as they pass."""
        return self._track(data) if self.is_shown else data

    def _track(self, data: Iterable[bytes]) -> Iterator[bytes]:
        mark = self.done_bytes
        for piece in data:
            self.done_bytes += len(piece)
            if self.done_bytes >= mark:
                mark = self.done_bytes + CLOCK_CHECK_BYTES
                self._draw()
            yield piece

    def update(self, size: int, whole: int) -> None:
        """So many bytes of so many are done."""
        self.done_bytes, self.total_bytes = size, whole
        if self.is_shown:
            self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next_draw:
            return
        self._next_draw, self._is_drawn = now + REDRAW_SECONDS, True
        rate = self.done_bytes / 1e6 / (now - self.started_at)
        what = f"{self.done_files} of {self.total_files} read, {self.done_bytes / 1e6:,.1f} MB"
        if self.total_bytes:
            what = f"{self.done_bytes / 1e6:,.1f} of {self.total_bytes / 1e6:,.1f} MB ({self.done_bytes / self.total_bytes:.0%})"
        sys.stderr.write(f"\r\x1b[Ksteno: {what}, {rate:,.1f} MB/s")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away, before something else is written."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False


class StepProgress:
    """How many of some things are done, where a person waits for it: `with Steps("texts") as steps: ... steps.show(3, 10)`."""

    def __init__(self, noun: str) -> None:
        self.noun, self.is_shown = noun, is_terminal(sys.stderr)
        self._next_draw, self._is_drawn = time.monotonic() + INITIAL_DELAY_SECONDS, False

    def __enter__(self) -> "StepProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def update(self, done: int, total: int) -> None:
        """Draw the line, if it is time for it."""
        now = time.monotonic()
        if self.is_shown and now >= self._next_draw:
            self._next_draw, self._is_drawn = now + REDRAW_SECONDS, True
            sys.stderr.write(f"\r\x1b[Ksteno: {done:,} of {total:,} {self.noun}")
            sys.stderr.flush()
