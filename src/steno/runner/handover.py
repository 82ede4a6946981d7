"""The prompt of a fallback agent, reports of agents that could not start, and the replay agent."""

import sys
from pathlib import Path

import msgspec

from .. import agents
from ..agents import REPLAY_AGENT_NAME, Agent, Backend, LaunchOptions
from ..errors import SourceError, StenoError
from ..process.process_tree import own_python_path
from ..recording.format import Header
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
        version=None,
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
    if setup.agent != REPLAY_AGENT_NAME:
        if setup.replay_path is not None:
            raise StenoError(
                f"recordings are replayed by the agent {REPLAY_AGENT_NAME!r}, not {setup.agent!r}"
            )
        agent = agents.get_agent(setup.agent) or agents.CLAUDE
        return _with_backend_window(agent, setup), setup
    if setup.replay_path is None:
        raise StenoError(f"the agent {REPLAY_AGENT_NAME!r} needs a recording: --recording FILE")
    path = Path(setup.replay_path).absolute()
    recording = ReplaySource(path)
    if recording.is_unrecognized:
        raise SourceError(
            f"{path}: no known agent output; expected a recording, a folder with stdout, "
            "or an agent's output"
        )
    setup = _with_recorded_backend(setup, recording.header)
    agent = _with_backend_window(agents.get_agent(recording.agent) or agents.CLAUDE, setup)
    replay = agents.replay_agent(agent, str(path), setup.replay_speed)
    return replay, _with_own_program(setup)


def _with_recorded_backend(setup: TaskSetup, header: Header | None) -> TaskSetup:
    """Use the recorded model server: its cost and context window apply again."""
    info = header.backend if header is not None else None
    if info is None:
        return setup
    backend = Backend(kind=info.kind, url=info.url, is_local=info.local, context_window=info.window)
    options = msgspec.structs.replace(setup.launch_options, backend=backend)
    return msgspec.structs.replace(setup, launch_options=options)


def _with_backend_window(agent: Agent, setup: TaskSetup) -> Agent:
    """Use the context window that the model server reports, instead of the known one."""
    backend = setup.launch_options.backend
    window = backend.context_window if backend is not None else None
    if window is None:
        return agent
    return msgspec.structs.replace(agent, context_window=lambda model: window)


def _with_own_program(setup: TaskSetup) -> TaskSetup:
    """Run steno itself by the current interpreter."""
    env = {**setup.extra_env, "PYTHONPATH": own_python_path()}
    return msgspec.structs.replace(setup, program=sys.executable, extra_env=env)
