"""A sync in a test: begun or carried out, told of changes, and waited for."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steno import event as ev
from steno.sync import FolderSync, SyncOptions, SyncSummary

LONG = 30.0  # seconds; no test may need it; the machine may be slow


def write(path: Path, data: str | bytes = "x") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _now(what: Callable[[], Any]) -> bool:
    try:
        return bool(what())
    except FileNotFoundError:
        return False


def until(what: Callable[[], Any], seconds: float = LONG) -> float:
    """Wait until it is so; how long it took. A folder that goes away while it is looked at is not so yet."""
    begun = time.monotonic()
    while not _now(what):
        assert time.monotonic() - begun < seconds
        time.sleep(0.002)
    return time.monotonic() - begun


def told(path: Path, change: str = "modified", call: str = "c") -> ev.FileChanged:
    """A tool says that a file changed."""
    return ev.FileChanged(1, "s", None, None, str(path), change, call)


def begun(project: Path | None, *destinations: str, **more: Any) -> FolderSync:
    """A sync of the folder, by what tools tell alone unless it is asked for more."""
    given = str(project) if project is not None else None
    return FolderSync(
        given,
        SyncOptions(destinations=destinations, **{"watch_files": False, "limit": LONG, **more}),
    )


def synced(project: Path, *destinations: str, **more: Any) -> SyncSummary:
    """A whole folder, once."""
    return begun(project, *destinations, final_pass=True, **more).finish()
