"""The live line: what a run is doing, on one line that never wraps. Values in, text out; it never prints.

Where the line is too narrow, the figure that matters least goes first; what a tool works on is shortened before that.
"""

from msgspec import Struct

from ..glance import Glance
from ..meter import dollars
from .bars import gauge
from .clean import cut, flat, width
from .figures import COLOURS
from .look import Look
from .words import compact, money, span

BETWEEN = " · "
GAUGE = 8  # columns
SILENT = 3.0  # seconds without output before they are told
LEAST = 12  # columns for what a tool works on, before a figure goes
STATES = {
    "starting": "dim",
    "thinking": "bold",
    "running": "cyan",
    "retrying": "yellow",
    "closing": "green",
    "stopping": "yellow",
    "waiting": "yellow",
    "ended": "dim",
}


class Piece(Struct):
    """One thing on the line. Where there is no room, the one with the highest `spare` goes first, or gives way to `less`.

    One with 0 stays.
    """

    text: str
    style: str = ""
    spare: int = 0
    less: "Piece | None" = None


class Figures(Struct, frozen=True):
    """What is known beside the events: what was spent so far, and the times in seconds."""

    tokens: int = 0
    nano: int | None = None
    elapsed: float = 0.0
    silence: float = 0.0
    attempt: int = 1


def clock(seconds: float) -> str:
    """A length of time as on a stopwatch: 0:07, 12:40, 1:02:03."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def line(glance: Glance, figures: Figures, look: Look, columns: int) -> str:
    """The line of a run, at most so many columns wide."""
    state = glance.state
    lead, rest = _doing(glance, state)
    pieces = [Piece(state if not lead else f"{state} {lead}", STATES[state]), *_pieces(glance, figures)]
    return _fitted(pieces, rest, look, columns)


def waiting(seconds: float | None, why: str, look: Look, columns: int) -> str:
    """The line between two attempts."""
    left = f"waiting {clock(seconds)}" if seconds is not None else "waiting"
    return _fitted([Piece(left, STATES["waiting"])], flat(why), look, columns)


def _doing(glance: Glance, state: str) -> tuple[str, str]:
    """What it does, in two parts: one that stays, and one that may be shortened."""
    if state == "running" and glance.tool is not None:
        name, about = glance.tool
        more = f" (+{len(glance.open) - 1})" if len(glance.open) > 1 else ""
        return cut(flat(name), 30) + more, flat(about)
    if state == "retrying" and glance.retry is not None:
        retry = glance.retry
        reason = " ".join(str(part) for part in (retry.status, retry.error) if part is not None)
        return "", flat(f"{retry.attempt or '?'} of {retry.limit or '?'}: {reason}, wait {span(retry.delay_ms)}")
    return "", flat(glance.stop.why) if state == "stopping" and glance.stop is not None else ""


def _pieces(glance: Glance, figures: Figures) -> list[Piece]:
    found = [Piece(f"attempt {figures.attempt}", "", 5)] if figures.attempt > 1 else []
    if glance.turns:
        found.append(Piece(f"turn {glance.turns}", "", 6))
    if figures.tokens:
        found.append(Piece(f"{compact(figures.tokens)} tokens", "", 8))
        found += [Piece(money(dollars(figures.nano)), "", 3)] if figures.nano is not None else []
    context = glance.context
    if context.fraction is not None and context.hp is not None:
        colour, hp = COLOURS.get(context.status or "", ""), f"{context.hp:.0f}% HP"
        found.append(Piece(f"{gauge(context.fraction, GAUGE)} {hp}", colour, 7, Piece(hp, colour, 4)))
    found.append(Piece(clock(figures.elapsed), "", 1))
    if figures.silence >= SILENT:
        found.append(Piece(f"silent {clock(figures.silence)}", "yellow" if figures.silence >= 60 else "dim", 2))
    return found


def _fitted(pieces: list[Piece], about: str, look: Look, columns: int) -> str:
    """The pieces that there is room for, with what the first is about behind it, shortened to what is left."""
    least = min(width(about), LEAST)
    while _width(pieces) + (least + 1 if about else 0) > columns and (spare := max(piece.spare for piece in pieces)):
        pieces = [one for piece in pieces if (one := piece.less if piece.spare == spare else piece) is not None]
    room = columns - _width(pieces) - 1
    first, *rest = pieces
    head = look.paint(cut(first.text, columns), first.style)
    if about and room > 1:
        head += " " + cut(about, room)
    joint = look.paint(BETWEEN, "dim")
    return head + "".join(joint + look.paint(piece.text, piece.style) for piece in rest)


def _width(pieces: list[Piece]) -> int:
    return sum(width(piece.text) for piece in pieces) + len(BETWEEN) * (len(pieces) - 1)
