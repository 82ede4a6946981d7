"""Parsers of setting values.

A parser converts text or a TOML value; its ValueError completes the sentence "expected ...".
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from typing import Any

ValueParser = Callable[[Any], Any]

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_COUNT_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,63}")
MAX_NAME_CHARS = 200
MAX_TAG_CHARS = 200
_BACKEND = re.compile(
    r"ollama|(?:ollama|openai|anthropic):https?://"
    r"(?:[^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?(?:/[^\s?#@]*)?"
)
_OFF_WORDS = ("off", "never", "none")
_BOOL_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("non-empty text")
    return value


def parse_count(value: Any) -> int:
    """Parse a whole number above 0; large ones may be written 200k or 1.5M."""
    expected = ValueError("a whole number above 0, such as 20 or 200k")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise expected
    text = str(value).strip().lower().replace("_", "")
    factor = _COUNT_SUFFIXES.get(text[-1:], 1)
    count = _parse_number(text[:-1] if factor > 1 else text, expected) * factor
    if count < 1 or count != int(count):
        raise expected
    return int(count)


def parse_limit(value: Any) -> int:
    """Parse a whole number; 0 for `off`."""
    expected = ValueError("a whole number, such as 30, or off")
    text = value.strip().lower() if isinstance(value, str) else value
    if value is False or text in _OFF_WORDS:
        return 0
    number = _parse_number(text, expected)
    if number < 0 or number != int(number):
        raise expected
    return int(number)


def parse_turns(value: Any) -> int | str:
    """Parse a number of turns, or a range such as 10..30."""
    expected = ValueError("a whole number above 0, such as 20, or a range such as 10..30")
    first, separator, total = str(value).partition("..")
    try:
        if not separator:
            return parse_count(value)
        limits = (parse_count(first), parse_count(total))
    except ValueError:
        raise expected from None
    if limits[0] > limits[1]:
        raise ValueError("the smaller number first, as in 10..30")
    return f"{limits[0]}..{limits[1]}"


def turn_limits(value: int | str | None) -> tuple[int | None, int | None]:
    """The limits of the first attempt and of the whole task, from a parsed number or range."""
    if value is None:
        return None, None
    first, _, total = str(value).partition("..")
    return int(first), int(total or first)


def parse_dollars(value: Any) -> float:
    expected = ValueError("an amount in dollars above 0, such as 5 or 0.50")
    number = value.strip().removeprefix("$") if isinstance(value, str) else value
    amount = _parse_number(number, expected)
    if amount <= 0:
        raise expected
    return amount


def parse_duration(value: Any) -> float | None:
    """Parse seconds, or a text such as 90s, 10m or 1h30m; None for `off`."""
    expected = ValueError("a duration above 0, such as 90 (seconds), 10m or 1h30m, or off")
    text = value.strip().lower() if isinstance(value, str) else value
    if value is False or text in _OFF_WORDS:
        return None
    if isinstance(text, str) and text and _DURATION_PART.sub("", text) == "":
        seconds = sum(
            float(number) * _SECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(text)
        )
    else:
        seconds = _parse_number(text, expected)
    if seconds <= 0:
        raise expected
    return seconds


def parse_deadline(value: Any) -> float | str | None:
    """Parse a duration in seconds, or a time of day or date and time; None for `off`."""
    text = value.isoformat() if isinstance(value, datetime | time) else value
    try:
        return parse_duration(text)
    except ValueError:
        pass
    text = text.strip() if isinstance(text, str) else ""
    try:
        deadline_at(text, 0.0)
    except (ValueError, OverflowError):
        raise ValueError(
            "a duration such as 20m or 2h, a time such as 18:30 or 2030-01-31T18:30, or off"
        ) from None
    return text


def deadline_at(value: float | str, now: float) -> float:
    """The time of a parsed deadline, in seconds since 1970. A time of day is the next such time."""
    if not isinstance(value, str):
        return now + value
    if _CLOCK_TIME.fullmatch(value) is None:
        if ":" not in value:
            raise ValueError(value)
        return datetime.fromisoformat(value).timestamp()
    here = datetime.fromtimestamp(now)  # local time
    hour, minute, second = (int(part) for part in f"{value}:0".split(":")[:3])
    at = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
    return (at if at > here else at + timedelta(days=1)).timestamp()


def parse_fraction(value: Any) -> float:
    """Parse a fraction: 0.8 or 80%."""
    expected = ValueError("a fraction between 0 and 1, such as 0.8 or 80%")
    text = value.strip() if isinstance(value, str) else ""
    is_percent = text.endswith("%")
    number = _parse_number(text[:-1] if is_percent else value, expected)
    fraction = number / 100 if is_percent else number
    if not 0 < fraction <= 1:
        raise expected
    return fraction


def parse_fractions(value: Any) -> tuple[float, ...]:
    """Parse fractions: 0.7,0.8 or 70%,80%, or a list; empty for `off`."""
    expected = ValueError("fractions between 0 and 1, such as 0.7,0.8,0.95 or 70%,80%, or off")
    parts = value if isinstance(value, list | tuple) else [value]
    words = [
        word
        for part in parts
        for word in (part.split(",") if isinstance(part, str) else [part])
        if not isinstance(word, str) or word.strip()
    ]
    only = words[0] if len(words) == 1 else None
    if value is False or (isinstance(only, str) and only.strip().lower() in _OFF_WORDS):
        return ()
    try:
        fractions = sorted({parse_fraction(word) for word in words})
    except ValueError:
        raise expected from None
    if not fractions:
        raise expected
    return tuple(fractions)


def _parse_number(value: Any, expected: ValueError) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise expected
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise expected from None
    if not math.isfinite(number):
        raise expected
    return number


def parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    flag = _BOOL_WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    if flag is None:
        raise ValueError("true or false")
    return flag


def parse_words(value: Any) -> tuple[str, ...]:
    """Parse a list, or text with commas; `Bash(a, b), Read` has two words."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of words")
    words = [word.strip() for part in parts for word in _split_on_commas(part)]
    return tuple(word for word in words if word)


