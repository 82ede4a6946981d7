"""Folders and file names in the user's data directory: recordings and active runs."""

import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RecordingError, StenoError
from ..private_files import create_private_folder
from .values import parse_text

RECORDINGS_FOLDER_NAME = "tapes"
LIVE_FOLDER_NAME = "live"


def data_folder() -> Path:
    from platformdirs import user_data_dir

    return Path(user_data_dir("steno", appauthor=False))


def new_run_id(now: float | None = None) -> str:
    """Return a new run id: random digits first, so that its beginning is enough to find it."""
    at = time.time() if now is None else now
    return f"{secrets.token_hex(4)}{int(at * 1000):011x}"


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
        create_private_folder(folder)
    except OSError as error:
        raise RecordingError(
            f"{folder}: cannot create folder: {error.strerror}; "
            "set XDG_DATA_HOME to a writable folder"
        ) from None
    if not os.access(folder, os.W_OK):
        raise RecordingError(f"{folder}: not writable; set XDG_DATA_HOME to a writable folder")
    return folder


FILE_NAME = "steno.toml"
_ERROR_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TABLE_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY_ASSIGNMENT = re.compile(r"\s*([\w.\"' -]+?)\s*=")


class SettingsFile:
    def __init__(self, path: Path, text: str, table: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.table = table

    def location_of(self, *keys: str) -> str:
        """Return the location of a key as `path:line:column`; for an inline key, its parent's."""
        header: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            table = _TABLE_HEADER.match(line)
            key = _KEY_ASSIGNMENT.match(line)
            if table is not None:
                header = _split_dotted_key(table[1])
            elif key is None or [*header, *_split_dotted_key(key[1])] != list(keys):
                continue
            if table is None or header == list(keys):
                return f"{self.path}:{number}:{len(line) - len(line.lstrip()) + 1}"
        return self.location_of(*keys[:-1]) if len(keys) > 1 else f"{self.path}:1:1"


def _split_dotted_key(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]


def read_settings_file(path: Path) -> SettingsFile:
    """Read a file. StenoError, with the location of the mistake, if it is invalid."""
    import tomllib

    try:
        data = path.read_bytes()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "no such file" if is_missing else f"cannot be read: {error.strerror or error}"
        raise StenoError(f"{path}: {reason}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = _end_position(data[: error.start])
        raise StenoError(f"{path}:{position}: invalid UTF-8") from None
    try:
        return SettingsFile(path, text, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StenoError(toml_error_message(path, data, str(error))) from None


def toml_error_message(path: Path, data: bytes, message: str) -> str:
    """The parser's message, with the location of the mistake in front."""
    match = _ERROR_POSITION.search(message)
    has_position = match is not None and match[1]
    position = f"{match[1]}:{match[2]}" if match and has_position else _end_position(data)
    return f"{path}:{position}: {_ERROR_POSITION.sub('', message)}"


def _end_position(data: bytes) -> str:
    """Return the line and column after these bytes."""
    lines = data.decode("utf-8", "replace").split("\n")
    return f"{len(lines)}:{len(lines[-1]) + 1}"


def user_settings_path() -> Path:
    """Return the path of the user's file, whether it exists or not."""
    from platformdirs import user_config_dir

    return Path(user_config_dir("steno", appauthor=False)) / FILE_NAME


def find_settings_files(cwd: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return the project's file and the user's, if they exist.

    The project's is the nearest one from `cwd` up to the root of its repository, or the home
    folder. Outside both, only `cwd` is searched: folders above it may belong to others.
    """
    folders = [cwd, *cwd.parents]
    home = Path(environ["HOME"]) if environ.get("HOME") else None
    last = home if home in folders else cwd
    for folder in folders:
        if (folder / ".git").exists():
            last = folder
            break
    paths = []
    for folder in folders[: folders.index(last) + 1]:
        if (folder / FILE_NAME).is_file():
            paths.append(folder / FILE_NAME)
            break
    user_path = user_settings_path()
    if user_path.exists() and user_path not in paths:
        paths.append(user_path)
    return paths


# -- models by size ------------------------------------------------------------------------------

TABLE_NAME = "models"
MODEL_SIZES = ("small", "medium", "large")

ModelsBySize = dict[str, dict[str, tuple[str, str]]]  # agent, size: name and location of it


def load_model_sizes(files: list[SettingsFile]) -> ModelsBySize:
    """Merge the model tables of the files, nearest first in `files`. StenoError if invalid."""
    models: ModelsBySize = {}
    for file in reversed(files):
        for agent, table in _agent_tables(file).items():
            for size, value in table.items():
                models.setdefault(agent, {})[size] = _parse_model(file, agent, size, value)
    return models


def _agent_tables(file: SettingsFile) -> dict[str, dict[str, Any]]:
    tables = file.table.get(TABLE_NAME, {})
    if not isinstance(tables, dict) or not all(
        isinstance(table, dict) for table in tables.values()
    ):
        location = file.location_of(TABLE_NAME)
        raise StenoError(f"{location}: expected a table for each agent, such as [models.codex]")
    return tables


def _parse_model(file: SettingsFile, agent: str, size: str, value: Any) -> tuple[str, str]:
    location = file.location_of(TABLE_NAME, agent, size)
    if size not in MODEL_SIZES:
        raise StenoError(
            f"{location}: unknown model size {size!r}; expected {', '.join(MODEL_SIZES)}"
        )
    try:
        return parse_text(value), location
    except ValueError as expected:
        raise StenoError(f"{location}: expected {expected}, found {value!r}") from None
