"""The card: one run's report as a page for people. It lays out what the report says; it never judges or prints."""

from collections.abc import Iterable
from itertools import islice

import msgspec

from ..report import ADVISORY_PREFIXES, Report
from . import figures, work
from .clean import wrap
from .look import PageStyle
from .page import LABEL_COLUMNS, SectionRow, headline, render_section
from .words import VERDICT_DISPLAY, format_count, format_duration, format_number, format_time, verdict_colour

MAX_ANSWER_LINES = 12  # enough to recognise an answer; --text gives all of it
MAX_WARNINGS = 8


def card(report: Report, look: PageStyle, extra: Iterable[SectionRow] = ()) -> list[str]:
    """The whole card, its groups apart by a blank line. `extra` rows stand below the cost."""
    groups = [
        _headline(report, look),
        _run_section(report, look),
        _answer_section(report, look),
        figures.usage_section(report, look, extra),
        work.activity_section(report, look),
        render_section(look, "next", [SectionRow(report.hint, "bold", max_lines=6)] if report.hint else []),
    ]
    found: list[str] = []
    for group in groups:
        if group and found:
            found.append("")
        found += group
    return found


def _headline(report: Report, look: PageStyle) -> list[str]:
    return headline(look, report.verdict, verdict_colour(report.verdict), _headline_text(report))


def _headline_text(report: Report) -> str:
    """The run's own words for how it ended, else ours."""
    if report.error and report.error.strip():
        return report.error.strip()
    told = _advisory_warning(report)
    return told.partition(":")[2].strip() if told else VERDICT_DISPLAY.get(report.verdict, ("", "how it ended is not known"))[1]


def _advisory_warning(report: Report) -> str | None:
    """The warning that the verdict rests on: it is in the headline and not said again."""
    if report.error or report.verdict not in ("interactive", "background_task", "permission"):
        return None
    return next((warning for warning in report.warnings if warning.startswith(ADVISORY_PREFIXES)), None)


def _run_section(report: Report, look: PageStyle) -> list[str]:
    agent = " ".join(filter(None, (report.agent or "unknown agent", report.agent_version)))
    key = f"key: {report.api_key_source}" if report.api_key_source else None
    found = render_section(look, "agent", [SectionRow(" · ".join(filter(None, (agent, report.model or "model unknown", key))))])
    found += render_section(look, "session", _optional_row(report.session_id))
    found += render_section(look, "folder", _optional_row(report.cwd))
    found += render_section(look, "started", _optional_row(format_time(report.started_at) if report.started_at is not None else None))
    found += render_section(look, "run", [SectionRow(" · ".join(_run_facts(report)))])
    if report.evidence:
        shown = ", ".join(map(str, report.evidence[:12])) + (" …" if len(report.evidence) > 12 else "")
        found += render_section(look, "evidence", [SectionRow(f"line{'s' if len(report.evidence) > 1 else ''} {shown} of the recording")])
    return found + render_section(look, "warnings", _warning_rows(report))


def _optional_row(text: str | None) -> list[SectionRow]:
    return [SectionRow(text)] if text else []


def _run_facts(report: Report) -> list[str]:
    facts = [f"{format_count(report.turns, 'turn') if report.turns is not None else 'turns unknown'}"]
    facts.append(format_count(report.requests, "request"))
    facts.append(format_duration(report.duration_ms) if report.duration_ms is not None else "time unknown")
    if report.duration_api_ms is not None:
        facts[-1] += f" ({format_duration(report.duration_api_ms)} in requests)"
    if report.signal is not None:
        facts.append(f"ended by signal {report.signal}")
    elif report.exit_code is not None:
        facts.append(f"exit code {report.exit_code}")
    return facts


def _warning_rows(report: Report) -> list[SectionRow]:
    told = _advisory_warning(report)
    rows = [SectionRow(warning, "yellow") for warning in report.warnings if warning != told]
    more = len(rows) - MAX_WARNINGS
    return rows if more <= 0 else [*rows[:MAX_WARNINGS], SectionRow(f"and {more} more", "dim")]


def _answer_section(report: Report, look: PageStyle) -> list[str]:
    """What the agent said at the end, unless the headline says it already."""
    text = (report.result or report.text).strip("\r\n ")
    if not text and report.structured_output is not None:
        text = msgspec.json.format(msgspec.json.encode(report.structured_output), indent=2).decode("utf-8")
    if not text or text == (report.error or "").strip():
        return []
    room = look.columns - LABEL_COLUMNS
    head = text[: room * MAX_ANSWER_LINES * 4]
    wrapped = wrap(head, room)
    rows = [SectionRow(line, hanging_indent=0, max_lines=1) for line in islice(wrapped, MAX_ANSWER_LINES)]
    if len(head) < len(text) or next(wrapped, None) is not None:
        rows.append(SectionRow(f"… cut here: all {format_number(len(text))} characters with --text", "dim"))
    return render_section(look, "answer", rows)
