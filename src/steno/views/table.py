"""Tables, page width, colours, and the labelled sections of a summary."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from .formatting import NO_BREAK_SPACE, pad, single_line, truncate, truncate_start, width, wrap

STYLE_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
HP_COLOURS = {"Healthy": "green", "Wounded": "yellow", "CRITICAL": "red"}
CHANGE_COLOURS = {"created": "green", "deleted": "red", "renamed": "cyan", "modified": "yellow"}
# Replacements for terminals without Unicode, each as wide as the original.
ASCII_FALLBACKS = str.maketrans(
    {"█": "#", "░": ".", "·": "-", "…": "~", "—": "-", "─": "-", "×": "x", "≥": ">", "→": ">"}
)
ASCII_FALLBACKS |= dict(zip(map(ord, "▏▎▍▌▋▊▉▁▂▃▄▅▆▇┄│┤└▼"), "-----==__.-=+*-|+ v", strict=True))
MIN_COLUMNS = 40  # narrower terminals get a page of this width
LABEL_COLUMNS = 11  # the longest label, "background", and a space
MAX_HEADLINE_LINES = 6  # enough to understand an error; --json has the full text
CHARS_PER_COLUMN = 4  # input considered per column shown: a text can have megabytes


class PageStyle(Struct, frozen=True):
    """`columns`: page width; `line_limit`: maximum table width, None for a file or pipe."""

    columns: int = 80
    line_limit: int | None = None
    has_colour: bool = False

    def paint(self, text: str, style: str) -> str:
        """Sanitized text in a style such as "red" or "bold red"; unchanged without colours."""
        codes = ";".join(STYLE_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self.has_colour and codes and text else text

    def wrap(self, text: str) -> list[str]:
        """Sanitized lines for a terminal; in a file or pipe one line, which grep finds."""
        return list(wrap(text, self.line_limit or sys.maxsize))


class SectionRow(Struct, frozen=True):
    """One entry of a section, wrapped with a hanging indent and cut after `max_lines`."""

    text: str
    style: str = ""
    hanging_indent: int = 2
    max_lines: int = 3


def join_facts(facts: Iterable[str | None]) -> str:
    """The non-empty facts separated by dots, so that lines break between facts only."""
    unbroken = (fact.replace(" ", NO_BREAK_SPACE) for fact in facts if fact)
    return f"{NO_BREAK_SPACE}· ".join(unbroken)


def render_section(style: PageStyle, label: str, rows: Iterable[SectionRow]) -> list[str]:
    """The rows with a label before the first; no lines without rows."""
    lines: list[str] = []
    columns = style.columns - LABEL_COLUMNS
    for row in rows:
        max_chars = columns * row.max_lines * CHARS_PER_COLUMN
        text = row.text[:max_chars].replace("\r\n", " ").replace("\n", " ")
        room = columns - row.hanging_indent
        wrapped = wrap(text, room, -row.hanging_indent)
        indent = ""
        for line in _take_lines(wrapped, row.max_lines, room, len(row.text) > max_chars):
            head = ("" if lines else label).ljust(LABEL_COLUMNS)
            body = indent + line.replace(NO_BREAK_SPACE, " ")
            lines.append((style.paint(head, "dim") + style.paint(body, row.style)).rstrip(" "))
            indent = " " * row.hanging_indent
    return lines


def _take_lines(
    wrapped: Iterator[str], max_lines: int, columns: int, is_cut: bool = False
) -> list[str]:
    """The first lines, with an ellipsis where text is missing."""
    lines = list(islice(wrapped, max_lines))
    if is_cut or next(wrapped, None) is not None:
        lines[-1] = truncate(lines[-1] + " …", columns)
    return lines


def headline(style: PageStyle, word: str, colour: str, text: str) -> list[str]:
    """The verdict and its reason; a reason that repeats the verdict continues it."""
    repeats = text.startswith(f"{word} ")
    body = text.removeprefix(f"{word} ") if repeats else text
    gap = " " if repeats else "  "
    columns = style.columns - 2
    max_chars = style.columns * MAX_HEADLINE_LINES * CHARS_PER_COLUMN
    wrapped = wrap(body[:max_chars], columns, width(word))
    first, *others = _take_lines(wrapped, MAX_HEADLINE_LINES, columns)
    return [style.paint(word, f"bold {colour}") + gap + first, *("  " + line for line in others)]


def titled_rule(style: PageStyle, name: str) -> str:
    """A horizontal line with a title."""
    title = truncate_start(single_line(name), style.columns - 6)
    return style.paint("── " + title + " " + "─" * (style.columns - 4 - width(title)), "dim")


COLUMN_GAP = "  "
MIN_TEXT_COLUMNS = 6


class Column(Struct, frozen=True):
    """Layout of a column.

    The highest `drop_priority` is dropped first, 0 never. `keep_end` truncates at the start.
    Other columns are dropped before one that can be truncated gets narrower than `min_columns`.
    """

    name: str
    align_right: bool = False
    drop_priority: int = 0
    can_truncate: bool = False
    keep_end: bool = False
    min_columns: int = MIN_TEXT_COLUMNS


class Cell(Struct, frozen=True):
    text: str
    style: str = ""


TableRow = Sequence[Cell | str]


def render_table(
    style: PageStyle,
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    foot: Sequence[TableRow] = (),
    header: bool = True,
) -> list[str]:
    """The table as sanitized lines within the line limit; `foot` rows follow a rule."""
    cells = [
        [
            Cell(single_line(cell))
            if isinstance(cell, str)
            else Cell(single_line(cell.text), cell.style)
            for cell in row
        ]
        for row in (*rows, *foot)
    ]
    widths = [
        max([width(column.name) if header else 0, *(width(row[at].text) for row in cells)])
        for at, column in enumerate(columns)
    ]
    shown = [at for at in range(len(columns)) if not cells or any(row[at].text for row in cells)]
    if style.line_limit is not None:
        _fit_columns(columns, widths, shown, style.line_limit)
    lines = []
    for row in cells:
        parts = []
        for at in shown:
            text = row[at].text
            if columns[at].keep_end:
                text = truncate_start(text, widths[at])
            padded = pad(text, widths[at], columns[at].align_right)
            bare = padded.strip(" ")
            parts.append(padded.replace(bare, style.paint(bare, row[at].style), 1))
        lines.append(COLUMN_GAP.join(parts).rstrip(" "))
    if foot:
        total_width = sum(widths[at] for at in shown) + len(COLUMN_GAP) * (len(shown) - 1)
        lines.insert(len(rows), style.paint("─" * total_width, "dim"))
    if header:
        names = (pad(columns[at].name, widths[at], columns[at].align_right) for at in shown)
        lines.insert(0, style.paint(COLUMN_GAP.join(names).rstrip(" "), "dim"))
    return lines


def _fit_columns(
    columns: Sequence[Column], widths: list[int], shown: list[int], limit: int
) -> None:
    """Drop the least important columns until the rest can fit, then shrink the widest texts."""
    gap = len(COLUMN_GAP)
    least = [
        min(content, column.min_columns) if column.can_truncate else content
        for column, content in zip(columns, widths, strict=True)
    ]
    while sum(least[at] + gap for at in shown) - gap > limit:
        least_important = max(shown, key=lambda at: columns[at].drop_priority)
        if not columns[least_important].drop_priority:
            break
        shown.remove(least_important)
    room = limit - gap * (len(shown) - 1)
    texts = [at for at in shown if columns[at].can_truncate] or shown
    while sum(widths[at] for at in shown) > room and max(widths[at] for at in texts) > 1:
        widths[max(texts, key=lambda at: widths[at])] -= 1
