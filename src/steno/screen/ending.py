"""What is shown when a task is over: the card, its attempts, and last the exact command to go on. It never prints."""

import msgspec

from ..report import TaskReport
from .card import card
from .clean import clean, pad
from .look import Look
from .page import LABEL, Row, part
from .words import colour_of, money, several, span


def ending(report: TaskReport, command: str | None, look: Look) -> list[str]:
    """The lines of a task's end. The command stands on one line, however long, so that it can be copied."""
    found = card(report if command is None else _unsaid(report), look)
    rows = _attempts(report)
    if rows:
        found += ["", *part(look, "attempts", rows)]
    if command is not None:
        found += ["", look.paint(pad("continue", LABEL), "dim") + clean(command)]
    return found


def _unsaid(report: TaskReport) -> TaskReport:
    """Without a hint that says in the agent's own words what the command says in ours."""
    resumes = report.session_id is not None and report.session_id in (report.hint or "")
    return msgspec.structs.replace(report, hint=None) if resumes or report.verdict == "permission" else report


def _attempts(report: TaskReport) -> list[Row]:
    if len(report.attempts) < 2:
        return []
    found, mixed = [], len({attempt.agent for attempt in report.attempts}) > 1
    for number, attempt in enumerate(report.attempts, 1):
        turns = [several(attempt.turns, "turn")] if attempt.turns is not None else []
        whose = [attempt.agent or "unknown agent"] if mixed else []
        facts = [f"{number}. {attempt.verdict}", *whose, *turns, money(attempt.cost.usd), span(attempt.duration_ms)]
        found.append(Row(f"{' · '.join(facts)}; then: {attempt.why}", colour_of(attempt.verdict), hang=3))
    return found
