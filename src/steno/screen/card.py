"""The card: one run's report as a page for people. It lays out what the report says; it never judges or prints."""

from collections.abc import Iterable
from itertools import islice

import msgspec

from ..report import ADVISORY, Report
from . import figures, work
from .clean import wrap
from .look import Look
from .page import LABEL, Row, headline, part
from .words import VERDICTS, colour_of, moment, number, several, span

ANSWER_LINES = 12  # enough to recognise an answer; --text gives all of it
WARNINGS = 8


def card(report: Report, look: Look, extra: Iterable[Row] = ()) -> list[str]:
    """The whole card, its groups apart by a blank line. `extra` rows stand below the cost."""
    groups = [
        _head(report, look),
        _about(report, look),
        _answer(report, look),
        figures.lines(report, look, extra),
        work.lines(report, look),
        part(look, "next", [Row(report.hint, "bold", most=6)] if report.hint else []),
    ]
    found: list[str] = []
    for group in groups:
        if group and found:
            found.append("")
        found += group
    return found


def _head(report: Report, look: Look) -> list[str]:
    return headline(look, report.verdict, colour_of(report.verdict), _why(report))


def _why(report: Report) -> str:
    """The run's own words for how it ended, else ours."""
    if report.error and report.error.strip():
        return report.error.strip()
    told = _advisory(report)
    return told.partition(":")[2].strip() if told else VERDICTS.get(report.verdict, ("", "how it ended is not known"))[1]


def _advisory(report: Report) -> str | None:
    """The warning that the verdict rests on: it is in the headline and not said again."""
    if report.error or report.verdict not in ("interactive", "background_task", "permission"):
        return None
    return next((warning for warning in report.warnings if warning.startswith(ADVISORY)), None)


def _about(report: Report, look: Look) -> list[str]:
    agent = " ".join(filter(None, (report.agent or "unknown agent", report.agent_version)))
    key = f"key: {report.api_key_source}" if report.api_key_source else None
    found = part(look, "agent", [Row(" · ".join(filter(None, (agent, report.model or "model unknown", key))))])
    found += part(look, "session", _known(report.session_id))
    found += part(look, "folder", _known(report.cwd))
    found += part(look, "started", _known(moment(report.started_at) if report.started_at is not None else None))
    found += part(look, "run", [Row(" · ".join(_run(report)))])
    if report.evidence:
        shown = ", ".join(map(str, report.evidence[:12])) + (" …" if len(report.evidence) > 12 else "")
        found += part(look, "evidence", [Row(f"line{'s' if len(report.evidence) > 1 else ''} {shown} of the recording")])
    return found + part(look, "warnings", _warnings(report))


def _known(text: str | None) -> list[Row]:
    return [Row(text)] if text else []


def _run(report: Report) -> list[str]:
    facts = [f"{several(report.turns, 'turn') if report.turns is not None else 'turns unknown'}"]
    facts.append(several(report.requests, "request"))
    facts.append(span(report.duration_ms) if report.duration_ms is not None else "time unknown")
    if report.duration_api_ms is not None:
        facts[-1] += f" ({span(report.duration_api_ms)} in requests)"
    if report.signal is not None:
        facts.append(f"ended by signal {report.signal}")
    elif report.exit_code is not None:
        facts.append(f"exit code {report.exit_code}")
    return facts


def _warnings(report: Report) -> list[Row]:
    told = _advisory(report)
    rows = [Row(warning, "yellow") for warning in report.warnings if warning != told]
    more = len(rows) - WARNINGS
    return rows if more <= 0 else [*rows[:WARNINGS], Row(f"and {more} more", "dim")]


def _answer(report: Report, look: Look) -> list[str]:
    """What the agent said at the end, unless the headline says it already."""
    text = (report.result or report.text).strip("\r\n ")
    if not text and report.structured_output is not None:
        text = msgspec.json.format(msgspec.json.encode(report.structured_output), indent=2).decode("utf-8")
    if not text or text == (report.error or "").strip():
        return []
    room = look.columns - LABEL
    head = text[: room * ANSWER_LINES * 4]
    wrapped = wrap(head, room)
    rows = [Row(line, hang=0, most=1) for line in islice(wrapped, ANSWER_LINES)]
    if len(head) < len(text) or next(wrapped, None) is not None:
        rows.append(Row(f"… cut here: all {number(len(text))} characters with --text", "dim"))
    return part(look, "answer", rows)
