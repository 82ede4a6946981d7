"""Where tapes and the marks of live runs lie: below the user's data directory. It makes folders and names, nothing else."""

import os
import secrets
import time
from pathlib import Path

from ..errors import RecordingError

LIVE_FOLDER_NAME = "live"


def data_folder() -> Path:
    """The folder that all of it lies in."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False))


def new_run_id(now: float | None = None) -> str:
    """A new name for a run: later ones sort after earlier ones."""
    at = time.time() if now is None else now
    return f"{int(at * 1000):011x}{secrets.token_hex(4)}"


def new_recording_path(run: str, now: float) -> Path:
    """Where the tape of a run is written; its folder is made."""
    return (
        _ensure_folder(data_folder() / "tapes" / time.strftime("%Y-%m", time.localtime(now)))
        / f"{run}.steno"
    )


def list_recordings() -> list[str]:
    """Every tape that lies there."""
    return sorted(str(path) for path in (data_folder() / "tapes").glob("*/*.steno"))


def live_folder() -> Path:
    """Where runs that go on leave their marks; the folder is made."""
    return _ensure_folder(data_folder() / LIVE_FOLDER_NAME)


def _ensure_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise RecordingError(
            f"{folder}: cannot be made: {problem.strerror}; set XDG_DATA_HOME to a folder that can be written"
        ) from None
    if not os.access(folder, os.W_OK):
        raise RecordingError(
            f"{folder}: cannot be written; set XDG_DATA_HOME to a folder that can be"
        )
    return folder