def _split_on_commas(text: str) -> list[str]:
    words = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth <= 0:
            words.append("")
        else:
            words[-1] += char
    return words


def parse_paths(value: Any) -> tuple[str, ...]:
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not all(
        isinstance(path, str) and path for path in paths
    ):
        raise ValueError("a path, or a list of paths")
    return tuple(paths)


def parse_backend(value: Any) -> str:
    """Parse `ollama` or KIND:URL. Credentials in the URL are rejected."""
    expected = ValueError(
        "ollama, ollama:URL, openai:URL or anthropic:URL, with a URL such as "
        "http://127.0.0.1:8000/v1 without user, password or query; "
        "set STENO_BACKEND_KEY for an API key"
    )
    if not isinstance(value, str) or not _BACKEND.fullmatch(value.strip()):
        raise expected
    return value.strip()


def parse_json_schema(value: Any) -> str:
    """Parse the path of a schema file, or a schema as JSON text or TOML table."""
    if isinstance(value, Mapping):
        import json

        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            raise ValueError("a JSON schema") from None
    return parse_text(value)


def parse_otel(value: Any) -> str | None:
    """Parse the URL of a collector, or `on` for that of the environment; None for `off`."""
    text = value.strip() if isinstance(value, str) else value
    if value is False or text in _OFF_WORDS:
        return None
    if value is True or text == "on":
        return "on"
    if not isinstance(text, str) or not re.fullmatch(r"https?://[^\s/]+\S*", text):
        raise ValueError("the URL of a collector, such as http://localhost:4318, or on, or off")
    return text


def parse_services(value: Any) -> tuple[str, ...]:
    """Parse a list of URLs, or text with spaces between them."""
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(
        isinstance(item, str) and re.fullmatch(r"\w+://\S+", item) for item in items
    ):
        raise ValueError("the URL of a notification service, such as ntfy://TOPIC")
    return tuple(items)


def parse_env(value: Any) -> dict[str, str]:
    """Parse a table, or NAME=VALUE items."""
    expected = ValueError("NAME=VALUE, with a name of letters, digits and underscores")
    if isinstance(value, Mapping):
        variables = dict(value)
    else:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(
            isinstance(item, str) and "=" in item for item in items
        ):
            raise expected
        variables = dict(item.split("=", 1) for item in items)
    if not all(
        isinstance(name, str) and _ENV_NAME.fullmatch(name) and isinstance(text, str)
        for name, text in variables.items()
    ):
        raise expected
    return variables


def parse_label(value: Any) -> str:
    """Parse the name of a run: one line of text."""
    if not isinstance(value, str) or not value.strip() or not _is_label(value, MAX_NAME_CHARS):
        raise ValueError(f"one line of text, at most {MAX_NAME_CHARS} characters")
    return value.strip()


def parse_tags(value: Any) -> dict[str, str]:
    """Parse a table, NAME=VALUE items, or text with commas between them."""
    expected = ValueError(
        "NAME=VALUE, with a name of letters, digits and . _ - /, and one line of text as value"
    )
    if isinstance(value, Mapping):
        tags = dict(value)
    else:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple) or not all(
            isinstance(item, str) and "=" in item for item in items
        ):
            raise expected
        tags = dict(item.split("=", 1) for item in items)
    if not all(
        isinstance(name, str)
        and _TAG_NAME.fullmatch(name)
        and isinstance(text, str)
        and _is_label(text, MAX_TAG_CHARS)
        for name, text in tags.items()
    ):
        raise expected
    return tags


def _is_label(text: str, max_chars: int) -> bool:
    return len(text) <= max_chars and text.isprintable()


def one_of(*choices: str) -> ValueParser:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(", ".join(choices[:-1]) + f" or {choices[-1]}")
        return str(value)

    return parse


def subset_of(*choices: str) -> ValueParser:
    """Parse some of the choices, or `none`."""

    def parse(value: Any) -> tuple[str, ...]:
        words = parse_words(value)
        unknown = [word for word in words if word not in choices and word != "none"]
        if unknown or not words:
            raise ValueError(f"one or more of {', '.join(choices)}; or none")
        return tuple(word for word in words if word != "none")

    return parse
