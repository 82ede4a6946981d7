"""What an agent cannot do is said before it starts: refused where it was asked for, noted where a file asks it of all agents.

It looks at values only, and starts nothing.
"""

from collections.abc import Callable, Collection

from ..agents import Agent, LaunchOptions
from ..agents.asking import OPTION_FIELDS, option_support
from ..report import StenoError
from ..settings import Settings


class CapabilityCheck:
    """What was asked for, as one agent after another is held against it."""

    def __init__(
        self, settings: Settings, given: Collection[str], spell: Callable[[str], str], say: Callable[[str], None]
    ) -> None:
        self._settings, self._given_names, self._option_label, self._add_note = settings, given, spell, say

    def check(self, agent: Agent, ask: LaunchOptions) -> None:
        """StenoError for an option that this agent has no words for, and that steno does not hold itself."""
        plain = LaunchOptions()
        goes_on = ask.resume is not None or ask.continue_
        for option, field in OPTION_FIELDS.items():
            if getattr(ask, field) == getattr(plain, field):
                continue
            if self._is_unsupported(agent, option):
                self._refuse_or_note(option, f"{agent.name} has nothing of the kind")
            elif goes_on and field in agent.new_session_options:
                self._refuse_or_note(option, f"{agent.name} goes on with what its session began with")
        for field in agent.single_value_options:
            if len(getattr(ask, field)) > 1:
                option = next(name for name, own in OPTION_FIELDS.items() if own == field)
                raise StenoError(f"{self._settings.source(option)}: {agent.name} takes one, found {len(getattr(ask, field))}")
        self._check_permission_mode(agent, ask.permission_mode)
        self._note_late_usage(agent)

    def _is_unsupported(self, agent: Agent, option: str) -> bool:
        if option == "fallback_model" and self._settings["on_limit"] != "fallback":
            return option in agent.unsupported_options  # it is then for the agent's own use
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
            self._add_note(f"{sources}: {agent.name} tells what it used when a run ends, so it is held between attempts")

    def _check_permission_mode(self, agent: Agent, mode: str | None) -> None:
        if mode is not None and agent.permission_modes and mode not in agent.permission_modes:
            told = f"{agent.name} has no such mode; known: {', '.join(sorted(set(agent.permission_modes)))}"
            raise StenoError(f"{self._settings.source('permission_mode')} {mode}: {told}")
