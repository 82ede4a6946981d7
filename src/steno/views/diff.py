"""Changed files as a table, and a patch for people. All text is cleaned here; it never prints."""

from collections.abc import Iterator, Sequence

from ..workspace.changes import Change
from .formatting import format_count, format_number
from .layout import PageStyle
from .sanitize import TAB_WIDTH, clean
from .table import Cell, Column, render_table

COLUMNS = (
    Column("change"),
    Column("path", can_truncate=True, keep_end=True),
    Column("lines", True, 2),
    Column("by", drop_priority=1),
    Column("source", drop_priority=3),
    Column("mode", drop_priority=4),
)
CHANGE_COLOURS = {"created": "green", "deleted": "red", "renamed": "cyan", "modified": "yellow"}
DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def changes_table(found: Sequence[Change], look: PageStyle) -> list[str]:
    """One line for each change, and how many there are."""
    files = len({change.path for change in found})
    return [
        *render_table(look, COLUMNS, [_row(change) for change in found]),
        "",
        f"{format_count(files, 'file')} changed",
    ]


def _row(change: Change) -> list[Cell | str]:
    path = f"{change.was} → {change.path}" if change.was is not None else change.path
    return [
        Cell(change.change, CHANGE_COLOURS.get(change.change, "")),
        path if change.inside else f"{path} (outside)",
        _line_counts(change),
        f"{change.tool} {change.call}" if change.tool and change.call else change.call or "",
        change.source,
        change.mode or "",
    ]


def _line_counts(change: Change) -> str:
    if change.binary:
        return "binary"
    if change.added is None or change.removed is None:
        return ""
    return f"+{format_number(change.added)} -{format_number(change.removed)}"


def patch_lines(data: bytes, look: PageStyle) -> Iterator[str]:
    """A patch line by line: heads bold, what was added green, what was removed red."""
    within = False
    for line in data.decode("utf-8", "replace").split("\n"):
        text = clean(line.expandtabs(TAB_WIDTH))
        if line.startswith("diff --git "):
            within = False
        within = within or line.startswith("@@")
        style = DIFF_COLOURS.get(line[:1], "") if within else "bold"
        yield look.paint(text, style)
