"""Aligned tables: calls, files, and many runs, one to a line. All cells are cleaned here; it never prints."""

from collections.abc import Iterable, Sequence

from ..report import Report
from .clean import flat, pad, tail, width, wrap
from .look import Look
from .words import UNKNOWN, colour_of, money, number, percent, several, span, untagged

NANO = 1_000_000_000
GAP = "  "
LEAST = 4  # columns that each column keeps on a narrow terminal
RUNS = (("verdict", 15), ("cost", 10), ("tokens", 11), ("context", 7), ("time", 11))
RUNS_NARROW = (("verdict", 15), ("cost", 10))


def aligned(rows: Sequence[Sequence[str]], limit: int | None = None, right: Iterable[int] = ()) -> list[str]:
    """The rows in columns as wide as their widest cell; shrunk, the widest first, where a line has a limit."""
    if not rows:
        return []
    cells = [[flat(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    if limit is not None:
        _shrink(widths, limit - len(GAP) * (len(widths) - 1))
    lines = [
        [pad(cell, wide, index in right) for index, (cell, wide) in enumerate(zip(row, widths, strict=True))] for row in cells
    ]
    return [GAP.join(line).rstrip(" ") for line in lines]


def _shrink(widths: list[int], room: int) -> None:
    while sum(widths) > room and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1


def _headed(look: Look, head: Sequence[str], rows: list[list[str]]) -> list[str]:
    lines = aligned([list(head), *rows], look.limit)
    return [look.paint(lines[0], "dim"), *lines[1:]]


def tools(report: Report, look: Look) -> list[str]:
    """The calls of a run."""
    rows = []
    for tool in report.tools:
        outcome = "refused" if tool.denied else UNKNOWN if tool.ok is None else "ok" if tool.ok else "failed"
        rows.append([tool.id, tool.name, tool.kind, outcome, span(tool.duration_ms), untagged(tool.error or "")])
    return _headed(look, ("id", "name", "kind", "result", "time", "error"), rows)


def files(report: Report, look: Look) -> list[str]:
    """The files that a run changed."""
    rows = [
        [file.path, file.change, "inside" if file.inside else "outside", " ".join(file.tools) or file.source]
        for file in report.files
    ]
    return _headed(look, ("path", "change", "where", "by"), rows)


# -- many runs, one line each; printed as they are read, so the widths are fixed ---------------------------


def _columns(look: Look) -> tuple[tuple[str, int], ...]:
    return RUNS if look.columns >= 72 else RUNS_NARROW


def runs_head(look: Look) -> str:
    """The heads of the columns of `run`."""
    cells = [pad(name, wide, name != "verdict") for name, wide in _columns(look)]
    return look.paint(GAP.join([*cells, "source"]), "dim")


def run(report: Report, look: Look, name: str) -> str:
    """One run in a line."""
    figures = {
        "verdict": report.verdict,
        "cost": money(report.cost.usd),
        "tokens": number(report.tokens.total),
        "context": percent(report.context.fraction),
        "time": span(report.duration_ms),
    }
    cells = [pad(figures[name], wide, name != "verdict") for name, wide in _columns(look)]
    cells[0] = look.paint(cells[0], colour_of(report.verdict))
    used = sum(wide + len(GAP) for _, wide in _columns(look))
    source = flat(name)
    return GAP.join([*cells, source if look.limit is None else tail(source, look.limit - used)])


class Totals:
    """What many runs come to together."""

    def __init__(self) -> None:
        self.verdicts: dict[str, int] = {}
        self.tokens, self.nano, self.unpriced, self.uncounted = 0, 0, 0, 0  # nano-dollars, so that the sum is exact

    def add(self, report: Report) -> None:
        """Count one run."""
        self.verdicts[report.verdict] = self.verdicts.get(report.verdict, 0) + 1
        self.nano += round((report.cost.usd or 0) * NANO)
        self.unpriced += report.cost.usd is None
        self.tokens += report.tokens.total or 0
        self.uncounted += report.tokens.total is None

    def lines(self, look: Look) -> list[str]:
        """The totals for people, most frequent verdict first."""
        ordered = sorted(self.verdicts.items(), key=lambda item: (-item[1], item[0]))
        runs = sum(self.verdicts.values())
        figures = [
            f"cost {money(self.nano / NANO)}"
            + (f" and {several(self.unpriced, 'run')} of unknown cost" if self.unpriced else ""),
            f"tokens {number(self.tokens)}"
            + (f" and {several(self.uncounted, 'run')} of unknown size" if self.uncounted else ""),
        ]
        words = f"{several(runs, 'run')}: " + ", ".join(f"{count} {word}" for word, count in ordered)
        return [line for text in (words, *figures) for line in wrap(text, look.columns)]
