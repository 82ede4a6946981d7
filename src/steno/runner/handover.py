"""The prompt of a fallback agent, reports of agents that could not start, and the replay agent."""

import sys
from pathlib import Path

import msgspec

from .. import agents
from ..agents import REPLAY_AGENT_NAME, Agent, Backend, LaunchOptions
from ..errors import SourceError, StenoError
from ..process.process_tree import own_python_path
from ..recording.replay import ReplaySource
from ..report import Report
from .setup import FallbackAgent, TaskSetup

HANDOVER_PROMPT = "[CONTEXT FROM PREVIOUS SESSION]\n{summary}\n\n[CURRENT TASK]\n{prompt}"


def missing_agent_report(setup: TaskSetup) -> Report:
    """The report of an agent whose program was not found."""
    return Report(
        agent=setup.agent,
        cwd=setup.cwd,
        verdict="not_found",
        error=setup.not_found_reason,
        error_category="subprocess",
        turns=0,
        duration_ms=0,
    )


def setup_for_fallback(
    setup: TaskSetup, fallback: FallbackAgent, reports: list[Report]
) -> TaskSetup:
    """The setup for the next agent. The prompt contains a summary if work was done already."""
    prompt = setup.launch_options.prompt
    if any(report.requests or report.files for report in reports):
        prompt = HANDOVER_PROMPT.format(summary=summary_from_reports(reports), prompt=prompt)
    options: LaunchOptions = msgspec.structs.replace(fallback.launch_options, prompt=prompt)
    return msgspec.structs.replace(
        setup,
        agent=fallback.agent,
        program=fallback.program,
        not_found_reason=None,
        launch_options=options,
    )


def summary_from_reports(reports: list[Report]) -> str:
    """A summary for a session that can't give one itself: its last text and its files."""
    text = next((report.text[-4000:] for report in reversed(reports) if report.text), "(nothing)")
    changes = {file.path: file.change for report in reports for file in report.files}
    lines = [f"- {change} {path}" for path, change in list(changes.items())[:50]]
    files = "\n".join(lines) or "- none"
    return f"The last that was said:\n{text}\n\nFiles changed:\n{files}"


def resolve_agent(setup: TaskSetup) -> tuple[Agent, TaskSetup]:
    """The agent of a task and its final setup. SourceError if its recording can't be read."""
    is_replay = setup.agent == REPLAY_AGENT_NAME
    if setup.replay_path is not None and not is_replay:
        raise StenoError(
            f"recordings are replayed by the agent {REPLAY_AGENT_NAME!r}, not {setup.agent!r}"
        )
    if setup.replay_path is None and is_replay:
        raise StenoError(f"the agent {REPLAY_AGENT_NAME!r} needs a recording: --recording FILE")

    name: str | None = setup.agent
    path = Path(setup.replay_path or "").absolute()
    if is_replay:
        recording = ReplaySource(path)
        if recording.is_unrecognized:
            raise SourceError(
                f"{path}: no known agent output; expected a recording, a folder with stdout, "
                "or an agent's output"
            )
        name = recording.agent
        info = recording.header.backend if recording.header is not None else None
        if info is not None:  # the cost and context window of the recorded server apply again
            server = Backend(
                kind=info.kind, url=info.url, is_local=info.local, context_window=info.window
            )
            options = msgspec.structs.replace(setup.launch_options, backend=server)
            setup = msgspec.structs.replace(setup, launch_options=options)

    agent = agents.get_agent(name) or agents.CLAUDE
    backend = setup.launch_options.backend
    window = backend.context_window if backend is not None else None
    if window is not None:  # the model server's own figure
        agent = msgspec.structs.replace(agent, context_window=lambda model: window)
    if not is_replay:
        return agent, setup
    # A replay runs steno itself by the current interpreter.
    env = {**setup.extra_env, "PYTHONPATH": own_python_path()}
    setup = msgspec.structs.replace(setup, program=sys.executable, extra_env=env)
    return agents.replay_agent(agent, str(path), setup.replay_speed), setup
