"""Changed files as a table, and a coloured patch."""

from collections.abc import Iterator, Sequence

from ..ledger.results import RunSummary
from ..workspace.changes import Change
from .formatting import TAB_WIDTH, clean, format_count, format_number, single_line
from .table import (
    CHANGE_COLOURS,
    Cell,
    Column,
    PageStyle,
    headline,
    render_table,
)

COLUMNS = (
    Column("change"),
    Column("path", can_truncate=True, keep_end=True),
    Column("lines", align_right=True, drop_priority=2),
    Column("by", drop_priority=1),
    Column("source", drop_priority=3),
    Column("mode", drop_priority=4),
)
DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def run_line(run: RunSummary, style: PageStyle) -> list[str]:
    """Which run is shown: ID, verdict, title."""
    return headline(style, f"run {run.short_id}", "cyan", f"{run.state}  {single_line(run.title)}")


def changes_table(changes: Sequence[Change], style: PageStyle) -> list[str]:
    """One line per change, and the number of files."""
    files = len({change.path for change in changes})
    return [
        *render_table(style, COLUMNS, [_row(change) for change in changes]),
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


def patch_lines(data: bytes, style: PageStyle) -> Iterator[str]:
    """A sanitized patch: headers bold, additions green, deletions red."""
    is_in_hunk = False
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.startswith("diff --git "):
            is_in_hunk = False
        is_in_hunk = is_in_hunk or line.startswith("@@")
        colour = DIFF_COLOURS.get(line[:1], "") if is_in_hunk else "bold"
        yield style.paint(clean(line.expandtabs(TAB_WIDTH)), colour)
