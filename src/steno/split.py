"""Bytes to lines, in whatever pieces they come. Pure; it holds at most one unfinished line.

A line ends at b"\\n" and nowhere else: U+2028, U+2029 and U+0085 are text (I2).
"""


class Splitter:
    """Cuts a stream into whole lines, without their newlines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now."""
        lines, start, find = [], 0, chunk.find
        while (end := find(b"\n", start)) >= 0:  # lines are long: a search for each is faster than `split`, byte by byte
            lines.append(chunk[start:end])
            start = end + 1
        if lines and self._rest:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest.clear()
        if start < len(chunk):
            self._rest.append(chunk[start:])
        return lines

    def rest(self) -> bytes:
        """What is left when the input is over: the last line, if it has no newline."""
        rest = b"".join(self._rest)
        self._rest.clear()
        return rest
