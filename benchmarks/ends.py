"""The two ends of a measured pipe: a sender of lines, and a receiver that measures their delay.

    python -m benchmarks.ends send FILE                   one write per line, at full speed
    python -m benchmarks.ends send FILE --rate 1000 --count 3000   lines per second, with the time
    python -m benchmarks.ends take                        microseconds of delay: p50, p99, worst

Times are of the system's monotonic clock, which all processes share. It is read right before a line
is written, and right after it was read.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time

MARK = re.compile(rb'\{"sent":(\d+),')


def send(path: str) -> None:
    with open(path, "rb") as file:
        for line in file:
            write(line)


def write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


def send_slowly(path: str, rate: float, count: int) -> None:
    """Send lines at a fixed interval, each with its time; a late line does not hurry the next."""
    with open(path, "rb") as file:
        lines = [line for line, _ in zip(file, range(count), strict=False)]
    time.sleep(1.0)  # the process in between has started by then
    for line in lines:
        write(b'{"sent":%d,' % time.monotonic_ns() + line[1:])
        time.sleep(1 / rate)


def take() -> None:
    """Print the delays; a line has arrived with its first byte."""
    waits: list[int] = []
    fresh = True  # the next byte begins a line
    while chunk := os.read(0, 1 << 18):
        now = time.monotonic_ns()
        lines = chunk.split(b"\n")
        for line in lines if fresh else lines[1:]:
            if mark := MARK.match(line):
                waits.append(now - int(mark[1]))
        fresh = chunk.endswith(b"\n")
    waits.sort()
    percentiles = {
        name: waits[int(len(waits) * part)] / 1000
        for name, part in (("p50", 0.5), ("p99", 0.99), ("worst", 0.99999))
    }
    print(json.dumps({**percentiles, "count": len(waits)}))


def main() -> int:
    parser = argparse.ArgumentParser(description="The two ends of a measured pipe.")
    parser.add_argument("end", choices=("send", "take"))
    parser.add_argument("file", nargs="?")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--count", type=int, default=3000)
    given = parser.parse_args()
    if given.end == "take":
        take()
    elif given.rate is None:
        send(given.file)
    else:
        send_slowly(given.file, given.rate, given.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
