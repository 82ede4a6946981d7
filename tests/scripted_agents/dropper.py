"""Drops what a pipe does not accept at once, and exits with 0 (Claude Code up to 2.1.197)."""

import os

os.set_blocking(1, False)
os.write(1, b"x" * (3 << 20))
os._exit(0)
