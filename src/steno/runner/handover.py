"""What another agent is told when it takes over, and what is reported of one that could not be started (R10, R11). Pure."""

import os
import sys
from pathlib import Path

import msgspec

from .. import agents
from ..agents import REPLAY_AGENT_NAME, Agent, Backend, LaunchOptions
from ..errors import SourceError, StenoError
from ..recording.format import Header
from ..recording.replay import ReplaySource
from ..report import Report
from .setup import FallbackAgent, TaskSetup

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
    return msgspec.structs.replace(
        setup,
        agent=stand.agent,
        program=stand.program,
        version=None,
        not_found_reason=None,
        launch_options=ask,
    )


def summary_from_reports(reports: list[Report]) -> str:
    """What we can say of a session that cannot speak for itself any more."""
    said = next((report.text[-4000:] for report in reversed(reports) if report.text), "(nothing)")
    changed = {file.path: file.change for report in reports for file in report.files}
    files = (
        "\n".join(f"- {change} {path}" for path, change in list(changed.items())[:50]) or "- none"
    )
    return f"The last that was said:\n{said}\n\nFiles changed:\n{files}"


def resolve_agent(setup: TaskSetup) -> tuple[Agent, TaskSetup]:
    """The agent of a task, and the task as it is then to be carried out. SourceError if its tape cannot be read."""
    if setup.agent != REPLAY_AGENT_NAME:
        if setup.replay_path is not None:
            raise StenoError(
                f"a tape is played by the agent {REPLAY_AGENT_NAME!r}, not by {setup.agent!r}"
            )
        return _with_backend_window(agents.get_agent(setup.agent) or agents.CLAUDE, setup), setup
    if setup.replay_path is None:
        raise StenoError(f"the agent {REPLAY_AGENT_NAME!r} needs a tape to play: --recording FILE")
    path = Path(setup.replay_path).absolute()
    recording = ReplaySource(path)
    if recording.is_unrecognized:
        raise SourceError(
            f"{path}: no line of it is of an agent: give a tape, the folder of a recording, or what an agent printed"
        )
    own, setup = (
        agents.get_agent(recording.agent) or agents.CLAUDE,
        _with_recorded_backend(setup, recording.header),
    )
    return agents.replay_agent(
        _with_backend_window(own, setup), str(path), setup.replay_speed
    ), _with_own_program(setup)


def _with_recorded_backend(setup: TaskSetup, header: Header | None) -> TaskSetup:
    """The model server that the recording was made with: what it says of cost and window holds again."""
    given = header.backend if header is not None else None
    if given is None:
        return setup
    server = Backend(
        kind=given.kind, url=given.url, is_local=given.local, context_window=given.window
    )
    return msgspec.structs.replace(
        setup, launch_options=msgspec.structs.replace(setup.launch_options, backend=server)
    )


def _with_backend_window(agent: Agent, setup: TaskSetup) -> Agent:
    """The agent, as it is seen while it runs: what its server tells of the window is known better than by a name."""
    window = (
        setup.launch_options.backend.context_window
        if setup.launch_options.backend is not None
        else None
    )
    return (
        agent
        if window is None
        else msgspec.structs.replace(agent, context_window=lambda model: window)
    )


def _with_own_program(setup: TaskSetup) -> TaskSetup:
    """Our own program, found again by the Python that runs us."""
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return msgspec.structs.replace(
        setup, program=sys.executable, extra_env={**setup.extra_env, "PYTHONPATH": paths}
    )
