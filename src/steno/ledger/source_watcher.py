"""Which files to import next, for an import that keeps running."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..agents import AGENTS
from ..errors import SourceError
from .discovery import detect_kind, is_transcript, transcript_folders

FULL_SCAN_SECONDS = 60.0  # also finds what the system did not report, such as new folders
POLL_SECONDS = 2.0  # between full scans where the system reports no changes
DEBOUNCE_MS = 200  # an agent writes several lines at a time
WAKEUP_MS = 1000
MAX_CHANGED_PATHS = 1000  # more are found faster by a full scan


def changed_sources(paths: list[str], every: float | None) -> Iterator[list[str] | None]:
    """Yield the files that have changed; None means that all have to be looked at.

    The system reports changes (`watchfiles`); without that, or with `every`, all files are looked
    at every few seconds.
    """
    yield None
    folders = paths or [folder for _, folder in transcript_folders(os.environ)]
    if every is None and folders:
        with suppress(ImportError, OSError, RuntimeError):  # not installed, or too many folders
            yield from _reported_changes(folders, is_explicit=bool(paths))
    while True:
        time.sleep(every or POLL_SECONDS)
        yield None


def _reported_changes(folders: list[str], is_explicit: bool) -> Iterator[list[str] | None]:
    from watchfiles import watch

    next_scan = 0.0  # at once: files may have changed before the system began to report
    changes = watch(
        *folders,
        watch_filter=None,
        debounce=DEBOUNCE_MS,
        rust_timeout=WAKEUP_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    )
    for change in changes:
        sources = sorted({_source_of(path) for _, path in change})
        if time.monotonic() >= next_scan or len(sources) > MAX_CHANGED_PATHS:
            next_scan = time.monotonic() + FULL_SCAN_SECONDS
            yield None
            continue
        found = [path for path in sources if _is_source(path, is_explicit)]
        if found:
            yield found


def _source_of(path: str) -> str:
    """The folder of a recording in several files, else the file itself."""
    folder = Path(path).parent
    return str(folder) if (folder / "stdout").is_file() else path


def _is_source(path: str, is_explicit: bool) -> bool:
    name = os.path.basename(path)  # noqa: PTH119  # as text
    if not is_explicit and not any(is_transcript(agent, name) for agent in AGENTS):
        return False
    try:
        return os.path.exists(path) and detect_kind(path) is not None  # noqa: PTH110  # as text
    except (OSError, SourceError):
        return False
