"""Who carries out a task: an agent that is known by its name, or a recording that is played as one. It starts nothing."""

import os
import sys
from pathlib import Path

import msgspec

from .. import agents
from ..agents import REPLAY, Agent, Backend
from ..play import Recording
from ..report import SourceError, StenoError
from ..tick import Header
from .values import Setup


def played(setup: Setup) -> tuple[Agent, Setup]:
    """The agent of a task, and the task as it is then to be carried out. SourceError if its tape cannot be read."""
    if setup.agent != REPLAY:
        if setup.tape is not None:
            raise StenoError(f"a tape is played by the agent {REPLAY!r}, not by {setup.agent!r}")
        return _served(agents.named(setup.agent) or agents.CLAUDE, setup), setup
    if setup.tape is None:
        raise StenoError(f"the agent {REPLAY!r} needs a tape to play: --tape FILE")
    path = Path(setup.tape).absolute()
    recording = Recording(path)
    if recording.strange:
        raise SourceError(
            f"{path}: no line of it is of an agent: give a tape, the folder of a recording, or what an agent printed"
        )
    own, setup = agents.named(recording.agent) or agents.CLAUDE, _as_it_was(setup, recording.header)
    return agents.replayed(_served(own, setup), str(path), setup.speed), _by_us(setup)


def _as_it_was(setup: Setup, header: Header | None) -> Setup:
    """The model server that the recording was made with: what it says of cost and window holds again."""
    given = header.backend if header is not None else None
    if given is None:
        return setup
    server = Backend(kind=given.kind, url=given.url, local=given.local, window=given.window)
    return msgspec.structs.replace(setup, ask=msgspec.structs.replace(setup.ask, backend=server))


def _served(agent: Agent, setup: Setup) -> Agent:
    """The agent, as it is seen while it runs: what its server tells of the window is known better than by a name."""
    window = setup.ask.backend.window if setup.ask.backend is not None else None
    return agent if window is None else msgspec.structs.replace(agent, window=lambda model: window)


def _by_us(setup: Setup) -> Setup:
    """Our own program, found again by the Python that runs us."""
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return msgspec.structs.replace(setup, program=sys.executable, env={**setup.env, "PYTHONPATH": paths})
