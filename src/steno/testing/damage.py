"""Lines, damaged in the ways that pipes, disks, crashes and other versions of a program damage them. Pure."""

import re
from collections.abc import Iterator
from random import Random

LITERALS = (
    b"null", b"true", b"false", b"0", b"-1", b"1.5", b"1e308", b"1e999", b"9" * 30, b'""', b'"x"', b'"\\ud83d"', b'"\\u0000"',
    b'"\xff"', b"[]", b"[[]]", b"[null]", b'["x"]', b"[{}]", b"{}", b'{"a":1}', b'"0001-01-01T00:00:00Z"', b"-9007199254740993",
)  # fmt: skip
# What no program prints, and a reader must take all the same.
UNEXPECTED_LINES = (
    b"", b" ", b"\x00", b"null", b"0", b'"text"', b"[]", b"{}", b'{"":""}', b'{"type":null}', b'{"type":[]}', b'{"type":{}}',
    b'{"type":{"a":[1]}}', b'{"type":1}', b'{"type":"\\ud800"}', b"{", b"}{", b'{"type":', b"not JSON at all",
    b"[" * 3000 + b"]" * 3000, b'{"a":' * 1500 + b"1" + b"}" * 1500,
)  # fmt: skip
_VALUE_PATTERN = re.compile(rb'(?<=:)(?:"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|\[\]|\{\})')
_KEY_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"(?=:)')


def damage_line(line: bytes, by: Random) -> Iterator[bytes]:
    """One line in several kinds of damage, none of which holds a newline."""
    for damage in (_truncate(line, by), _flip_bit(line, by), _delete_bytes(line, by), line + b" " + line, _nest_value(line, by)):
        yield damage.replace(b"\n", b" ")
    for _ in range(6):  # a field of a wrong type is what another version brings
        yield _replace_match(line, by, _VALUE_PATTERN, by.choice(LITERALS)).replace(b"\n", b" ")
    yield _replace_match(line, by, _KEY_PATTERN, b'"another_name"')


def _truncate(line: bytes, by: Random) -> bytes:
    return line[: by.randrange(len(line))]


def _flip_bit(line: bytes, by: Random) -> bytes:
    found = bytearray(line)
    found[by.randrange(len(found))] ^= 1 << by.randrange(8)
    return bytes(found)


def _delete_bytes(line: bytes, by: Random) -> bytes:
    start = by.randrange(len(line))
    return line[:start] + line[start + by.choice((1, 5, 50)) :]


def _nest_value(line: bytes, by: Random) -> bytes:
    depth = by.choice((3, 400, 1500))
    return _replace_match(line, by, _VALUE_PATTERN, b"[" * depth + b"1" + b"]" * depth)


def _replace_match(line: bytes, by: Random, what: "re.Pattern[bytes]", value: bytes) -> bytes:
    spans = [found.span() for found in what.finditer(line)]
    if not spans:
        return value
    start, end = by.choice(spans)
    return line[:start] + value + line[end:]
