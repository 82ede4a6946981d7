"""What another agent is told when it takes over, and what is reported of one that could not be started (R10, R11). Pure."""

import msgspec

from ..agents import LaunchOptions
from ..report import Report
from .values import FallbackAgent, TaskSetup

HANDOVER_PROMPT = "[CONTEXT FROM PREVIOUS SESSION]\n{summary}\n\n[CURRENT TASK]\n{prompt}"


def missing_agent_report(setup: TaskSetup) -> Report:
    """An agent whose program is not there: nothing was started, so nothing was used."""
    return Report(
        agent=setup.agent,
        cwd=setup.cwd,
        verdict="not_found",
        error=setup.not_found_reason,
        error_category="subprocess",
        turns=0,
        duration_ms=0,
    )


def setup_for_fallback(setup: TaskSetup, stand: FallbackAgent, reports: list[Report]) -> TaskSetup:
    """The task as the next agent carries it out; where work was done already it is told of that."""
    prompt = setup.launch_options.prompt
    if any(report.requests or report.files for report in reports):
        prompt = HANDOVER_PROMPT.format(summary=summary_from_reports(reports), prompt=prompt)
    ask: LaunchOptions = msgspec.structs.replace(stand.launch_options, prompt=prompt)
    return msgspec.structs.replace(setup, agent=stand.agent, program=stand.program, version=None, not_found_reason=None, launch_options=ask)


def summary_from_reports(reports: list[Report]) -> str:
    """What we can say of a session that cannot speak for itself any more."""
    said = next((report.text[-4000:] for report in reversed(reports) if report.text), "(nothing)")
    changed = {file.path: file.change for report in reports for file in report.files}
    files = "\n".join(f"- {change} {path}" for path, change in list(changed.items())[:50]) or "- none"
    return f"The last that was said:\n{said}\n\nFiles changed:\n{files}"
