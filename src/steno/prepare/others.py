"""The agents that stand by (R11): each is checked before the first one starts, and left out with a word where it is not there."""

from collections.abc import Callable, Mapping

import msgspec

from .. import agents
from ..agents import Agent, Ask, Backend
from ..environment import surround
from ..report import StenoError
from ..settings import Settings, Value
from ..supervise.values import Stand
from . import models, serving
from .fits import Fits

Found = Callable[[str, Mapping[str, str]], str | None]


class Others:
    """Makes the agents that stand by ready. `found` looks for a program."""

    def __init__(self, settings: Settings, fits: Fits, environ: Mapping[str, str], found: Found) -> None:
        self._settings, self._fits, self._environ, self._found = settings, fits, environ, found

    def named(self, first: Agent, replays: bool) -> list[Agent]:
        """The agents that were named. StenoError for a name that nobody has, or has twice."""
        names, where = self._settings["fallback_agent"], self._settings.source("fallback_agent")
        if names and replays:
            raise StenoError(f"{where}: a recording is played to its end: no agent takes over from {agents.REPLAY}")
        found: list[Agent] = []
        for name in names:
            try:
                agent = agents.named(name)
            except StenoError as problem:
                raise StenoError(f"{where}: {problem}") from None
            if agent is None or agent in (first, *found):
                raise StenoError(f"{where} {name}: this agent is there already: name each once")
            found.append(agent)
        return found

    def stand_by(self, others: list[Agent], ask: Ask, say: Callable[[str], None]) -> tuple[Stand, ...]:
        """Those that are installed, each with what it would be asked."""
        ready = []
        for agent in others:
            own = self._settings.other(agent.name)
            model = models.meant(agent, own["model"], self._settings)
            own_ask = msgspec.structs.replace(
                ask, model=model, session_id=None, resume=None, fork=False, continue_=False, extra=(), fallback_model=None,
                backend=self._server(agent, own["backend"], model),
            )  # fmt: skip
            self._fits.check(agent, own_ask)
            if ask.extra:
                say(f"the agent's own arguments ({ask.extra[0]} ...) are for the first one: {agent.name} starts without them")
            name = own["program"].value or agent.name
            env = surround(self._environ, agent.surroundings, keys=not self._settings["no_api_key"], more=self._settings["env"])
            path = self._found(name, env)
            if path is None:
                say(f"{name} is not there and cannot take over; to install {agent.name}: {agent.install}")
            else:
                ready.append(Stand(agent=agent.name, program=path, ask=own_ask))
        return tuple(ready)

    def _server(self, agent: Agent, given: Value, model: str | None) -> Backend | None:
        """The model server that an agent is led to when it takes over. How much its model holds, nobody asks ahead of time."""
        return serving.chosen(
            given.value, given.source, agent, model, self._environ, lambda name: f"[agents.{agent.name}] {name} ="
        )
