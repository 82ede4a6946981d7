"""Makes text from agents safe for a terminal, and measures, truncates, pads and wraps it."""

import re
from collections.abc import Iterator

# Needed by scripts and emoji, and harmless: joiners and the soft hyphen.
_JOINERS = "\u00ad\u200c\u200d"
# Control characters, direction marks and line separators that JSON allows unescaped.
_UNSAFE_JSON_CHARS = r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
TAB_WIDTH = 4
MAX_SINGLE_LINE_CHARS = 2000  # wider than any terminal


def clean(text: str) -> str:
    """The text with unsafe characters escaped, as \\x1b or \\u202e; idempotent."""
    return text if text.isprintable() else "".join(map(_escape_char, text))


def _escape_char(letter: str) -> str:
    if letter.isprintable() or not _is_unsafe(letter):
        return letter
    number = ord(letter)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def clean_lines(text: str) -> str:
    """Like `clean`, but keeps line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter in "\n\t" else _escape_char(letter)
        for letter in text.replace("\r\n", "\n")
    )


def escape_json(data: bytes) -> bytes:
    """The same JSON value with characters that are unsafe in a terminal escaped."""
    if data.isascii() and b"\x7f" not in data:  # the usual case
        return data
    text = data.decode("utf-8", "replace")
    return re.sub(_UNSAFE_JSON_CHARS, lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def _is_unsafe(letter: str) -> bool:
    """Control and format characters, line and paragraph separators, unpaired surrogates.

    A newline counts: only steno breaks lines. Unusual spaces, private-use characters and those
    unknown to this Python are safe.
    """
    from unicodedata import category

    return category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in _JOINERS


def single_line(text: str) -> str:
    """The start of a text as one sanitized line with runs of whitespace collapsed."""
    text = text[:MAX_SINGLE_LINE_CHARS].replace("\t", " ").replace("\r", " ").replace("\n", " ")
    return clean(" ".join(filter(None, text.split(" "))))


def width(text: str) -> int:
    """Columns of sanitized text: wide characters and emoji take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(letter: str) -> int:
    if letter < "\u0300":
        return 1
    from unicodedata import category, east_asian_width  # loaded for non-Latin text only

    if category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(letter) in ("W", "F") else 1


def truncate(text: str, columns: int) -> str:
    """Sanitized text cut to fit, with an ellipsis at the end."""
    if width(text) <= columns:
        return text
    return text[: _count_fitting(text, columns - 1)] + "…"


def truncate_start(text: str, columns: int) -> str:
    """Sanitized text cut to fit, with an ellipsis at the start: the end of a path matters most."""
    if width(text) <= columns:
        return text
    return "…" + text[len(text) - _count_fitting(text[::-1], columns - 1) :]


def pad(text: str, columns: int, right: bool = False) -> str:
    """Sanitized text cut or filled to exactly `columns`; `right` aligns it right."""
    text = truncate(text, columns)
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces


def _count_fitting(text: str, columns: int) -> int:
    used = 0
    for index, letter in enumerate(text):
        used += _char_width(letter)
        if used > columns:
            return index
    return len(text)


def wrap(text: str, columns: int, used: int = 0) -> Iterator[str]:
    """Sanitized lines of at most `columns`; `used` columns of the first are already taken."""
    for paragraph in text.replace("\r\n", "\n").split("\n"):
        yield from _wrap_paragraph(clean(paragraph.expandtabs(TAB_WIDTH)), columns, used)
        used = 0


def _wrap_paragraph(paragraph: str, columns: int, used: int) -> Iterator[str]:
    line = ""
    room = columns - used
    for word in _split_words(paragraph):
        if width(word) > room and width(word.lstrip(" ")) <= columns:
            yield line
            line = ""
            room = columns
            word = word.lstrip(" ")
        while width(word) > room:  # longer than a line
            # At least one character on an empty line, even if it is too wide: no endless loop.
            end = max(_count_fitting(word, room), int(not line))
            yield line + word[:end]
            line = ""
            room = columns
            word = word[end:]
        line += word
        room -= width(word)
    yield line


def _split_words(paragraph: str) -> Iterator[str]:
    """The words, each with the spaces before it."""
    spaces = 0
    for piece in paragraph.split(" "):
        if piece:
            yield " " * spaces + piece
            spaces = 0
        spaces += 1
