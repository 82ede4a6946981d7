"""Text from an agent made fit for a terminal: nothing in it can move the cursor, set a title or forge a line.

Also how wide text is, and how it is cut, padded and wrapped. It never colours and never prints.
"""

import re
from collections.abc import Iterator

# Joiners that letters and emoji need, and the soft hyphen: formatting that only changes their shapes.
_JOINERS = "\u00ad\u200c\u200d"
# Of what JSON may hold unescaped: control characters, marks that turn the direction of writing, separators of lines.
_UNSAFE_JSON_CHARS = r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
TAB_WIDTH = 4
MAX_SINGLE_LINE_CHARS = (
    2000  # characters of a text that is shown on one line: more than any terminal is wide
)


def clean(text: str) -> str:
    """The text with every hostile character written out, as \\x1b or \\u202e. Cleaning twice changes nothing."""
    return text if text.isprintable() else "".join(map(_escape_char, text))


def _escape_char(letter: str) -> str:
    if letter.isprintable() or not _is_unsafe(letter):
        return letter
    number = ord(letter)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def clean_lines(text: str) -> str:
    """The same of text that may have several lines and tabs: these stay."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter in "\n\t" else _escape_char(letter)
        for letter in text.replace("\r\n", "\n")
    )


def escape_json(data: bytes) -> bytes:
    """JSON of the same value in which no letter can do a terminal any harm: those that could are written as \\u009b."""
    if data.isascii() and b"\x7f" not in data:  # mostly so, and nearly free
        return data
    return re.sub(
        _UNSAFE_JSON_CHARS, lambda found: f"\\u{ord(found[0]):04x}", data.decode("utf-8", "replace")
    ).encode()


def _is_unsafe(letter: str) -> bool:
    """Control characters (a newline too: lines are made by us alone), separators of lines and paragraphs, halves
    of surrogate pairs, and formatting that nobody sees: what turns the direction of writing, marks, tags.

    Blanks of other widths, private letters and those that this Python does not know yet are none of these.
    """
    from unicodedata import category

    return category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in _JOINERS


def single_line(text: str) -> str:
    """The beginning of a text as one clean line: blanks and newlines run together."""
    text = text[:MAX_SINGLE_LINE_CHARS].replace("\t", " ").replace("\r", " ").replace("\n", " ")
    return clean(" ".join(filter(None, text.split(" "))))


def width(text: str) -> int:
    """The columns that clean text takes: wide letters and emoji two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(letter: str) -> int:
    if letter < "\u0300":
        return 1
    from unicodedata import category, east_asian_width  # only text beyond Latin needs the tables

    if category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(letter) in ("W", "F") else 1


def truncate(text: str, columns: int) -> str:
    """Clean text shortened to fit, with a mark where something is missing."""
    if width(text) <= columns:
        return text
    return text[: _count_fitting(text, columns - 1)] + "…"


def truncate_start(text: str, columns: int) -> str:
    """The end of clean text, with a mark before it: of a path it tells more than the beginning."""
    if width(text) <= columns:
        return text
    return "…" + text[len(text) - _count_fitting(text[::-1], columns - 1) :]


def pad(text: str, columns: int, right: bool = False) -> str:
    """Clean text cut or filled to exactly so many columns; `right`: the blanks come first."""
    text = truncate(text, columns)
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def _count_fitting(text: str, columns: int) -> int:
    """How many characters of the text fit."""
    used = 0
    for index, letter in enumerate(text):
        used += _char_width(letter)
        if used > columns:
            return index
    return len(text)


def wrap(text: str, columns: int, used: int = 0) -> Iterator[str]:
    """Clean lines of at most so many columns; of the first line, `used` columns are taken already."""
    for paragraph in text.replace("\r\n", "\n").split("\n"):
        yield from _wrap_paragraph(clean(paragraph.expandtabs(TAB_WIDTH)), columns, used)
        used = 0


def _wrap_paragraph(paragraph: str, columns: int, used: int) -> Iterator[str]:
    line, room = "", columns - used
    for word in _split_words(paragraph):
        if (
            width(word) > room and width(word.lstrip(" ")) <= columns
        ):  # it goes whole to the next line
            yield line
            word, line, room = word.lstrip(" "), "", columns
        while width(word) > room:  # it is longer than a line
            end = max(
                _count_fitting(word, room), int(not line)
            )  # a wide letter in one column: better too wide than for ever
            yield line + word[:end]
            word, line, room = word[end:], "", columns
        line, room = line + word, room - width(word)
    yield line


def _split_words(paragraph: str) -> Iterator[str]:
    """The words, each with the blanks before it."""
    blanks = 0
    for piece in paragraph.split(" "):
        if piece:
            yield " " * blanks + piece
            blanks = 0
        blanks += 1
