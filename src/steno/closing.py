"""What a run has shown, as its report: who and where, what was said, the lists, the figures, the verdict. Pure.

Closing changes nothing in the fold: it can be done again while the run goes on.
"""

import math
from collections import Counter
from datetime import datetime
from operator import attrgetter

import msgspec

from . import event as ev
from . import meter
from .account import Price, count, free, priced
from .decode import plain
from .fold import NOTHING, QUOTED, SAID, Fold
from .report import File, Lines, Report, Subagent, Tool, ToolCount
from .verdict import Facts, judge
from .whose import Span, able, only, running

_name = attrgetter("name")


def close(fold: Fold, lines: Lines, price: Price | None = None) -> Report:
    """The report of everything that the fold took in."""
    lines.unknown, lines.torn = fold.unknown, lines.torn or bool(fold.cut)
    price = free if fold.free else price
    report = Report(agent=fold.dialect.name, lines=lines)
    _about(fold, report)
    _said(fold, report)
    count(fold, report, price)
    _listed(fold, report)
    _roll_up(fold, report, price)
    _noted(fold, report)
    judge(_ending(fold, report)).into(report)
    return report


def _about(fold: Fold, report: Report) -> None:
    started = fold.started
    if started is not None:
        report.agent_version, report.model, report.cwd = started.agent_version, started.model, started.cwd or None
    if report.model is None:
        report.model = next((request.model for request in fold.requests.values() if request.parent is None), None)
    report.session_id, report.api_key_source = fold.session, fold.api_key_source
    report.started_at = fold.first_at
    code = fold.facts.exited.code if fold.facts.exited is not None else None
    report.exit_code = code
    report.signal = -code if code is not None and code < 0 else None


def _said(fold: Fold, report: Report) -> None:
    result, said = fold.result, fold.text
    if fold.latest[0] == QUOTED and result is not None and result.is_error and result.text == said[-1]:
        said = said[:-1]  # older versions tell an API error as if the model had said it
    report.text = "\n".join(said)
    if fold.partial and result is None:
        report.text = "\n".join(filter(None, (report.text, "".join(fold.partial))))
    if result is not None:
        report.result, report.subtype = result.text, result.subtype
        report.terminal_reason, report.stop_reason = result.terminal_reason, result.stop_reason
        checked = fold.facts.checked  # what does not fit is no structured output, whatever the agent calls it
        report.structured_output = plain(result.structured_output if checked is None else checked.value)
    elif fold.stop_reason != "unknown":
        report.stop_reason = fold.stop_reason
    report.complete = result is not None and not report.lines.torn


def _listed(fold: Fold, report: Report) -> None:
    report.tools = list(fold.calls.values())
    if fold.open or fold.denials or fold.background:
        report.tools = [_as_it_stands(fold, tool) for tool in report.tools]
    for name, calls in Counter(map(_name, report.tools)).items():
        report.tool_counts[name] = ToolCount(calls)
    for tool in report.tools:
        if tool.ok is False:
            report.tool_counts[tool.name].errors += 1
    report.files = _attributed(fold, report.tools) if fold.seen else list(fold.files.values())
    report.denials = list(fold.denials.values())
    for denial in report.denials:
        denial.allow_rule = fold.dialect.allow_rule(denial.tool or "", denial.input, report.cwd)
    report.background = list(fold.background.values())
    report.retries, report.limits = fold.retries, fold.limits


def _attributed(fold: Fold, tools: list[Tool]) -> list[File]:
    """The files; what only the disk or git showed is put down to the call that was running (W3)."""
    alone = only((tool.id, tool.kind) for tool in tools)
    spans = able(_span(tool, tool.started_at) for tool in tools if tool.started_at is not None)
    calls = {path: list(file.tools) for path, file in fold.files.items()}
    for file, event in fold.seen:
        if fold.files.get(file.absolute) is not file or (event.source == "git" and file.source != "git"):
            continue  # it came and went; or others told it better
        call = alone if event.source == "git" else running(spans, _ms(event.at)) if event.at is not None else None
        if call is not None and call not in calls[file.absolute]:
            calls[file.absolute].append(call)
    return [msgspec.structs.replace(file, tools=calls[path]) for path, file in fold.files.items()]


