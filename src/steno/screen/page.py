"""A page of parts, each with a label at the left and its rows beside it. All text is cleaned here; it never prints."""

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from .clean import cut, flat, pad, tail, width, wrap
from .look import Look

LABEL = 11  # columns for the longest label, "background", and a blank
HEADLINE = 6  # lines: enough for an error text to be understood; --json has the whole


class Row(Struct, frozen=True):
    """One thing to say: wrapped with `hang` blanks before its further lines, and cut after `most` lines."""

    text: str
    style: str = ""
    hang: int = 2
    most: int = 3


def part(look: Look, label: str, rows: Iterable[Row]) -> list[str]:
    """The lines of one part; none if it has nothing to say."""
    found: list[str] = []
    for row in rows:
        for line in _lines(row, look.columns - LABEL):
            head = pad("" if found else label, LABEL)
            found.append((look.paint(head, "dim") + look.paint(line, row.style)).rstrip(" "))
    return found


def _lines(row: Row, room: int) -> list[str]:
    text = row.text[: room * row.most * 4]  # more than fits, and bounded: a text may have megabytes
    text = text.replace("\r\n", " ").replace("\n", " ")
    wrapped = wrap(text, room - row.hang, -row.hang)
    lines = list(islice(wrapped, row.most))
    if len(row.text) > room * row.most * 4 or next(wrapped, None) is not None:
        lines[-1] = _marked(lines[-1], room - row.hang)
    return lines[:1] + [" " * row.hang + line for line in lines[1:]]


def _marked(line: str, columns: int) -> str:
    """A line with a mark that more would follow."""
    return cut(line + " …", columns)


def headline(look: Look, word: str, style: str, why: str) -> list[str]:
    """The verdict's word, and why in a sentence or two."""
    wrapped = wrap(why[: look.columns * HEADLINE * 4], look.columns - 2, width(word))
    lines = list(islice(wrapped, HEADLINE))
    if next(wrapped, None) is not None:
        lines[-1] = _marked(lines[-1], look.columns - 2)
    return [look.paint(word, f"bold {style}") + "  " + lines[0]] + ["  " + line for line in lines[1:]]


def rule(look: Look, name: str) -> str:
    """A line across the page with a source's name in it."""
    title = tail(flat(name), look.columns - 6)
    return look.paint("── " + title + " " + "─" * (look.columns - 4 - width(title)), "dim")
