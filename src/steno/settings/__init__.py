"""Settings: option beats environment beats the project's steno.toml beats the user's; each value knows where it comes from.

    settings = load({"max_turns": "20"}, os.environ, Path.cwd(), spell=option)
    settings["max_turns"], settings.source("max_turns")

What is wrong, a value or a name, is a StenoError that says where. It reads two files and never writes.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..report import StenoError
from . import kinds
from .files import File, project_path, read, user_path
from .sizes import SIZES, TABLE, Named, sizes
from .table import BY_NAME, SETTINGS, Setting

__all__ = ["BY_NAME", "SETTINGS", "SIZES", "Setting", "Settings", "Value", "load", "meant"]

OWN = ("program", "model", "backend")  # what a file may set for one agent: [agents.NAME]


class Value(Struct, frozen=True):
    """A value, and where it comes from: an option, a variable, a place in a file, or `default`."""

    value: Any
    source: str


Layer = dict[str, Value]


class Settings:
    """All settings of one run. `sizes` are the models that files name, by agent and size."""

    def __init__(self, values: Layer, read: list[File], layers: list[Layer]) -> None:
        self.values, self.files = values, [file.path for file in read]
        self.sizes: Named = sizes(read)
        self._read, self._layers = read, layers

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def source(self, name: str) -> str:
        """Where a value comes from."""
        return self.values[name].source

    def other(self, agent: str) -> Layer:
        """Program, model and model server of an agent that takes over from the first.

        A path, a model's name or a server that an option or a variable gives is the first one's; a size is everybody's.
        """
        layers = self._layers[:2]
        for file, top in zip(self._read, self._layers[2:], strict=True):
            layers += [_owned(file, agent), top]
        ours = {id(layer) for layer in layers[2::2]}
        sized = [layer for layer in layers if "model" in layer and (id(layer) in ours or layer["model"].value in SIZES)]
        server = _first("backend", layers[2:])
        return {"program": _first("program", layers[2::2]), "model": _first("model", sized), "backend": server}


def load(
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    spell: Callable[[str], str] = str,
    unknown: Callable[[str], str | None] = lambda agent: None,
) -> Settings:
    """The settings for a run in `cwd`. `given` are options, of which None is not given; `spell` says how they are called.

    `unknown` says what is wrong with the name of an agent.
    """
    files = _files(cwd, environ)
    for file in files:
        _known_agents(file, unknown)
    layers = [_options(given, spell), _variables(environ), *(_tops(file) for file in files)]
    agent = _first("agent", layers)
    values = {setting.name: _first(setting.name, layers) for setting in SETTINGS}
    own = [layers[0], layers[1]]
    for file, top in zip(files, layers[2:], strict=True):
        own += [_owned(file, str(agent.value)), top]  # what is said of this agent comes before what is said of all
    values.update({name: _first(name, own) for name in OWN})
    values["env"] = _together(layers)
    return Settings(values, files, layers)


def _first(name: str, layers: Iterable[Layer]) -> Value:
    found = (layer[name] for layer in layers if name in layer)
    return next(found, Value(BY_NAME[name].default, "default"))


def _together(layers: list[Layer]) -> Value:
    """Variables for the agent come from everywhere; of two values of one name the nearer stands."""
    given = [layer["env"] for layer in layers if "env" in layer]
    merged = {name: text for value in reversed(given) for name, text in value.value.items()}
    return Value(merged, ", ".join(value.source for value in given) or "default")


def _checked(setting: Setting, given: Any, where: str) -> Value:
    try:
        return Value(setting.kind(given), where)
    except ValueError as expected:
        told = "" if setting.kind in (kinds.pairs, kinds.server) else f", found {given!r}"  # these may hold a secret
        raise StenoError(f"{where}: expected {expected}{told}") from None


# -- layers --------------------------------------------------------------------------------------------------------


def _options(given: Mapping[str, Any], spell: Callable[[str], str]) -> Layer:
    named = {name: value for name, value in given.items() if value is not None}
    for name in named:
        meant(name, BY_NAME, f"no option is called {spell(name)}", spell)
    return {name: _checked(BY_NAME[name], value, spell(name)) for name, value in named.items()}


def _variables(environ: Mapping[str, str]) -> Layer:
    found = {}
    for setting in SETTINGS:
        name = setting.variable
        if name is not None and environ.get(name):  # empty is not set, as for other programs
            found[setting.name] = _checked(setting, environ[name], name)
    return found


def _files(cwd: Path, environ: Mapping[str, str]) -> list[File]:
    """The project's file and the user's, as far as they are there."""
    mine, ours = user_path(), project_path(cwd, environ)
    paths = [path for path in (ours, mine if mine.exists() else None) if path is not None]
    files = [read(path) for path in dict.fromkeys(paths)]
    for file in files:
        _known(file)
    return files


def _known(file: File) -> None:
    """Every name in a file is one that we know, and every value one that fits: also those that are not asked for now."""
    tops = [setting.name for setting in SETTINGS if setting.filed and not setting.own]
    for name in file.table:
        if name in BY_NAME and BY_NAME[name].own:
            raise StenoError(f"{file.at(name)}: {name} belongs to an agent: put it below [agents.claude]")
        if name in BY_NAME and not BY_NAME[name].filed:
            raise StenoError(
                f"{file.at(name)}: {name} is not set in a file: use {BY_NAME[name].option} or {BY_NAME[name].variable}"
            )
        meant(name, [*tops, "agents", TABLE], f"{file.at(name)}: no setting is called {name!r}")
    if not isinstance(file.table.get(TABLE, {}), dict):
        raise StenoError(f"{file.at(TABLE)}: expected a table for each agent, such as [models.codex]")
    agents = file.table.get("agents", {})
    if not isinstance(agents, dict) or not all(isinstance(table, dict) for table in agents.values()):
        raise StenoError(f"{file.at('agents')}: expected a table for each agent, such as [agents.claude]")
    for agent, table in agents.items():
        for name in table:
            meant(name, OWN, f"{file.at('agents', agent, name)}: no setting of an agent is called {name!r}")
        _owned(file, agent)
    _tops(file)


def _known_agents(file: File, unknown: Callable[[str], str | None]) -> None:
    """Whose settings and models are told is an agent."""
    for table in ("agents", TABLE):
        for name in file.table.get(table, {}):
            wrong = unknown(name)
            if wrong is not None:
                raise StenoError(f"{file.at(table, name)}: {wrong}")


def _tops(file: File) -> Layer:
    """What a file says of every agent."""
    return {name: _read(file, value, name) for name, value in file.table.items() if name not in ("agents", TABLE)}


def _owned(file: File, agent: str) -> Layer:
    """What a file says of one agent."""
    table = file.table.get("agents", {}).get(agent, {})
    return {name: _read(file, value, "agents", agent, name) for name, value in table.items()}


def _read(file: File, given: Any, *keys: str) -> Value:
    """A value in a file. A relative path is relative to the file's folder; a program without a slash is looked for in PATH."""
    place = file.at(*keys)
    if keys[-1] == "env" and isinstance(given, dict):
        _check_env(file, given)
    found = _checked(BY_NAME[keys[-1]], given, place)
    if keys[-1] in ("add_dir", "mcp_config"):
        return Value(tuple(_path(file, path) for path in found.value), place)
    if keys[-1] == "json_schema" or (keys[-1] == "program" and "/" in found.value):
        return Value(_path(file, found.value), place)
    return found


def _check_env(file: File, table: dict[str, Any]) -> None:
    """Every variable is a text; what a value is may be a secret."""
    for name, value in table.items():
        if not isinstance(value, str):
            raise StenoError(f'{file.at("env", name)}: expected a text in quotes, such as {name} = "1"')


def _path(file: File, path: str) -> str:
    return path if path.lstrip().startswith("{") else str(file.path.parent / Path(path).expanduser())


# -- names ---------------------------------------------------------------------------------------------------------


def meant(name: str, known: Iterable[str], wrong: str, spell: Callable[[str], str] = str) -> None:
    """StenoError if nobody knows the name, with the one that may have been meant."""
    names = list(known)
    if name in names:
        return
    near = nearest(name.replace("-", "_"), names)
    raise StenoError(wrong + (f"; did you mean {spell(near)}?" if near else f"; known: {', '.join(map(spell, names))}"))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that may have been meant by one that nobody knows."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1)), None)
