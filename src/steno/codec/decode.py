"""Tolerant JSON decoding: a field of the wrong type is absent instead of an error. Pure.

Callers try a typed msgspec decoder first; this is the fallback for a line that does not fit.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from .attachments import find_attachments, parse_attachment, without_attachments

if TYPE_CHECKING:
    from json import JSONDecoder

T = TypeVar("T")

# What a decoder raises: invalid JSON or a wrong type (MsgspecError), invalid UTF-8, and brackets
# nested deeper than the C stack allows.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# Tokens, turns, milliseconds, a window, an HTTP status; an amount may have a fraction. A negative
# value, or one beyond what JSON numbers hold exactly, is damage and therefore unknown.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1 << 53)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]  # a time without a zone is ambiguous: unknown

# The largest lines seen, with images in them, have a few megabytes. The rest of a longer line is
# dropped: memory must not depend on what an agent prints. It would not be JSON any more.
MAX_LINE_BYTES = 32 << 20
MAX_INT_DIGITS = 1000  # Python's own limit is 4300 by default
_VALUE_STARTS = '{["-0123456789tfnNI'  # the first characters of a value that Python's json accepts
_ABSENT: Any = object()
_decode_string = msgspec.json.Decoder(str).decode


@cache  # one entry per type used in this program
def decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """The cached decoder for a type."""
    return msgspec.json.Decoder(kind)


def iter_json_values(data: bytes) -> Iterator[bytes]:
    """The JSON values on one line, each as clean JSON. ValueError where the line is not JSON.

    Accepts what a strict decoder refuses: a byte order mark, invalid UTF-8 and lone surrogates
    (both become U+FFFD), control characters inside strings, several values in a row.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff\x00").strip(" \t\r\n\x00")
    if text and text[0] not in _VALUE_STARTS:  # a log line: the decoder's own error costs 3 µs
        raise ValueError("not JSON")
    tolerant = _tolerant_decoder()
    at = 0
    while at < len(text):
        try:
            value, at = tolerant.raw_decode(text, at)
            yield msgspec.json.encode(_replace_surrogates(value))
        except (RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from None
        while at < len(text) and text[at] in " \t\r":
            at += 1


@cache
def _tolerant_decoder() -> "JSONDecoder":
    from json import JSONDecoder  # imported here: needed for damaged lines only

    return JSONDecoder(strict=False, parse_int=_parse_int)


def _parse_int(digits: str) -> int | None:
    """The integer; None, meaning unknown, if it has too many digits."""
    return int(digits) if len(digits) <= MAX_INT_DIGITS else None


def _replace_surrogates(value: Any) -> Any:
    """The value with lone surrogates replaced, so that it can be encoded as UTF-8."""
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value


def decode_lenient(data: bytes | Raw, kind: type[T]) -> T:
    """`data` as a Struct whose fields all have defaults, or as a list, without what does not fit.

    Raises one of DECODE_ERRORS only if it is not JSON at all or nested too deeply.
    """
    value = _try_decode(data, kind)
    if value is not _ABSENT:
        return value  # type: ignore[no-any-return]  # _try_decode returns a `kind` or _ABSENT
    with suppress(msgspec.ValidationError):  # valid JSON of another type
        decoder(dict[str, Raw]).decode(data)
    return kind()


def decode_first_object(data: bytes, kind: type[T]) -> T | None:
    """The first object on a line, as far as it is readable; None if the line is not JSON."""
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
    """The parts of a JSON value; None if it has another type. RecursionError is not caught."""
    try:
        return decoder(kind).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _try_struct(data: bytes | Raw, kind: type[Struct]) -> Any:
    parts = _split_json(data, dict[str, Raw])
    if parts is None:
        return _ABSENT
    values = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in parts:
            value = _try_decode(parts[field.encode_name], field.type)
            if value is not _ABSENT:
                values[field.name] = value
            elif NoneType in get_args(field.type):
                values[field.name] = None  # unreadable: unknown, whatever the default is
    return kind(**values)


def _try_list(data: bytes | Raw, kind: Any) -> Any:
    parts = _split_json(data, list[Raw])
    if parts is None:
        return _ABSENT
    return [value for value in (_try_decode(part, kind) for part in parts) if value is not _ABSENT]


def _try_dict(data: bytes | Raw, kind: Any) -> Any:
    parts = _split_json(data, dict[str, Raw])
    if parts is None:
        return _ABSENT
    items = ((name, _try_decode(part, kind)) for name, part in parts.items())
    return {name: value for name, value in items if value is not _ABSENT}


def text_of(data: Raw) -> str:
    """The text of a JSON value: a string, a list of parts, or anything else as JSON.

    Of a part that is an image or a file, its media type and size.
    """
    try:
        return _decode_string(data)
    except DECODE_ERRORS:
        content = decode_raw(data)
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    if isinstance(content, dict) and next(find_attachments(content), None) is not None:
        shown = without_attachments(content)
        return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
    return "" if content is None else bytes(data).decode("utf-8", "replace")


def decode_raw(data: Raw) -> Any:
    """The JSON in a `Raw` field, such as the `input` of a ToolCall, as Python values.

    None if it is not readable.
    """
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
        return "" if part is None else msgspec.json.encode(part).decode()
    resource = part.get("resource")
    for holder in (part, resource):  # a resource of an MCP server may be a text
        if isinstance(holder, dict) and isinstance(holder.get("text"), str):
            return str(holder["text"])
    file = parse_attachment(part)
    if file is not None:
        return str(file)
    rest = {name: without_attachments(item) for name, item in part.items() if name != "type"}
    kind = f"[{part.get('type') or 'part'}]"
    return f"{kind} {msgspec.json.encode(rest).decode()}" if rest else kind


def cut_long_lines(chunk: bytes, line_length: int) -> bytes:
    """The chunk without what exceeds MAX_LINE_BYTES in a line.

    `line_length`: bytes that were kept of the line that the chunk continues.
    """
    first, *rest = chunk.split(b"\n")
    return b"\n".join((first[: MAX_LINE_BYTES - line_length], *(x[:MAX_LINE_BYTES] for x in rest)))


class LineSplitter:
    """Splits a stream into lines without their newlines, cut to MAX_LINE_BYTES."""

    def __init__(self) -> None:
        self._pending = bytearray()  # a list would cost more than short chunks themselves

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk."""
        pending = self._pending
        if len(pending) + len(chunk) > MAX_LINE_BYTES:
            chunk = cut_long_lines(chunk, len(pending))
        end = chunk.rfind(b"\n")
        if end < 0:
            pending += chunk
            return []
        complete = chunk[:end]
        if pending:
            pending += complete
            complete = bytes(pending)
            pending.clear()
        if end + 1 < len(chunk):
            pending += chunk[end + 1 :]
        return complete.split(b"\n")

    def flush(self) -> bytes:
        """The last line at the end of the input, if it has no newline."""
        rest = bytes(self._pending)
        self._pending.clear()
        return rest
