"""The live line: what a run is doing, on one line that never wraps. Values in, text out; it never prints.

Where the line is too narrow, the figure that matters least goes first; what a tool works on is shortened before that.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from signal import Signals
from typing import Protocol, TextIO

import msgspec
from msgspec import Struct

from .. import event as ev
from ..analysis.accumulator import Accumulator
from ..analysis.live_state import LiveState
from ..analysis.usage import nano_to_usd
from ..report import TaskReport
from .formatting import format_compact, format_duration, format_money, gauge
from .layout import ASCII_FALLBACKS, MIN_COLUMNS, PageStyle
from .sanitize import pad, single_line, truncate, width, wrap
from .summary import STATUS_COLOURS, task_summary
from .timeline import DEFAULT_LINE_COLUMNS, Timeline, TimelineEntry

SEPARATOR = " · "
GAUGE_COLUMNS = 8  # columns
SILENCE_SHOWN_AFTER_SECONDS = 3.0  # seconds without output before they are told
MIN_TARGET_COLUMNS = 12  # columns for what a tool works on, before a figure goes
STATE_STYLES = {
    "starting": "dim",
    "thinking": "bold",
    "running": "cyan",
    "retrying": "yellow",
    "closing": "green",
    "stopping": "yellow",
    "waiting": "yellow",
    "ended": "dim",
}


class LineSegment(Struct):
    """One thing on the line. Where there is no room, the one with the highest `spare` goes first, or gives way to `less`.

    One with 0 stays.
    """

    text: str
    style: str = ""
    drop_priority: int = 0
    shorter: "LineSegment | None" = None


class LiveFigures(Struct, frozen=True):
    """What is known beside the events: what was spent so far, and the times in seconds."""

    tokens: int = 0
    cost_nano: int | None = None
    elapsed: float = 0.0
    silence: float = 0.0
    attempt: int = 1


def format_clock(seconds: float) -> str:
    """A length of time as on a stopwatch: 0:07, 12:40, 1:02:03."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return (
        f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
    )


def live_line(glance: LiveState, figures: LiveFigures, look: PageStyle, columns: int) -> str:
    """The line of a run, at most so many columns wide."""
    state = glance.state
    lead, rest = _activity(glance, state)
    pieces = [
        LineSegment(state if not lead else f"{state} {lead}", STATE_STYLES[state]),
        *_segments(glance, figures),
    ]
    return _fit_line(pieces, rest, look, columns)


def waiting_line(seconds: float | None, why: str, look: PageStyle, columns: int) -> str:
    """The line between two attempts."""
    left = f"waiting {format_clock(seconds)}" if seconds is not None else "waiting"
    return _fit_line([LineSegment(left, STATE_STYLES["waiting"])], single_line(why), look, columns)


def _activity(glance: LiveState, state: str) -> tuple[str, str]:
    """What it does, in two parts: one that stays, and one that may be shortened."""
    if state == "running" and glance.current_tool is not None:
        name, about = glance.current_tool
        more = f" (+{len(glance.open_calls) - 1})" if len(glance.open_calls) > 1 else ""
        return truncate(single_line(name), 30) + more, single_line(about)
    if state == "retrying" and glance.retry is not None:
        retry = glance.retry
        reason = " ".join(str(part) for part in (retry.status, retry.error) if part is not None)
        return "", single_line(
            f"{retry.attempt or '?'} of {retry.limit or '?'}: {reason}, wait {format_duration(retry.delay_ms)}"
        )
    return "", single_line(
        glance.stop.why
    ) if state == "stopping" and glance.stop is not None else ""


def _segments(glance: LiveState, figures: LiveFigures) -> list[LineSegment]:
    found = [LineSegment(f"attempt {figures.attempt}", "", 5)] if figures.attempt > 1 else []
    if glance.turns:
        found.append(LineSegment(f"turn {glance.turns}", "", 6))
    if figures.tokens:
        found.append(LineSegment(f"{format_compact(figures.tokens)} tokens", "", 8))
        found += (
            [LineSegment(format_money(nano_to_usd(figures.cost_nano)), "", 3)]
            if figures.cost_nano is not None
            else []
        )
    context = glance.context
    if context.fraction is not None and context.hp is not None:
        colour, hp = STATUS_COLOURS.get(context.status or "", ""), f"{context.hp:.0f}% HP"
        found.append(
            LineSegment(
                f"{gauge(context.fraction, GAUGE_COLUMNS)} {hp}",
                colour,
                7,
                LineSegment(hp, colour, 4),
            )
        )
    found.append(LineSegment(format_clock(figures.elapsed), "", 1))
    if figures.silence >= SILENCE_SHOWN_AFTER_SECONDS:
        found.append(
            LineSegment(
                f"silent {format_clock(figures.silence)}",
                "yellow" if figures.silence >= 60 else "dim",
                2,
            )
        )
    return found


