"""What a run did and met, for the card: calls, files, refusals, retries, limits, work beside it. It never prints."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..report import Background, Denial, File, Lines, Report, RetryNote, Subagent, Tool
from .clean import flat
from .look import Look
from .page import LABEL, Row, part
from .tables import aligned
from .words import UNKNOWN, epoch, money, number, percent, several, span, target, untagged

SHOWN = 8  # of each kind: a card is a page, --tools and --files have the rest
CHANGES = {"created": "green", "deleted": "red"}
T = TypeVar("T")


def lines(report: Report, look: Look) -> list[str]:
    """All that there is something to say about."""
    room = look.columns - LABEL
    parts = (
        ("tools", _tools(report.tools, room)),
        ("failed", _failed(report.tools)),
        ("files", _files(report.files)),
        ("refused", _denials(report.denials)),
        ("subagents", _subagents(report.subagents, {task.id for task in report.background})),
        ("background", _background(report.background, {one.id for one in report.subagents})),
        ("retries", _retries(report.retries)),
        ("limits", _limits(report)),
        ("lines", _lines(report.lines, report.warnings)),
    )
    return [line for label, rows in parts for line in part(look, label, rows)]


def _first(items: Sequence[T], option: str = "") -> tuple[Sequence[T], list[Row]]:
    """The items that are shown, and a row on the others."""
    more = len(items) - SHOWN
    note = f"and {more} more" + (f": {option}" if option else "")
    return items[:SHOWN], [Row(note, "dim")] if more > 0 else []


# -- calls ---------------------------------------------------------------------------------------------------


def _tools(tools: list[Tool], room: int) -> list[Row]:
    by_name: dict[str, list[Tool]] = {}
    for tool in tools:
        by_name.setdefault(tool.name, []).append(tool)
    shown, more = _first(list(by_name.items()), "--tools")
    table = [[name, several(len(calls), "call"), _time(calls), _troubles(calls)] for name, calls in shown]
    return [Row(line, most=1) for line in aligned(table, room, right=(1, 2))] + more


def _time(calls: Iterable[Tool]) -> str:
    """The time of all calls together; with a mark where some of it is not known."""
    spans = [call.duration_ms for call in calls]
    known = [length for length in spans if length is not None]
    if not known:
        return "time unknown"
    return ("≥ " if len(known) < len(spans) else "") + span(sum(known))


def _troubles(calls: Iterable[Tool]) -> str:
    counts = {"failed": 0, "refused": 0, "without a result": 0}
    for call in calls:
        if call.denied:
            counts["refused"] += 1
        elif not call.ok:
            counts["without a result" if call.ok is None else "failed"] += 1
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _failed(tools: list[Tool]) -> list[Row]:
    failed = [tool for tool in tools if tool.ok is False and not tool.denied]
    shown, more = _first(failed, "--tools")
    return [Row(f"{flat(tool.name)}: {_reason(tool)}", most=2) for tool in shown] + more


def _reason(tool: Tool) -> str:
    return flat(untagged(tool.error or "")) or "no reason given"


def _files(files: list[File]) -> list[Row]:
    shown, more = _first(files, "--files")
    rows = []
    for file in shown:
        notes = [] if file.inside else ["outside the folder"]
        if file.source != "tool":
            notes.append(f"seen by {file.source}")
        note = f"  ({', '.join(notes)})" if notes else ""
        rows.append(Row(f"{file.change:8}  {flat(file.path)}{note}", CHANGES.get(file.change, ""), hang=10))
    return rows + more


def _denials(denials: list[Denial]) -> list[Row]:
    told: dict[tuple[str, str, str, str], int] = {}
    for denial in denials:
        key = (denial.tool or "a tool", target(denial.input), denial.reason or "", denial.allow_rule or "")
        told[key] = told.get(key, 0) + 1
    shown, more = _first(list(told.items()))
    rows = []
    for (tool, what, reason, allow), times in shown:
        rows.append(Row(f"{times} × " * (times > 1) + f"{tool}  {flat(what)}", most=2))
        rows += [Row("  " + flat(reason), "dim", most=2)] if reason else []
        rows += [Row(f"  allow: {flat(allow)}", hang=4, most=2)] if allow else []
    return rows + more


# -- what went on beside it -------------------------------------------------------------------------------------


def _subagents(subagents: list[Subagent], background: set[str]) -> list[Row]:
    shown, more = _first(subagents)
    rows = []
    for one in shown:
        name = " ".join(filter(None, (one.type or "subagent", f"“{flat(one.description)}”" if one.description else None)))
        status = _status(one.status or "status unknown") + (" in the background" if one.id in background else "")
        cost = f", {money(one.cost_usd)}" if one.cost_usd is not None else ""
        rows.append(Row(f"{name}: {status}, {number(one.tokens.total)} tokens{cost}", _worry(one.status)))
    return rows + more


def _background(tasks: list[Background], subagents: set[str]) -> list[Row]:
    """Work in the background, except subagents, which are told of already."""
    shown, more = _first([task for task in tasks if task.id not in subagents])
    rows = []
    for task in shown:
        name = flat(" ".join(filter(None, (task.kind, task.description)))) or task.id
        rows.append(Row(f"{name}: {_status(task.status)}", _worry(task.status)))
    return rows + more


def _status(word: str) -> str:
    return "not seen to end" if word == "running" else word


def _worry(word: str | None) -> str:
    return "yellow" if word == "running" else ""


def _retries(retries: list[RetryNote]) -> list[Row]:
    kinds: dict[str, list[RetryNote]] = {}
    for retry in retries:
        name = " ".join(filter(None, (str(retry.status) if retry.status is not None else None, retry.error)))
        kinds.setdefault(name or "reason unknown", []).append(retry)
    shown, more = _first(list(kinds.items()))
    return [Row(f"{len(notes)} × {flat(kind)}, {_waits(notes)}") for kind, notes in shown] + more


def _waits(notes: list[RetryNote]) -> str:
    waits = [note.delay_ms for note in notes]
    known = [wait for wait in waits if wait is not None]
    if len(known) < len(waits):
        return "wait " + UNKNOWN
    return f"waited {span(sum(known))}" + (" in all" if len(known) > 1 else "")


def _limits(report: Report) -> list[Row]:
    limits = report.limits
    facts = [
        " ".join(filter(None, (limits.kind, limits.status))),
        f"{percent(limits.utilization)} used" if limits.utilization is not None else "",
        f"resets {epoch(limits.resets_at)}" if limits.resets_at is not None else "",
    ]
    text = " · ".join(filter(None, facts))
    return [Row(text)] if text else []


def _lines(lines: Lines, warnings: list[str]) -> list[Row]:
    """Lines that were odd. Unknown kinds are a warning already, as a rule."""
    told = any("does not know" in warning for warning in warnings)
    facts = [
        f"{number(lines.malformed)} malformed" if lines.malformed else "",
        f"{number(lines.not_object)} not objects" if lines.not_object else "",
        f"{number(lines.unknown)} of unknown kinds" if lines.unknown and not told else "",
        "the last one cut" if lines.torn else "",
    ]
    text = ", ".join(filter(None, facts))
    return [Row(f"of {number(lines.read)} lines: {text}", "yellow")] if text else []
