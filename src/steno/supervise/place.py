"""Where tapes and the marks of live runs lie: below the user's data directory. It makes folders and names, nothing else."""

import os
import secrets
import time
from pathlib import Path

from ..report import RecordError

LIVE = "live"


def home() -> Path:
    """The folder that all of it lies in."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False))


def run_id(now: float | None = None) -> str:
    """A new name for a run: later ones sort after earlier ones."""
    at = time.time() if now is None else now
    return f"{int(at * 1000):011x}{secrets.token_hex(4)}"


def tape_path(run: str, now: float) -> Path:
    """Where the tape of a run is written; its folder is made."""
    return _made(home() / "tapes" / time.strftime("%Y-%m", time.localtime(now))) / f"{run}.steno"


def tapes() -> list[str]:
    """Every tape that lies there."""
    return sorted(str(path) for path in (home() / "tapes").glob("*/*.steno"))


def live_folder() -> Path:
    """Where runs that go on leave their marks; the folder is made."""
    return _made(home() / LIVE)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise RecordError(
            f"{folder}: cannot be made: {problem.strerror}; set XDG_DATA_HOME to a folder that can be written"
        ) from None
    if not os.access(folder, os.W_OK):
        raise RecordError(f"{folder}: cannot be written; set XDG_DATA_HOME to a folder that can be")
    return folder
