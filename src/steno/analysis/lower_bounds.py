"""Warnings where the figures of a run are a lower bound: requests that nothing reports. Pure."""

from ..report import Report
from .accumulator import Accumulator


def warn_of_lower_bounds(run: Accumulator, report: Report) -> None:
    """Name the requests that the figures of the report leave out."""
    _warn_of_subagents(run, report)
    _warn_of_compactions(run, report)
    _warn_of_enforced_limit(run, report)
    _warn_of_missing_result(run, report)


def unreported_subagents(run: Accumulator) -> list[str]:
    """Subagents whose call returned, though the agent reports neither end nor last request.

    Claude Code 1.0 and 2.0.37 print what they did, but not their last answer. The call of Codex
    returns when the subagent has started.
    """
    if run.agent.totals_omit_subagents:
        return []
    return [
        call
        for call, subagent in run.subagents.items()
        if subagent.status == "running" and call not in run.background
        if call in run.calls and run.calls[call].ok is not None
    ]


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _warn_of_subagents(run: Accumulator, report: Report) -> None:
    """Mark the figures as a lower bound if they leave out the requests of subagents."""
    last = run.last_result
    unreported = unreported_subagents(run)
    if last is not None and run.requests and unreported:
        count = count_of(len(unreported), "subagent")
        figures = "requests" if last.models else "tokens and requests"
        report.warnings.append(
            f"{figures} are a lower bound: the last answer of {count} is not reported"
        )
    if not run.agent.totals_omit_subagents or report.tokens.total is None:
        return
    parents = {request.parent for request in run.requests.values()}
    measured = {run.call_by_task.get(parent or "", parent) for parent in parents}
    missing = len(run.subagents.keys() - measured)
    if missing:
        count = count_of(missing, "subagent")
        report.warnings.append(
            f"tokens, cost and requests are a lower bound: those of {count} are not reported"
        )


def _warn_of_compactions(run: Accumulator, report: Report) -> None:
    """Transcripts of Claude Code leave out the request that wrote a summary (seen in 2.1.126).

    Since 2.1.309 they have totals, which include it.
    """
    is_transcript = run.started is not None and run.started.transcript
    if is_transcript and run.compactions and run.requests and not (run.cost_state or run.results):
        count = count_of(run.compactions, "compaction")
        report.warnings.append(
            f"tokens, cost and requests are a lower bound: those of {count} are not in a transcript"
        )


def _warn_of_enforced_limit(run: Accumulator, report: Report) -> None:
    """Mark the figures if steno enforced a limit while the agent was working."""
    stop = run.facts.stop
    if stop is None or stop.why.partition(":")[0] not in ("max_turns", "max_budget"):
        return
    if run.last_result is None or run.has_later_requests:
        report.warnings.append(
            "tokens, cost and requests are a lower bound: a request may have been in progress when "
            "steno stopped the agent, and is in no figure"
        )


def _warn_of_missing_result(run: Accumulator, report: Report) -> None:
    """Mark the figures of a run as a lower bound that ended while a request may have been sent."""
    is_transcript = run.started is not None and run.started.transcript
    if run.results or is_transcript or any("lower bound" in text for text in report.warnings):
        return
    if report.tokens.total is not None:
        figures = "tokens, cost and requests are"
    elif report.requests:
        figures = "requests are"
    else:
        return
    report.warnings.append(f"{figures} a lower bound: the run ended without a result")
