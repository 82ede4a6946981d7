"""What is still to be copied, written down before it is begun: a steno that is killed leaves a list for the next one.

One file for each sync: a line on what is asked for, then `["+", destination, name]` when a file is wanted and `["-", ...]`
when it is there. It is removed when nothing is left. Whoever writes it holds its lock.
"""

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..report import StenoError
from .values import SyncOptions

SCHEMA = "steno.sync/1"


class Left(Struct):
    """What a sync did not finish: its folder, what was asked for, and the files for each destination."""

    path: Path
    root: str
    options: SyncOptions
    names: dict[int, list[str]]


class Journal:
    """Writes one. Called from several threads: each line is one write."""

    def __init__(self, path: str, root: str, options: SyncOptions) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise StenoError(f"{path}: the journal of this sync cannot be written: {problem.strerror}") from None
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._write({"schema": SCHEMA, "root": root, "options": msgspec.to_builtins(options)})

    def want(self, lane: int, name: str) -> None:
        """A file is to be copied."""
        self._write(["+", lane, name])

    def done(self, lane: int, name: str) -> None:
        """It is there."""
        self._write(["-", lane, name])

    def close(self, left: bool) -> None:
        """Close it; it stays only if something is left."""
        if self._file >= 0:
            if not left:
                with suppress(FileNotFoundError):
                    self.path.unlink()
            os.close(self._file)
            self._file = -1

    def _write(self, value: Any) -> None:
        if self._file >= 0:
            os.write(self._file, json.dumps(value).encode("ascii") + b"\n")  # json keeps names that are no UTF-8


def pending(folder: Path) -> list[Left]:
    """What was left, the oldest first. Journals that are being written are passed over."""
    found = [left for path in sorted(folder.glob("*.journal")) if (left := read(path)) is not None]
    return [left for left in found if any(left.names.values())]


def read(path: Path) -> Left | None:
    """What one journal says is left; None where its steno still lives, or where it is none of ours."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return None
        lines = [_value(line) for line in file]
    head = lines[0] if lines else None
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        return None
    try:
        options = msgspec.convert(head.get("options"), SyncOptions)
    except msgspec.ValidationError:
        return None
    return Left(path, str(head.get("root")), options, _open(lines[1:], len(options.destinations)))


def _open(lines: list[Any], many: int) -> dict[int, list[str]]:
    """The files that are wanted and not done, for each destination in their order. A line that was cut says nothing."""
    names: dict[int, dict[str, None]] = {lane: {} for lane in range(many)}
    for line in lines:
        match line:
            case ["+", int(lane), str(name)] if lane in names:
                names[lane][name] = None
            case ["-", int(lane), str(name)] if lane in names:
                names[lane].pop(name, None)
    return {lane: list(found) for lane, found in names.items()}


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
