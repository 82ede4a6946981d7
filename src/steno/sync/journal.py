"""The list of files still to be copied, on disk before the copying starts.

If steno is killed, `steno sync --pending` continues from it. One file per sync: a line with the
options, then `["+", destination, name]` for a file to copy and `["-", ...]` when it is done.
`["*"]` starts a scan of all files, `["."]` ends it. The file is locked while in use and removed
when nothing is left.
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
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC


class PendingSync(Struct):
    """An unfinished sync. `needs_full_scan`: it ended before all files were known."""

    path: Path
    root: str
    options: SyncOptions
    names_by_destination: dict[int, list[str]]
    needs_full_scan: bool = False


class Journal:
    """Writes a journal; thread-safe. The first error is reported by `on_error` and ends it."""

    def __init__(
        self, path: str, root: str, options: SyncOptions, on_error: Callable[[str], None]
    ) -> None:
        self.path = Path(path)
        self.is_intact = True
        self._on_error = on_error
        self._lock = threading.Lock()
        self._fd = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, _CREATE_FLAGS, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self._give_up(error)
        self._write(
            {"schema": JOURNAL_SCHEMA, "root": root, "options": msgspec.to_builtins(options)}
        )
        if not self.is_intact:
            self.close(keep_file=False)

    def mark_wanted(self, destination: int, name: str) -> None:
        """A file is to be copied."""
        self._write(["+", destination, name])

    def mark_done(self, destination: int, name: str) -> None:
        """A file is copied."""
        self._write(["-", destination, name])

    def mark_scan_started(self) -> None:
        """All files are to be compared; until that is done, the list is incomplete."""
        self._write(["*"])

    def mark_scan_done(self) -> None:
        """The list is complete."""
        self._write(["."])

    def close(self, keep_file: bool) -> None:
        """Close the journal, and remove it unless something is left."""
        with self._lock:
            if self._fd >= 0:
                if not keep_file:
                    with suppress(OSError):
                        self.path.unlink()
                os.close(self._fd)
                self._fd = -1

    def _write(self, value: Any) -> None:
        line = json.dumps(value).encode("ascii") + b"\n"  # json keeps names that are not UTF-8
        with self._lock:
            if self._fd < 0 or not self.is_intact:
                return
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.is_intact = False
        self._on_error(f"{self.path}: {error.strerror}: unfinished files cannot be recorded")


def pending_syncs(
    folder: Path, on_error: Callable[[str], None] = lambda text: None
) -> list[PendingSync]:
    """Unfinished syncs, oldest first. Journals in use are skipped."""
    pending = []
    for path in sorted(folder.glob("*.journal")):
        try:
            entry = read_journal(path)
        except OSError as error:
            on_error(f"{path}: {error.strerror}")
            continue
        if entry is not None and (
            entry.needs_full_scan or any(entry.names_by_destination.values())
        ):
            pending.append(entry)
    return pending


def read_journal(path: Path) -> PendingSync | None:
    """The content of a journal; None if it is in use or not a journal."""
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
        path=path,
        root=str(head.get("root")),
        options=options,
        names_by_destination=_unfinished_names(lines[1:], len(options.destinations)),
        needs_full_scan=_is_scan_unfinished(lines),
    )


def _is_scan_unfinished(lines: list[Any]) -> bool:
    marks = [line for line in lines if line in (["*"], ["."])]
    return bool(marks) and marks[-1] == ["*"]


def _unfinished_names(lines: list[Any], destination_count: int) -> dict[int, list[str]]:
    """The files left for each destination, in order. Truncated lines are ignored."""
    names: dict[int, dict[str, None]] = {index: {} for index in range(destination_count)}
    for line in lines:
        match line:
            case ["+", int(index), str(name)] if index in names and is_safe_name(name):
                names[index][name] = None
            case ["-", int(index), str(name)] if index in names:
                names[index].pop(name, None)
    return {index: list(left) for index, left in names.items()}


def _decode_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
