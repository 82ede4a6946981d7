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
from ..glance import Glance
from ..report import TaskReport
from .clean import flat, width
from .ending import ending
from .feed import Feed
from .line import Figures, line, waiting
from .look import ASCII, NARROW, Look

CLEAR = "\r\x1b[J"  # from the first column to the end of the screen: a line that a narrower window has wrapped goes too
OURS = "█░·…—"  # letters that we write ourselves


class Agent(Protocol):
    """Whose run it is."""

    @property
    def name(self) -> str: ...
    @property
    def window(self) -> Callable[[str], int | None]: ...


class Spend(Protocol):
    """What was spent so far; `nano` None: not known."""

    @property
    def tokens(self) -> int: ...
    @property
    def nano(self) -> int | None: ...


class Child(Protocol):
    """When the process was started, and last heard of."""

    @property
    def started(self) -> float: ...
    @property
    def heard(self) -> float: ...


class Run(Protocol):
    """A run, as far as a screen wants to know it."""

    @property
    def id(self) -> str: ...
    @property
    def agent(self) -> Agent: ...
    @property
    def spend(self) -> Spend: ...
    @property
    def child(self) -> Child | None: ...


class Screen:
    """What is seen of one task. `feed`: what happens is told line by line too; `quiet`: nothing is shown."""

    def __init__(self, look: Look, stream: TextIO | None, feed: bool = False, quiet: bool = False) -> None:
        self.look = look
        self._stream = None if quiet else stream
        self._feed = Feed(look) if feed else None
        self._run: Run | None = None
        self._glance = Glance(lambda model: None)
        self._attempt = 0
        self._begun = False  # the attempt's beginning was told
        self._said = ""
        self._shown = ""  # the line that stands on the terminal
        self._plain = stream is None or not _writes(OURS, stream)
        self._fd = _terminal(self._stream)

    # -- what happens ----------------------------------------------------------------------------------------------

    def sink(self, run: Run, events: Sequence[ev.Event]) -> None:
        """Events of a run; one that was not seen before is the next attempt."""
        if self._run is None or run.id != self._run.id:
            self._run, self._glance = run, Glance(run.agent.window)
            self._attempt, self._begun = self._attempt + 1, False
        self._glance.add(events)
        told = [text for event in events for text in self._told(event)]
        if told:
            self._print(told)

    def say(self, text: str) -> None:
        """Something that was decided."""
        self._said = text
        self._print([f"steno: {flat(text)}"])

    def _told(self, event: ev.Event) -> list[str]:
        if isinstance(event, ev.Notice) and self._is_known(event):
            return []
        if self._feed is not None:
            if self._fd >= 0:
                self._feed.look = msgspec.structs.replace(self.look, limit=max(NARROW, self._columns()))
            return self._feed.lines(event)
        if isinstance(event, ev.Started):
            alone, self._begun = self._fd < 0 and not self._begun, True
            return [_started(event)] if alone else []
        return _noted(event)

    def _is_known(self, event: ev.Notice) -> bool:
        """Whether a note only repeats what was said a moment ago, or what the card says: that it is done."""
        text = event.text or ""
        return event.kind != "note" or text == "stop: done" or bool(self._said and text.endswith(self._said))

    # -- the live line ---------------------------------------------------------------------------------------------

    def tick(self, now: float, wait: float | None = None) -> None:
        """Draw the live line. `wait`: the seconds that are left of a wait between two attempts."""
        if self._fd < 0 or self._stream is None:
            return
        text = self._line(now, wait, self._columns() - 1)  # a line that fills the last column makes some terminals wrap
        if text != self._shown:
            self._write(CLEAR + text + "\r")
            self._shown = text

    def _line(self, now: float, wait: float | None, columns: int) -> str:
        if self._glance.state == "ended":
            return self._translated(waiting(wait, self._said, self.look, columns))
        run, began = self._run, now
        silence = 0.0
        tokens, nano = 0, None
        if run is not None:
            tokens, nano = run.spend.tokens, run.spend.nano
            if run.child is not None:
                began, silence = run.child.started, now - run.child.heard
        figures = Figures(tokens, nano, now - began, silence, self._attempt)
        return self._translated(line(self._glance, figures, self.look, columns))

    def _translated(self, text: str) -> str:
        """The line in letters that the terminal has, never wider than it was: ours have stand-ins, others a question mark."""
        if not self._plain:
            return text
        return "".join(letter if letter.isascii() else "?" * min(1, width(letter)) for letter in text.translate(ASCII))

    def _columns(self) -> int:
        """The terminal's width now: it may be another at each look."""
        with suppress(OSError, ValueError):
            return max(2, os.get_terminal_size(self._fd).columns or self.look.columns)
        return self.look.columns

    def clear(self) -> None:
        """Take the live line away, before somebody else writes to the terminal."""
        if self._shown:
            self._write(CLEAR)
            self._shown = ""

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, report: TaskReport, command: str | None = None) -> None:
        """The task is over: the card, and the exact command to go on with it."""
        look = self.look
        if self._fd >= 0:
            columns = max(NARROW, self._columns())
            look = msgspec.structs.replace(look, columns=columns, limit=columns)
        self.clear()
        self._print(ending(report, command, look))

    def page(self, lines: Iterable[str]) -> None:
        """Lines that stay, as they are."""
        self._print(lines)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _print(self, lines: Iterable[str]) -> None:
        """Lines that stay; the live line goes out of their way, and comes back below them."""
        text = "".join(f"{one}\n" for one in lines)
        if self._plain:
            text = text.translate(ASCII)
        self._write(f"{CLEAR}{text}{self._shown}\r" if self._shown else text)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody is there any more
            self._stream, self._fd = None, -1


def _started(event: ev.Started) -> str:
    return f"steno: started: {flat(event.model or 'model unknown')}, session {flat(event.session or 'unknown')}"


def _noted(event: ev.Event) -> list[str]:
    """What is told without a feed: our own decisions."""
    if isinstance(event, ev.Notice):
        return [f"steno: {flat(event.text or '')}"]
    if isinstance(event, ev.StopRequested):
        by = f" ({_signal(event.signal)})" if event.signal is not None else ""
        return [f"steno: asked it to end: {flat(event.why)}{by}"]
    return []


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _terminal(stream: TextIO | None) -> int:
    """The descriptor of a terminal that can take back a line; -1 if the stream is none."""
    if stream is None or os.environ.get("TERM", "") in ("", "dumb"):
        return -1
    try:
        return stream.fileno() if stream.isatty() else -1
    except (OSError, ValueError):
        return -1


def _writes(letters: str, stream: TextIO) -> bool:
    try:
        letters.encode(getattr(stream, "encoding", None) or "utf-8")  # what has none takes every letter
    except (UnicodeEncodeError, LookupError):
        return False
    return True
