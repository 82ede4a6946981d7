"""Bytes to lines, in whatever pieces they come. Pure; it holds at most one unfinished line.

A line ends at b"\\n" and nowhere else: U+2028, U+2029 and U+0085 are text (I2). Input that opens with
a lone bracket is one pretty-printed JSON document: it is held until its end, then given as one line.
"""

_BRACKETS = (b"{", b"[")


class Splitter:
    """Cuts a stream into whole lines, each with its newline; the last may lack one."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._document: list[bytes] | None = None
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            if chunk:
                self._rest.append(chunk)
            return []
        if self._rest:
            self._rest.append(chunk[:end])
            whole = b"".join(self._rest)
            self._rest = [chunk[end:]] if end < len(chunk) else []
        else:
            whole = chunk[:end]
            if end < len(chunk):
                self._rest.append(chunk[end:])
        lines = whole.split(b"\n")
        lines.pop()
        return lines if self._begun and self._document is None else self._first(lines)

    def end(self) -> tuple[list[bytes], bytes]:
        """What is left when the input is over: whole lines that were held back, and the line without a newline."""
        rest = b"".join(self._rest)
        self._rest = []
        if self._document is None:
            return [], rest
        held, self._document = self._document, None
        if rest.strip():
            held.append(rest)
        return [b"\n".join(held)], b""

    def _first(self, lines: list[bytes]) -> list[bytes]:
        """Decide by the first line that is not blank whether this is a document."""
        if self._document is not None:
            return self._hold(lines)
        for index, line in enumerate(lines):
            head = line.removeprefix(b"\xef\xbb\xbf").strip()
            if head:
                self._begun = True
                if head in _BRACKETS:
                    self._document = []
                    return lines[:index] + self._hold(lines[index:])
                break
        return lines

    def _hold(self, lines: list[bytes]) -> list[bytes]:
        """Keep a document's lines; one that opens an object in the first column shows that it was a stream after all."""
        held = self._document or []
        for index, line in enumerate(lines):
            if line[:2] == b'{"' and held:
                self._document = None
                return held + lines[index:]
            held.append(line)
        self._document = held
        return []