def _fit_line(pieces: list[LineSegment], about: str, look: PageStyle, columns: int) -> str:
    """The pieces that there is room for, with what the first is about behind it, shortened to what is left."""
    least = min(width(about), MIN_TARGET_COLUMNS)
    while _total_width(pieces) + (least + 1 if about else 0) > columns and (
        spare := max(piece.drop_priority for piece in pieces)
    ):
        pieces = [
            one
            for piece in pieces
            if (one := piece.shorter if piece.drop_priority == spare else piece) is not None
        ]
    room = columns - _total_width(pieces) - 1
    first, *rest = pieces
    head = look.paint(truncate(first.text, columns), first.style)
    if about and room > 1:
        head += " " + truncate(about, room)
    joint = look.paint(SEPARATOR, "dim")
    return head + "".join(joint + look.paint(piece.text, piece.style) for piece in rest)


def _total_width(pieces: list[LineSegment]) -> int:
    return sum(width(piece.text) for piece in pieces) + len(SEPARATOR) * (len(pieces) - 1)


PREFIX_COLUMNS = 20  # columns before what is told: the clock, the kind
MAX_TEXT_LINES = 40  # lines of one text: more is read in the report
MAX_CHARS_PER_LINE = 400  # letters of one text for each line of it that is looked at


class EventFeed:
    """Turns the events of a run into lines."""

    def __init__(self, look: PageStyle) -> None:
        self.style = look
        self._timeline = Timeline(look)
        self._started_at: datetime | None = None

    def lines(self, event: ev.Event) -> list[str]:
        """The lines of one event; none if it does not matter to people."""
        self._started_at = self._started_at or event.at
        told = self._entry(event)
        if told is None:
            return []
        kind, text, style = told
        after = (
            format_clock((event.at - self._started_at).total_seconds())
            if event.at and self._started_at
            else ""
        )
        head = f"{after:>8}  "
        indent = "  " if event.parent is not None else ""
        room = max(
            10, (self.style.line_limit or DEFAULT_LINE_COLUMNS) - PREFIX_COLUMNS - len(indent)
        )
        first, *rest = (
            _wrap_text(text, room)
            if type(event) is ev.Text
            else [truncate(single_line(text), room)]
        )
        begun = (
            self.style.paint(head, "dim")
            + indent
            + self.style.paint(pad(kind, 9), style)
            + " "
            + first
        )
        return [
            begun.rstrip(" "),
            *((" " * PREFIX_COLUMNS + indent + line).rstrip(" ") for line in rest),
        ]

    def _entry(self, event: ev.Event) -> TimelineEntry | None:
        if isinstance(event, ev.Notice):
            return (
                ("steno", event.text or "", "bold") if event.kind == "note" else None
            )  # a decision of ours
        return self._timeline.entry(event)


def _wrap_text(text: str, room: int) -> list[str]:
    """A text in lines, and a mark where there are more than anybody follows."""
    head = text.strip()[: MAX_TEXT_LINES * MAX_CHARS_PER_LINE]
    found = list(islice(wrap(head, room), MAX_TEXT_LINES + 1))
    return found if len(found) <= MAX_TEXT_LINES else [*found[:MAX_TEXT_LINES], "…"]


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
    def accumulator(self) -> Accumulator: ...
    @property
    def spend(self) -> DisplayedSpend: ...
    @property
    def child(self) -> DisplayedProcess | None: ...


class LiveDisplay:
    """What is seen of one task. `feed`: what happens is told line by line too; `quiet`: nothing is shown."""

    def __init__(
        self, look: PageStyle, stream: TextIO | None, feed: bool = False, quiet: bool = False
    ) -> None:
        self.style = look
        self._stream = None if quiet else stream
        self._feed = EventFeed(look) if feed else None
        self._run: DisplayedRun | None = None
        self._live_state = LiveState()
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
            self._run, self._live_state = run, LiveState(run.accumulator)
            self._attempt, self._has_announced_start = self._attempt + 1, False
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
                self._feed.style = msgspec.structs.replace(
                    self.style, line_limit=max(MIN_COLUMNS, self._columns())
                )
            return self._feed.lines(event)
        if isinstance(event, ev.Started):
            alone, self._has_announced_start = (
                self._terminal_fd < 0 and not self._has_announced_start,
                True,
            )
            return [_started_line(event)] if alone else []
        return _notice_lines(event)

    def _is_redundant(self, event: ev.Notice) -> bool:
        """Whether a note only repeats what was said a moment ago, or what the card says: that it is done."""
        text = event.text or ""
        return (
            event.kind != "note"
            or text == "stop: done"
            or bool(self._last_message and text.endswith(self._last_message))
        )

    # -- the live line ---------------------------------------------------------------------------------------------

    def refresh(self, now: float, wait: float | None = None) -> None:
        """Draw the live line. `wait`: the seconds that are left of a wait between two attempts."""
        if self._terminal_fd < 0 or self._stream is None:
            return
        text = self._render_line(
            now, wait, self._columns() - 1
        )  # a line that fills the last column makes some terminals wrap
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
        return "".join(
            letter if letter.isascii() else "?" * min(1, width(letter))
            for letter in text.translate(ASCII_FALLBACKS)
        )

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
        letters.encode(
            getattr(stream, "encoding", None) or "utf-8"
        )  # what has none takes every letter
    except (UnicodeEncodeError, LookupError):
        return False
    return True
