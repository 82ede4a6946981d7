"""What a new session or agent takes over: summaries, prompts, the context of a resumed session.

Also reports of agents that could not start, and the replay agent.
"""

import os
import sys
from pathlib import Path

import msgspec

from .. import agents
from ..agents import REPLAY_AGENT_NAME, Agent, Backend, LaunchOptions
from ..agents.base import HANDOVER_PROMPT, build_environment
from ..analysis.context import UNKNOWN_CONTEXT
from ..analysis.facts import Judgement
from ..analysis.live_state import LiveState
from ..errors import LedgerError, SourceError, StenoError
from ..executables import own_python_path
from ..ledger.queries import sessions
from ..ledger.store import open_existing_ledger
from ..recording.open import open_recording
from ..recording.replay import ReplaySource
from ..report import Context, Report
from .setup import FallbackAgent, TaskSetup


def missing_agent_report(setup: TaskSetup) -> Report:
    """The report of an agent whose program was not found."""
    report = Report(
        agent=setup.agent, cwd=setup.cwd, turns=0, duration_ms=0, context=UNKNOWN_CONTEXT
    )
    Judgement("not_found", setup.not_found_reason).apply_to(report)
    return report


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


def resumed_context_fraction(agent: Agent, setup: TaskSetup, session: str) -> float | None:
    """How full the context of the session to resume is, by its transcript and the ledger.

    None if that is unknown, and for a command to the session such as /compact.
    """
    options = setup.launch_options
    if options.prompt.lstrip().startswith("/"):
        return None
    stored = _context_in_ledger(setup.ledger, session)
    # The transcript also knows runs without steno; the ledger knows the window that was reported.
    current = _context_in_transcript(agent, setup, session)
    used = stored.used if current.used is None else current.used
    limit = current.limit if stored.limit_source == "assumed" else stored.limit
    if options.backend is not None and options.backend.context_window is not None:
        limit = options.backend.context_window
    limit = limit or stored.limit
    return None if used is None or not limit else used / limit


def _context_in_ledger(ledger: str | None, session: str) -> Context:
    try:
        store = open_existing_ledger(ledger)
        if store is None:
            return Context()
        try:
            known = sessions.session_exists(store, session)
            return sessions.get_session(store, session).context if known else Context()
        finally:
            store.close()
    except LedgerError:
        return Context()  # the task itself warns about its ledger


def _context_in_transcript(agent: Agent, setup: TaskSetup, session: str) -> Context:
    inherited = os.environ if setup.inherited_env is None else setup.inherited_env
    env = build_environment(
        inherited, agent.launch.env_policy, include_api_keys=False, extra=setup.extra_env
    )
    home = env.get("HOME") or str(Path.home())
    pattern = agent.transcripts.pattern
    if pattern is None:
        return Context()
    for folder in agent.transcripts.folders(env, home):
        for path in sorted(Path(folder).glob(pattern(session))):
            try:
                parser = open_recording(path).read(agent)
            except SourceError:
                continue
            return LiveState(parser.accumulator).context
    return Context()


def open_replay(path: Path) -> ReplaySource:
    """The recording for the agent `replay`. SourceError if nothing shows that an agent ran."""
    recording = ReplaySource(path)
    if recording.is_unrecognized:
        raise SourceError(
            f"{path}: no known agent output; expected a recording, a folder with stdout, "
            "or an agent's output"
        )
    return recording


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
        recording = open_replay(path)
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
