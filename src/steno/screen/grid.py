"""Tables of the ledger: columns that know what they can do without. All cells are cleaned here; it never prints."""

from collections.abc import Sequence

from msgspec import Struct

from .clean import pad, single_line, truncate_start, width
from .look import PageStyle

COLUMN_GAP = "  "
MIN_TEXT_COLUMNS = 6  # columns that a column of text keeps before others are left out for it


class Column(Struct, frozen=True):
    """A column: `spare` says how easily it is done without (0: never), `text` that it may be cut, `end` that its end is kept."""

    name: str
    align_right: bool = False
    drop_priority: int = 0
    can_truncate: bool = False
    keep_end: bool = False


class Cell(Struct, frozen=True):
    """What stands in a cell, and in which style."""

    text: str
    style: str = ""


TableRow = Sequence[Cell | str]


def render_table(look: PageStyle, columns: Sequence[Column], rows: Sequence[TableRow], foot: Sequence[TableRow] = ()) -> list[str]:
    """The table as lines, within the look's limit: columns that can be spared go first, then text is cut.

    The rows of `foot` stand below a line of their own.
    """
    cells = [[_clean_cell(cell) for cell in row] for row in (*rows, *foot)]
    widths = [max([width(one.name), *(width(row[at].text) for row in cells)]) for at, one in enumerate(columns)]
    filled = [at for at in range(len(columns)) if not cells or any(row[at].text for row in cells)]
    kept = _visible_columns(columns, widths, filled, look.line_limit)
    if look.line_limit is not None:
        _shrink_columns(columns, widths, kept, look.line_limit)
    lines = [_render_row(look, columns, widths, kept, row) for row in cells]
    head = COLUMN_GAP.join(pad(columns[at].name, widths[at], columns[at].align_right) for at in kept).rstrip(" ")
    if foot:
        across = sum(widths[at] for at in kept) + len(COLUMN_GAP) * (len(kept) - 1)
        lines.insert(len(rows), look.paint("─" * across, "dim"))
    return [look.paint(head, "dim"), *lines]


def _clean_cell(cell: Cell | str) -> Cell:
    return Cell(single_line(cell)) if isinstance(cell, str) else Cell(single_line(cell.text), cell.style)


def _min_width(columns: Sequence[Column], widths: list[int], kept: list[int]) -> int:
    least = (min(widths[at], MIN_TEXT_COLUMNS) if columns[at].can_truncate else widths[at] for at in kept)
    return sum(least) + len(COLUMN_GAP) * (len(kept) - 1)


def _visible_columns(columns: Sequence[Column], widths: list[int], filled: list[int], limit: int | None) -> list[int]:
    """The columns that are shown: none that is empty, and no more than fit."""
    kept = list(filled)
    while limit is not None and _min_width(columns, widths, kept) > limit:
        spare = max(kept, key=lambda at: columns[at].drop_priority)
        if not columns[spare].drop_priority:
            break
        kept.remove(spare)
    return kept


def _shrink_columns(columns: Sequence[Column], widths: list[int], kept: list[int], limit: int) -> None:
    room = limit - len(COLUMN_GAP) * (len(kept) - 1)
    texts = [at for at in kept if columns[at].can_truncate] or kept
    while sum(widths[at] for at in kept) > room and max(widths[at] for at in texts) > 1:
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= 1


def _render_row(look: PageStyle, columns: Sequence[Column], widths: list[int], kept: list[int], row: list[Cell]) -> str:
    shown = []
    for at in kept:
        text = truncate_start(row[at].text, widths[at]) if columns[at].keep_end else row[at].text
        padded = pad(text, widths[at], columns[at].align_right)
        shown.append(padded if not row[at].style else look.paint(padded, row[at].style))
    last = COLUMN_GAP.join(shown)
    return last.rstrip(" ")
