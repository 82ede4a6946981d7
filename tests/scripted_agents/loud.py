"""Writes so many megabytes to stderr, with a line on stdout before, between and after."""

import os
import sys

half, block = int(sys.argv[1]) // 2, b"e" * (1 << 20)
for place in ("before", "between", "after"):
    os.write(1, f"{place}\n".encode())
    for _ in range(half if place != "after" else 0):
        left = memoryview(block)
        while left:
            left = left[os.write(2, left) :]
