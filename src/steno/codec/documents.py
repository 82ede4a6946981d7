"""Finds the JSON objects in text: on one line, in arrays, and in documents of many lines. Pure.

Only the outermost objects are of interest: the events of a run are lines, elements of an array, or
one object. A string cannot contain a newline, so each line of a document can be scanned alone: what
connects lines are the open brackets. Each byte is scanned once, whatever the layout.
"""

import re

from .decode import MAX_LINE_BYTES

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
# A quote alone begins a string that does not end on its line.
_TOKEN = re.compile(_STRING + rb'|["\[\]{}]', re.DOTALL)
_NUMBER_OR_NAME = rb"-?[0-9][0-9.eE+-]*+|true|false|null|NaN|-?Infinity"
_JSON_TEXT = re.compile(
    rb"(?:[\s\[\]{},:]++|" + _STRING + rb"|" + _NUMBER_OR_NAME + rb")*+", re.DOTALL
)
# Where an object or array can begin inside a line.
_START = re.compile(rb'[\[{](?=\s*+(?:["{}\[\]]|$))')
_SEPARATORS = re.compile(rb"[,\s\x00]*+")
_DIGITS = re.compile(rb"[0-9]+")
_CLOSERS = {ord("}"): ord("{"), ord("]"): ord("[")}
_OBJECT, _ARRAY, _QUOTE = b'{["'


def find_start(text: bytes) -> int:
    """Where the first object or array in a line begins; -1 without any."""
    match = _START.search(text)
    return -1 if match is None else match.start()


def skip_separators(text: bytes, start: int) -> int:
    """Where the next value may begin, after commas and blanks."""
    match = _SEPARATORS.match(text, start)
    return start if match is None else match.end()


def is_json_text(text: bytes) -> bool:
    """Whether a line consists of complete strings, numbers and brackets: a part of a document."""
    return _JSON_TEXT.fullmatch(text) is not None


def is_document_start(line: bytes) -> bool:
    """Whether a line begins a document that continues on the next one."""
    if not is_json_text(line):
        return False
    scanner = ObjectScanner()
    scanner.scan(line)
    return scanner.is_open


class ObjectScanner:
    """The outermost objects of a document that is fed line by line, or of one line.

    `is_open`: the document continues on the next line. `in_object`: an object does. `dropped`:
    objects longer than MAX_LINE_BYTES.
    """

    def __init__(self) -> None:
        self._arrays = 0  # open around the objects
        self._brackets = bytearray()  # open in the current object, itself included
        self._parts: list[bytes] = []  # of the current object, from earlier lines
        self._size = 0
        self._last = 0  # the last byte before this line
        self.dropped = 0

    @property
    def is_open(self) -> bool:
        return self._arrays > 0 or bool(self._brackets)

    @property
    def in_object(self) -> bool:
        return bool(self._brackets)

    @property
    def head(self) -> bytes:
        """The beginning of the current object."""
        return self._parts[0] if self._parts else b"["

    def scan(self, text: bytes, start: int = 0) -> tuple[list[bytes], int]:
        """The objects completed by a line, and where the rest begins.

        The rest is empty while the document is open; -1 says that this cannot be JSON.
        """
        objects: list[bytes] = []
        begin = start  # of the current object on this line
        for token in _TOKEN.finditer(text, start):
            at = token.start()
            byte = text[at]
            if byte == _QUOTE:
                if token.end() - at == 1:
                    return objects, -1
            elif byte in (_OBJECT, _ARRAY):
                if not self._brackets:
                    begin = at
                    if byte == _ARRAY:
                        self._arrays += 1
                        continue
                self._brackets.append(byte)
            elif not self._close(byte):
                return objects, -1
            elif not self._brackets:
                if byte != ord("]"):
                    self._end_object(text[begin : at + 1], objects)
                if not self._arrays:
                    return objects, at + 1
        if self._brackets and text[begin:].strip():
            self._keep(text[begin:])
        return objects, len(text)

    def _close(self, byte: int) -> bool:
        """Close a bracket; False if it is not open."""
        if self._brackets:
            return self._brackets.pop() == _CLOSERS[byte]
        self._arrays -= 1
        return byte == ord("]") and self._arrays >= 0

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE_BYTES:
            self._parts.append(part)
        else:
            del self._parts[1:]
        self._last = part.rstrip()[-1]

    def _end_object(self, part: bytes, objects: list[bytes]) -> None:
        if self._size + len(part) > MAX_LINE_BYTES:
            self.dropped += 1
        elif self._parts:
            objects.append(b"\n".join((*self._parts, part)))
        else:
            objects.append(part)
        self._parts.clear()
        self._size = 0

    def contradicts(self, text: bytes) -> bool:
        """Whether a line cannot continue the current object: the document was cut before it.

        A value follows a comma, a colon or an opening bracket. Documents are indented: an object
        at the start of a line is one of lines.
        """
        if not self._brackets:
            return False
        stripped = text.lstrip()
        if stripped[:1] not in (b"{", b"["):
            return False
        if text.startswith((b'{"', b'[{"')):
            return True
        expected = b":" if self._brackets[-1] == _OBJECT else b",["
        return self._last not in expected


class LinePrefix:
    """What a log writes before each line of a document, such as a time: alike but for digits."""

    def __init__(self, prefix: bytes) -> None:
        parts = map(re.escape, _DIGITS.split(prefix))
        self._pattern = re.compile(rb"[0-9]+".join(parts)) if prefix else None

    def strip(self, line: bytes) -> bytes:
        match = self._pattern.match(line) if self._pattern is not None else None
        return line if match is None else line[match.end() :]
