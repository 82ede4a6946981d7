"""The input of `steno mcp`: one JSON-RPC message per line, up to a size.

A message that is too long is never kept or parsed. It is answered all the same, so that an agent
which asks for a permission does not wait in vain: in its place, the server gets a call of a tool
that does not exist, with the same ID.
"""

import re
from typing import BinaryIO

import msgspec
from anyio import to_thread

# A call contains at most what a model writes in one answer: 128,000 tokens are about 0.5 MB. In
# Python's memory, a list of numbers takes 30 times its size.
MAX_MESSAGE_BYTES = 4 << 20
SKIP_BYTES = 1 << 20
MAX_ID_BYTES = 256
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[\w.:-]{1,100}")\s*'
# The SDK for TypeScript writes the ID as the last field, the one for Python as the second.
_ID_AT_END = re.compile(rb"[,}]\s*" + _ID + rb"\}\s*\Z")
_ID_AT_START = re.compile(rb'\A\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")


class MessageLines:
    """An asynchronous iterator over the lines, for the server of the package mcp."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __aiter__(self) -> "MessageLines":
        return self

    async def __anext__(self) -> str:
        line = await to_thread.run_sync(self.read)
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")

    def read(self) -> bytes:
        """The next message, or what replaces it; empty at the end of the input."""
        while line := self._file.readline(MAX_MESSAGE_BYTES):
            if line.endswith(b"\n") or len(line) < MAX_MESSAGE_BYTES:
                return line
            replacement = self._skip_rest(line)
            if replacement:
                return replacement
        return b""

    def _skip_rest(self, start: bytes) -> bytes:
        """Read to the end of the line without keeping it; what replaces the message, if its ID
        can be found."""
        size, end = len(start), start[-MAX_ID_BYTES:]
        while not end.endswith(b"\n") and (part := self._file.readline(SKIP_BYTES)):
            size += len(part)
            end = (end + part)[-MAX_ID_BYTES:]
        match = _ID_AT_END.search(end) or _ID_AT_START.match(start[:MAX_ID_BYTES])
        if match is None:
            return b""
        name = f"message too long: {size:,} bytes (maximum {MAX_MESSAGE_BYTES:,})"
        call = {"method": "tools/call", "params": {"name": name, "arguments": {}}}
        id_ = msgspec.Raw(match[1])
        return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, **call}) + b"\n"
