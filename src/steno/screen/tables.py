"""Aligned tables: calls, files, and many runs, one to a line. All cells are cleaned here; it never prints."""

from collections.abc import Iterable, Sequence

from ..report import Report
from .clean import pad, single_line, truncate_start, width, wrap
from .look import PageStyle
from .words import UNKNOWN, format_count, format_duration, format_money, format_number, format_percent, strip_tag, verdict_colour

NANO_PER_USD = 1_000_000_000
COLUMN_GAP = "  "
MIN_COLUMN_WIDTH = 4  # columns that each column keeps on a narrow terminal
RUN_COLUMNS = (("verdict", 15), ("cost", 10), ("tokens", 11), ("context", 7), ("time", 11))
RUN_COLUMNS_NARROW = (("verdict", 15), ("cost", 10))


def align_columns(rows: Sequence[Sequence[str]], limit: int | None = None, right_aligned: Iterable[int] = ()) -> list[str]:
    """The rows in columns as wide as their widest cell; shrunk, the widest first, where a line has a limit."""
    if not rows:
        return []
    cells = [[single_line(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    if limit is not None:
        _shrink_widths(widths, limit - len(COLUMN_GAP) * (len(widths) - 1))
    lines = [
        [pad(cell, wide, index in right_aligned) for index, (cell, wide) in enumerate(zip(row, widths, strict=True))] for row in cells
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
        outcome = "refused" if tool.denied else UNKNOWN if tool.ok is None else "ok" if tool.ok else "failed"
        rows.append([tool.id, tool.name, tool.kind, outcome, format_duration(tool.duration_ms), strip_tag(tool.error or "")])
    return _table_with_header(look, ("id", "name", "kind", "result", "time", "error"), rows)


def files_table(report: Report, look: PageStyle) -> list[str]:
    """The files that a run changed."""
    rows = [
        [file.path, file.change, "inside" if file.inside else "outside", " ".join(file.tools) or file.source]
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
    return COLUMN_GAP.join([*cells, source if look.line_limit is None else truncate_start(source, look.line_limit - used)])


class RunTotals:
    """What many runs come to together."""

    def __init__(self) -> None:
        self.verdicts: dict[str, int] = {}
        self.tokens, self.cost_nano, self.unpriced_runs, self.runs_without_tokens = 0, 0, 0, 0  # nano-dollars, so that the sum is exact

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
            + (f" and {format_count(self.unpriced_runs, 'run')} of unknown cost" if self.unpriced_runs else ""),
            f"tokens {format_number(self.tokens)}"
            + (f" and {format_count(self.runs_without_tokens, 'run')} of unknown size" if self.runs_without_tokens else ""),
        ]
        words = f"{format_count(runs, 'run')}: " + ", ".join(f"{count} {word}" for word, count in ordered)
        return [line for text in (words, *figures) for line in wrap(text, look.columns)]
