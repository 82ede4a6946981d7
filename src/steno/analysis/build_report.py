"""What a run has shown, as its report: who and where, what was said, the lists, the figures, the verdict. Pure.

Closing changes nothing in the fold: it can be done again while the run goes on.
"""

import math
from collections import Counter
from datetime import datetime
from operator import attrgetter

import msgspec

from .. import event as ev
from ..codec.decode import decode_raw
from ..report import ChangedFile, LineCounts, Report, Subagent, ToolCallCounts, ToolCallSummary
from . import usage as meter
from .accumulator import MODEL_TEXT, NO_ACTIVITY, SYNTHETIC_TEXT, Accumulator
from .attribution import CallSpan, call_running_at, file_changing_calls, only_possible_call
from .cost import PriceLookup, fill_usage, price_requests, zero_price
from .verdict import Facts, judge

_get_name = attrgetter("name")


def build_report(fold: Accumulator, lines: LineCounts, price: PriceLookup | None = None) -> Report:
    """The report of everything that the fold took in."""
    lines.unknown, lines.torn = fold.unknown, lines.torn or bool(fold.read_problems)
    price = zero_price if fold.is_free else price
    report = Report(agent=fold.agent.name, lines=lines)
    _fill_identity(fold, report)
    _fill_text(fold, report)
    fill_usage(fold, report, price)
    _fill_lists(fold, report)
    _fill_subagents(fold, report, price)
    _add_warnings(fold, report)
    judge(_verdict_facts(fold, report)).apply_to(report)
    return report


def _fill_identity(fold: Accumulator, report: Report) -> None:
    started = fold.started
    if started is not None:
        report.agent_version, report.model, report.cwd = (
            started.agent_version,
            started.model,
            started.cwd or None,
        )
    if report.model is None:
        report.model = next(
            (request.model for request in fold.requests.values() if request.parent is None), None
        )
    report.session_id, report.api_key_source = fold.session, fold.api_key_source
    report.started_at = fold.first_at
    code = fold.facts.exited.code if fold.facts.exited is not None else None
    report.exit_code = code
    report.signal = -code if code is not None and code < 0 else None


def _fill_text(fold: Accumulator, report: Report) -> None:
    result, said = fold.result, fold.texts
    if (
        fold.latest_activity[0] == SYNTHETIC_TEXT
        and result is not None
        and result.is_error
        and result.text == said[-1]
    ):
        said = said[:-1]  # older versions tell an API error as if the model had said it
    report.text = "\n".join(said)
    if fold.partial and result is None:
        report.text = "\n".join(filter(None, (report.text, "".join(fold.partial))))
    if result is not None:
        report.result, report.subtype = result.text, result.subtype
        report.terminal_reason, report.stop_reason = result.terminal_reason, result.stop_reason
        checked = (
            fold.facts.schema_check
        )  # what does not fit is no structured output, whatever the agent calls it
        report.structured_output = decode_raw(
            result.structured_output if checked is None else checked.value
        )
    elif fold.stop_reason != "unknown":
        report.stop_reason = fold.stop_reason
    report.complete = result is not None and not report.lines.torn


def _fill_lists(fold: Accumulator, report: Report) -> None:
    report.tools = list(fold.calls.values())
    if fold.open_calls or fold.denials or fold.background:
        report.tools = [_with_call_status(fold, tool) for tool in report.tools]
    for name, calls in Counter(map(_get_name, report.tools)).items():
        report.tool_counts[name] = ToolCallCounts(calls)
    for tool in report.tools:
        if tool.ok is False:
            report.tool_counts[tool.name].errors += 1
    report.files = (
        _attribute_files(fold, report.tools) if fold.observed_changes else list(fold.files.values())
    )
    report.denials = list(fold.denials.values())
    for denial in report.denials:
        denial.allow_rule = fold.agent.allow_rule(denial.tool or "", denial.input, report.cwd)
    report.background = list(fold.background.values())
    report.retries, report.limits = fold.retries, fold.limits


def _attribute_files(fold: Accumulator, tools: list[ToolCallSummary]) -> list[ChangedFile]:
    """The files; what only the disk or git showed is put down to the call that was running (W3)."""
    alone = only_possible_call((tool.id, tool.kind) for tool in tools)
    spans = file_changing_calls(
        _call_span(tool, tool.started_at) for tool in tools if tool.started_at is not None
    )
    calls = {path: list(file.tools) for path, file in fold.files.items()}
    for file, event in fold.observed_changes:
        if fold.files.get(file.absolute) is not file or (
            event.source == "git" and file.source != "git"
        ):
            continue  # it came and went; or others told it better
        call = (
            alone
            if event.source == "git"
            else call_running_at(spans, _to_ms(event.at))
            if event.at is not None
            else None
        )
        if call is not None and call not in calls[file.absolute]:
            calls[file.absolute].append(call)
    return [msgspec.structs.replace(file, tools=calls[path]) for path, file in fold.files.items()]


