"""Sizes of models, as a file names them for each agent: [models.codex] small = "...". It reads a table and never writes."""

from typing import Any

from ..report import StenoError
from .files import File
from .kinds import text

TABLE = "models"
SIZES = ("small", "medium", "large")

Named = dict[str, dict[str, tuple[str, str]]]  # agent, size: the model's name, and where that stands


def sizes(files: list[File]) -> Named:
    """What the files say, the nearer first. StenoError with the place of what is wrong."""
    found: Named = {}
    for file in reversed(files):
        for agent, table in _tables(file).items():
            for size, given in table.items():
                found.setdefault(agent, {})[size] = _named(file, agent, size, given)
    return found


def _tables(file: File) -> dict[str, dict[str, Any]]:
    tables = file.table.get(TABLE, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise StenoError(f"{file.at(TABLE)}: expected a table for each agent, such as [models.codex]")
    return tables


def _named(file: File, agent: str, size: str, given: Any) -> tuple[str, str]:
    place = file.at(TABLE, agent, size)
    if size not in SIZES:
        raise StenoError(f"{place}: no size of a model is called {size!r}; known: {', '.join(SIZES)}")
    try:
        return text(given), place
    except ValueError as expected:
        raise StenoError(f"{place}: expected {expected}, found {given!r}") from None
