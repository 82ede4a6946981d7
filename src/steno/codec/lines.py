"""Bytes to lines, in whatever pieces they come. Pure; it holds at most one unfinished line.

A line ends at b"\\n" and nowhere else: U+2028, U+2029 and U+0085 are text (I2).
"""


class LineSplitter:
    """Cuts a stream into whole lines, without their newlines."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now."""
        end = chunk.rfind(b"\n")
        if end < 0:
            if chunk:
                self._pending.append(chunk)
            return []
        whole = chunk[:end]
        if self._pending:
            self._pending.append(whole)
            whole = b"".join(self._pending)
            self._pending.clear()
        if end + 1 < len(chunk):
            self._pending.append(chunk[end + 1 :])
        return whole.split(b"\n")

    def flush(self) -> bytes:
        """What is left when the input is over: the last line, if it has no newline."""
        rest = b"".join(self._pending)
        self._pending.clear()
        return rest
