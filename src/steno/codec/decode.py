"""Tolerant decoding: any bytes to typed values; a field of the wrong type is absent, nothing raises.

The fast path is a typed msgspec decoder that its caller tries first. What stands here is the way
back for the one line that did not fit (I3, I6). It never reads files and knows no agent.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

T = TypeVar("T")

# What a decoder raises on bytes that do not fit: broken JSON or a wrong type (MsgspecError), bytes
# that are no UTF-8, and brackets nested deeper than the C stack allows.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# A number of tokens, turns or milliseconds, a window, an HTTP status; and an amount that may have a fraction. One below 0, or
# beyond what a JSON number holds exactly, is no figure but damage: unknown (I6). A code of an exit can be below 0.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1 << 53)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]  # a time without a zone is ambiguous: unknown

MAX_INT_DIGITS = 1000  # of a whole number; Python reads 4300 unless it is told otherwise
_ABSENT: Any = object()
_decode_string = msgspec.json.Decoder(str).decode


@cache  # one entry per type used in this program: bounded by the source text
def decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """The typed decoder for `kind`, built once."""
    return msgspec.json.Decoder(kind)


def iter_json_values(data: bytes) -> Iterator[bytes]:
    """The JSON values that stand on one line, each as clean JSON bytes; ValueError where it stops being JSON.

    Also reads what a strict decoder refuses: a byte order mark, invalid UTF-8 and lone surrogates
    (both become U+FFFD), control characters inside strings, several values glued together.
    """
    from json import JSONDecoder  # only odd lines come here, and a start need not pay for them

    tolerant = JSONDecoder(strict=False, parse_int=_parse_int)
    text = data.decode("utf-8", "replace").lstrip("\ufeff\x00").strip(" \t\r\n\x00")
    at = 0
    while at < len(text):
        try:
            value, at = tolerant.raw_decode(text, at)
            yield msgspec.json.encode(_replace_surrogates(value))
        except (RecursionError, OverflowError) as problem:
            raise ValueError(str(problem)) from None
        while at < len(text) and text[at] in " \t\r":
            at += 1


def _parse_int(digits: str) -> int | None:
    """A number that is no figure, because it has more digits than Python reads, is unknown (I6)."""
    return int(digits) if len(digits) <= MAX_INT_DIGITS else None


def _replace_surrogates(value: Any) -> Any:
    """The same value with every lone surrogate replaced, so that it can be written as UTF-8."""
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value


def decode_lenient(data: bytes | Raw, kind: type[T]) -> T:
    """`data` as a `kind` (a Struct whose fields all have defaults, or a list), leaving out whatever does not fit.

    Raises one of MISFIT only where there is no JSON to be read at all, or it is nested too deep.
    """
    value = _try_decode(data, kind)
    if value is not _ABSENT:
        return value  # type: ignore[no-any-return]  # _fit gives a `kind` or nothing
    with suppress(msgspec.ValidationError):  # JSON, but of another kind
        decoder(dict[str, Raw]).decode(data)
    return kind()


def decode_first_object(data: bytes, kind: type[T]) -> T | None:
    """The first object of a line as a `kind`, as far as it can be read; None where the line is torn or no JSON."""
    with suppress(*DECODE_ERRORS):
        return msgspec.json.decode(data, type=kind)
    try:
        return next(
            (decode_lenient(value, kind) for value in iter_json_values(data) if value[:1] == b"{"),
            None,
        )
    except (ValueError, *DECODE_ERRORS):
        return None


def _try_decode(data: bytes | Raw, kind: Any) -> Any:
    try:
        return decoder(kind).decode(data)
    except DECODE_ERRORS:
        pass
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _try_struct(data, kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _ABSENT
    if origin is list:
        return _try_list(data, args[0])
    if origin is dict:
        return _try_dict(data, args[1])
    for member in args:
        value = _ABSENT if member is NoneType else _try_decode(data, member)
        if value is not _ABSENT:
            return value
    return _ABSENT


def _split_json(data: bytes | Raw, kind: Any) -> Any:
    """What a piece of JSON is made of; None if it is of another kind. Too deep a nesting goes up to the caller."""
    try:
        return decoder(kind).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _try_struct(data: bytes | Raw, kind: type[Struct]) -> Any:
    parts = _split_json(data, dict[str, Raw])
    if parts is None:
        return _ABSENT
    found = {}
    for part in msgspec.structs.fields(kind):
        if part.encode_name in parts:
            value = _try_decode(parts[part.encode_name], part.type)
            if value is not _ABSENT:
                found[part.name] = value
            elif NoneType in get_args(part.type):
                found[part.name] = None  # given but unreadable: unknown, whatever the default says
    return kind(**found)


def _try_list(data: bytes | Raw, kind: Any) -> Any:
    parts = _split_json(data, list[Raw])
    if parts is None:
        return _ABSENT
    return [value for value in (_try_decode(part, kind) for part in parts) if value is not _ABSENT]


def _try_dict(data: bytes | Raw, kind: Any) -> Any:
    parts = _split_json(data, dict[str, Raw])
    if parts is None:
        return _ABSENT
    fitted = ((name, _try_decode(part, kind)) for name, part in parts.items())
    return {name: value for name, value in fitted if value is not _ABSENT}


def text_of(data: Raw) -> str:
    """The text in a piece of JSON that is a string, a list of text parts, or anything else (kept as JSON)."""
    try:
        return _decode_string(data)
    except DECODE_ERRORS:
        content = decode_raw(data)
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return "" if content is None else bytes(data).decode("utf-8", "replace")


def decode_raw(data: Raw) -> Any:
    """A piece of JSON as plain Python values, such as the `input` of a ToolCall; None where there is none that can be read."""
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        pass
    try:
        return next((msgspec.json.decode(value) for value in iter_json_values(bytes(data))), None)
    except (ValueError, *DECODE_ERRORS):
        return None


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type') or 'part'}]"
