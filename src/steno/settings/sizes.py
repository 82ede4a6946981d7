"""Sizes of models, as a file names them for each agent: [models.codex] small = "...". It reads a table and never writes."""

from typing import Any

from ..report import StenoError
from .files import SettingsFile
from .kinds import parse_text

TABLE_NAME = "models"
MODEL_SIZES = ("small", "medium", "large")

ModelsBySize = dict[str, dict[str, tuple[str, str]]]  # agent, size: the model's name, and where that stands


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
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise StenoError(f"{file.location_of(TABLE_NAME)}: expected a table for each agent, such as [models.codex]")
    return tables


def _parse_model(file: SettingsFile, agent: str, size: str, given: Any) -> tuple[str, str]:
    place = file.location_of(TABLE_NAME, agent, size)
    if size not in MODEL_SIZES:
        raise StenoError(f"{place}: no size of a model is called {size!r}; known: {', '.join(MODEL_SIZES)}")
    try:
        return parse_text(given), place
    except ValueError as expected:
        raise StenoError(f"{place}: expected {expected}, found {given!r}") from None
