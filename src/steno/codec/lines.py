"""Splits chunks of bytes into lines. Pure; keeps at most one unfinished line.

A line ends only at b"\\n": U+2028, U+2029 and U+0085 are text.
"""


class LineSplitter:
    """Splits a stream into lines without their newlines."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk."""
        end = chunk.rfind(b"\n")
        if end < 0:
            if chunk:
                self._pending.append(chunk)
            return []
        complete = chunk[:end]
        if self._pending:
            self._pending.append(complete)
            complete = b"".join(self._pending)
            self._pending.clear()
        if end + 1 < len(chunk):
            self._pending.append(chunk[end + 1 :])
        return complete.split(b"\n")

    def flush(self) -> bytes:
        """The last line at the end of the input, if it has no newline."""
        rest = b"".join(self._pending)
        self._pending.clear()
        return rest
