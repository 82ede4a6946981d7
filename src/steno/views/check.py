"""`steno check`: the findings of each run, and the list of rules."""

from collections.abc import Iterable, Sequence

from ..checks.policy import CheckResult
from ..checks.rules import RuleFinding
from .formatting import format_count, format_money, single_line, verdict_colour, wrap
from .table import Cell, Column, PageStyle, render_table

MAX_LINES_NAMED = 5
ACROSS_NAME = "all runs together"
RULE_COLUMNS = (
    Column("rule"),
    Column("checks", can_truncate=True, min_columns=30),
    Column("example", drop_priority=1),
)


def check_page(
    results: Sequence[CheckResult], across: list[RuleFinding], style: PageStyle
) -> list[str]:
    """Each run with what it breaks, then the sum."""
    lines: list[str] = []
    for result in results:
        lines += _run_lines(result, style)
    if across:
        lines += [_mark(False, style) + " " + style.paint(ACROSS_NAME, "bold")]
        lines += finding_lines(across, style)
    failed = sum(not result.ok for result in results)
    findings = sum(len(result.findings) for result in results) + len(across)
    colour = "red" if findings else "green"
    text = f"{format_count(len(results), 'run')} checked, {failed} failed"
    if findings:
        text += f" ({format_count(findings, 'finding')})"
    return [*lines, style.paint(text, colour)]


def _mark(ok: bool, style: PageStyle) -> str:
    return style.paint("✓", "green") if ok else style.paint("✗", "red")


def _run_lines(result: CheckResult, style: PageStyle) -> list[str]:
    report = result.report
    name = single_line(result.name)
    facts = [report.verdict, report.model or "", format_money(report.cost.usd)]
    head = f"{_mark(result.ok, style)} {style.paint(name, 'bold')}  "
    head += style.paint(facts[0], verdict_colour(report.verdict))
    head += style.paint("".join(f" · {single_line(fact)}" for fact in facts[1:] if fact), "dim")
    return [head, *finding_lines(result.findings, style)]


def finding_lines(findings: Iterable[RuleFinding], style: PageStyle) -> list[str]:
    findings = list(findings)
    indent = max((len(finding.rule) for finding in findings), default=0) + 6
    lines = []
    for finding in findings:
        text = single_line(finding.message) + _evidence(finding)
        first, *rest = wrap(text, max(20, style.columns - indent))
        lines.append(f"    {finding.rule.ljust(indent - 6)}  {first}")
        lines += [" " * indent + line for line in rest]
    return lines


def _evidence(finding: RuleFinding) -> str:
    if not finding.lines:
        return ""
    shown = ", ".join(str(line) for line in finding.lines[:MAX_LINES_NAMED])
    more = ", ..." if len(finding.lines) > MAX_LINES_NAMED else ""
    noun = "line" if len(finding.lines) == 1 else "lines"
    return f" ({noun} {shown}{more})"


def rules_table(rules: Iterable[tuple[str, str, str]], style: PageStyle) -> list[str]:
    """Name, summary and example of each rule."""
    rows: list[list[Cell | str]] = [
        [Cell(name, "bold"), summary, Cell(f"{name} = {example}", "dim")]
        for name, summary, example in rules
    ]
    return render_table(style, RULE_COLUMNS, rows)
