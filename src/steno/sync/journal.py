"""What is still to be copied, written down before it is begun: a steno that is killed leaves a list for the next one.

One file for each sync: a line on what is asked for, then `["+", destination, name]` when a file is wanted and `["-", ...]`
when it is there. `["*"]` says that every file is to be looked at, `["."]` that this was done, and that all that is wanted
stands above it. It is removed when nothing is left. Whoever writes it holds its lock.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..workspace.safe_path import is_safe_name
from .options import SyncOptions

JOURNAL_SCHEMA = "steno.sync/1"


class PendingSync(Struct):
    """What a sync did not finish: its folder, what was asked for, and the files for each destination.

    `every`: it did not find out which, so that every file is to be looked at.
    """

    path: Path
    root: str
    options: SyncOptions
    names_by_destination: dict[int, list[str]]
    needs_full_scan: bool = False


class Journal:
    """Writes one. Called from several threads. Where a line cannot be written, `failed` is told once, and no more is."""

    def __init__(
        self, path: str, root: str, options: SyncOptions, failed: Callable[[str], None]
    ) -> None:
        self.path, self.is_intact, self._on_error = Path(path), True, failed
        self._lock = threading.Lock()
        self._fd = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as problem:
            self._give_up(problem)
        self._write(
            {"schema": JOURNAL_SCHEMA, "root": root, "options": msgspec.to_builtins(options)}
        )
        if not self.is_intact:
            self.close(keep_file=False)

    def mark_wanted(self, lane: int, name: str) -> None:
        """A file is to be copied."""
        self._write(["+", lane, name])

    def mark_done(self, lane: int, name: str) -> None:
        """It is there."""
        self._write(["-", lane, name])

    def mark_scan_started(self) -> None:
        """All files are to be looked at; until that is done, nobody knows which are left."""
        self._write(["*"])

    def mark_scan_done(self) -> None:
        """They have been."""
        self._write(["."])

    def close(self, keep_file: bool) -> None:
        """Close it; it stays only if something is left."""
        with self._lock:
            if self._fd >= 0:
                if not keep_file:
                    with suppress(OSError):
                        self.path.unlink()
                os.close(self._fd)
                self._fd = -1

    def _write(self, value: Any) -> None:
        line = json.dumps(value).encode("ascii") + b"\n"  # json keeps names that are no UTF-8
        with self._lock:
            if self._fd < 0 or not self.is_intact:
                return
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError as problem:
                self._give_up(problem)

    def _give_up(self, problem: OSError) -> None:
        self.is_intact = False
        self._on_error(
            f"{self.path}: {problem.strerror}: what is left to be copied cannot all be remembered"
        )


def pending_syncs(
    folder: Path, failed: Callable[[str], None] = lambda text: None
) -> list[PendingSync]:
    """What was left, the oldest first. Journals that are being written are passed over; `failed`: one cannot be read."""
    found = []
    for path in sorted(folder.glob("*.journal")):
        try:
            left = read_journal(path)
        except OSError as problem:
            failed(f"{path}: {problem.strerror}")
            continue
        if left is not None and (left.needs_full_scan or any(left.names_by_destination.values())):
            found.append(left)
    return found


def read_journal(path: Path) -> PendingSync | None:
    """What one journal says is left; None where its steno still lives, or where it is none of ours."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return None
        lines = [_decode_line(line) for line in file]
    head = lines[0] if lines else None
    if not isinstance(head, dict) or head.get("schema") != JOURNAL_SCHEMA:
        return None
    try:
        options = msgspec.convert(head.get("options"), SyncOptions)
    except msgspec.ValidationError:
        return None
    return PendingSync(
        path,
        str(head.get("root")),
        options,
        _unfinished_names(lines[1:], len(options.destinations)),
        _is_scan_unfinished(lines),
    )


def _is_scan_unfinished(lines: list[Any]) -> bool:
    """Whether all files were to be looked at, and that was not done."""
    said = [line == ["*"] for line in lines if line in (["*"], ["."])]
    return said[-1:] == [True]


def _unfinished_names(lines: list[Any], many: int) -> dict[int, list[str]]:
    """The files that are wanted and not done, for each destination in their order. A line that was cut says nothing."""
    names: dict[int, dict[str, None]] = {lane: {} for lane in range(many)}
    for line in lines:
        match line:
            case ["+", int(lane), str(name)] if lane in names and is_safe_name(name):
                names[lane][name] = None
            case ["-", int(lane), str(name)] if lane in names:
                names[lane].pop(name, None)
    return {lane: list(found) for lane, found in names.items()}


def _decode_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
