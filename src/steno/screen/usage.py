"""The page of `steno report`: sums by day, project, model and so on, with a bar for the cost. It never prints."""

from collections.abc import Iterator, Sequence

from ..answer.sums import Line, Sums, ToolSums, Usage
from ..meter import NANO, dollars
from .bars import bar, sparkline
from .clean import wrap
from .grid import Cell, Column, grid
from .look import Look
from .words import UNKNOWN, compact, money, number, percent, several, span

Courses = dict[str | None, list[int]]
STEPS = 16  # letters of a course
BAR = 24  # columns of the longest bar on a wide page
WIDE = 150  # columns from which every counter has a column of its own


def usage(answer: Usage, look: Look, left_off: int = 0, courses: Courses | None = None) -> list[str]:
    """The whole page: a line for each key, the total, and what there is to say below it. `courses`: its cost over the time."""
    wide = look.columns >= WIDE
    dearest = max((line.sums.nano or 0 for line in answer.lines), default=0)
    room = BAR if wide else max(6, min(BAR, look.columns // 6))
    rows = [
        [
            *_cells(_label(answer.by, line), line.sums, wide),
            bar(line.sums.nano or 0, dearest, room),
            sparkline(courses[line.key]) if courses and line.key in courses else "",
        ]
        for line in answer.lines
    ]
    foot = [[*_cells("total", answer.total, wide), "", ""]]
    lines = grid(look, _columns(answer.by, wide), rows, foot)
    if left_off:
        lines += [look.paint(line, "dim") for line in wrap(f"and {several(left_off, 'more line')}, in the total", look.columns)]
    return [*lines, "", *(line for text in _notes(answer) for line in wrap(text, look.columns))]


def _columns(by: str, wide: bool) -> list[Column]:
    text = by in ("project", "model", "agent", "session")
    counters = [Column(name, True, 6) for name in ("input", "cache write", "cache read", "output")] if wide else []
    return [
        Column(by, text=text, end=by == "project"),
        Column("requests", True, 3),
        *counters,
        Column("tokens", True, 1),
        Column("cost", True),
        Column("unpriced", True, 2),
        *([Column("reported", True, 7), Column("computed", True, 7)] if wide else []),
        Column("cache hit", True, 4),
        Column("saved", True, 5),
        Column("", spare=8),
        Column("over the time", spare=9),
    ]


def _cells(label: str, sums: Sums, wide: bool) -> list[Cell | str]:
    tokens, figure = sums.tokens, number if wide else compact
    counters = [figure(one) for one in (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)] if wide else []
    parts = [money(dollars(sums.reported_nano)), money(dollars(sums.computed_nano))] if wide else []
    return [
        label,
        number(sums.requests),
        *counters,
        figure(tokens.total),
        money(dollars(sums.nano)),
        Cell(f"+{number(sums.unpriced)}" if sums.unpriced else "", "yellow"),
        *parts,
        percent(sums.hit_rate) if sums.hit_rate is not None else "-",
        money(dollars(sums.saved_nano)),
    ]


def _label(by: str, line: Line) -> str:
    if line.key is None:
        return UNKNOWN
    if by == "session":
        return " ".join(filter(None, (line.key[:8], line.title or line.project)))
    return line.key


def _notes(answer: Usage) -> Iterator[str]:
    """What the table cannot say: where the cost comes from, what has no price, what was wasted, the peak."""
    total = answer.total
    parts = [f"{money(total.reported_nano / NANO)} reported by the agents"] if total.reported_nano else []
    parts += [f"{money(total.computed_nano / NANO)} computed from the price table"] if total.computed_nano else []
    parts += [f"+{number(total.unpriced)} unpriced"] if total.unpriced else []
    if parts:
        yield "cost: " + ", ".join(parts)
    if total.saved_nano:
        yield f"cache: {percent(total.hit_rate)} of the input was read from it, which saved {money(total.saved_nano / NANO)}"
    for line in answer.unpriced:
        sums = line.sums
        known = sums.as_json()["cost"]["unpriced_tokens"]
        count = f"{several(sums.unpriced, 'request')}, {'tokens unknown' if known is None else several(known, 'token')}"
        yield f"unpriced: {line.key or 'a model without a name'} ({count})"
    if answer.untold:
        yield f"unknown: what {several(answer.untold, 'run')} used, which say nothing of it"
    waste = answer.waste
    if waste.runs:
        known = waste.as_json()["usd"]
        more = f" and {several(waste.unpriced, 'run')} of unknown cost" if waste.unpriced and known is not None else ""
        yield f"wasted: {money(known)}{more} on {several(waste.runs, 'run')} that did not succeed"
    if answer.peak is not None:
        limit = f" of {compact(answer.peak.limit)}" if answer.peak.limit else ""
        yield f"peak context: {compact(answer.peak.used)}{limit} tokens, in session {answer.peak.session[:8]}"


# -- tools -----------------------------------------------------------------------------------------------------------

TOOLS = (
    Column("tool", text=True),
    Column("calls", True),
    Column("failed", True, 1),
    Column("rate", True),
    Column("refused", True, 3),
    Column("open", True, 4),
    Column("mean", True, 2),
    Column("slowest", True, 5),
    Column("", spare=6),
)


def tools(lines: Sequence[ToolSums], total: ToolSums, look: Look, left_off: int = 0) -> list[str]:
    """Calls, failures and times of each tool, with a bar for the calls."""
    most = max((line.calls for line in lines), default=0)
    room = max(6, min(BAR, look.columns // 6))
    rows = [[*_tool(line.name or UNKNOWN, line), bar(line.calls, most, room)] for line in lines]
    found = grid(look, TOOLS, rows, [[*_tool("total", total), ""]])
    return found + ([look.paint(f"and {several(left_off, 'more tool')}, in the total", "dim")] if left_off else [])


def _tool(name: str, sums: ToolSums) -> list[Cell | str]:
    rate = sums.error_rate
    worry = "" if not rate else "red" if rate >= 0.2 else "yellow" if rate >= 0.05 else ""
    return [
        name,
        number(sums.calls),
        number(sums.errors),
        Cell("-" if rate is None else percent(rate), worry),
        number(sums.denied),
        number(sums.open),
        "-" if sums.mean_ms is None else span(sums.mean_ms),
        "-" if sums.slowest_ms is None else span(sums.slowest_ms),
    ]
