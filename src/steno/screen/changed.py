"""Changed files as a table, and a patch for people. All text is cleaned here; it never prints."""

from collections.abc import Iterator, Sequence

from ..answer.changed import Change
from .clean import TAB, clean
from .grid import Cell, Column, grid
from .look import Look
from .words import number, several

COLUMNS = (
    Column("change"),
    Column("path", text=True, end=True),
    Column("lines", True, 2),
    Column("by", spare=1),
    Column("source", spare=3),
    Column("mode", spare=4),
)
COLOURS = {"created": "green", "deleted": "red", "renamed": "cyan", "modified": "yellow"}
SIGNS = {"+": "green", "-": "red", "@": "cyan"}


def changes(found: Sequence[Change], look: Look) -> list[str]:
    """One line for each change, and how many there are."""
    files = len({change.path for change in found})
    return [*grid(look, COLUMNS, [_row(change) for change in found]), "", f"{several(files, 'file')} changed"]


def _row(change: Change) -> list[Cell | str]:
    path = f"{change.was} → {change.path}" if change.was is not None else change.path
    return [
        Cell(change.change, COLOURS.get(change.change, "")),
        path if change.inside else f"{path} (outside)",
        _lines(change),
        f"{change.tool} {change.call}" if change.tool and change.call else change.call or "",
        change.source,
        change.mode or "",
    ]


def _lines(change: Change) -> str:
    if change.binary:
        return "binary"
    if change.added is None or change.removed is None:
        return ""
    return f"+{number(change.added)} -{number(change.removed)}"


def patch(data: bytes, look: Look) -> Iterator[str]:
    """A patch line by line: heads bold, what was added green, what was removed red."""
    within = False
    for line in data.decode("utf-8", "replace").split("\n"):
        text = clean(line.expandtabs(TAB))
        if line.startswith("diff --git "):
            within = False
        within = within or line.startswith("@@")
        style = SIGNS.get(line[:1], "") if within else "bold"
        yield look.paint(text, style)
