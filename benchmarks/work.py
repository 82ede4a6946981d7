"""One measurement: read a stream once with one reader and print the cost.

Run as `python -m benchmarks.work READER STREAM SMALL`. The reader reads the small stream first, so
that imports and the creation of types are not measured.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

MISSING = 97
BUFFER = 1 << 20

Figures = dict[str, Any]
Reader = Callable[[str], Figures]


def lines() -> Reader:
    def read(path: str) -> Figures:
        count = 0
        with open(path, "rb", buffering=BUFFER) as file:
            for _ in file:
                count += 1
        return {"lines": count}

    return read


def decoded(decode: Callable[[bytes], object]) -> Reader:
    def read(path: str) -> Figures:
        count = 0
        with open(path, "rb", buffering=BUFFER) as file:
            for line in file:
                decode(line)
                count += 1
        return {"lines": count}

    return read


def loads() -> Reader:
    return decoded(lambda line: json.loads(line.decode()))


def bare() -> Reader:
    return decoded(importlib.import_module("benchmarks.bare").decode)


def sdk() -> Reader:
    parse = importlib.import_module("claude_agent_sdk._internal.message_parser").parse_message
    error: type[Exception] = importlib.import_module("claude_agent_sdk._errors").MessageParseError

    def one(line: bytes) -> object:
        try:
            return parse(json.loads(line.decode()))
        except error:
            return None

    return decoded(one)


def events() -> Reader:
    steno = importlib.import_module("steno")

    def read(path: str) -> Figures:
        count = 0
        for _ in steno.events(path):
            count += 1
        return {"events": count}

    return read


def report() -> Reader:
    steno = importlib.import_module("steno")

    def read(path: str) -> Figures:
        tokens = steno.read(path).tokens
        names = ("input", "cache_write", "cache_read", "output")
        return {"tokens": {name: getattr(tokens, name) for name in names}}

    return read


READERS: dict[str, Callable[[], Reader]] = {
    "lines": lines,
    "json": loads,
    "bare": bare,
    "sdk": sdk,
    "events": events,
    "report": report,
}


def ready(name: str) -> Reader:
    """The reader; exits with MISSING if its package is not installed."""
    try:
        return READERS[name]()
    except ModuleNotFoundError as error:
        print(error.name)
        raise SystemExit(MISSING) from error


def peak() -> dict[str, float]:
    """The peak memory of this process in MB, without its parent's, if the system reports it."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return {
                "peak": next(
                    int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:")
                )
            }
    except (OSError, StopIteration):
        return {}


def main(name: str, stream: str, small: str) -> None:
    read = ready(name)
    read(small)
    wall, cpu = time.perf_counter(), time.process_time()
    figures = read(stream)
    cost = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({**cost, **figures, **peak()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
