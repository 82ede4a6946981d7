"""Which model is meant: a name passes as it is, a size is the agent's own model of that size. It asks nobody."""

from msgspec import Struct

from ..agents import Agent
from ..report import StenoError
from ..settings import MODEL_SIZES, Settings, SettingValue


class SizedModel(Struct, frozen=True):
    """The model of one size: its name, and where that comes from. None where nobody named it."""

    size: str
    model: str | None
    source: str


def sized_models(agent: Agent, settings: Settings) -> list[SizedModel]:
    """Every size of an agent: as a file names it, else as this version knows it."""
    own = dict(zip(MODEL_SIZES, agent.models_by_size, strict=False))
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