def _span(tool: Tool, begun: datetime) -> Span:
    return Span(tool.id, tool.kind, _ms(begun), math.inf if tool.duration_ms is None else _ms(begun) + tool.duration_ms)


def _ms(at: datetime) -> float:
    return at.timestamp() * 1000


def _as_it_stands(fold: Fold, tool: Tool) -> Tool:
    """A call with whether it was refused or went on beside the main thread; one that may still be answered, as it is now."""
    denied, background = tool.id in fold.denials, tool.id in fold.background
    if tool.ok is None or denied or background:
        return msgspec.structs.replace(tool, denied=denied, background=background)
    return tool


def _roll_up(fold: Fold, report: Report, price: Price | None) -> None:
    """Each subagent with its requests, under the call that started it (M9)."""
    mine: dict[str, list[ev.Usage]] = {call: [] for call in fold.subagents}
    for request in fold.requests.values():
        if request.parent is not None:
            mine.setdefault(fold.task_calls.get(request.parent, request.parent), []).append(request)
    for call, requests in mine.items():
        known = fold.subagents.get(call) or Subagent(call)
        exact = fold.free or all(request.final for request in requests)
        cost = meter.dollars(priced(requests, price)) if exact else None
        report.subagents.append(msgspec.structs.replace(known, tokens=meter.tokens_of(requests), cost_usd=cost))


def _noted(fold: Fold, report: Report) -> None:
    report.warnings += fold.cut
    stopped = [task for task in report.background if task.status in ("stopped", "killed")]
    if stopped:
        names = ", ".join(task.description or task.id for task in stopped)
        one, more = "background task was stopped before it was", "background tasks were stopped before they were"
        report.warnings.append(f"{_many(len(stopped), one, more)} done: {names}")
    if fold.facts.stop is not None and fold.facts.stop.why == "after_result":
        report.warnings.append("the agent lived on after its result, and was ended by us")
    urgency = meter.level(report.context.fraction)
    if urgency is not None and report.context.fraction is not None:
        report.warnings.append(f"context: {report.context.fraction:.0%} of the window is in use ({urgency})")
    for text in fold.left:
        pid, signal, command = (*text.split(" ", 2), "", "")[:3]
        how = "was left running" if signal == "-" else f"was ended by signal {signal}"
        report.warnings.append(f"orphan: process {pid} outlived the agent and {how}: {command}")
    if fold.repeated:
        what = _many(fold.repeated, "result was", "results were")
        report.warnings.append(f"{what} told once more, as where a stream is there twice: each counts once")
    if fold.orphans:
        report.warnings.append(_many(fold.orphans, "tool result came without its call", "tool results came without their call"))
    if fold.unknown:
        report.warnings.append(f"{fold.unknown} events of kinds this version does not know")


def _many(figure: int, one: str, more: str) -> str:
    return f"{figure} {one if figure == 1 else more}"


def _ended(fold: Fold) -> bool:
    """Whether a transcript, which has no result, ends with the model's last word."""
    if fold.started is None or not fold.started.transcript:
        return False
    return fold.latest[0] in (SAID, QUOTED) and fold.stop_reason in ("end_turn", None)


def _ending(fold: Fold, report: Report) -> Facts:
    final = report.result or (fold.text[-1] if fold.text else report.text)
    facts = msgspec.structs.replace(fold.facts, report=report, result=fold.result, final_text=final.strip())
    facts.ended = _ended(fold)
    facts.wording = fold.dialect.wording
    if report.exit_code:
        facts.exit_says = fold.dialect.exits(report.exit_code, facts.stderr)
    facts.reopened = bool(fold.results) and fold.main is not None and fold.main.line > fold.results[-1].line
    if fold.main is not None:
        facts.last_message = fold.main.message
    if fold.latest is not NOTHING:
        facts.last_message = fold.latest[1]
    if fold.denials:
        later = {tool.name: index for index, tool in enumerate(report.tools) if tool.ok}
        order = {tool.id: index for index, tool in enumerate(report.tools)}
        facts.refused = [
            (denial, fold.denied_at[key])
            for key, denial in fold.denials.items()
            if key not in fold.settled and later.get(denial.tool or "", -1) <= order.get(key, len(order))
        ]
    return facts
