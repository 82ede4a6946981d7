"""What agents support: models by size, options, fallback agents."""

from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from .. import agents
from ..agents import Agent, Backend, LaunchOptions
from ..agents.base import OPTION_FIELDS, build_environment, option_support
from ..config import MODEL_SIZES, Settings, SettingValue
from ..errors import StenoError
from .backend_probe import choose_backend
from .setup import FallbackAgent


class SizedModel(Struct, frozen=True):
    """The model of one size, and the source of that name. None if there is none."""

    size: str
    model: str | None
    source: str


def sized_models(agent: Agent, settings: Settings) -> list[SizedModel]:
    """The agent's model of each size: from a settings file, else the built-in one."""
    built_in = dict(zip(MODEL_SIZES, agent.launch.models_by_size, strict=False))
    configured = settings.models_by_size.get(agent.name, {})
    return [
        SizedModel(size, *configured.get(size, (built_in.get(size), "default")))
        for size in MODEL_SIZES
    ]


def resolve_model(agent: Agent, setting: SettingValue, settings: Settings) -> str | None:
    """The model's name. StenoError for a size without a model."""
    size = setting.value
    if size not in MODEL_SIZES:
        return size  # type: ignore[no-any-return]  # a setting of type text: str or None
    models = {entry.size: entry.model for entry in sized_models(agent, settings)}
    model = models[size]
    if model is None:
        raise StenoError(
            f"{setting.source} {size}: no {size} model known for {agent.name}; "
            f'set it in steno.toml: [models.{agent.name}] {size} = "..."'
        )
    return model


class CapabilityCheck:
    """Checks whether an agent supports the requested options."""

    def __init__(
        self,
        settings: Settings,
        given_names: Collection[str],
        option_label: Callable[[str], str],
        add_note: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._given_names = given_names
        self._option_label = option_label
        self._add_note = add_note

    def check(self, agent: Agent, options: LaunchOptions) -> None:
        """StenoError for an option that neither the agent nor steno implements."""
        defaults = LaunchOptions()
        is_resumed = options.resume is not None or options.continue_
        for option, field in OPTION_FIELDS.items():
            if getattr(options, field) == getattr(defaults, field):
                continue
            if self._is_unsupported(agent, option):
                self._refuse_or_note(option, f"not supported by {agent.name}")
            elif is_resumed and field in agent.launch.new_session_options:
                self._refuse_or_note(
                    option, f"{agent.name} cannot change it when resuming a session"
                )
        self._check_single_values(agent, options)
        self._check_permission_mode(agent, options.permission_mode)
        self._note_late_usage(agent)

    def _check_single_values(self, agent: Agent, options: LaunchOptions) -> None:
        for field in agent.launch.single_value_options:
            count = len(getattr(options, field))
            if count > 1:
                option = next(name for name, own in OPTION_FIELDS.items() if own == field)
                source = self._settings.source(option)
                raise StenoError(f"{source}: {agent.name} accepts only one, found {count}")

    def _is_unsupported(self, agent: Agent, option: str) -> bool:
        if option == "fallback_model" and self._settings["on_limit"] != "fallback":
            return option in agent.launch.unsupported_options  # for the agent's own fallback
        return option_support(agent, option) == "no"

    def _refuse_or_note(self, option: str, reason: str) -> None:
        if option in self._given_names:
            raise StenoError(f"{self._option_label(option)}: {reason}")
        self._add_note(f"{self._settings.source(option)}: {option} ignored: {reason}")

    def _note_late_usage(self, agent: Agent) -> None:
        """Budgets need usage figures, which some agents report only at the end of a run."""
        limits = [name for name in ("max_cost", "max_tokens") if self._settings[name] is not None]
        if limits and not agent.capabilities.context:
            sources = " and ".join(self._settings.source(name) for name in limits)
            self._add_note(
                f"{sources}: enforced between attempts only; "
                f"{agent.name} reports its usage at the end of a run"
            )

    def _check_permission_mode(self, agent: Agent, mode: str | None) -> None:
        modes = agent.launch.permission_modes
        if mode is not None and modes and mode not in modes:
            raise StenoError(
                f"{self._settings.source('permission_mode')} {mode}: "
                f"not a mode of {agent.name}; known: {', '.join(sorted(set(modes)))}"
            )


FindProgram = Callable[[str, Mapping[str, str]], str | None]


class FallbackBuilder:
    """Prepares the fallback agents."""

    def __init__(
        self,
        settings: Settings,
        capability_check: CapabilityCheck,
        environ: Mapping[str, str],
        find_program: FindProgram,
    ) -> None:
        self._settings = settings
        self._capability_check = capability_check
        self._environ = environ
        self._find_program = find_program

    def resolve_agents(self, first: Agent, is_replay: bool) -> list[Agent]:
        """The fallback agents. StenoError for unknown or repeated names."""
        names = self._settings["fallback_agent"]
        source = self._settings.source("fallback_agent")
        if names and is_replay:
            raise StenoError(
                f"{source}: the agent {agents.REPLAY_AGENT_NAME} takes no fallback agents"
            )
        fallbacks: list[Agent] = []
        for name in names:
            try:
                agent = agents.get_agent(name)
            except StenoError as error:
                raise StenoError(f"{source}: {error}") from None
            if agent is None or agent in (first, *fallbacks):
                raise StenoError(f"{source} {name}: agent listed twice")
            fallbacks.append(agent)
        return fallbacks

    def build(
        self, fallbacks: list[Agent], options: LaunchOptions, add_note: Callable[[str], None]
    ) -> tuple[FallbackAgent, ...]:
        """The installed fallback agents with their options."""
        ready = []
        for agent in fallbacks:
            own = self._settings.for_fallback_agent(agent.name)
            own_options = self._fallback_options(agent, own, options)
            self._capability_check.check(agent, own_options)
            if options.extra:
                add_note(
                    f"agent arguments ({options.extra[0]} ...) are not passed to the fallback "
                    f"agent {agent.name}"
                )
            program = own["program"].value or agent.name
            path = self._find_program(program, self._environment(agent))
            if path is None:
                add_note(
                    f"fallback agent ignored: {program} not found; "
                    f"install: {agent.installation.command}"
                )
            else:
                ready.append(
                    FallbackAgent(agent=agent.name, program=path, launch_options=own_options)
                )
        return tuple(ready)

    def _fallback_options(
        self, agent: Agent, own: Mapping[str, SettingValue], options: LaunchOptions
    ) -> LaunchOptions:
        model = resolve_model(agent, own["model"], self._settings)
        return msgspec.structs.replace(
            options,
            model=model,
            session_id=None,
            resume=None,
            fork=False,
            continue_=False,
            extra=(),
            fallback_model=None,
            backend=self._choose_backend(agent, own["backend"], model),
        )

    def _environment(self, agent: Agent) -> dict[str, str]:
        return build_environment(
            self._environ,
            agent.launch.env_policy,
            include_api_keys=not self._settings["no_api_key"],
            extra=self._settings["env"],
        )

    def _choose_backend(
        self, agent: Agent, setting: SettingValue, model: str | None
    ) -> Backend | None:
        """The fallback agent's model server. It is not probed in advance."""
        return choose_backend(
            setting.value,
            setting.source,
            agent,
            model,
            self._environ,
            lambda name: f"[agents.{agent.name}] {name} =",
        )
