"""Exits cleanly on SIGINT."""

import signal
import sys
import time


def close(number: int, frame: object) -> None:
    print("closing", flush=True)
    sys.exit(0)


signal.signal(signal.SIGINT, close)
print("ready", flush=True)
time.sleep(600)
