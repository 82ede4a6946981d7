"""Builds the report of a run from its accumulator. Pure.

The accumulator is left unchanged, so that a report can be built at any time during a run.
"""

from collections import Counter

import msgspec

from .. import event as ev
from ..codec.decode import MAX_LINE_BYTES, decode_raw
from ..report import (
    AgentSetup,
    BackgroundTask,
    DeniedCall,
    LineCounts,
    Report,
    RunOrigin,
    Subagent,
    ToolCallCounts,
    ToolCallSummary,
)
from .accumulator import MODEL_TEXT, SYNTHETIC_TEXT, TOOL_CALL, Accumulator
from .context import context_level
from .cost import fill_usage, price_requests, zero_price
from .facts import Facts
from .list_price import PriceLookup
from .lower_bounds import count_of, unreported_subagents
from .usage import context_tokens, nano_to_usd, sum_tokens
from .verdict import ended_after_result, judge


def build_report(run: Accumulator, lines: LineCounts, price: PriceLookup | None = None) -> Report:
    """The report of everything the accumulator took in."""
    lines.unknown = run.unknown
    lines.torn = lines.torn or bool(run.read_problems)
    price = zero_price if run.is_free else price
    report = Report(agent=run.agent.name, lines=lines)
    if run.started is not None:
        report.agent_version = run.started.agent_version
        report.cwd = run.started.cwd or None
        report.origin = RunOrigin(
            repository=run.started.repository,
            branch=run.started.branch,
            commit=run.started.commit,
        )
        report.setup = AgentSetup(
            skills=run.started.skills,
            agents=run.started.agents,
            plugins=run.started.plugins,
            slash_commands=run.started.slash_commands,
        )
    report.model = run.model
    report.session_id = run.session
    report.api_key_source = run.api_key_source
    report.started_at = run.first_at
    code = run.facts.exited.code if run.facts.exited is not None else None
    report.exit_code = code
    report.signal = -code if code is not None and code < 0 else None

    result = run.result
    texts = run.texts
    if result is not None and result.is_error and run.latest_activity == SYNTHETIC_TEXT:
        # Older versions print an API error as an answer, too.
        texts = texts[:-1] if result.text == texts[-1] else texts
    report.text = "\n".join(texts)
    if run.partial and result is None:
        report.text = "\n".join(filter(None, (report.text, "".join(run.partial))))
    if result is not None:
        report.result = result.text
        report.subtype = result.subtype
        report.terminal_reason = result.terminal_reason
        report.stop_reason = result.stop_reason
        # A value that fails the schema check is not reported, whatever the agent says.
        checked = run.facts.schema_check
        structured = result.structured_output if checked is None else checked.value
        if structured is not ev.NO_JSON:
            report.structured_output = decode_raw(structured)
    elif run.stop_reason != "unknown":
        report.stop_reason = run.stop_reason
    report.complete = result is not None and not lines.torn

    fill_usage(run, report, price)
    _fill_lists(run, report, price)
    _add_warnings(run, report)
    judge(_verdict_facts(run, report)).apply_to(report)
    return report


def _fill_lists(run: Accumulator, report: Report, price: PriceLookup | None) -> None:
    report.tools = list(run.calls.values())
    if run.open_calls or run.abandoned_calls or run.denials or run.background:
        report.tools = [_with_call_status(run, tool) for tool in report.tools]
    for name, calls in Counter([tool.name for tool in report.tools]).items():
        report.tool_counts[name] = ToolCallCounts(calls)
    for call in run.failed_calls:
        report.tool_counts[run.calls[call].name].errors += 1
    report.files = run.files.attributed(report.tools)
    report.denials = list(run.denials.values())
    for denial in report.denials:
        denied_call = run.calls.get(denial.id or "")
        reason = denial.reason or (denied_call.error if denied_call is not None else None)
        denial.allow_rule = run.agent.allow_rule(
            denial.tool or "", denial.input, report.cwd, reason
        )
    report.background = list(run.background.values())
    report.retries = run.retries
    report.limits = run.limits
    # Each subagent with its requests, under the call that started it.
    requests_by_call: dict[str, list[ev.Usage]] = {call: [] for call in run.subagents}
    for request in run.requests.values():
        if request.parent is not None:
            call = run.call_by_task.get(request.parent, request.parent)
            requests_by_call.setdefault(call, []).append(request)
    unreported = set(unreported_subagents(run))
    for call, requests in requests_by_call.items():
        subagent = run.subagents.get(call) or Subagent(call)
        status = subagent.status
        if call in unreported:
            status = "completed" if run.calls[call].ok else "failed"
        # The stream may not show the end of an answer, or the whole last one.
        is_whole = all(request.final for request in requests)
        is_bound = bool(requests) and not (is_whole and requests[-1].stop_reason != "tool_use")
        has_cost = run.is_free or not is_bound
        report.subagents.append(
            msgspec.structs.replace(
                subagent,
                status=status,
                tokens=sum_tokens(requests),
                cost_usd=nano_to_usd(price_requests(requests, price)) if has_cost else None,
                is_lower_bound=is_bound,
            )
        )


def _with_call_status(run: Accumulator, tool: ToolCallSummary) -> ToolCallSummary:
    """The call with its denied and background flags; a copy if it may still change."""
    denied = tool.id in run.denials
    background = tool.id in run.background
    if tool.ok is None or denied or background:
        return msgspec.structs.replace(tool, denied=denied, background=background)
    return tool


