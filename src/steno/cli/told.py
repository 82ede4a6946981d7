"""What `steno watch` says while a stream passes, on stderr: a live line on a terminal, plain lines elsewhere, a card at the end.

Everything goes through a thread that writes it, so that nothing here ever waits.
"""

import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import TextIO, cast

from .. import event as ev
from ..agents import Agent
from ..reading import Reading
from ..report import Report
from ..screen.live import Screen
from ..screen.look import Look
from ..supervise.spend import Spend
from .aside import Aside
from .terminal import FAILS, is_terminal

# What is told in a line of its own; all else only moves the live line.
RARE = frozenset((ev.Started, ev.Retry, ev.RateLimit, ev.PermissionDenied, ev.Compaction, ev.Failure, ev.Malformed))
ODD = 20  # malformed lines that are told one by one; the card counts all of them


class Heard:
    """When the stream began, and when it was last heard of."""

    def __init__(self, now: float) -> None:
        self.started = self.heard = now


class Seen:
    """The stream, as a screen wants to see a run."""

    id = ""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.spend = Spend(None)  # prices are looked up at the end: the table takes long to load
        self.child = Heard(time.monotonic())

    @property
    def agent(self) -> Agent:
        return self._reading.agent


class Told:
    """The voice of `steno watch`. `news` gives further lines, whenever it is asked; `live`: a line follows every event."""

    def __init__(self, look: Look, reading: Reading, quiet: bool, news: Callable[[], list[str]]) -> None:
        self._look, self._news, self._quiet = look, news, quiet
        self._run = Seen(reading)
        self._lock = Lock()  # the screen is used by whoever has something to say, and by the thread that draws
        live = not quiet and not is_terminal(sys.stdout)  # a line among the bytes themselves would be a mess
        self._aside = Aside(sys.stderr, live, self._idle)
        self._screen = Screen(look, cast("TextIO", self._aside) if sys.stderr is not None else None)
        self.live = self._aside.isatty()
        self._odd = 0  # malformed lines so far
        self._refused: set[str | None] = set()  # calls whose refusal was told: the agent tells it several times

    # -- while the stream passes -----------------------------------------------------------------------------------

    def sink(self, events: list[ev.Event]) -> None:
        """What has come. Elsewhere than on a terminal hardly anything of it is told."""
        if self.live:
            self._follow(events)
        for event in events:
            if type(event) in RARE:
                self._tell(event)

    def _follow(self, events: list[ev.Event]) -> None:
        self._run.child.heard = time.monotonic()
        for event in events:
            if type(event) is ev.Usage:
                self._run.spend.add(event)
        with self._lock:
            self._screen.sink(self._run, events)

    def _tell(self, event: ev.Event) -> None:
        if isinstance(event, ev.PermissionDenied):
            if event.call in self._refused:
                return
            self._refused.add(event.call)
        if isinstance(event, ev.Malformed) and not event.torn:
            self._odd += 1
            if self._odd > ODD:
                return
        text = _said(event)
        with self._lock:
            if type(event) is ev.Started and not self.live:
                self._screen.sink(self._run, [event])
            if text:
                self._screen.say(text)

    def _idle(self) -> None:
        """Nothing was said for a moment: by the thread that writes."""
        self.news()
        if self.live:
            with self._lock:
                self._screen.tick(time.monotonic())

    def news(self) -> None:
        """Say what there is to say beside the stream; where it is to be quiet, only what failed."""
        lines = [line for line in self._news() if not self._quiet or line.startswith(FAILS)]
        if lines:
            with self._lock:
                self._screen.page(lines)

    # -- the end ---------------------------------------------------------------------------------------------------

    def say(self, text: str, trouble: bool = False) -> None:
        """Something of our own; where it is to be quiet, only what failed."""
        if trouble or not self._quiet:
            with self._lock:
                self._screen.say(text)

    def card(self, report: Report) -> None:
        """The report of the stream."""
        from ..screen.card import card

        with self._lock:
            self._screen.page(card(report, self._look))

    def finish(self) -> None:
        """Wait until all is written."""
        self._aside.finish()


def _said(event: ev.Event) -> str:
    if isinstance(event, ev.Retry):
        reason = " ".join(str(part) for part in (event.status, event.error) if part is not None)
        return f"the agent tries again ({event.attempt or '?'} of {event.limit or '?'}): {reason}"
    if isinstance(event, ev.RateLimit):
        return f"usage limit: {event.status}" if event.status not in (None, "allowed") else ""
    if isinstance(event, ev.PermissionDenied):
        return f"refused: {event.tool or 'a call'}"
    if isinstance(event, ev.Malformed):
        return f"skipping malformed line {event.line}: {event.head}" if not event.torn else ""
    if isinstance(event, ev.Compaction):
        return f"the context was compacted ({event.trigger or 'unknown'})"
    return f"failed: {event.text or event.kind}" if isinstance(event, ev.Failure) else ""
