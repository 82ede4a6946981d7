"""Tables of the ledger: columns that know what they can do without. All cells are cleaned here; it never prints."""

from collections.abc import Sequence

from msgspec import Struct

from .clean import flat, pad, tail, width
from .look import Look

GAP = "  "
LEAST = 6  # columns that a column of text keeps before others are left out for it


class Column(Struct, frozen=True):
    """A column: `spare` says how easily it is done without (0: never), `text` that it may be cut, `end` that its end is kept."""

    name: str
    right: bool = False
    spare: int = 0
    text: bool = False
    end: bool = False


class Cell(Struct, frozen=True):
    """What stands in a cell, and in which style."""

    text: str
    style: str = ""


Cells = Sequence[Cell | str]


def grid(look: Look, columns: Sequence[Column], rows: Sequence[Cells], foot: Sequence[Cells] = ()) -> list[str]:
    """The table as lines, within the look's limit: columns that can be spared go first, then text is cut.

    The rows of `foot` stand below a line of their own.
    """
    cells = [[_cell(cell) for cell in row] for row in (*rows, *foot)]
    widths = [max([width(one.name), *(width(row[at].text) for row in cells)]) for at, one in enumerate(columns)]
    filled = [at for at in range(len(columns)) if not cells or any(row[at].text for row in cells)]
    kept = _kept(columns, widths, filled, look.limit)
    if look.limit is not None:
        _shrink(columns, widths, kept, look.limit)
    lines = [_line(look, columns, widths, kept, row) for row in cells]
    head = GAP.join(pad(columns[at].name, widths[at], columns[at].right) for at in kept).rstrip(" ")
    if foot:
        across = sum(widths[at] for at in kept) + len(GAP) * (len(kept) - 1)
        lines.insert(len(rows), look.paint("─" * across, "dim"))
    return [look.paint(head, "dim"), *lines]


def _cell(cell: Cell | str) -> Cell:
    return Cell(flat(cell)) if isinstance(cell, str) else Cell(flat(cell.text), cell.style)


def _needed(columns: Sequence[Column], widths: list[int], kept: list[int]) -> int:
    least = (min(widths[at], LEAST) if columns[at].text else widths[at] for at in kept)
    return sum(least) + len(GAP) * (len(kept) - 1)


def _kept(columns: Sequence[Column], widths: list[int], filled: list[int], limit: int | None) -> list[int]:
    """The columns that are shown: none that is empty, and no more than fit."""
    kept = list(filled)
    while limit is not None and _needed(columns, widths, kept) > limit:
        spare = max(kept, key=lambda at: columns[at].spare)
        if not columns[spare].spare:
            break
        kept.remove(spare)
    return kept


def _shrink(columns: Sequence[Column], widths: list[int], kept: list[int], limit: int) -> None:
    room = limit - len(GAP) * (len(kept) - 1)
    texts = [at for at in kept if columns[at].text] or kept
    while sum(widths[at] for at in kept) > room and max(widths[at] for at in texts) > 1:
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= 1


def _line(look: Look, columns: Sequence[Column], widths: list[int], kept: list[int], row: list[Cell]) -> str:
    shown = []
    for at in kept:
        text = tail(row[at].text, widths[at]) if columns[at].end else row[at].text
        padded = pad(text, widths[at], columns[at].right)
        shown.append(padded if not row[at].style else look.paint(padded, row[at].style))
    last = GAP.join(shown)
    return last.rstrip(" ")
