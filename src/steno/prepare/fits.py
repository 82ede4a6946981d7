"""What an agent cannot do is said before it starts: refused where it was asked for, noted where a file asks it of all agents.

It looks at values only, and starts nothing.
"""

from collections.abc import Callable, Collection

from ..agents import Agent, Ask
from ..agents.asking import OPTIONS, how
from ..report import StenoError
from ..settings import Settings


class Fits:
    """What was asked for, as one agent after another is held against it."""

    def __init__(
        self, settings: Settings, given: Collection[str], spell: Callable[[str], str], say: Callable[[str], None]
    ) -> None:
        self._settings, self._given, self._spell, self._say = settings, given, spell, say

    def check(self, agent: Agent, ask: Ask) -> None:
        """StenoError for an option that this agent has no words for, and that steno does not hold itself."""
        plain = Ask()
        goes_on = ask.resume is not None or ask.continue_
        for option, field in OPTIONS.items():
            if getattr(ask, field) == getattr(plain, field):
                continue
            if self._ignored(agent, option):
                self._tell(option, f"{agent.name} has nothing of the kind")
            elif goes_on and field in agent.at_first:
                self._tell(option, f"{agent.name} goes on with what its session began with")
        for field in agent.single:
            if len(getattr(ask, field)) > 1:
                option = next(name for name, own in OPTIONS.items() if own == field)
                raise StenoError(f"{self._settings.source(option)}: {agent.name} takes one, found {len(getattr(ask, field))}")
        self._check_mode(agent, ask.permission_mode)
        self._tell_of_spending(agent)

    def _ignored(self, agent: Agent, option: str) -> bool:
        if option == "fallback_model" and self._settings["on_limit"] != "fallback":
            return option in agent.cannot  # it is then for the agent's own use
        return how(agent, option) == "no"

    def _tell(self, option: str, why: str) -> None:
        if option in self._given:
            raise StenoError(f"{self._spell(option)}: {why}")
        self._say(f"{self._settings.source(option)}: {option} is left out: {why}")

    def _tell_of_spending(self, agent: Agent) -> None:
        """A budget is held by what the agent tells: not every one does so while it runs."""
        given = [name for name in ("max_cost", "max_tokens") if self._settings[name] is not None]
        if given and not agent.abilities.context:
            sources = " and ".join(self._settings.source(name) for name in given)
            self._say(f"{sources}: {agent.name} tells what it used when a run ends, so it is held between attempts")

    def _check_mode(self, agent: Agent, mode: str | None) -> None:
        if mode is not None and agent.modes and mode not in agent.modes:
            told = f"{agent.name} has no such mode; known: {', '.join(sorted(set(agent.modes)))}"
            raise StenoError(f"{self._settings.source('permission_mode')} {mode}: {told}")
