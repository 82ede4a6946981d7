"""What a search found: who said it when, and a piece of the text with the hits marked. All text is cleaned; it never prints."""

from collections.abc import Callable, Iterator, Sequence

from ..answer.finds import Hit
from .clean import clean, cut, flat, wrap
from .look import Look

INDENT = 2
MARK = "\x1b[1;33m"  # bold and yellow: painted piece by piece, because a hit may go over the end of a line
_OPEN, _CLOSE = (
    "\u1dfe",
    "\u1dff",
)  # letters without a width: they mark the hits until the lines are made, and are taken out of texts


def hits(found: Sequence[Hit], look: Look, when: Callable[[int | None], str]) -> list[str]:
    """Two or more lines for each hit, apart by a blank line."""
    lines: list[str] = []
    for one in found:
        if lines:
            lines.append("")
        role = f"{one.role} of {one.tool}" if one.tool else one.role
        head = flat(
            f"{when(one.at) or 'time unknown'} · {one.short or one.session[:8]} · {role} · {one.project or 'project unknown'}"
        )
        lines.append(look.paint(head if look.limit is None else cut(head, look.limit), "dim"))
        lines += [" " * INDENT + line for line in _marked(one, look)]
    return lines


def _marked(one: Hit, look: Look) -> Iterator[str]:
    """The snippet in lines of the page, with the hits in bold, also where a line ends within one."""
    text = "".join(_pieces(one))
    inside = False
    for line in wrap(" ".join(text.split()), look.columns - INDENT):
        shown = MARK if inside and look.colour else ""
        for letter in line:
            if letter in (_OPEN, _CLOSE):
                inside = letter == _OPEN
                shown += (MARK if inside else "\x1b[0m") if look.colour else ""
            else:
                shown += letter
        yield shown + ("\x1b[0m" if inside and look.colour else "")


def _pieces(one: Hit) -> Iterator[str]:
    at = 0
    for begin, end in one.marks:
        yield _safe(one.snippet[at:begin])
        yield _OPEN + _safe(one.snippet[begin:end]) + _CLOSE
        at = end
    yield _safe(one.snippet[at:])


def _safe(text: str) -> str:
    blank = text.replace(_OPEN, "?").replace(_CLOSE, "?").replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return clean(blank)
