"""Table layout: hides empty columns, drops the least important ones and truncates text to fit."""

from collections.abc import Sequence

from msgspec import Struct

from .layout import PageStyle
from .sanitize import pad, single_line, truncate_start, width

COLUMN_GAP = "  "
MIN_TEXT_COLUMNS = 6


class Column(Struct, frozen=True):
    """Layout of a column.

    The highest `drop_priority` is dropped first, 0 never. `keep_end` truncates at the start.
    Other columns are dropped before one that can be truncated gets narrower than `min_columns`.
    """

    name: str
    align_right: bool = False
    drop_priority: int = 0
    can_truncate: bool = False
    keep_end: bool = False
    min_columns: int = MIN_TEXT_COLUMNS


class Cell(Struct, frozen=True):
    text: str
    style: str = ""


TableRow = Sequence[Cell | str]


def render_table(
    style: PageStyle,
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    foot: Sequence[TableRow] = (),
    header: bool = True,
) -> list[str]:
    """The table as sanitized lines within the line limit; `foot` rows follow a rule."""
    cells = [[_clean_cell(cell) for cell in row] for row in (*rows, *foot)]
    widths = [
        max([width(column.name) if header else 0, *(width(row[at].text) for row in cells)])
        for at, column in enumerate(columns)
    ]
    filled = [at for at in range(len(columns)) if not cells or any(row[at].text for row in cells)]
    shown = _visible_columns(columns, widths, filled, style.line_limit)
    if style.line_limit is not None:
        _shrink_columns(columns, widths, shown, style.line_limit)
    lines = [_render_row(style, columns, widths, shown, row) for row in cells]
    if foot:
        total_width = sum(widths[at] for at in shown) + len(COLUMN_GAP) * (len(shown) - 1)
        lines.insert(len(rows), style.paint("─" * total_width, "dim"))
    if not header:
        return lines
    names = (pad(columns[at].name, widths[at], columns[at].align_right) for at in shown)
    return [style.paint(COLUMN_GAP.join(names).rstrip(" "), "dim"), *lines]


def _clean_cell(cell: Cell | str) -> Cell:
    if isinstance(cell, str):
        return Cell(single_line(cell))
    return Cell(single_line(cell.text), cell.style)


def _min_width(columns: Sequence[Column], widths: list[int], shown: list[int]) -> int:
    least = (
        min(widths[at], columns[at].min_columns) if columns[at].can_truncate else widths[at]
        for at in shown
    )
    return sum(least) + len(COLUMN_GAP) * (len(shown) - 1)


def _visible_columns(
    columns: Sequence[Column], widths: list[int], filled: list[int], limit: int | None
) -> list[int]:
    """Indexes of the non-empty columns that fit."""
    shown = list(filled)
    while limit is not None and _min_width(columns, widths, shown) > limit:
        least_important = max(shown, key=lambda at: columns[at].drop_priority)
        if not columns[least_important].drop_priority:
            break
        shown.remove(least_important)
    return shown


def _shrink_columns(
    columns: Sequence[Column], widths: list[int], shown: list[int], limit: int
) -> None:
    room = limit - len(COLUMN_GAP) * (len(shown) - 1)
    texts = [at for at in shown if columns[at].can_truncate] or shown
    while sum(widths[at] for at in shown) > room and max(widths[at] for at in texts) > 1:
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= 1


def _render_row(
    style: PageStyle,
    columns: Sequence[Column],
    widths: list[int],
    shown: list[int],
    row: list[Cell],
) -> str:
    parts = []
    for at in shown:
        cell = row[at]
        text = truncate_start(cell.text, widths[at]) if columns[at].keep_end else cell.text
        parts.append(style.paint(pad(text, widths[at], columns[at].align_right), cell.style))
    return COLUMN_GAP.join(parts).rstrip(" ")
