"""`steno repeat`: success rate, verdicts, and how cost, tokens, turns and time are distributed."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..checks.across import Distribution, RunStatistics
from ..checks.repeat import TAG, RepeatedRun, RepeatResult
from ..report import Report
from .check import finding_lines
from .formatting import (
    SPARK_BLOCKS,
    UNKNOWN,
    format_compact,
    format_count,
    format_duration,
    format_money,
    gauge,
    single_line,
    truncate,
    unknown_runs,
    verdict_colour,
)
from .summary import verdict_reason
from .table import LABEL_COLUMNS, Cell, Column, PageStyle, SectionRow, join_facts, render_section
from .table import render_table as table

GAUGE_COLUMNS = 20
HISTOGRAM_COLUMNS = 12
WIDE_COLUMNS = 76  # from here on with a gauge
GOOD_RATE = 0.9
POOR_RATE = 0.5
MAX_REASONS = 8
UNCHANGED = Cell("=", "dim")


def format_turns(turns: float | None) -> str:
    return UNKNOWN if turns is None else f"{turns:,.4g}"


def _format_tokens(tokens: float | None) -> str:
    return format_compact(None if tokens is None else round(tokens))


# Name of the figure in statistics: label, text of a value, value of one report.
FIGURES: dict[str, tuple[str, Callable[[float | None], str], Callable[[Report], float | None]]] = {
    "cost_usd": ("cost", format_money, lambda report: report.cost.usd),
    "tokens": ("tokens", _format_tokens, lambda report: report.tokens.total),
    "turns": ("turns", format_turns, lambda report: report.turns),
    "duration_ms": ("duration", format_duration, lambda report: report.duration_ms),
}
COLUMNS = (
    Column("".ljust(LABEL_COLUMNS - 2)),
    Column("median", align_right=True),
    Column("min", align_right=True, drop_priority=2),
    Column("max", align_right=True, drop_priority=2),
    Column("spread", align_right=True, drop_priority=3),
    Column("min to max", drop_priority=4),
    Column("baseline", align_right=True),
    Column("change", align_right=True),
)


def rate_colour(rate: float | None) -> str:
    if rate is None:
        return "dim"
    if rate >= GOOD_RATE:
        return "green"
    return "yellow" if rate >= POOR_RATE else "red"


def format_interval(statistics: RunStatistics) -> str:
    if statistics.interval is None:
        return UNKNOWN
    low, high = statistics.interval
    return f"{low * 100:.0f} to {high * 100:.0f} %"


def histogram(values: Sequence[float], columns: int = HISTOGRAM_COLUMNS) -> str:
    """How many values fall into each part of their range; empty if all are equal."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if high <= low:
        return ""
    counts = [0] * columns
    for value in values:
        counts[min(columns - 1, int((value - low) / (high - low) * columns))] += 1
    top = max(counts)
    return "".join(SPARK_BLOCKS[-(-count * 7 // top)] for count in counts)


# -- progress ------------------------------------------------------------------------------------


def run_line(run: RepeatedRun, total: int, style: PageStyle) -> str:
    """A finished run, as it is printed while others still run."""
    report = run.report
    columns = len(str(total))
    head = f"{run.number:>{columns}}/{total}"
    facts = [
        format_money(report.cost.usd) if report.cost.usd is not None else "cost unknown",
        "" if report.turns is None else format_count(report.turns, "turn"),
        "" if report.duration_ms is None else format_duration(report.duration_ms),
    ]
    reason = single_line("" if report.ok else _reason(run))
    line = " · ".join(filter(None, [*facts, reason]))
    verdict = f"{report.verdict:11}"
    room = max(20, style.columns - len(head) - len(verdict) - 4)
    colour = verdict_colour(report.verdict) if not run.findings else "red"
    return f"{head}  {style.paint(verdict, colour)}  {style.paint(truncate(line, room), 'dim')}"


def _reason(run: RepeatedRun) -> str:
    if run.is_interrupted:
        return "stopped, not counted"
    if run.findings and run.report.verdict == "success":
        return "; ".join(f"{finding.rule}: {finding.message}" for finding in run.findings)
    return verdict_reason(run.report)


# -- summary -------------------------------------------------------------------------------------


def repeat_page(result: RepeatResult, style: PageStyle) -> list[str]:
    """The summary of all runs that count."""
    statistics = result.statistics
    lines = [_headline(result, style)]
    if not statistics.runs:
        return lines
    lines += ["", *_success_lines(statistics, style), *_verdict_lines(result, style), ""]
    lines += _figure_table(result, style)
    if result.across:
        lines += ["", style.paint("✗", "red") + " " + style.paint("broken rules", "bold")]
        lines += finding_lines(result.across, style)
    lines += ["", *_place_lines(result, style)]
    return lines


def _headline(result: RepeatResult, style: PageStyle) -> str:
    counted = result.counted
    count = f"{len(counted)} of {format_count(result.requested, 'run')}"
    if len(counted) == result.requested:
        count = format_count(result.requested, "run")
    stopped = len(result.runs) - len(counted)
    models = dict.fromkeys(run.report.model for run in counted if run.report.model)
    agents = dict.fromkeys(run.report.agent for run in counted if run.report.agent)
    facts = [count, f"{stopped} stopped" if stopped else "", ", ".join(agents), ", ".join(models)]
    text = "".join(f" · {single_line(fact)}" for fact in facts if fact)
    return style.paint(f"repeat {result.id}", "bold") + style.paint(text, "dim")


def _success_lines(statistics: RunStatistics, style: PageStyle) -> list[str]:
    rate = statistics.success_rate or 0.0
    colour = rate_colour(rate)
    label = style.paint("success".ljust(LABEL_COLUMNS), "dim")
    bar = "" if style.columns < WIDE_COLUMNS else gauge(rate, GAUGE_COLUMNS) + " "
    percent = style.paint(f"{rate * 100:.0f} %", f"bold {colour}")
    head = f"{label}{style.paint(bar, colour)}{percent}"
    head += f" · {statistics.succeeded} of {statistics.runs}"
    interval = f"95 % confidence {format_interval(statistics)}"
    if not bar:
        return [head, " " * LABEL_COLUMNS + style.paint(interval, "dim")]
    return [head + style.paint(f" · {interval}", "dim")]


def _verdict_lines(result: RepeatResult, style: PageStyle) -> list[str]:
    """The verdicts with their number, then the reasons of runs that did not succeed."""
    counts = result.statistics.verdicts.items()
    rows = [SectionRow(join_facts(f"{count} {verdict}" for verdict, count in counts))]
    lines = render_section(style, "verdicts", rows)
    reasons: dict[str, list[int]] = {}
    for run in result.counted:
        if not run.report.ok:
            verdict = run.report.verdict
            label = "" if verdict == "success" else f"{verdict}: "
            reasons.setdefault(label + single_line(_reason(run)), []).append(run.number)
    rows = [
        SectionRow(f"{_run_numbers(numbers)}  {reason}", max_lines=2)
        for reason, numbers in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    if len(rows) > MAX_REASONS:
        rows[MAX_REASONS:] = [SectionRow(f"{len(rows) - MAX_REASONS} more (see --json)", "dim")]
    return lines + render_section(style, "failed", rows)


def _run_numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"{'run' if len(numbers) == 1 else 'runs'} {shown}"


def _figure_table(result: RepeatResult, style: PageStyle) -> list[str]:
    rows = [list(_figure_row(result, name)) for name in FIGURES]
    lines = table(style, COLUMNS, rows)
    return [*lines, *_unknown_notes(result.statistics, style)]


def _figure_row(result: RepeatResult, name: str) -> Iterator[Cell | str]:
    label, form, figure = FIGURES[name]
    values: Distribution = getattr(result.statistics, name)
    known = [value for run in result.counted if (value := figure(run.report)) is not None]
    yield Cell(label, "dim")
    yield Cell(form(values.median), "bold")
    yield form(values.minimum) if known else ""
    yield form(values.maximum) if known else ""
    yield "" if values.spread is None else f"{values.spread * 100:.0f} %"
    yield Cell(histogram(known), "cyan")
    before = None if result.baseline is None else getattr(result.baseline, name).median
    yield "" if before is None else form(before)
    yield change_cell(before, values.median)


def change_cell(before: float | None, after: float | None) -> Cell:
    """The relative change of a figure that should be low."""
    if not before or after is None:
        return Cell("")
    change = after / before - 1
    if abs(change) < 0.005:
        return UNCHANGED
    return Cell(f"{change * 100:+.0f} %", "red" if change > 0 else "green")


def _unknown_notes(statistics: RunStatistics, style: PageStyle) -> list[str]:
    notes = []
    for name, (label, _, _) in FIGURES.items():
        missing = statistics.runs - getattr(statistics, name).known
        if missing:
            notes.append(f"{label}{unknown_runs(missing)}")
    return [style.paint(" · ".join(notes), "dim")] if notes else []


def _place_lines(result: RepeatResult, style: PageStyle) -> list[str]:
    rows = [SectionRow(f"steno runs --tag {TAG}={result.id}")]
    lines = render_section(style, "runs", rows)
    folders = [run.worktree for run in result.runs if run.worktree is not None]
    if folders:
        last = f" … {Path(folders[-1]).name}" if len(folders) > 1 else ""
        lines += render_section(style, "worktrees", [SectionRow(folders[0] + last)])
    if result.baseline is not None and result.baseline_name is not None:
        before = result.baseline
        rate = UNKNOWN if before.success_rate is None else f"{before.success_rate * 100:.0f} %"
        text = f"{result.baseline_name}: {format_count(before.runs, 'run')}, success {rate}"
        lines += render_section(style, "baseline", [SectionRow(single_line(text))])
    return lines
