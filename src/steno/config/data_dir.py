"""Folders and file names in the user's data directory: recordings and active runs."""

import os
import secrets
import time
from pathlib import Path

from ..errors import RecordingError

RECORDINGS_FOLDER_NAME = "tapes"
LIVE_FOLDER_NAME = "live"


def data_folder() -> Path:
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False))


def new_run_id(now: float | None = None) -> str:
    """Return a new run id; ids sort by time."""
    at = time.time() if now is None else now
    return f"{int(at * 1000):011x}{secrets.token_hex(4)}"


def new_recording_path(run: str, now: float) -> Path:
    """Return the path of a run's recording, creating its folder."""
    month = time.strftime("%Y-%m", time.localtime(now))
    return _ensure_folder(data_folder() / RECORDINGS_FOLDER_NAME / month) / f"{run}.steno"


def list_recordings() -> list[str]:
    folder = data_folder() / RECORDINGS_FOLDER_NAME
    return sorted(str(path) for path in folder.glob("*/*.steno"))


def live_folder() -> Path:
    """Return the folder in which active runs register, creating it."""
    return _ensure_folder(data_folder() / LIVE_FOLDER_NAME)


def _ensure_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise RecordingError(
            f"{folder}: cannot create folder: {error.strerror}; "
            "set XDG_DATA_HOME to a writable folder"
        ) from None
    if not os.access(folder, os.W_OK):
        raise RecordingError(f"{folder}: not writable; set XDG_DATA_HOME to a writable folder")
    return folder
