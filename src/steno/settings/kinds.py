"""Kinds of values that people give, as text or as TOML has them. Each is checked here, or refused with what was expected. Pure.

A kind is a function from what was given to the value; it raises ValueError with the words that follow "expected".
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

ValueParser = Callable[[Any], Any]

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_COUNT_SUFFIXES = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BACKEND = re.compile(
    r"ollama|(?:ollama|openai|anthropic):https?://(?:[^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?(?:/[^\s?#@]*)?"
)
_OFF_WORDS = ("off", "never", "none")
_BOOL_WORDS = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def parse_text(given: Any) -> str:
    """Any words at all."""
    if not isinstance(given, str) or not given.strip():
        raise ValueError("a text that is not empty")
    return given


def parse_count(given: Any) -> int:
    """A whole number above 0; large ones may be written 200k or 1.5M."""
    expected = ValueError("a whole number above 0, such as 20 or 200k")
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise expected
    words = str(given).strip().lower().replace("_", "")
    unit = _COUNT_SUFFIXES.get(words[-1:], 1)
    value = _parse_number(words[:-1] if unit > 1 else words, expected) * unit
    if value < 1 or value != int(value):
        raise expected
    return int(value)


def parse_dollars(given: Any) -> float:
    """An amount above 0."""
    expected = ValueError("an amount of dollars above 0, such as 5 or 0.50")
    value = _parse_number(given.strip().removeprefix("$") if isinstance(given, str) else given, expected)
    if value <= 0:
        raise expected
    return value


def parse_duration(given: Any) -> float | None:
    """A time above 0, in seconds or as 90s, 10m, 1h30m; None for `off`."""
    expected = ValueError("a time above 0, such as 90 (seconds), 10m or 1h30m, or off")
    if given is False or (isinstance(given, str) and given.strip().lower() in _OFF_WORDS):
        return None
    words = given.strip().lower() if isinstance(given, str) else given
    if isinstance(words, str) and _DURATION_PART.sub("", words) == "" and words:
        value = sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(words))
    else:
        value = _parse_number(words, expected)
    if value <= 0:
        raise expected
    return value


def parse_fraction(given: Any) -> float:
    """A part of a whole: 0.8 or 80%."""
    expected = ValueError("a part between 0 and 1, such as 0.8 or 80%")
    percent = isinstance(given, str) and given.strip().endswith("%")
    value = _parse_number(given.strip()[:-1], expected) / 100 if percent else _parse_number(given, expected)
    if not 0 < value <= 1:
        raise expected
    return value


def _parse_number(given: Any, expected: ValueError) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise expected
    try:
        value = float(given)
    except (ValueError, OverflowError):
        raise expected from None
    if not math.isfinite(value):
        raise expected
    return value


def parse_bool(given: Any) -> bool:
    """Yes or no."""
    if isinstance(given, bool):
        return given
    found = _BOOL_WORDS.get(given.strip().lower()) if isinstance(given, str) else None
    if found is None:
        raise ValueError("true or false")
    return found


def parse_words(given: Any) -> tuple[str, ...]:
    """Words, as a list or with commas between them. A comma within brackets parts nothing: `Bash(a, b), Read` is two."""
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of words")
    found = [word.strip() for part in parts for word in _split_on_commas(part)]
    return tuple(word for word in found if word)


def _split_on_commas(given: str) -> list[str]:
    found, depth = [""], 0
    for letter in given:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return found


def parse_paths(given: Any) -> tuple[str, ...]:
    """Paths, each as it is: one, or a list of them."""
    parts = [given] if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part for part in parts):
        raise ValueError("a path, or a list of paths")
    return tuple(parts)


def parse_backend(given: Any) -> str:
    """A model server: `ollama`, or one of three kinds with its address. What is secret does not belong into an address."""
    expected = ValueError(
        "ollama, ollama:URL, openai:URL or anthropic:URL with an address such as http://127.0.0.1:8000/v1, "
        "without a user, a password or a query; a key goes into STENO_BACKEND_KEY"
    )
    if not isinstance(given, str) or not _BACKEND.fullmatch(given.strip()):
        raise expected
    return given.strip()


def parse_json_schema(given: Any) -> str:
    """A JSON schema: the path of its file, or the schema itself as JSON or as a table."""
    if isinstance(given, Mapping):
        import json

        try:
            return json.dumps(given)
        except (TypeError, ValueError):
            raise ValueError("a JSON schema") from None
    return parse_text(given)


def parse_env(given: Any) -> dict[str, str]:
    """Names with their values: a table, or a list of NAME=VALUE."""
    expected = ValueError("NAME=VALUE with a name of letters, digits and underscores")
    if isinstance(given, Mapping):
        found = dict(given)
    else:
        parts = [given] if isinstance(given, str) else given
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and "=" in part for part in parts):
            raise expected
        found = dict(part.split("=", 1) for part in parts)
    if not all(isinstance(name, str) and _ENV_NAME.fullmatch(name) and isinstance(value, str) for name, value in found.items()):
        raise expected
    return found


def one_of(*choices: str) -> ValueParser:
    """One of these words."""

    def choice(given: Any) -> str:
        if given not in choices:
            raise ValueError(", ".join(choices[:-1]) + f" or {choices[-1]}")
        return str(given)

    return choice


def subset_of(*choices: str) -> ValueParser:
    """Some of these words, or `none`."""

    def choice(given: Any) -> tuple[str, ...]:
        found = parse_words(given)
        wrong = [word for word in found if word not in choices and word != "none"]
        if wrong or not found:
            raise ValueError(f"words among {', '.join(choices)}; or none")
        return tuple(word for word in found if word != "none")

    return choice
