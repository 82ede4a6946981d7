"""The display of an active run: a live line that never wraps, event lines, and the summary."""

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
from .formatting import format_compact, format_money, gauge, pad, single_line, truncate, width, wrap
from .summary import task_summary
from .table import ASCII_FALLBACKS, HP_COLOURS, MIN_COLUMNS, PageStyle
from .timeline import (
    DEFAULT_LINE_COLUMNS,
    KIND_COLUMNS,
    Timeline,
    TimelineEntry,
    alert_text,
    retry_text,
)

SEPARATOR = " · "
GAUGE_COLUMNS = 8
SILENCE_SHOWN_AFTER_SECONDS = 3.0
SILENCE_WARNING_SECONDS = 60
HEARTBEAT_SECONDS = 50.0  # without a terminal: with the interval of checks, a line a minute
MIN_TARGET_COLUMNS = 12  # for a tool's target, before a figure is dropped
MAX_TOOL_COLUMNS = 30
STATE_STYLES = {
    "starting": "dim",
    "thinking": "bold",
    "running": "cyan",
    "retrying": "yellow",
    "closing": "green",
    "stopping": "yellow",
    "waiting": "yellow",
    "asking": "yellow",
    "ended": "dim",
}


# -- the live line ------------------------------------------------------------------------------


class LineSegment(Struct):
    """Shortened or dropped in the order of `drop_priority`, highest first; 0 is never dropped."""

    text: str
    style: str = ""
    drop_priority: int = 0
    shorter: "LineSegment | None" = None


class LiveFigures(Struct, frozen=True):
    """Figures that don't come from events; times in seconds."""

    tokens: int = 0
    cost_nano: int | None = None
    elapsed: float = 0.0
    silence: float = 0.0
    attempt: int = 1
    is_asking: bool = False  # a person is asked to permit the current call


