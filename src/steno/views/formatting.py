"""Numbers, money and times as text; text from agents made safe for a terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

# Needed by scripts and emoji, and harmless: joiners and the soft hyphen.
_JOINERS = "\u00ad\u200c\u200d"
# Control characters, direction marks and line separators that JSON allows unescaped.
_UNSAFE_JSON_CHARS = r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
NO_BREAK_SPACE = "\u00a0"
TAB_WIDTH = 4
MAX_SINGLE_LINE_CHARS = 2000  # wider than any terminal


def clean(text: str) -> str:
    """The text with unsafe characters escaped, as \\x1b or \\u202e; idempotent."""
    if text.replace(NO_BREAK_SPACE, " ").isprintable():
        return text
    return "".join(map(_escape_char, text))


def _escape_char(letter: str) -> str:
    """Escape control and format characters, line separators and unpaired surrogates.

    A newline is escaped too: only steno breaks lines. Unusual spaces, private-use characters and
    those unknown to this Python are safe.
    """
    if letter.isprintable() or letter in _JOINERS:
        return letter
    from unicodedata import category

    if category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
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
    room = columns - used
    for paragraph in text.replace("\r\n", "\n").split("\n"):
        line = ""
        words = clean(paragraph.expandtabs(TAB_WIDTH)).rstrip(" ")
        for match in re.finditer(" *[^ ]+", words):
            word = match[0]
            if width(word) > room and width(word.lstrip(" ")) <= columns:
                yield line
                line = ""
                room = columns
                word = word.lstrip(" ")
            while width(word) > room:  # longer than a line
                # At least one character on an empty line, even if too wide: no endless loop.
                end = max(_count_fitting(word, room), int(not line))
                yield line + word[:end]
                line = ""
                room = columns
                word = word[end:]
            line += word
            room -= width(word)
        yield line
        room = columns


UNKNOWN = "unknown"

# Colour of each verdict, and its explanation where the run gives none.
VERDICT_COLOURS = {
    "success": "green",
    "max_turns": "yellow",
    "max_budget": "yellow",
    "rate_limit": "yellow",
    "auth": "red",
    "billing": "red",
    "api": "red",
    "network": "red",
    "invalid_request": "red",
    "context_full": "yellow",
    "refused": "red",
    "permission": "yellow",
    "interactive": "yellow",
    "background_task": "yellow",
    "stopped": "yellow",
    "policy": "red",
    "empty": "yellow",
    "no_result": "yellow",
    "stalled": "red",
    "timeout": "red",
    "interrupted": "yellow",
    "killed": "red",
    "subprocess": "red",
    "not_found": "red",
}


def verdict_colour(verdict: str) -> str:
    return VERDICT_COLOURS.get(verdict, "red")


def format_number(number: int | None) -> str:
    """A whole number with thousands separators."""
    return UNKNOWN if number is None else f"{number:,}"


def format_compact(number: int | None) -> str:
    """A whole number with a unit suffix: 950, 12.3k, 4.56M, 1.20G."""
    if number is None:
        return UNKNOWN
    if abs(number) < 1000:
        return str(number)
    for unit, suffix in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        scaled = number / unit
        if abs(scaled) < 999.5 or suffix == "T":
            return f"{scaled:,.{_compact_decimals(scaled)}f}{suffix}"
    raise AssertionError


def _compact_decimals(scaled: float) -> int:
    if abs(scaled) < 9.995:
        return 2
    return 1 if abs(scaled) < 99.95 else 0


def format_overhead(parts: Mapping[str, int | None]) -> str:
    """The fields of a ContextOverhead, such as "overhead: system prompt 3.10k, tools 12.0k"."""
    known = [
        f"{name.replace('_', ' ')} {format_compact(tokens)}"
        for name, tokens in parts.items()
        if tokens is not None
    ]
    return f"overhead: {', '.join(known) or UNKNOWN}"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: 1 call, 3 calls."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def unknown_runs(count: int) -> str:
    """The remark on a sum that lacks some runs."""
    return f" (unknown for {format_count(count, 'run')})" if count else ""


def format_percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction * 100:.1f} %"


EFFICIENT_HIT_RATE = 0.7  # above, most of the input is reused


def format_hit_rate(rate: float | None) -> str:
    """The cache hit rate, and whether that is efficient."""
    word = " (efficient)" if rate is not None and rate > EFFICIENT_HIT_RATE else ""
    return format_percent(rate) + word


def at_least(text: str, is_lower_bound: bool) -> str:
    """The text of a figure, with a sign if it is only a lower bound."""
    return f"≥{text}" if is_lower_bound and text != UNKNOWN else text


def format_money(dollars: float | None) -> str:
    """Dollars; the smaller the amount, the more decimals."""
    if dollars is None:
        return UNKNOWN
    if abs(dollars) >= 10 or dollars == 0:
        return f"${dollars:,.2f}"
    return f"${dollars:,.4f}" if abs(dollars) >= 0.01 else f"${dollars:,.6f}"


def format_cents(dollars: float | None) -> str | None:
    """Dollars with two decimals, for columns; a small amount is not shown as nothing."""
    if dollars is None:
        return None
    return "<$0.01" if 0 < dollars < 0.005 else f"${dollars:,.2f}"


def format_duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return UNKNOWN
    seconds = milliseconds / 1000
    if seconds < 0.9995:
        return f"{milliseconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_time(at: datetime) -> str:
    """A time in the local zone; unconverted where the conversion leaves the calendar's range."""
    try:
        return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    except (OverflowError, ValueError, OSError):
        return str(at)


def format_epoch(seconds: int) -> str:
    """Seconds since 1970 as a time in the local zone."""
    try:
        return format_time(datetime.fromtimestamp(seconds).astimezone())
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s after 1970"


EIGHTH_BLOCKS = " ▏▎▍▌▋▊▉"
SPARK_BLOCKS = "▁▂▃▄▅▆▇█"


def bar(part: float, whole: float, columns: int) -> str:
    """A bar of up to `columns` columns; a part above 0 is always visible."""
    if part <= 0 or whole <= 0:
        return ""
    eighths = max(1, round(min(1.0, part / whole) * columns * 8))
    full, remainder = divmod(eighths, 8)
    return "█" * full + (EIGHTH_BLOCKS[remainder] if remainder else "")


def gauge(fraction: float, columns: int) -> str:
    """A bar of fixed width with its empty part shaded."""
    full = min(columns, round(max(0.0, fraction) * columns))
    if fraction > 0 and not full:
        full = 1
    return "█" * full + "░" * (columns - full)


def sparkline(values: Sequence[float], columns: int | None = None, top: float | None = None) -> str:
    """One character per value, or per group of values where there are more than `columns`.

    `top`: the value of a full block; by default the highest value.
    """
    if columns is not None and len(values) > columns:
        values = downsample(values, columns)
    top = max(values, default=0) if top is None else top
    if top <= 0:
        return SPARK_BLOCKS[0] * len(values)
    return "".join(SPARK_BLOCKS[min(7, int(max(0.0, value) / top * 7.999))] for value in values)


def downsample(values: Sequence[float], columns: int) -> list[float]:
    """The maximum of each of `columns` groups of neighbouring values."""
    edges = [at * len(values) // columns for at in range(columns + 1)]
    return [max(values[low:high]) for low, high in pairwise(edges)]
