"""The agents that stand by (R11): each is checked before the first one starts, and left out with a word where it is not there."""

from collections.abc import Callable, Mapping

import msgspec

from .. import agents
from ..agents import Agent, Backend, LaunchOptions
from ..environment import build_environment
from ..report import StenoError
from ..settings import Settings, SettingValue
from ..supervise.values import FallbackAgent
from . import models, serving
from .fits import CapabilityCheck

FindProgram = Callable[[str, Mapping[str, str]], str | None]


class FallbackBuilder:
    """Makes the agents that stand by ready. `found` looks for a program."""

    def __init__(self, settings: Settings, fits: CapabilityCheck, environ: Mapping[str, str], found: FindProgram) -> None:
        self._settings, self._capability_check, self._environ, self._find_program = settings, fits, environ, found

    def resolve_agents(self, first: Agent, replays: bool) -> list[Agent]:
        """The agents that were named. StenoError for a name that nobody has, or has twice."""
        names, where = self._settings["fallback_agent"], self._settings.source("fallback_agent")
        if names and replays:
            raise StenoError(f"{where}: a recording is played to its end: no agent takes over from {agents.REPLAY_AGENT_NAME}")
        found: list[Agent] = []
        for name in names:
            try:
                agent = agents.get_agent(name)
            except StenoError as problem:
                raise StenoError(f"{where}: {problem}") from None
            if agent is None or agent in (first, *found):
                raise StenoError(f"{where} {name}: this agent is there already: name each once")
            found.append(agent)
        return found

    def build(self, others: list[Agent], ask: LaunchOptions, say: Callable[[str], None]) -> tuple[FallbackAgent, ...]:
        """Those that are installed, each with what it would be asked."""
        ready = []
        for agent in others:
            own = self._settings.for_fallback_agent(agent.name)
            model = models.resolve_model(agent, own["model"], self._settings)
            own_ask = msgspec.structs.replace(
                ask, model=model, session_id=None, resume=None, fork=False, continue_=False, extra=(), fallback_model=None,
                backend=self._choose_backend(agent, own["backend"], model),
            )  # fmt: skip
            self._capability_check.check(agent, own_ask)
            if ask.extra:
                say(f"the agent's own arguments ({ask.extra[0]} ...) are for the first one: {agent.name} starts without them")
            name = own["program"].value or agent.name
            env = build_environment(self._environ, agent.env_policy, include_api_keys=not self._settings["no_api_key"], extra=self._settings["env"])
            path = self._find_program(name, env)
            if path is None:
                say(f"{name} is not there and cannot take over; to install {agent.name}: {agent.install_command}")
            else:
                ready.append(FallbackAgent(agent=agent.name, program=path, launch_options=own_ask))
        return tuple(ready)

    def _choose_backend(self, agent: Agent, given: SettingValue, model: str | None) -> Backend | None:
        """The model server that an agent is led to when it takes over. How much its model holds, nobody asks ahead of time."""
        return serving.choose_backend(
            given.value, given.source, agent, model, self._environ, lambda name: f"[agents.{agent.name}] {name} ="
        )
