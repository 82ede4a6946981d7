"""How a page is to look: its width and its colours. Values only; it never asks a terminal and never prints."""

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from .sanitize import pad, single_line, truncate, truncate_start, width, wrap

STYLE_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Letters that an ASCII terminal gets in place of ours, each as wide as the one it stands for.
ASCII_FALLBACKS = str.maketrans(
    {"█": "#", "░": ".", "·": "-", "…": "~", "—": "-", "─": "-", "×": "x", "≥": ">"}
)
ASCII_FALLBACKS |= dict(zip(map(ord, "▏▎▍▌▋▊▉▁▂▃▄▅▆▇┄│┤└▼"), "-----==__.-=+*-|+ v", strict=True))
MIN_COLUMNS = 40  # columns: below this nothing is laid out differently any more


class PageStyle(Struct, frozen=True):
    """`columns` is the width of a page; `limit` that of a table's line, None where it may run on (a file, a pipe)."""

    columns: int = 80
    line_limit: int | None = None
    has_colour: bool = False

    def paint(self, text: str, style: str) -> str:
        """Clean text in a style such as "red" or "bold red"; as it is where there are no colours."""
        codes = ";".join(STYLE_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self.has_colour and codes and text else text


LABEL_COLUMNS = 11  # columns for the longest label, "background", and a blank
MAX_HEADLINE_LINES = 6  # lines: enough for an error text to be understood; --json has the whole


class SectionRow(Struct, frozen=True):
    """One thing to say: wrapped with `hang` blanks before its further lines, and cut after `most` lines."""

    text: str
    style: str = ""
    hanging_indent: int = 2
    max_lines: int = 3


def render_section(look: PageStyle, label: str, rows: Iterable[SectionRow]) -> list[str]:
    """The lines of one part; none if it has nothing to say."""
    found: list[str] = []
    for row in rows:
        for line in _row_lines(row, look.columns - LABEL_COLUMNS):
            head = pad("" if found else label, LABEL_COLUMNS)
            found.append((look.paint(head, "dim") + look.paint(line, row.style)).rstrip(" "))
    return found


def _row_lines(row: SectionRow, room: int) -> list[str]:
    text = row.text[
        : room * row.max_lines * 4
    ]  # more than fits, and bounded: a text may have megabytes
    text = text.replace("\r\n", " ").replace("\n", " ")
    wrapped = wrap(text, room - row.hanging_indent, -row.hanging_indent)
    lines = list(islice(wrapped, row.max_lines))
    if len(row.text) > room * row.max_lines * 4 or next(wrapped, None) is not None:
        lines[-1] = _add_ellipsis(lines[-1], room - row.hanging_indent)
    return lines[:1] + [" " * row.hanging_indent + line for line in lines[1:]]


def _add_ellipsis(line: str, columns: int) -> str:
    """A line with a mark that more would follow."""
    return truncate(line + " …", columns)


def headline(look: PageStyle, word: str, style: str, why: str) -> list[str]:
    """The verdict's word, and why in a sentence or two."""
    wrapped = wrap(why[: look.columns * MAX_HEADLINE_LINES * 4], look.columns - 2, width(word))
    lines = list(islice(wrapped, MAX_HEADLINE_LINES))
    if next(wrapped, None) is not None:
        lines[-1] = _add_ellipsis(lines[-1], look.columns - 2)
    return [look.paint(word, f"bold {style}") + "  " + lines[0]] + [
        "  " + line for line in lines[1:]
    ]


def titled_rule(look: PageStyle, name: str) -> str:
    """A line across the page with a source's name in it."""
    title = truncate_start(single_line(name), look.columns - 6)
    return look.paint("── " + title + " " + "─" * (look.columns - 4 - width(title)), "dim")
