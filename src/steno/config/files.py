"""The files that settings are kept in: finds them, reads them, and says where in them something stands. It never writes one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import StenoError
from .options import parse_text

FILE_NAME = "steno.toml"
_ERROR_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TABLE_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY_ASSIGNMENT = re.compile(r"\s*([\w.\"' -]+?)\s*=")


class SettingsFile:
    """A file of settings that was read."""

    def __init__(self, path: Path, text: str, table: dict[str, Any]) -> None:
        self.path, self.text, self.table = path, text, table

    def location_of(self, *keys: str) -> str:
        """Where a key stands, as `path:line:column`; of one that is written within another, where that stands."""
        head: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            table, key = _TABLE_HEADER.match(line), _KEY_ASSIGNMENT.match(line)
            if table is not None:
                head = _split_dotted_key(table[1])
            elif key is None or [*head, *_split_dotted_key(key[1])] != list(keys):
                continue
            if table is None or head == list(keys):
                return f"{self.path}:{number}:{len(line) - len(line.lstrip()) + 1}"
        return self.location_of(*keys[:-1]) if len(keys) > 1 else f"{self.path}:1:1"


def _split_dotted_key(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]


def read_settings_file(path: Path) -> SettingsFile:
    """The file, or StenoError with the place of what is wrong with it."""
    import tomllib

    try:
        data = path.read_bytes()
    except OSError as problem:
        raise StenoError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise StenoError(
            f"{path}:{_end_position(data[: problem.start])}: this is not UTF-8"
        ) from None
    try:
        return SettingsFile(path, text, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise StenoError(_toml_error_message(path, data, str(problem))) from None


def _toml_error_message(path: Path, data: bytes, message: str) -> str:
    found = _ERROR_POSITION.search(message)
    place = f"{found[1]}:{found[2]}" if found is not None and found[1] else _end_position(data)
    return f"{path}:{place}: {_ERROR_POSITION.sub('', message)}"


def _end_position(data: bytes) -> str:
    """The line and column behind these bytes."""
    lines = data.decode("utf-8", "replace").split("\n")
    return f"{len(lines)}:{len(lines[-1]) + 1}"


def user_settings_path() -> Path:
    """Where the user's own file is, or would be."""
    from platformdirs import user_config_dir

    return Path(user_config_dir("steno", appauthor=False)) / FILE_NAME


def project_settings_path(cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """The nearest file from `cwd` upwards: to the root of its repository, else to the home folder.

    Outside of both only `cwd` itself is looked at: what lies above it may be anybody's.
    """
    above = [cwd, *cwd.parents]
    root = next((folder for folder in above if (folder / ".git").exists()), None)
    home = Path(environ["HOME"]) if environ.get("HOME") else None
    last = root if root is not None else home if home in above else cwd
    for folder in above:
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if folder == last:
            break
    return None


TABLE_NAME = "models"
MODEL_SIZES = ("small", "medium", "large")

ModelsBySize = dict[
    str, dict[str, tuple[str, str]]
]  # agent, size: the model's name, and where that stands


def load_model_sizes(files: list[SettingsFile]) -> ModelsBySize:
    """What the files say, the nearer first. StenoError with the place of what is wrong."""
    found: ModelsBySize = {}
    for file in reversed(files):
        for agent, table in _agent_tables(file).items():
            for size, given in table.items():
                found.setdefault(agent, {})[size] = _parse_model(file, agent, size, given)
    return found


def _agent_tables(file: SettingsFile) -> dict[str, dict[str, Any]]:
    tables = file.table.get(TABLE_NAME, {})
    if not isinstance(tables, dict) or not all(
        isinstance(table, dict) for table in tables.values()
    ):
        raise StenoError(
            f"{file.location_of(TABLE_NAME)}: expected a table for each agent, such as [models.codex]"
        )
    return tables


def _parse_model(file: SettingsFile, agent: str, size: str, given: Any) -> tuple[str, str]:
    place = file.location_of(TABLE_NAME, agent, size)
    if size not in MODEL_SIZES:
        raise StenoError(
            f"{place}: no size of a model is called {size!r}; known: {', '.join(MODEL_SIZES)}"
        )
    try:
        return parse_text(given), place
    except ValueError as expected:
        raise StenoError(f"{place}: expected {expected}, found {given!r}") from None
