"""Tables of `steno show`: tool calls, changed files, and one line per run with totals."""

from ..analysis.usage import nano_to_usd
from ..codec.colours import strip_tag
from ..report import Report, ToolCallSummary
from ..units import NANO_PER_USD
from .formatting import (
    UNKNOWN,
    format_count,
    format_duration,
    format_money,
    format_number,
    format_percent,
    pad,
    single_line,
    truncate_start,
    unknown_runs,
    verdict_colour,
)
from .table import CHANGE_COLOURS, COLUMN_GAP, Cell, Column, PageStyle, render_table

TOOL_COLUMNS = (
    Column("id", drop_priority=3, can_truncate=True),
    Column("name", can_truncate=True),
    Column("kind", drop_priority=4),
    Column("result"),
    Column("time", align_right=True, drop_priority=2),
    Column("error", drop_priority=1, can_truncate=True),
)
FILE_COLUMNS = (
    Column("path", can_truncate=True, keep_end=True),
    Column("change", can_truncate=True),
    Column("where", drop_priority=2),
    Column("by", drop_priority=1, can_truncate=True),
)
RESULT_COLOURS = {"failed": "red", "denied": "yellow", UNKNOWN: "dim"}
# The widths are fixed: a run is printed as soon as it is read.
RUN_COLUMNS = (("verdict", 15), ("cost", 10), ("tokens", 11), ("context", 7), ("time", 11))
NARROW_RUN_COLUMNS = (("verdict", 15), ("cost", 10))
MIN_WIDE_COLUMNS = 72


def tools_table(report: Report, style: PageStyle) -> list[str]:
    """The tool calls of a run."""
    return render_table(style, TOOL_COLUMNS, [_tool_row(tool) for tool in report.tools])


def _tool_row(tool: ToolCallSummary) -> list[Cell | str]:
    result = _call_result(tool)
    return [
        tool.id,
        tool.name,
        tool.kind,
        Cell(result, RESULT_COLOURS.get(result, "")),
        format_duration(tool.duration_ms),
        strip_tag(tool.error or ""),
    ]


def _call_result(tool: ToolCallSummary) -> str:
    if tool.denied:
        return "denied"
    if tool.ok is None:
        return UNKNOWN
    return "ok" if tool.ok else "failed"


def files_table(report: Report, style: PageStyle) -> list[str]:
    """The files that a run changed."""
    rows = [
        [
            file.path,
            Cell(file.change, CHANGE_COLOURS.get(file.change, "")),
            "inside" if file.inside else "outside",
            " ".join(file.tools) or file.source,
        ]
        for file in report.files
    ]
    return render_table(style, FILE_COLUMNS, rows)


# -- one line per run ---------------------------------------------------------------------------


def _run_columns(style: PageStyle) -> tuple[tuple[str, int], ...]:
    return RUN_COLUMNS if style.columns >= MIN_WIDE_COLUMNS else NARROW_RUN_COLUMNS


def runs_header(style: PageStyle) -> str:
    """The column names for `run_line`."""
    cells = [pad(name, columns, name != "verdict") for name, columns in _run_columns(style)]
    return style.paint(COLUMN_GAP.join([*cells, "source"]), "dim")


def run_line(report: Report, style: PageStyle, name: str) -> str:
    """One run on one line; `name` is the source it was read from."""
    values = {
        "verdict": report.verdict,
        "cost": format_money(report.cost.usd),
        "tokens": format_number(report.tokens.total),
        "context": format_percent(report.context.fraction),
        "time": format_duration(report.duration_ms),
    }
    cells = [pad(values[key], columns, key != "verdict") for key, columns in _run_columns(style)]
    cells[0] = style.paint(cells[0], verdict_colour(report.verdict))
    source = single_line(name)
    if style.line_limit is not None:
        used = sum(columns + len(COLUMN_GAP) for _, columns in _run_columns(style))
        source = truncate_start(source, style.line_limit - used)
    return COLUMN_GAP.join([*cells, source])


class RunTotals:
    """Verdict counts, cost and tokens over many runs."""

    def __init__(self) -> None:
        self.verdicts: dict[str, int] = {}
        self.tokens = 0
        self.cost_nano = 0  # integers add up exactly
        self.unpriced_runs = 0
        self.runs_without_tokens = 0

    def add(self, report: Report) -> None:
        self.verdicts[report.verdict] = self.verdicts.get(report.verdict, 0) + 1
        self.cost_nano += round((report.cost.usd or 0) * NANO_PER_USD)
        self.unpriced_runs += report.cost.usd is None
        self.tokens += report.tokens.total or 0
        self.runs_without_tokens += report.tokens.total is None

    def lines(self, style: PageStyle) -> list[str]:
        """The totals, most frequent verdict first."""
        ordered = sorted(self.verdicts.items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{count} {verdict}" for verdict, count in ordered)
        cost = format_money(nano_to_usd(self.cost_nano))
        texts = (
            f"{format_count(sum(self.verdicts.values()), 'run')}: {counts}",
            f"cost {cost}{unknown_runs(self.unpriced_runs)}",
            f"tokens {format_number(self.tokens)}{unknown_runs(self.runs_without_tokens)}",
        )
        return [line for text in texts for line in style.wrap(text)]
