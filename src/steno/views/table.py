"""Tables of the ledger: columns that know what they can do without. All cells are cleaned here; it never prints."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..event import NANO_PER_USD
from ..report import Report
from .formatting import (
    UNKNOWN,
    format_count,
    format_duration,
    format_money,
    format_number,
    format_percent,
    strip_tag,
    verdict_colour,
)
from .layout import PageStyle
from .sanitize import pad, single_line, truncate_start, width, wrap

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


def render_table(
    look: PageStyle,
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    foot: Sequence[TableRow] = (),
) -> list[str]:
    """The table as lines, within the look's limit: columns that can be spared go first, then text is cut.

    The rows of `foot` stand below a line of their own.
    """
    cells = [[_clean_cell(cell) for cell in row] for row in (*rows, *foot)]
    widths = [
        max([width(one.name), *(width(row[at].text) for row in cells)])
        for at, one in enumerate(columns)
    ]
    filled = [at for at in range(len(columns)) if not cells or any(row[at].text for row in cells)]
    kept = _visible_columns(columns, widths, filled, look.line_limit)
    if look.line_limit is not None:
        _shrink_columns(columns, widths, kept, look.line_limit)
    lines = [_render_row(look, columns, widths, kept, row) for row in cells]
    head = COLUMN_GAP.join(
        pad(columns[at].name, widths[at], columns[at].align_right) for at in kept
    ).rstrip(" ")
    if foot:
        across = sum(widths[at] for at in kept) + len(COLUMN_GAP) * (len(kept) - 1)
        lines.insert(len(rows), look.paint("─" * across, "dim"))
    return [look.paint(head, "dim"), *lines]


def _clean_cell(cell: Cell | str) -> Cell:
    return (
        Cell(single_line(cell))
        if isinstance(cell, str)
        else Cell(single_line(cell.text), cell.style)
    )


def _min_width(columns: Sequence[Column], widths: list[int], kept: list[int]) -> int:
    least = (
        min(widths[at], MIN_TEXT_COLUMNS) if columns[at].can_truncate else widths[at] for at in kept
    )
    return sum(least) + len(COLUMN_GAP) * (len(kept) - 1)


def _visible_columns(
    columns: Sequence[Column], widths: list[int], filled: list[int], limit: int | None
) -> list[int]:
    """The columns that are shown: none that is empty, and no more than fit."""
    kept = list(filled)
    while limit is not None and _min_width(columns, widths, kept) > limit:
        spare = max(kept, key=lambda at: columns[at].drop_priority)
        if not columns[spare].drop_priority:
            break
        kept.remove(spare)
    return kept


def _shrink_columns(
    columns: Sequence[Column], widths: list[int], kept: list[int], limit: int
) -> None:
    room = limit - len(COLUMN_GAP) * (len(kept) - 1)
    texts = [at for at in kept if columns[at].can_truncate] or kept
    while sum(widths[at] for at in kept) > room and max(widths[at] for at in texts) > 1:
        widest = max(texts, key=lambda at: widths[at])
        widths[widest] -= 1


def _render_row(
    look: PageStyle, columns: Sequence[Column], widths: list[int], kept: list[int], row: list[Cell]
) -> str:
    shown = []
    for at in kept:
        text = truncate_start(row[at].text, widths[at]) if columns[at].keep_end else row[at].text
        padded = pad(text, widths[at], columns[at].align_right)
        shown.append(padded if not row[at].style else look.paint(padded, row[at].style))
    last = COLUMN_GAP.join(shown)
    return last.rstrip(" ")


MIN_COLUMN_WIDTH = 4  # columns that each column keeps on a narrow terminal
RUN_COLUMNS = (("verdict", 15), ("cost", 10), ("tokens", 11), ("context", 7), ("time", 11))
RUN_COLUMNS_NARROW = (("verdict", 15), ("cost", 10))


def align_columns(
    rows: Sequence[Sequence[str]], limit: int | None = None, right_aligned: Iterable[int] = ()
) -> list[str]:
    """The rows in columns as wide as their widest cell; shrunk, the widest first, where a line has a limit."""
    if not rows:
        return []
    cells = [[single_line(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    if limit is not None:
        _shrink_widths(widths, limit - len(COLUMN_GAP) * (len(widths) - 1))
    lines = [
        [
            pad(cell, wide, index in right_aligned)
            for index, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ]
        for row in cells
    ]
    return [COLUMN_GAP.join(line).rstrip(" ") for line in lines]


def _shrink_widths(widths: list[int], room: int) -> None:
    while sum(widths) > room and max(widths) > MIN_COLUMN_WIDTH:
        widths[widths.index(max(widths))] -= 1


def _table_with_header(look: PageStyle, head: Sequence[str], rows: list[list[str]]) -> list[str]:
    lines = align_columns([list(head), *rows], look.line_limit)
    return [look.paint(lines[0], "dim"), *lines[1:]]


def tools_table(report: Report, look: PageStyle) -> list[str]:
    """The calls of a run."""
    rows = []
    for tool in report.tools:
        outcome = (
            "refused"
            if tool.denied
            else UNKNOWN
            if tool.ok is None
            else "ok"
            if tool.ok
            else "failed"
        )
        rows.append(
            [
                tool.id,
                tool.name,
                tool.kind,
                outcome,
                format_duration(tool.duration_ms),
                strip_tag(tool.error or ""),
            ]
        )
    return _table_with_header(look, ("id", "name", "kind", "result", "time", "error"), rows)


def files_table(report: Report, look: PageStyle) -> list[str]:
    """The files that a run changed."""
    rows = [
        [
            file.path,
            file.change,
            "inside" if file.inside else "outside",
            " ".join(file.tools) or file.source,
        ]
        for file in report.files
    ]
    return _table_with_header(look, ("path", "change", "where", "by"), rows)


# -- many runs, one line each; printed as they are read, so the widths are fixed ---------------------------


def _run_columns(look: PageStyle) -> tuple[tuple[str, int], ...]:
    return RUN_COLUMNS if look.columns >= 72 else RUN_COLUMNS_NARROW


def runs_header(look: PageStyle) -> str:
    """The heads of the columns of `run`."""
    cells = [pad(name, wide, name != "verdict") for name, wide in _run_columns(look)]
    return look.paint(COLUMN_GAP.join([*cells, "source"]), "dim")


def run_line(report: Report, look: PageStyle, name: str) -> str:
    """One run in a line."""
    figures = {
        "verdict": report.verdict,
        "cost": format_money(report.cost.usd),
        "tokens": format_number(report.tokens.total),
        "context": format_percent(report.context.fraction),
        "time": format_duration(report.duration_ms),
    }
    cells = [pad(figures[name], wide, name != "verdict") for name, wide in _run_columns(look)]
    cells[0] = look.paint(cells[0], verdict_colour(report.verdict))
    used = sum(wide + len(COLUMN_GAP) for _, wide in _run_columns(look))
    source = single_line(name)
    return COLUMN_GAP.join(
        [
            *cells,
            source if look.line_limit is None else truncate_start(source, look.line_limit - used),
        ]
    )


class RunTotals:
    """What many runs come to together."""

    def __init__(self) -> None:
        self.verdicts: dict[str, int] = {}
        self.tokens, self.cost_nano, self.unpriced_runs, self.runs_without_tokens = (
            0,
            0,
            0,
            0,
        )  # nano-dollars, so that the sum is exact

    def add(self, report: Report) -> None:
        """Count one run."""
        self.verdicts[report.verdict] = self.verdicts.get(report.verdict, 0) + 1
        self.cost_nano += round((report.cost.usd or 0) * NANO_PER_USD)
        self.unpriced_runs += report.cost.usd is None
        self.tokens += report.tokens.total or 0
        self.runs_without_tokens += report.tokens.total is None

    def lines(self, look: PageStyle) -> list[str]:
        """The totals for people, most frequent verdict first."""
        ordered = sorted(self.verdicts.items(), key=lambda item: (-item[1], item[0]))
        runs = sum(self.verdicts.values())
        figures = [
            f"cost {format_money(self.cost_nano / NANO_PER_USD)}"
            + (
                f" and {format_count(self.unpriced_runs, 'run')} of unknown cost"
                if self.unpriced_runs
                else ""
            ),
            f"tokens {format_number(self.tokens)}"
            + (
                f" and {format_count(self.runs_without_tokens, 'run')} of unknown size"
                if self.runs_without_tokens
                else ""
            ),
        ]
        words = f"{format_count(runs, 'run')}: " + ", ".join(
            f"{count} {word}" for word, count in ordered
        )
        return [line for text in (words, *figures) for line in wrap(text, look.columns)]