def format_clock(seconds: float) -> str:
    """A duration as on a stopwatch: 0:07, 12:40, 1:02:03."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def live_line(run: LiveState, figures: LiveFigures, style: PageStyle, columns: int) -> str:
    """The line of an active run, at most `columns` wide."""
    tool = ""
    target = ""  # a text that may be truncated
    if run.state == "running" and run.current_tool is not None:
        name, path = run.current_tool
        others = len(run.open_calls) - 1
        tool = truncate(single_line(name), MAX_TOOL_COLUMNS) + (
            f" (+{others})" if others > 0 else ""
        )
        target = single_line(path)
    elif run.state == "retrying" and run.retry is not None:
        target = single_line(retry_text(run.retry))
    elif run.state == "stopping" and run.stop is not None:
        target = single_line(run.stop.why)
    state = "asking" if figures.is_asking else run.state
    first = LineSegment(f"{state} {tool}" if tool else state, STATE_STYLES[state])
    return _fit_line([first, *_segments(run, figures)], target, style, columns)


def waiting_line(seconds: float | None, reason: str, style: PageStyle, columns: int) -> str:
    """The line between two attempts."""
    text = f"waiting {format_clock(seconds)}" if seconds is not None else "waiting"
    segment = LineSegment(text, STATE_STYLES["waiting"])
    return _fit_line([segment], single_line(reason), style, columns)


def _segments(run: LiveState, figures: LiveFigures) -> list[LineSegment]:
    segments = []
    if figures.attempt > 1:
        segments.append(LineSegment(f"attempt {figures.attempt}", drop_priority=5))
    if run.turns:
        segments.append(LineSegment(f"turn {run.turns}", drop_priority=6))
    if figures.tokens:
        segments.append(LineSegment(f"{format_compact(figures.tokens)} tokens", drop_priority=8))
        if figures.cost_nano is not None:
            cost = format_money(nano_to_usd(figures.cost_nano))
            segments.append(LineSegment(cost, drop_priority=3))
    if run.context.fraction is not None and run.context.hp is not None:
        colour = HP_COLOURS.get(run.context.status or "", "")
        blocks = gauge(run.context.fraction, GAUGE_COLUMNS)
        text = f"{blocks} {run.context.fraction:.0%} used"
        segments.append(LineSegment(text, colour, drop_priority=7))
    segments.append(LineSegment(format_clock(figures.elapsed), drop_priority=1))
    if figures.silence >= SILENCE_SHOWN_AFTER_SECONDS:
        text = f"silent {format_clock(figures.silence)}"
        colour = "yellow" if figures.silence >= SILENCE_WARNING_SECONDS else "dim"
        segments.append(LineSegment(text, colour, drop_priority=2))
    if run.context.hp is not None:
        colour = HP_COLOURS.get(run.context.status or "", "")
        segments.append(LineSegment(f"{run.context.hp:.0f}% HP", colour, drop_priority=4))
    return segments


def _fit_line(segments: list[LineSegment], target: str, style: PageStyle, columns: int) -> str:
    """Drops segments until the rest fits, then truncates the target after the first."""
    target_columns = min(width(target), MIN_TARGET_COLUMNS) + 1 if target else 0
    while _total_width(segments) + target_columns > columns:
        highest = max(segment.drop_priority for segment in segments)
        if not highest:
            break
        segments = [
            shown
            for segment in segments
            if (shown := segment.shorter if segment.drop_priority == highest else segment)
        ]
    room = columns - _total_width(segments) - 1
    first, *others = segments
    head = style.paint(truncate(first.text, columns), first.style)
    if target and room > 1:
        head += " " + truncate(target, room)
    separator = style.paint(SEPARATOR, "dim")
    return head + "".join(separator + style.paint(part.text, part.style) for part in others)


def _total_width(segments: list[LineSegment]) -> int:
    return sum(width(part.text) for part in segments) + len(SEPARATOR) * (len(segments) - 1)


# -- event lines --------------------------------------------------------------------------------

CLOCK_COLUMNS = 8
PREFIX_COLUMNS = CLOCK_COLUMNS + KIND_COLUMNS + 3
MIN_TEXT_COLUMNS = 10
MAX_TEXT_LINES = 40  # per text; the report has all of it
MAX_CHARS_PER_LINE = 400


class EventFeed:
    """Formats the events of a run as log lines."""

    def __init__(self, style: PageStyle) -> None:
        self.style = style
        self._timeline = Timeline(style)
        self._started_at: datetime | None = None

    def lines(self, event: ev.Event) -> list[str]:
        """The lines of an event; none for events that are not shown."""
        self._started_at = self._started_at or event.at
        entry = self._entry(event)
        if entry is None:
            return []
        clock = ""
        if event.at and self._started_at:
            clock = format_clock((event.at - self._started_at).total_seconds())
        indent = "  " if event.parent is not None else ""  # inside a subagent
        limit = self.style.line_limit or DEFAULT_LINE_COLUMNS
        room = max(MIN_TEXT_COLUMNS, limit - PREFIX_COLUMNS - len(indent))
        if type(event) is ev.Text:
            first, *others = _wrap_text(entry.text, room)
        else:
            first, *others = [truncate(single_line(entry.text), room)]
        head = self.style.paint(f"{clock:>{CLOCK_COLUMNS}}  ", "dim")
        kind = self.style.paint(pad(entry.kind, KIND_COLUMNS), entry.style)
        prefix = " " * PREFIX_COLUMNS + indent
        return [
            f"{head}{indent}{kind} {first}".rstrip(" "),
            *((prefix + line).rstrip(" ") for line in others),
        ]

    def _entry(self, event: ev.Event) -> TimelineEntry | None:
        if not isinstance(event, ev.Notice):
            return self._timeline.entry(event)
        return TimelineEntry("steno", event.text or "", "bold") if event.kind == "note" else None


def _wrap_text(text: str, columns: int) -> list[str]:
    head = text.strip()[: MAX_TEXT_LINES * MAX_CHARS_PER_LINE]
    lines = list(islice(wrap(head, columns), MAX_TEXT_LINES + 1))
    return lines if len(lines) <= MAX_TEXT_LINES else [*lines[:MAX_TEXT_LINES], "…"]


# -- the display --------------------------------------------------------------------------------

# To the end of the screen: a narrowed window can have wrapped the previous line.
CLEAR_TO_END = "\r\x1b[J"
DECORATION_CHARS = "█░·…—→"
MAX_MALFORMED_SHOWN = 20  # the summary counts all of them
DONE_NOTE = "stopped: done"  # the runner's note at the end of a successful task


class DisplayedAgent(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def context_window(self) -> Callable[[str], int | None]: ...


class DisplayedSpend(Protocol):
    @property
    def tokens(self) -> int: ...
    @property
    def cost_nano(self) -> int | None: ...


class DisplayedProcess(Protocol):
    @property
    def started(self) -> float: ...
    @property
    def last_output_at(self) -> float: ...


class DisplayedRun(Protocol):
    """The part of a run that the display reads."""

    @property
    def id(self) -> str: ...
    @property
    def agent(self) -> DisplayedAgent: ...
    @property
    def accumulator(self) -> Accumulator: ...
    @property
    def usage_accumulator(self) -> Accumulator: ...
    @property
    def spend(self) -> DisplayedSpend: ...
    @property
    def child(self) -> DisplayedProcess | None: ...
    @property
    def awaits_permission(self) -> bool: ...


class LiveDisplay:
    """The display of one task. `feed` adds a line per event; `quiet` shows nothing."""

    def __init__(
        self, style: PageStyle, stream: TextIO | None, feed: bool = False, quiet: bool = False
    ) -> None:
        self.style = style
        self._stream = None if quiet else stream
        self._feed = EventFeed(style) if feed else None
        self._run: DisplayedRun | None = None
        self._live_state = LiveState()
        self._attempt = 0
        self._has_announced_start = False
        self._malformed_count = 0
        self._last_message = ""
        self._current_line = ""  # the live line on the terminal
        self._last_line_at: float | None = None  # of any line, without a terminal
        self._is_ascii_only = stream is None
        # The descriptor of a terminal that can erase a line, else -1.
        self.terminal_fd = -1
        if stream is not None:
            encoding = getattr(stream, "encoding", None) or "utf-8"  # a text buffer has none
            try:
                DECORATION_CHARS.encode(encoding)
            except (UnicodeEncodeError, LookupError):
                self._is_ascii_only = True
        if self._stream is not None and os.environ.get("TERM", "") not in ("", "dumb"):
            with suppress(OSError, ValueError):
                if self._stream.isatty():
                    self.terminal_fd = self._stream.fileno()

    def on_events(self, run: DisplayedRun, events: Sequence[ev.Event]) -> None:
        """Show events of a run; a new run id is the next attempt."""
        if self._run is None or run.id != self._run.id:
            self._run = run
            self._live_state = LiveState(run.accumulator, run.usage_accumulator)
            self._attempt += 1
            self._has_announced_start = False
        lines = [text for event in events for text in self._event_lines(event)]
        if lines:
            self.print_lines(lines)

    def say(self, text: str) -> None:
        """Print a message of steno."""
        self._last_message = text
        self.print_lines([f"steno: {single_line(text)}"])

    def _event_lines(self, event: ev.Event) -> list[str]:
        """All events with a feed; otherwise the start, decisions of steno and malformed lines."""
        if isinstance(event, ev.Notice):
            text = event.text or ""
            repeats = bool(self._last_message) and text.endswith(self._last_message)
            if event.kind != "note" or text == DONE_NOTE or repeats:  # the summary says it too
                return []
        if self._feed is not None:
            if self.terminal_fd >= 0:
                limit = max(MIN_COLUMNS, self._columns())
                self._feed.style = msgspec.structs.replace(self.style, line_limit=limit)
            return self._feed.lines(event)
        if isinstance(event, ev.Started):
            is_announced = self._has_announced_start or self.terminal_fd >= 0
            self._has_announced_start = True
            model = single_line(event.model or "unknown model")
            session = single_line(event.session or "unknown")
            return [] if is_announced else [f"steno: started: {model}, session {session}"]
        if isinstance(event, ev.Notice):
            return [f"steno: {single_line(event.text or '')}"]
        if isinstance(event, ev.Alert):
            return [] if event.is_passed else [f"steno: {alert_text(event)}"]
        if isinstance(event, ev.Malformed) and not event.torn:
            self._malformed_count += 1
            if self._malformed_count > MAX_MALFORMED_SHOWN:
                return []
            return [f"steno: skipping malformed line {event.line}: {single_line(event.head)}"]
        if isinstance(event, ev.StopRequested):
            reason = single_line(event.why)
            if event.signal is None:
                return [f"steno: stopping: {reason}"]
            return [f"steno: {reason}; sent {_signal_name(event.signal)}"]
        return []

    def refresh(self, now: float, wait: float | None = None) -> None:
        """Redraw the live line; `wait`: seconds until the next attempt.

        Without a terminal, a line after a minute without one shows that the run is active.
        """
        if self._stream is None:
            return
        if self.terminal_fd < 0:
            self._print_heartbeat(now, wait)
            return
        # Some terminals wrap a line that fills the last column.
        text = self._render_line(now, wait, self._columns() - 1)
        if text != self._current_line:
            self._write(CLEAR_TO_END + text + "\r")
            self._current_line = text

    def _print_heartbeat(self, now: float, wait: float | None) -> None:
        if self._last_line_at is None:
            self._last_line_at = now
        elif now - self._last_line_at >= HEARTBEAT_SECONDS:
            self.print_lines([f"steno: {self._render_line(now, wait, DEFAULT_LINE_COLUMNS)}"])
            self._last_line_at = now

    def _render_line(self, now: float, wait: float | None, columns: int) -> str:
        if self._live_state.state == "ended":
            return self._to_ascii(waiting_line(wait, self._last_message, self.style, columns))
        figures = self._figures(now)
        return self._to_ascii(live_line(self._live_state, figures, self.style, columns))

    def _figures(self, now: float) -> LiveFigures:
        run = self._run
        if run is None:
            return LiveFigures(attempt=self._attempt)
        child = run.child
        return LiveFigures(
            tokens=run.spend.tokens,
            cost_nano=run.spend.cost_nano,
            elapsed=0.0 if child is None else now - child.started,
            silence=0.0 if child is None else now - child.last_output_at,
            attempt=self._attempt,
            is_asking=run.awaits_permission,
        )

    def _to_ascii(self, text: str) -> str:
        """The line for a terminal without Unicode, never wider; unknown characters become "?"."""
        if not self._is_ascii_only:
            return text
        return "".join(
            letter if letter.isascii() else "?" * min(1, width(letter))
            for letter in text.translate(ASCII_FALLBACKS)
        )

    def _columns(self) -> int:
        """The current width of the terminal."""
        with suppress(OSError, ValueError):
            return max(2, os.get_terminal_size(self.terminal_fd).columns or self.style.columns)
        return self.style.columns

    def clear(self) -> None:
        """Remove the live line, before something else writes to the terminal."""
        if self._current_line:
            self._write(CLEAR_TO_END)
            self._current_line = ""

    def print_summary(
        self, report: TaskReport, command: str | None = None, with_answer: bool = True
    ) -> None:
        """Print the summary of a finished task and the command that resumes it."""
        style = self.style
        if self.terminal_fd >= 0:
            columns = max(MIN_COLUMNS, self._columns())
            style = msgspec.structs.replace(style, columns=columns, line_limit=columns)
        self.clear()
        above = [] if with_answer else [""]  # a gap below the answer
        self.print_lines([*above, *task_summary(report, command, style, with_answer)])

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines above the live line."""
        text = "".join(f"{line}\n" for line in lines)
        self._last_line_at = None  # the next refresh knows the time
        if self._is_ascii_only:
            text = text.translate(ASCII_FALLBACKS)
        self._write(f"{CLEAR_TO_END}{text}{self._current_line}\r" if self._current_line else text)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._stream = None
            self.terminal_fd = -1


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
