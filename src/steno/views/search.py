"""Search results: time, session, speaker, and a snippet with the matches highlighted."""

from collections.abc import Callable, Iterator, Sequence

from ..ledger.results import SearchHit
from .formatting import clean, single_line, truncate, wrap
from .table import PageStyle

INDENT = 2
# Painted piece by piece, because a match can continue on the next line.
MATCH_STYLE = "\x1b[1;33m"
RESET_STYLE = "\x1b[0m"
# Zero-width markers around matches until the text is wrapped; replaced where a text has them.
_MATCH_START = "\u1dfe"
_MATCH_END = "\u1dff"
_REPLACEMENTS = str.maketrans({_MATCH_START: "?", _MATCH_END: "?", "\n": " ", "\r": " ", "\t": " "})


def search_results(
    hits: Sequence[SearchHit], style: PageStyle, when: Callable[[int | None], str]
) -> list[str]:
    """Two or more lines per hit, separated by blank lines."""
    lines: list[str] = []
    for hit in hits:
        if lines:
            lines.append("")
        header = _header(hit, when)
        if style.line_limit is not None:
            header = truncate(header, style.line_limit)
        lines.append(style.paint(header, "dim"))
        lines += [" " * INDENT + line for line in _highlighted_lines(hit, style)]
    return lines


def _header(hit: SearchHit, when: Callable[[int | None], str]) -> str:
    parts = (
        when(hit.at) or "time unknown",
        hit.short_session_id or hit.session[:8],
        f"{hit.role} {hit.tool}" if hit.tool else hit.role,
        hit.project or "project unknown",
    )
    return single_line(" · ".join(parts))


def _highlighted_lines(hit: SearchHit, style: PageStyle) -> Iterator[str]:
    text = "".join(_marked_pieces(hit))
    is_match = False
    for line in wrap(" ".join(text.split()), style.columns - INDENT):
        shown = MATCH_STYLE if is_match and style.has_colour else ""
        for letter in line:
            if letter in (_MATCH_START, _MATCH_END):
                is_match = letter == _MATCH_START
                if style.has_colour:
                    shown += MATCH_STYLE if is_match else RESET_STYLE
            else:
                shown += letter
        yield shown + (RESET_STYLE if is_match and style.has_colour else "")


def _marked_pieces(hit: SearchHit) -> Iterator[str]:
    position = 0
    for start, end in hit.marks:
        yield _clean_snippet(hit.snippet[position:start])
        yield _MATCH_START + _clean_snippet(hit.snippet[start:end]) + _MATCH_END
        position = end
    yield _clean_snippet(hit.snippet[position:])


def _clean_snippet(text: str) -> str:
    return clean(text.translate(_REPLACEMENTS))