def _call_span(tool: ToolCallSummary, begun: datetime) -> CallSpan:
    return CallSpan(
        tool.id,
        tool.kind,
        _to_ms(begun),
        math.inf if tool.duration_ms is None else _to_ms(begun) + tool.duration_ms,
    )


def _to_ms(at: datetime) -> float:
    return at.timestamp() * 1000


def _with_call_status(fold: Accumulator, tool: ToolCallSummary) -> ToolCallSummary:
    """A call with whether it was refused or went on beside the main thread; one that may still be answered, as it is now."""
    denied, background = tool.id in fold.denials, tool.id in fold.background
    if tool.ok is None or denied or background:
        return msgspec.structs.replace(tool, denied=denied, background=background)
    return tool


def _fill_subagents(fold: Accumulator, report: Report, price: PriceLookup | None) -> None:
    """Each subagent with its requests, under the call that started it (M9)."""
    mine: dict[str, list[ev.Usage]] = {call: [] for call in fold.subagents}
    for request in fold.requests.values():
        if request.parent is not None:
            mine.setdefault(fold.call_by_task.get(request.parent, request.parent), []).append(
                request
            )
    for call, requests in mine.items():
        known = fold.subagents.get(call) or Subagent(call)
        exact = fold.is_free or all(request.final for request in requests)
        cost = meter.nano_to_usd(price_requests(requests, price)) if exact else None
        report.subagents.append(
            msgspec.structs.replace(known, tokens=meter.sum_tokens(requests), cost_usd=cost)
        )


def _add_warnings(fold: Accumulator, report: Report) -> None:
    report.warnings += fold.read_problems
    stopped = [task for task in report.background if task.status in ("stopped", "killed")]
    if stopped:
        names = ", ".join(task.description or task.id for task in stopped)
        one, more = (
            "background task was stopped before it was",
            "background tasks were stopped before they were",
        )
        report.warnings.append(f"{_pluralize(len(stopped), one, more)} done: {names}")
    if fold.facts.stop is not None and fold.facts.stop.why == "after_result":
        report.warnings.append("the agent lived on after its result, and was ended by us")
    urgency = meter.context_level(report.context.fraction)
    if urgency is not None and report.context.fraction is not None:
        report.warnings.append(
            f"context: {report.context.fraction:.0%} of the window is in use ({urgency})"
        )
    for text in fold.leftover_processes:
        pid, signal, command = (*text.split(" ", 2), "", "")[:3]
        how = "was left running" if signal == "-" else f"was ended by signal {signal}"
        report.warnings.append(f"orphan: process {pid} outlived the agent and {how}: {command}")
    if fold.duplicate_results:
        what = _pluralize(fold.duplicate_results, "result was", "results were")
        report.warnings.append(
            f"{what} told once more, as where a stream is there twice: each counts once"
        )
    if fold.orphan_results:
        report.warnings.append(
            _pluralize(
                fold.orphan_results,
                "tool result came without its call",
                "tool results came without their call",
            )
        )
    if fold.unknown:
        report.warnings.append(f"{fold.unknown} events of kinds this version does not know")


def _pluralize(figure: int, one: str, more: str) -> str:
    return f"{figure} {one if figure == 1 else more}"


def _is_transcript_complete(fold: Accumulator) -> bool:
    """Whether a transcript, which has no result, ends with the model's last word."""
    if fold.started is None or not fold.started.transcript:
        return False
    return fold.latest_activity[0] in (MODEL_TEXT, SYNTHETIC_TEXT) and fold.stop_reason in (
        "end_turn",
        None,
    )


def _verdict_facts(fold: Accumulator, report: Report) -> Facts:
    final = report.result or (fold.texts[-1] if fold.texts else report.text)
    facts = msgspec.structs.replace(
        fold.facts, report=report, result=fold.result, final_text=final.strip()
    )
    facts.is_transcript_complete = _is_transcript_complete(fold)
    facts.hint_templates = fold.agent.hints
    if report.exit_code:
        facts.exit_code_meaning = fold.agent.classify_exit(report.exit_code, facts.stderr)
    facts.has_later_requests = (
        bool(fold.results)
        and fold.main_request is not None
        and fold.main_request.line > fold.results[-1].line
    )
    if fold.main_request is not None:
        facts.last_message_id = fold.main_request.message
    if fold.latest_activity is not NO_ACTIVITY:
        facts.last_message_id = fold.latest_activity[1]
    if fold.denials:
        later = {tool.name: index for index, tool in enumerate(report.tools) if tool.ok}
        order = {tool.id: index for index, tool in enumerate(report.tools)}
        facts.unresolved_denials = [
            (denial, fold.denial_lines[key])
            for key, denial in fold.denials.items()
            if key not in fold.settled_denials
            and later.get(denial.tool or "", -1) <= order.get(key, len(order))
        ]
    return facts
