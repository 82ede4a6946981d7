"""The live line: what a run is doing, on one line that never wraps. Values in, text out; it never prints.

Where the line is too narrow, the figure that matters least goes first; what a tool works on is shortened before that.
"""

from msgspec import Struct

from ..glance import LiveState
from ..meter import nano_to_usd
from .bars import gauge
from .clean import single_line, truncate, width
from .figures import STATUS_COLOURS
from .look import PageStyle
from .words import format_compact, format_duration, format_money

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
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def live_line(glance: LiveState, figures: LiveFigures, look: PageStyle, columns: int) -> str:
    """The line of a run, at most so many columns wide."""
    state = glance.state
    lead, rest = _activity(glance, state)
    pieces = [LineSegment(state if not lead else f"{state} {lead}", STATE_STYLES[state]), *_segments(glance, figures)]
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
        return "", single_line(f"{retry.attempt or '?'} of {retry.limit or '?'}: {reason}, wait {format_duration(retry.delay_ms)}")
    return "", single_line(glance.stop.why) if state == "stopping" and glance.stop is not None else ""


def _segments(glance: LiveState, figures: LiveFigures) -> list[LineSegment]:
    found = [LineSegment(f"attempt {figures.attempt}", "", 5)] if figures.attempt > 1 else []
    if glance.turns:
        found.append(LineSegment(f"turn {glance.turns}", "", 6))
    if figures.tokens:
        found.append(LineSegment(f"{format_compact(figures.tokens)} tokens", "", 8))
        found += [LineSegment(format_money(nano_to_usd(figures.cost_nano)), "", 3)] if figures.cost_nano is not None else []
    context = glance.context
    if context.fraction is not None and context.hp is not None:
        colour, hp = STATUS_COLOURS.get(context.status or "", ""), f"{context.hp:.0f}% HP"
        found.append(LineSegment(f"{gauge(context.fraction, GAUGE_COLUMNS)} {hp}", colour, 7, LineSegment(hp, colour, 4)))
    found.append(LineSegment(format_clock(figures.elapsed), "", 1))
    if figures.silence >= SILENCE_SHOWN_AFTER_SECONDS:
        found.append(LineSegment(f"silent {format_clock(figures.silence)}", "yellow" if figures.silence >= 60 else "dim", 2))
    return found


def _fit_line(pieces: list[LineSegment], about: str, look: PageStyle, columns: int) -> str:
    """The pieces that there is room for, with what the first is about behind it, shortened to what is left."""
    least = min(width(about), MIN_TARGET_COLUMNS)
    while _total_width(pieces) + (least + 1 if about else 0) > columns and (spare := max(piece.drop_priority for piece in pieces)):
        pieces = [one for piece in pieces if (one := piece.shorter if piece.drop_priority == spare else piece) is not None]
    room = columns - _total_width(pieces) - 1
    first, *rest = pieces
    head = look.paint(truncate(first.text, columns), first.style)
    if about and room > 1:
        head += " " + truncate(about, room)
    joint = look.paint(SEPARATOR, "dim")
    return head + "".join(joint + look.paint(piece.text, piece.style) for piece in rest)


def _total_width(pieces: list[LineSegment]) -> int:
    return sum(width(piece.text) for piece in pieces) + len(SEPARATOR) * (len(pieces) - 1)
