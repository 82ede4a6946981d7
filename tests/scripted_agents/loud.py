"""Writes some megabytes to stderr, with lines on stdout before, between and after."""

import os
import sys

half = int(sys.argv[1]) // 2
block = b"e" * (1 << 20)
for place in ("before", "between", "after"):
    os.write(1, f"{place}\n".encode())
    for _ in range(half if place != "after" else 0):
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(2, rest) :]
