"""What a search found: who said it when, and a piece of the text with the hits marked. All text is cleaned; it never prints."""

from collections.abc import Callable, Iterator, Sequence

from ..ledger.results import SearchHit
from .layout import PageStyle
from .sanitize import clean, single_line, truncate, wrap

INDENT = 2
HIT_STYLE = "\x1b[1;33m"  # bold and yellow: painted piece by piece, because a hit may go over the end of a line
_HIT_START, _HIT_END = (
    "\u1dfe",
    "\u1dff",
)  # letters without a width: they mark the hits until the lines are made, and are taken out of texts


def search_results(
    found: Sequence[SearchHit], look: PageStyle, when: Callable[[int | None], str]
) -> list[str]:
    """Two or more lines for each hit, apart by a blank line."""
    lines: list[str] = []
    for one in found:
        if lines:
            lines.append("")
        role = f"{one.role} of {one.tool}" if one.tool else one.role
        head = single_line(
            f"{when(one.at) or 'time unknown'} · {one.short_session_id or one.session[:8]} · {role} · {one.project or 'project unknown'}"
        )
        lines.append(
            look.paint(head if look.line_limit is None else truncate(head, look.line_limit), "dim")
        )
        lines += [" " * INDENT + line for line in _highlighted_lines(one, look)]
    return lines


def _highlighted_lines(one: SearchHit, look: PageStyle) -> Iterator[str]:
    """The snippet in lines of the page, with the hits in bold, also where a line ends within one."""
    text = "".join(_mark_hits(one))
    inside = False
    for line in wrap(" ".join(text.split()), look.columns - INDENT):
        shown = HIT_STYLE if inside and look.has_colour else ""
        for letter in line:
            if letter in (_HIT_START, _HIT_END):
                inside = letter == _HIT_START
                shown += (HIT_STYLE if inside else "\x1b[0m") if look.has_colour else ""
            else:
                shown += letter
        yield shown + ("\x1b[0m" if inside and look.has_colour else "")


def _mark_hits(one: SearchHit) -> Iterator[str]:
    at = 0
    for begin, end in one.marks:
        yield _clean_snippet(one.snippet[at:begin])
        yield _HIT_START + _clean_snippet(one.snippet[begin:end]) + _HIT_END
        at = end
    yield _clean_snippet(one.snippet[at:])


def _clean_snippet(text: str) -> str:
    blank = (
        text.replace(_HIT_START, "?")
        .replace(_HIT_END, "?")
        .replace("\n", " ")
        .replace("\r", " ")
        .replace("\t", " ")
    )
    return clean(blank)
