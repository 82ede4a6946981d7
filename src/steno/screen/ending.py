"""What is shown when a task is over: the card, its attempts, and last the exact command to go on. It never prints."""

import msgspec

from ..report import TaskReport
from .card import card
from .clean import clean, pad
from .look import PageStyle
from .page import LABEL_COLUMNS, SectionRow, render_section
from .words import format_count, format_duration, format_money, verdict_colour


def task_summary(report: TaskReport, command: str | None, look: PageStyle) -> list[str]:
    """The lines of a task's end. The command stands on one line, however long, so that it can be copied."""
    found = card(report if command is None else _without_resume_hint(report), look)
    rows = _attempt_rows(report)
    if rows:
        found += ["", *render_section(look, "attempts", rows)]
    if command is not None:
        found += ["", look.paint(pad("continue", LABEL_COLUMNS), "dim") + clean(command)]
    return found


def _without_resume_hint(report: TaskReport) -> TaskReport:
    """Without a hint that says in the agent's own words what the command says in ours."""
    resumes = report.session_id is not None and report.session_id in (report.hint or "")
    return msgspec.structs.replace(report, hint=None) if resumes or report.verdict == "permission" else report


def _attempt_rows(report: TaskReport) -> list[SectionRow]:
    if len(report.attempts) < 2:
        return []
    found, mixed = [], len({attempt.agent for attempt in report.attempts}) > 1
    for number, attempt in enumerate(report.attempts, 1):
        turns = [format_count(attempt.turns, "turn")] if attempt.turns is not None else []
        whose = [attempt.agent or "unknown agent"] if mixed else []
        facts = [f"{number}. {attempt.verdict}", *whose, *turns, format_money(attempt.cost.usd), format_duration(attempt.duration_ms)]
        found.append(SectionRow(f"{' · '.join(facts)}; then: {attempt.why}", verdict_colour(attempt.verdict), hanging_indent=3))
    return found
