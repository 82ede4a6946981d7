"""Plays an agent: the next script of a folder, step by step. It writes down how it was started and what it was asked.

A script is a JSON array of [what, how]; see the functions below for what there is.
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


def long(words: list[int]) -> None:
    """So many lines of so many bytes, of a kind that nobody knows."""
    count, size = words
    for _ in range(count):
        out('{"type":"padding","text":"' + "x" * size + '"}\n')


def drop(line: object) -> None:
    """A line, as far as the pipe takes it at once; then the end."""
    os.set_blocking(1, False)
    os.write(1, json.dumps(line).encode())
    os._exit(0)


def loud(megabytes: int) -> None:
    """So much on stderr, in lines of a thousand bytes."""
    block = memoryview((b"e" * 999 + b"\n") * 1000)
    for _ in range(megabytes):
        left = block
        while left:
            left = left[os.write(2, left) :]


def hold(how: str) -> None:
    """A grandchild keeps stdout open, or is a daemon in a session of its own that does not."""
    silent = subprocess.DEVNULL if how == "daemon" else None
    subprocess.Popen(
        ["sleep", "600"], stdout=silent, stderr=silent, start_new_session=how == "daemon"
    )


def ignore(how: None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def close(how: None) -> None:
    os.close(1)
    os.close(2)


def noticed(words: list[str]) -> None:
    """Wait until a tape below a folder tells of a file."""
    folder, name = words
    end = time.monotonic() + 60
    while not any(
        f" {name}".encode() in line
        for path in Path(folder).rglob("*.steno")
        for line in _files(path)
    ):
        if time.monotonic() > end:
            sys.exit(f"{name} was never noticed")
        time.sleep(0.01)


def _files(tape: Path) -> list[bytes]:
    return [line for line in tape.read_bytes().splitlines() if b',"file",' in line]


def main() -> None:
    folder, *words = sys.argv[1:]
    number = len(list(Path(folder).glob("asked-*")))
    scripts = sorted(Path(folder).glob("script-*"))
    steps = json.loads(scripts[min(number, len(scripts) - 1)].read_text())
    deaf = steps[:1] == [["deaf", None]]
    prompt = "" if deaf else sys.stdin.read()
    Path(folder, f"asked-{number:03d}").write_text(json.dumps({"words": words, "prompt": prompt}))
    for what, how in steps[deaf:]:
        if what == "exit":
            os._exit(how)
        STEPS[what](how)


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
    "noticed": noticed,
    "sh": lambda command: subprocess.run(command, shell=True, check=True),
}
main()
