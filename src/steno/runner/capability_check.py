"""Which model is meant: a name passes as it is, a size is the agent's own model of that size. It asks nobody."""

from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from .. import agents
from ..agents import Agent, Backend, LaunchOptions
from ..agents.base import OPTION_FIELDS, build_environment, option_support
from ..config import MODEL_SIZES, Settings, SettingValue
from ..errors import StenoError
from . import backend_probe as serving
from .setup import FallbackAgent


class SizedModel(Struct, frozen=True):
    """The model of one size: its name, and where that comes from. None where nobody named it."""

    size: str
    model: str | None
    source: str


def sized_models(agent: Agent, settings: Settings) -> list[SizedModel]:
    """Every size of an agent: as a file names it, else as this version knows it."""
    own = dict(zip(MODEL_SIZES, agent.launch.models_by_size, strict=False))
    named = settings.models_by_size.get(agent.name, {})
    return [SizedModel(size, *named.get(size, (own.get(size), "default"))) for size in MODEL_SIZES]


def resolve_model(agent: Agent, given: SettingValue, settings: Settings) -> str | None:
    """The model's name. StenoError for a size that is not known for this agent."""
    if given.value not in MODEL_SIZES:
        return given.value  # type: ignore[no-any-return]  # a text or None: its kind saw to that
    found = next(one.model for one in sized_models(agent, settings) if one.size == given.value)
    if found is None:
        told = f"no {given.value} model of {agent.name} is known"
        raise StenoError(
            f'{given.source} {given.value}: {told}; name it in steno.toml: [models.{agent.name}] {given.value} = "..."'
        )
    return found


class CapabilityCheck:
    """What was asked for, as one agent after another is held against it."""

    def __init__(
        self,
        settings: Settings,
        given: Collection[str],
        spell: Callable[[str], str],
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._given_names, self._option_label, self._add_note = (
            settings,
            given,
            spell,
            say,
        )

    def check(self, agent: Agent, ask: LaunchOptions) -> None:
        """StenoError for an option that this agent has no words for, and that steno does not hold itself."""
        plain = LaunchOptions()
        goes_on = ask.resume is not None or ask.continue_
        for option, field in OPTION_FIELDS.items():
            if getattr(ask, field) == getattr(plain, field):
                continue
            if self._is_unsupported(agent, option):
                self._refuse_or_note(option, f"{agent.name} has nothing of the kind")
            elif goes_on and field in agent.launch.new_session_options:
                self._refuse_or_note(
                    option, f"{agent.name} goes on with what its session began with"
                )
        for field in agent.launch.single_value_options:
            if len(getattr(ask, field)) > 1:
                option = next(name for name, own in OPTION_FIELDS.items() if own == field)
                raise StenoError(
                    f"{self._settings.source(option)}: {agent.name} takes one, found {len(getattr(ask, field))}"
                )
        self._check_permission_mode(agent, ask.permission_mode)
        self._note_late_usage(agent)

    def _is_unsupported(self, agent: Agent, option: str) -> bool:
        if option == "fallback_model" and self._settings["on_limit"] != "fallback":
            return option in agent.launch.unsupported_options  # it is then for the agent's own use
        return option_support(agent, option) == "no"

    def _refuse_or_note(self, option: str, why: str) -> None:
        if option in self._given_names:
            raise StenoError(f"{self._option_label(option)}: {why}")
        self._add_note(f"{self._settings.source(option)}: {option} is left out: {why}")

    def _note_late_usage(self, agent: Agent) -> None:
        """A budget is held by what the agent tells: not every one does so while it runs."""
        given = [name for name in ("max_cost", "max_tokens") if self._settings[name] is not None]
        if given and not agent.capabilities.context:
            sources = " and ".join(self._settings.source(name) for name in given)
            self._add_note(
                f"{sources}: {agent.name} tells what it used when a run ends, so it is held between attempts"
            )

    def _check_permission_mode(self, agent: Agent, mode: str | None) -> None:
        if (
            mode is not None
            and agent.launch.permission_modes
            and mode not in agent.launch.permission_modes
        ):
            told = f"{agent.name} has no such mode; known: {', '.join(sorted(set(agent.launch.permission_modes)))}"
            raise StenoError(f"{self._settings.source('permission_mode')} {mode}: {told}")


FindProgram = Callable[[str, Mapping[str, str]], str | None]


class FallbackBuilder:
    """Makes the agents that stand by ready. `found` looks for a program."""

    def __init__(
        self,
        settings: Settings,
        fits: CapabilityCheck,
        environ: Mapping[str, str],
        found: FindProgram,
    ) -> None:
        self._settings, self._capability_check, self._environ, self._find_program = (
            settings,
            fits,
            environ,
            found,
        )

    def resolve_agents(self, first: Agent, replays: bool) -> list[Agent]:
        """The agents that were named. StenoError for a name that nobody has, or has twice."""
        names, where = self._settings["fallback_agent"], self._settings.source("fallback_agent")
        if names and replays:
            raise StenoError(
                f"{where}: a recording is played to its end: no agent takes over from {agents.REPLAY_AGENT_NAME}"
            )
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

    def build(
        self, others: list[Agent], ask: LaunchOptions, say: Callable[[str], None]
    ) -> tuple[FallbackAgent, ...]:
        """Those that are installed, each with what it would be asked."""
        ready = []
        for agent in others:
            own = self._settings.for_fallback_agent(agent.name)
            model = resolve_model(agent, own["model"], self._settings)
            own_ask = msgspec.structs.replace(
                ask, model=model, session_id=None, resume=None, fork=False, continue_=False, extra=(), fallback_model=None,
                backend=self._choose_backend(agent, own["backend"], model),
            )  # fmt: skip
            self._capability_check.check(agent, own_ask)
            if ask.extra:
                say(
                    f"the agent's own arguments ({ask.extra[0]} ...) are for the first one: {agent.name} starts without them"
                )
            name = own["program"].value or agent.name
            env = build_environment(
                self._environ,
                agent.launch.env_policy,
                include_api_keys=not self._settings["no_api_key"],
                extra=self._settings["env"],
            )
            path = self._find_program(name, env)
            if path is None:
                say(
                    f"{name} is not there and cannot take over; to install {agent.name}: {agent.installation.command}"
                )
            else:
                ready.append(FallbackAgent(agent=agent.name, program=path, launch_options=own_ask))
        return tuple(ready)

    def _choose_backend(
        self, agent: Agent, given: SettingValue, model: str | None
    ) -> Backend | None:
        """The model server that an agent is led to when it takes over. How much its model holds, nobody asks ahead of time."""
        return serving.choose_backend(
            given.value,
            given.source,
            agent,
            model,
            self._environ,
            lambda name: f"[agents.{agent.name}] {name} =",
        )
