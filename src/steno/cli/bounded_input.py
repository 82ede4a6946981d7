"""Read the JSON that Claude Code writes to the stdin of a hook or a status line. A light module."""

import os
import select
import time

INPUT_TIMEOUT_SECONDS = 5.0


def read_bounded(file: int, max_bytes: int) -> bytes:
    """All of a pipe, up to a size and a time."""
    data = bytearray()
    deadline = time.monotonic() + INPUT_TIMEOUT_SECONDS
    while len(data) < max_bytes:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([file], [], [], left)[0]:
            break
        chunk = os.read(file, 1 << 16)
        if not chunk:
            break
        data += chunk
    return bytes(data)
