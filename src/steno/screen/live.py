"""The screen of a task that goes on: a live line on a terminal, plain lines elsewhere, a feed, and a card at the end.

It writes to the stream that it is given, and nowhere else. A stream that cannot be written any more is left alone: the run
is worth more than its picture. `now` is always by the clock that the runs go by.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from signal import Signals
from typing import Protocol, TextIO

import msgspec

from .. import event as ev
from ..glance import LiveState
from ..report import TaskReport
from .clean import single_line, width
from .ending import task_summary
from .feed import EventFeed
from .line import LiveFigures, live_line, waiting_line
from .look import ASCII_FALLBACKS, MIN_COLUMNS, PageStyle

CLEAR_TO_END = "\r\x1b[J"  # from the first column to the end of the screen: a line that a narrower window has wrapped goes too
DECORATION_CHARS = "█░·…—"  # letters that we write ourselves


class DisplayedAgent(Protocol):
    """Whose run it is."""

    @property
    def name(self) -> str: ...
    @property
    def context_window(self) -> Callable[[str], int | None]: ...


class DisplayedSpend(Protocol):
    """What was spent so far; `nano` None: not known."""

    @property
    def tokens(self) -> int: ...
    @property
    def cost_nano(self) -> int | None: ...


class DisplayedProcess(Protocol):
    """When the process was started, and last heard of."""

    @property
    def started(self) -> float: ...
    @property
    def last_output_at(self) -> float: ...


class DisplayedRun(Protocol):
    """A run, as far as a screen wants to know it."""

    @property
    def id(self) -> str: ...
    @property
    def agent(self) -> DisplayedAgent: ...
    @property
    def spend(self) -> DisplayedSpend: ...
    @property
    def child(self) -> DisplayedProcess | None: ...


class LiveDisplay:
    """What is seen of one task. `feed`: what happens is told line by line too; `quiet`: nothing is shown."""

    def __init__(self, look: PageStyle, stream: TextIO | None, feed: bool = False, quiet: bool = False) -> None:
        self.style = look
        self._stream = None if quiet else stream
        self._feed = EventFeed(look) if feed else None
        self._run: DisplayedRun | None = None
        self._live_state = LiveState(lambda model: None)
        self._attempt = 0
        self._has_announced_start = False  # the attempt's beginning was told
        self._last_message = ""
        self._current_line = ""  # the line that stands on the terminal
        self._is_ascii_only = stream is None or not _can_encode(DECORATION_CHARS, stream)
        self._terminal_fd = _terminal_fd(self._stream)

    # -- what happens ----------------------------------------------------------------------------------------------

    def on_events(self, run: DisplayedRun, events: Sequence[ev.Event]) -> None:
        """Events of a run; one that was not seen before is the next attempt."""
        if self._run is None or run.id != self._run.id:
            self._run, self._live_state = run, LiveState(run.agent.context_window)
            self._attempt, self._has_announced_start = self._attempt + 1, False
        self._live_state.add(events)
        told = [text for event in events for text in self._event_lines(event)]
        if told:
            self._print(told)

    def say(self, text: str) -> None:
        """Something that was decided."""
        self._last_message = text
        self._print([f"steno: {single_line(text)}"])

    def _event_lines(self, event: ev.Event) -> list[str]:
        if isinstance(event, ev.Notice) and self._is_redundant(event):
            return []
        if self._feed is not None:
            if self._terminal_fd >= 0:
                self._feed.style = msgspec.structs.replace(self.style, line_limit=max(MIN_COLUMNS, self._columns()))
            return self._feed.lines(event)
        if isinstance(event, ev.Started):
            alone, self._has_announced_start = self._terminal_fd < 0 and not self._has_announced_start, True
            return [_started_line(event)] if alone else []
        return _notice_lines(event)

    def _is_redundant(self, event: ev.Notice) -> bool:
        """Whether a note only repeats what was said a moment ago, or what the card says: that it is done."""
        text = event.text or ""
        return event.kind != "note" or text == "stop: done" or bool(self._last_message and text.endswith(self._last_message))

    # -- the live line ---------------------------------------------------------------------------------------------

    def refresh(self, now: float, wait: float | None = None) -> None:
        """Draw the live line. `wait`: the seconds that are left of a wait between two attempts."""
        if self._terminal_fd < 0 or self._stream is None:
            return
        text = self._render_line(now, wait, self._columns() - 1)  # a line that fills the last column makes some terminals wrap
        if text != self._current_line:
            self._write(CLEAR_TO_END + text + "\r")
            self._current_line = text

    def _render_line(self, now: float, wait: float | None, columns: int) -> str:
        if self._live_state.state == "ended":
            return self._to_ascii(waiting_line(wait, self._last_message, self.style, columns))
        run, began = self._run, now
        silence = 0.0
        tokens, nano = 0, None
        if run is not None:
            tokens, nano = run.spend.tokens, run.spend.cost_nano
            if run.child is not None:
                began, silence = run.child.started, now - run.child.last_output_at
        figures = LiveFigures(tokens, nano, now - began, silence, self._attempt)
        return self._to_ascii(live_line(self._live_state, figures, self.style, columns))

    def _to_ascii(self, text: str) -> str:
        """The line in letters that the terminal has, never wider than it was: ours have stand-ins, others a question mark."""
        if not self._is_ascii_only:
            return text
        return "".join(letter if letter.isascii() else "?" * min(1, width(letter)) for letter in text.translate(ASCII_FALLBACKS))

    def _columns(self) -> int:
        """The terminal's width now: it may be another at each look."""
        with suppress(OSError, ValueError):
            return max(2, os.get_terminal_size(self._terminal_fd).columns or self.style.columns)
        return self.style.columns

    def clear(self) -> None:
        """Take the live line away, before somebody else writes to the terminal."""
        if self._current_line:
            self._write(CLEAR_TO_END)
            self._current_line = ""

    # -- the end ---------------------------------------------------------------------------------------------------

    def print_summary(self, report: TaskReport, command: str | None = None) -> None:
        """The task is over: the card, and the exact command to go on with it."""
        look = self.style
        if self._terminal_fd >= 0:
            columns = max(MIN_COLUMNS, self._columns())
            look = msgspec.structs.replace(look, columns=columns, line_limit=columns)
        self.clear()
        self._print(task_summary(report, command, look))

    def print_lines(self, lines: Iterable[str]) -> None:
        """Lines that stay, as they are."""
        self._print(lines)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _print(self, lines: Iterable[str]) -> None:
        """Lines that stay; the live line goes out of their way, and comes back below them."""
        text = "".join(f"{one}\n" for one in lines)
        if self._is_ascii_only:
            text = text.translate(ASCII_FALLBACKS)
        self._write(f"{CLEAR_TO_END}{text}{self._current_line}\r" if self._current_line else text)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody is there any more
            self._stream, self._terminal_fd = None, -1


def _started_line(event: ev.Started) -> str:
    return f"steno: started: {single_line(event.model or 'model unknown')}, session {single_line(event.session or 'unknown')}"


def _notice_lines(event: ev.Event) -> list[str]:
    """What is told without a feed: our own decisions."""
    if isinstance(event, ev.Notice):
        return [f"steno: {single_line(event.text or '')}"]
    if isinstance(event, ev.StopRequested):
        by = f" ({_signal_name(event.signal)})" if event.signal is not None else ""
        return [f"steno: asked it to end: {single_line(event.why)}{by}"]
    return []


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _terminal_fd(stream: TextIO | None) -> int:
    """The descriptor of a terminal that can take back a line; -1 if the stream is none."""
    if stream is None or os.environ.get("TERM", "") in ("", "dumb"):
        return -1
    try:
        return stream.fileno() if stream.isatty() else -1
    except (OSError, ValueError):
        return -1


def _can_encode(letters: str, stream: TextIO) -> bool:
    try:
        letters.encode(getattr(stream, "encoding", None) or "utf-8")  # what has none takes every letter
    except (UnicodeEncodeError, LookupError):
        return False
    return True
