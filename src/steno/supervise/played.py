"""Who carries out a task: an agent that is known by its name, or a recording that is played as one. It starts nothing."""

import os
import sys
from pathlib import Path

import msgspec

from .. import agents
from ..agents import REPLAY, Agent
from ..play import Recording
from ..report import StenoError
from .values import Setup


def played(setup: Setup) -> tuple[Agent, Setup]:
    """The agent of a task, and the task as it is then to be carried out. SourceError if its tape cannot be read."""
    if setup.agent != REPLAY:
        if setup.tape is not None:
            raise StenoError(f"a tape is played by the agent {REPLAY!r}, not by {setup.agent!r}")
        return agents.named(setup.agent) or agents.CLAUDE, setup
    if setup.tape is None:
        raise StenoError(f"the agent {REPLAY!r} needs a tape to play: --tape FILE")
    path = Path(setup.tape).absolute()
    own = agents.named(Recording(path).agent) or agents.CLAUDE
    return agents.replayed(own, str(path), setup.speed), _by_us(setup)


def _by_us(setup: Setup) -> Setup:
    """Our own program, found again by the Python that runs us."""
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return msgspec.structs.replace(setup, program=sys.executable, env={**setup.env, "PYTHONPATH": paths})