def _add_warnings(run: Accumulator, report: Report) -> None:
    warnings = report.warnings
    warnings += run.read_problems
    stopped = [task for task in report.background if task.status in ("stopped", "killed")]
    if stopped:
        warnings.append(_task_warning(stopped, "stopped before completion"))
    facts = msgspec.structs.replace(run.facts, result=run.result)
    failed = [
        task
        for task in report.background
        if task.status == "failed" and ended_after_result(task, facts)
    ]
    if failed:
        warnings.append(f"background-task: {_task_warning(failed, 'failed after the result')}")
    if run.facts.stop is not None and run.facts.stop.why == "after_result":
        warnings.append("the agent kept running after its result; steno stopped it")
    if run.totals_difference:
        warnings.append(run.totals_difference)
    level = context_level(report.context.fraction)
    if level is not None and report.context.fraction is not None:
        warnings.append(f"context: {report.context.fraction:.0%} of the window used ({level})")
    warnings += map(_leftover_warning, run.leftover_processes)
    if run.duplicate_results:
        results = count_of(run.duplicate_results, "duplicate result")
        warnings.append(f"{results} ignored (repeated stream?)")
    if run.orphan_results:
        warnings.append(f"{count_of(run.orphan_results, 'tool result')} without a matching call")
    if run.cut_lines:
        lines = count_of(run.cut_lines, "line")
        warnings.append(f"{lines} longer than {MAX_LINE_BYTES >> 20} MB cut")
    if run.unknown:
        warnings.append(f"{run.unknown} events of kinds this version does not know")


def _task_warning(tasks: list[BackgroundTask], outcome: str) -> str:
    names = ", ".join(task.description or task.id for task in tasks)
    return f"{count_of(len(tasks), 'background task')} {outcome}: {names}"


def _leftover_warning(record: str) -> str:
    """`record` is "PID SIGNAL COMMAND", with - as the signal if the process was left alone."""
    pid, signal, command = (*record.split(" ", 2), "", "")[:3]
    outcome = "was left running" if signal == "-" else f"was stopped with signal {signal}"
    return f"orphan: process {pid} outlived the agent and {outcome}: {command}"


def _unnamed_stop(run: Accumulator) -> str | None:
    """What stopped a run whose result comes right after a tool's, without a text or a reason.

    Claude Code names a hook that stopped it since 2.1.126. Before, an empty text may also stand
    for an empty message, which the totals include though the stream does not show it. Up to 1.0.72
    the subtype is that of an error in all of these cases, though `is_error` is false.
    """
    result = run.result
    if result is None or result.is_error or result.errors or result.usage is None:
        return None
    if result.text or result.structured_output is not ev.NO_JSON or result.terminal_reason:
        return None
    is_error = result.subtype == "error_during_execution"
    if not is_error and result.subtype != "success":
        return None
    if result.stop_reason is not None:  # since 2.1.50, where cut answers are asked for again
        return "hook_stopped" if result.stop_reason == "tool_use" else None
    last = run.main_request
    if last is None or run.latest_activity != TOOL_CALL or last.message != run.latest_message:
        return None
    if run.open_calls or run.abandoned_calls or run.stop_reason not in ("tool_use", None):
        return None
    return "no_answer" if is_error or _has_shown_all(run) else None


def _has_shown_all(run: Accumulator) -> bool:
    """Whether the main thread's requests in the stream make up the usage of the results."""
    main = [request for request in run.requests.values() if request.parent is None]
    usages = [result.usage for result in run.results if result.usage is not None]
    # 1.0.x reports the last request only.
    return context_tokens(sum_tokens(usages)) in (
        context_tokens(sum_tokens(main)),
        context_tokens(sum_tokens(main[-1:])),
    )


def _belongs_to_earlier_result(run: Accumulator, failure: ev.Failure) -> bool:
    """Whether a failure ended an earlier turn than that of the last result."""
    last = run.result
    return any(
        last is not None and failure.line and failure.line < result.line < last.line
        for result in run.results
    )


def _verdict_facts(run: Accumulator, report: Report) -> Facts:
    final_text = report.result or (run.texts[-1] if run.texts else report.text)
    facts = msgspec.structs.replace(
        run.facts, report=report, result=run.result, final_text=final_text.strip()
    )
    if run.started is not None and run.started.transcript:
        # A transcript has no result; it is complete if it ends with the model's final text. The
        # session may have been left with local commands, such as /exit, or have nothing else.
        ends_with_text = run.latest_activity in (MODEL_TEXT, SYNTHETIC_TEXT)
        facts.ends_with_local_command = run.local_command_after == len(run.main_keys)
        facts.is_transcript_complete = (
            ends_with_text and run.stop_reason in ("end_turn", None)
        ) or (facts.ends_with_local_command and not (run.has_user_message or run.requests))
    facts.last_stop_reason = run.stop_reason
    facts.pending_retry = run.pending_retry
    facts.unnamed_stop = _unnamed_stop(run)
    if facts.failure is not None and _belongs_to_earlier_result(run, facts.failure):
        facts.failure = None
    facts.hint_templates = run.agent.hints
    if report.exit_code:
        facts.exit_code_meaning = run.agent.classify_exit(report.exit_code, facts.stderr)
    facts.has_later_requests = run.has_later_requests
    if run.main_request is not None:
        facts.last_message_id = run.main_request.message
    if run.latest_activity is not None:
        facts.last_message_id = run.latest_message
    if run.denials:
        facts.unresolved_denials = _unresolved_denials(run, report.tools)
    return facts


def _unresolved_denials(
    run: Accumulator, tools: list[ToolCallSummary]
) -> list[tuple[DeniedCall, int]]:
    """Denials, with their lines, after which no call of the same tool succeeded."""
    position = {tool.id: index for index, tool in enumerate(tools)}
    last_success = {tool.name: index for index, tool in enumerate(tools) if tool.ok}
    return [
        (denial, run.denial_lines[key])
        for key, denial in run.denials.items()
        if key not in run.settled_denials
        and last_success.get(denial.tool or "", -1) <= position.get(key, len(position))
    ]
