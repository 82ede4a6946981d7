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
from ..reading import RunParser
from ..report import Report
from ..screen.live import LiveDisplay
from ..screen.look import PageStyle
from ..supervise.spend import SpendTracker
from .aside import StderrWriter
from .terminal import SYNC_FAILURE_PREFIX, is_terminal

# What is told in a line of its own; all else only moves the live line.
ANNOUNCED_EVENTS = frozenset((ev.Started, ev.Retry, ev.RateLimit, ev.PermissionDenied, ev.Compaction, ev.Failure, ev.Malformed))
MAX_MALFORMED_SHOWN = 20  # malformed lines that are told one by one; the card counts all of them


class StreamActivity:
    """When the stream began, and when it was last heard of."""

    def __init__(self, now: float) -> None:
        self.started = self.last_output_at = now


class StreamRun:
    """The stream, as a screen wants to see a run."""

    id = ""

    def __init__(self, reading: RunParser) -> None:
        self._reading = reading
        self.spend = SpendTracker(None)  # prices are looked up at the end: the table takes long to load
        self.child = StreamActivity(time.monotonic())

    @property
    def agent(self) -> Agent:
        return self._reading.agent


class WatchOutput:
    """The voice of `steno watch`. `news` gives further lines, whenever it is asked; `live`: a line follows every event."""

    def __init__(self, look: PageStyle, reading: RunParser, quiet: bool, news: Callable[[], list[str]]) -> None:
        self._style, self._pending_messages, self._is_quiet = look, news, quiet
        self._run = StreamRun(reading)
        self._lock = Lock()  # the screen is used by whoever has something to say, and by the thread that draws
        live = not quiet and not is_terminal(sys.stdout)  # a line among the bytes themselves would be a mess
        self._stderr = StderrWriter(sys.stderr, live, self._on_idle)
        self._display = LiveDisplay(look, cast("TextIO", self._stderr) if sys.stderr is not None else None)
        self.is_live = self._stderr.isatty()
        self._malformed_count = 0  # malformed lines so far
        self._announced_denials: set[str | None] = set()  # calls whose refusal was told: the agent tells it several times

    # -- while the stream passes -----------------------------------------------------------------------------------

    def on_events(self, events: list[ev.Event]) -> None:
        """What has come. Elsewhere than on a terminal hardly anything of it is told."""
        if self.is_live:
            self._update_display(events)
        for event in events:
            if type(event) in ANNOUNCED_EVENTS:
                self._announce(event)

    def _update_display(self, events: list[ev.Event]) -> None:
        self._run.child.last_output_at = time.monotonic()
        for event in events:
            if type(event) is ev.Usage:
                self._run.spend.add(event)
        with self._lock:
            self._display.on_events(self._run, events)

    def _announce(self, event: ev.Event) -> None:
        if isinstance(event, ev.PermissionDenied):
            if event.call in self._announced_denials:
                return
            self._announced_denials.add(event.call)
        if isinstance(event, ev.Malformed) and not event.torn:
            self._malformed_count += 1
            if self._malformed_count > MAX_MALFORMED_SHOWN:
                return
        text = _describe(event)
        with self._lock:
            if type(event) is ev.Started and not self.is_live:
                self._display.on_events(self._run, [event])
            if text:
                self._display.say(text)

    def _on_idle(self) -> None:
        """Nothing was said for a moment: by the thread that writes."""
        self.flush_messages()
        if self.is_live:
            with self._lock:
                self._display.refresh(time.monotonic())

    def flush_messages(self) -> None:
        """Say what there is to say beside the stream; where it is to be quiet, only what failed."""
        lines = [line for line in self._pending_messages() if not self._is_quiet or line.startswith(SYNC_FAILURE_PREFIX)]
        if lines:
            with self._lock:
                self._display.print_lines(lines)

    # -- the end ---------------------------------------------------------------------------------------------------

    def say(self, text: str, trouble: bool = False) -> None:
        """Something of our own; where it is to be quiet, only what failed."""
        if trouble or not self._is_quiet:
            with self._lock:
                self._display.say(text)

    def print_card(self, report: Report) -> None:
        """The report of the stream."""
        from ..screen.card import card

        with self._lock:
            self._display.print_lines(card(report, self._style))

    def finish(self) -> None:
        """Wait until all is written."""
        self._stderr.finish()


def _describe(event: ev.Event) -> str:
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
