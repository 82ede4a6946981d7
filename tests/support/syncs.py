"""Start a sync in a test, report changes to it, and wait for it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steno import event as ev
from steno.sync import FolderSync, SyncOptions, SyncSummary

LONG = 30.0  # seconds; for slow machines


def write(path: Path, data: str | bytes = "x") -> Path:
    """Write a file, and create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """The contents of all files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _holds(condition: Callable[[], Any]) -> bool:
    try:
        return bool(condition())
    except FileNotFoundError:
        return False


def until(condition: Callable[[], Any], seconds: float = LONG) -> float:
    """Wait for a condition, and return the seconds it took. A missing file means: not yet."""
    start = time.monotonic()
    while not _holds(condition):
        assert time.monotonic() - start < seconds
        time.sleep(0.002)
    return time.monotonic() - start


def told(path: Path, change: str = "modified", call: str = "c") -> ev.FileChanged:
    """The event that a tool changed a file."""
    return ev.FileChanged(1, "s", None, None, str(path), change, call)


def begun(project: Path, *destinations: str, **more: Any) -> FolderSync:
    """Start to sync a folder; by default only changes reported by tools."""
    options = {"watch_files": False, "limit": LONG, **more}
    return FolderSync(str(project), SyncOptions(destinations=destinations, **options))


def synced(project: Path, *destinations: str, **more: Any) -> SyncSummary:
    """Sync a whole folder once."""
    return begun(project, *destinations, final_pass=True, **more).finish()
