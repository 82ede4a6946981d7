"""What a run did and met, for the card: calls, files, refusals, retries, limits, work beside it. It never prints."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..report import BackgroundTask, ChangedFile, DeniedCall, LineCounts, Report, RequestRetry, Subagent, ToolCallSummary
from .clean import single_line
from .look import PageStyle
from .page import LABEL_COLUMNS, SectionRow, render_section
from .tables import align_columns
from .words import (
    UNKNOWN,
    call_target,
    format_count,
    format_duration,
    format_epoch,
    format_money,
    format_number,
    format_percent,
    strip_tag,
)

MAX_ROWS_PER_SECTION = 8  # of each kind: a card is a page, --tools and --files have the rest
CHANGE_COLOURS = {"created": "green", "deleted": "red"}
Item = TypeVar("Item")


def activity_section(report: Report, look: PageStyle) -> list[str]:
    """All that there is something to say about."""
    room = look.columns - LABEL_COLUMNS
    parts = (
        ("tools", _tool_rows(report.tools, room)),
        ("failed", _failure_rows(report.tools)),
        ("files", _file_rows(report.files)),
        ("refused", _denial_rows(report.denials)),
        ("subagents", _subagent_rows(report.subagents, {task.id for task in report.background})),
        ("background", _background_rows(report.background, {one.id for one in report.subagents})),
        ("retries", _retry_rows(report.retries)),
        ("limits", _rate_limit_rows(report)),
        ("lines", _bad_line_rows(report.lines, report.warnings)),
    )
    return [line for label, rows in parts for line in render_section(look, label, rows)]


def _limit_items(items: Sequence[Item], option: str = "") -> tuple[Sequence[Item], list[SectionRow]]:
    """The items that are shown, and a row on the others."""
    more = len(items) - MAX_ROWS_PER_SECTION
    note = f"and {more} more" + (f": {option}" if option else "")
    return items[:MAX_ROWS_PER_SECTION], [SectionRow(note, "dim")] if more > 0 else []


# -- calls ---------------------------------------------------------------------------------------------------


def _tool_rows(tools: list[ToolCallSummary], room: int) -> list[SectionRow]:
    by_name: dict[str, list[ToolCallSummary]] = {}
    for tool in tools:
        by_name.setdefault(tool.name, []).append(tool)
    shown, more = _limit_items(list(by_name.items()), "--tools")
    table = [[name, format_count(len(calls), "call"), _total_duration(calls), _failure_counts(calls)] for name, calls in shown]
    return [SectionRow(line, max_lines=1) for line in align_columns(table, room, right_aligned=(1, 2))] + more


def _total_duration(calls: Iterable[ToolCallSummary]) -> str:
    """The time of all calls together; with a mark where some of it is not known."""
    spans = [call.duration_ms for call in calls]
    known = [length for length in spans if length is not None]
    if not known:
        return "time unknown"
    return ("≥ " if len(known) < len(spans) else "") + format_duration(sum(known))


def _failure_counts(calls: Iterable[ToolCallSummary]) -> str:
    counts = {"failed": 0, "refused": 0, "without a result": 0}
    for call in calls:
        if call.denied:
            counts["refused"] += 1
        elif not call.ok:
            counts["without a result" if call.ok is None else "failed"] += 1
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _failure_rows(tools: list[ToolCallSummary]) -> list[SectionRow]:
    failed = [tool for tool in tools if tool.ok is False and not tool.denied]
    shown, more = _limit_items(failed, "--tools")
    return [SectionRow(f"{single_line(tool.name)}: {_error_text(tool)}", max_lines=2) for tool in shown] + more


def _error_text(tool: ToolCallSummary) -> str:
    return single_line(strip_tag(tool.error or "")) or "no reason given"


def _file_rows(files: list[ChangedFile]) -> list[SectionRow]:
    shown, more = _limit_items(files, "--files")
    rows = []
    for file in shown:
        notes = [] if file.inside else ["outside the folder"]
        if file.source != "tool":
            notes.append(f"seen by {file.source}")
        note = f"  ({', '.join(notes)})" if notes else ""
        rows.append(SectionRow(f"{file.change:8}  {single_line(file.path)}{note}", CHANGE_COLOURS.get(file.change, ""), hanging_indent=10))
    return rows + more


def _denial_rows(denials: list[DeniedCall]) -> list[SectionRow]:
    told: dict[tuple[str, str, str, str], int] = {}
    for denial in denials:
        key = (denial.tool or "a tool", call_target(denial.input), denial.reason or "", denial.allow_rule or "")
        told[key] = told.get(key, 0) + 1
    shown, more = _limit_items(list(told.items()))
    rows = []
    for (tool, what, reason, allow), times in shown:
        rows.append(SectionRow(f"{times} × " * (times > 1) + f"{tool}  {single_line(what)}", max_lines=2))
        rows += [SectionRow("  " + single_line(reason), "dim", max_lines=2)] if reason else []
        rows += [SectionRow(f"  allow: {single_line(allow)}", hanging_indent=4, max_lines=2)] if allow else []
    return rows + more


# -- what went on beside it -------------------------------------------------------------------------------------


def _subagent_rows(subagents: list[Subagent], background: set[str]) -> list[SectionRow]:
    shown, more = _limit_items(subagents)
    rows = []
    for one in shown:
        name = " ".join(filter(None, (one.type or "subagent", f"“{single_line(one.description)}”" if one.description else None)))
        status = _status_text(one.status or "status unknown") + (" in the background" if one.id in background else "")
        cost = f", {format_money(one.cost_usd)}" if one.cost_usd is not None else ""
        rows.append(SectionRow(f"{name}: {status}, {format_number(one.tokens.total)} tokens{cost}", _status_style(one.status)))
    return rows + more


def _background_rows(tasks: list[BackgroundTask], subagents: set[str]) -> list[SectionRow]:
    """Work in the background, except subagents, which are told of already."""
    shown, more = _limit_items([task for task in tasks if task.id not in subagents])
    rows = []
    for task in shown:
        name = single_line(" ".join(filter(None, (task.kind, task.description)))) or task.id
        rows.append(SectionRow(f"{name}: {_status_text(task.status)}", _status_style(task.status)))
    return rows + more


def _status_text(word: str) -> str:
    return "not seen to end" if word == "running" else word


def _status_style(word: str | None) -> str:
    return "yellow" if word == "running" else ""


def _retry_rows(retries: list[RequestRetry]) -> list[SectionRow]:
    kinds: dict[str, list[RequestRetry]] = {}
    for retry in retries:
        name = " ".join(filter(None, (str(retry.status) if retry.status is not None else None, retry.error)))
        kinds.setdefault(name or "reason unknown", []).append(retry)
    shown, more = _limit_items(list(kinds.items()))
    return [SectionRow(f"{len(notes)} × {single_line(kind)}, {_total_wait(notes)}") for kind, notes in shown] + more


def _total_wait(notes: list[RequestRetry]) -> str:
    waits = [note.delay_ms for note in notes]
    known = [wait for wait in waits if wait is not None]
    if len(known) < len(waits):
        return "wait " + UNKNOWN
    return f"waited {format_duration(sum(known))}" + (" in all" if len(known) > 1 else "")


def _rate_limit_rows(report: Report) -> list[SectionRow]:
    limits = report.limits
    facts = [
        " ".join(filter(None, (limits.kind, limits.status))),
        f"{format_percent(limits.utilization)} used" if limits.utilization is not None else "",
        f"resets {format_epoch(limits.resets_at)}" if limits.resets_at is not None else "",
    ]
    text = " · ".join(filter(None, facts))
    return [SectionRow(text)] if text else []


def _bad_line_rows(lines: LineCounts, warnings: list[str]) -> list[SectionRow]:
    """Lines that were odd. Unknown kinds are a warning already, as a rule."""
    told = any("does not know" in warning for warning in warnings)
    facts = [
        f"{format_number(lines.malformed)} malformed" if lines.malformed else "",
        f"{format_number(lines.not_object)} not objects" if lines.not_object else "",
        f"{format_number(lines.unknown)} of unknown kinds" if lines.unknown and not told else "",
        "the last one cut" if lines.torn else "",
    ]
    text = ", ".join(filter(None, facts))
    return [SectionRow(f"of {format_number(lines.read)} lines: {text}", "yellow")] if text else []
