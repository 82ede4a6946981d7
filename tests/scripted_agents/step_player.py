"""An agent that plays the next script of a folder, and records its arguments and prompt.

A script is a JSON array of [step, argument]; STEPS lists them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def out(text: str) -> None:
    data = memoryview(text.encode())
    while data:
        data = data[os.write(1, data) :]


def long(argv: list[int]) -> None:
    """Print a number of lines of a size, of an unknown kind."""
    count, size = argv
    for _ in range(count):
        out('{"type":"padding","text":"' + "x" * size + '"}\n')


def drop(line: object) -> None:
    """Print what the pipe accepts of a line at once, and exit."""
    os.set_blocking(1, False)
    os.write(1, json.dumps(line).encode())
    os._exit(0)


def loud(megabytes: int) -> None:
    """Write some megabytes to stderr, in lines of 1000 bytes."""
    block = memoryview((b"e" * 999 + b"\n") * 1000)
    for _ in range(megabytes):
        rest = block
        while rest:
            rest = rest[os.write(2, rest) :]


def hold(argument: str) -> None:
    """Leave a grandchild that keeps stdout open, or a daemon that does not."""
    output = subprocess.DEVNULL if argument == "daemon" else None
    subprocess.Popen(
        ["sleep", "600"], stdout=output, stderr=output, start_new_session=argument == "daemon"
    )


def ignore(argument: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def close(argument: None) -> None:
    os.close(1)
    os.close(2)


def wait_for_record(argv: list[str]) -> None:
    """Wait until a recording below a folder contains a change of a file."""
    folder, name = argv
    end = time.monotonic() + 60
    while not any(
        f" {name}".encode() in line
        for path in Path(folder).rglob("*.steno")
        for line in _file_records(path)
    ):
        if time.monotonic() > end:
            sys.exit(f"{name} was never recorded")
        time.sleep(0.01)


def _file_records(recording: Path) -> list[bytes]:
    return [line for line in recording.read_bytes().splitlines() if b',"file",' in line]


def main() -> None:
    folder, *argv = sys.argv[1:]
    if argv[-1:] == ["--help"]:
        sys.exit(2)
    number = len(list(Path(folder).glob("asked-*")))
    scripts = sorted(Path(folder).glob("script-*"))
    steps = json.loads(scripts[min(number, len(scripts) - 1)].read_text())
    is_deaf = steps[:1] == [["deaf", None]]
    prompt = "" if is_deaf else sys.stdin.read()
    Path(folder, f"asked-{number:03d}").write_text(json.dumps({"words": argv, "prompt": prompt}))
    for kind, argument in steps[is_deaf:]:
        if kind == "exit":
            os._exit(argument)
        STEPS[kind](argument)


STEPS: dict[str, Callable[[Any], object]] = {
    "out": out,
    "err": lambda text: os.write(2, text.encode()),
    "sleep": time.sleep,
    "long": long,
    "drop": drop,
    "loud": loud,
    "hold": hold,
    "ignore": ignore,
    "close": close,
    "noticed": wait_for_record,
    "sh": lambda command: subprocess.run(command, shell=True, check=True),
}
main()
