"""Settings: option beats environment beats the project's steno.toml beats the user's; each value knows where it comes from.

    settings = load({"max_turns": "20"}, os.environ, Path.cwd(), spell=option)
    settings["max_turns"], settings.source("max_turns")

What is wrong, a value or a name, is a StenoError that says where. It reads two files and never writes.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import StenoError
from . import options as kinds
from .files import (
    MODEL_SIZES,
    TABLE_NAME,
    ModelsBySize,
    SettingsFile,
    load_model_sizes,
    project_settings_path,
    read_settings_file,
    user_settings_path,
)
from .options import SETTINGS, SETTINGS_BY_NAME, Setting

__all__ = [
    "MODEL_SIZES",
    "SETTINGS",
    "SETTINGS_BY_NAME",
    "Setting",
    "SettingValue",
    "Settings",
    "load_settings",
    "require_known_name",
]

AGENT_SETTINGS = ("program", "model", "backend")  # what a file may set for one agent: [agents.NAME]


class SettingValue(Struct, frozen=True):
    """A value, and where it comes from: an option, a variable, a place in a file, or `default`."""

    value: Any
    source: str


Layer = dict[str, SettingValue]


class Settings:
    """All settings of one run. `sizes` are the models that files name, by agent and size."""

    def __init__(self, values: Layer, read: list[SettingsFile], layers: list[Layer]) -> None:
        self.values, self.files = values, [file.path for file in read]
        self.models_by_size: ModelsBySize = load_model_sizes(read)
        self._settings_files, self._layers = read, layers

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def source(self, name: str) -> str:
        """Where a value comes from."""
        return self.values[name].source

    def for_fallback_agent(self, agent: str) -> Layer:
        """Program, model and model server of an agent that takes over from the first.

        A path, a model's name or a server that an option or a variable gives is the first one's; a size is everybody's.
        """
        layers = self._layers[:2]
        for file, top in zip(self._settings_files, self._layers[2:], strict=True):
            layers += [_agent_layer(file, agent), top]
        ours = {id(layer) for layer in layers[2::2]}
        sized = [
            layer
            for layer in layers
            if "model" in layer and (id(layer) in ours or layer["model"].value in MODEL_SIZES)
        ]
        server = _first_value("backend", layers[2:])
        return {
            "program": _first_value("program", layers[2::2]),
            "model": _first_value("model", sized),
            "backend": server,
        }


def load_settings(
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    format_name: Callable[[str], str] = str,
    check_agent: Callable[[str], str | None] = lambda agent: None,
) -> Settings:
    """The settings for a run in `cwd`. `given` are options, of which None is not given; `spell` says how they are called.

    `unknown` says what is wrong with the name of an agent.
    """
    files = _load_files(cwd, environ)
    for file in files:
        _check_agent_names(file, check_agent)
    layers = [
        _option_layer(given, format_name),
        _environment_layer(environ),
        *(_file_layer(file) for file in files),
    ]
    agent = _first_value("agent", layers)
    values = {setting.name: _first_value(setting.name, layers) for setting in SETTINGS}
    own = [layers[0], layers[1]]
    for file, top in zip(files, layers[2:], strict=True):
        own += [
            _agent_layer(file, str(agent.value)),
            top,
        ]  # what is said of this agent comes before what is said of all
    values.update({name: _first_value(name, own) for name in AGENT_SETTINGS})
    values["env"] = _merge_env(layers)
    return Settings(values, files, layers)


def _first_value(name: str, layers: Iterable[Layer]) -> SettingValue:
    found = (layer[name] for layer in layers if name in layer)
    return next(found, SettingValue(SETTINGS_BY_NAME[name].default, "default"))


def _merge_env(layers: list[Layer]) -> SettingValue:
    """Variables for the agent come from everywhere; of two values of one name the nearer stands."""
    given = [layer["env"] for layer in layers if "env" in layer]
    merged = {name: text for value in reversed(given) for name, text in value.value.items()}
    return SettingValue(merged, ", ".join(value.source for value in given) or "default")


def _check_value(setting: Setting, given: Any, where: str) -> SettingValue:
    try:
        return SettingValue(setting.parse(given), where)
    except ValueError as expected:
        told = (
            "" if setting.parse in (kinds.parse_env, kinds.parse_backend) else f", found {given!r}"
        )  # these may hold a secret
        raise StenoError(f"{where}: expected {expected}{told}") from None


# -- layers --------------------------------------------------------------------------------------------------------


def _option_layer(given: Mapping[str, Any], spell: Callable[[str], str]) -> Layer:
    named = {name: value for name, value in given.items() if value is not None}
    for name in named:
        require_known_name(name, SETTINGS_BY_NAME, f"no option is called {spell(name)}", spell)
    return {
        name: _check_value(SETTINGS_BY_NAME[name], value, spell(name))
        for name, value in named.items()
    }


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    found = {}
    for setting in SETTINGS:
        name = setting.variable
        if name is not None and environ.get(name):  # empty is not set, as for other programs
            found[setting.name] = _check_value(setting, environ[name], name)
    return found


def _load_files(cwd: Path, environ: Mapping[str, str]) -> list[SettingsFile]:
    """The project's file and the user's, as far as they are there."""
    mine, ours = user_settings_path(), project_settings_path(cwd, environ)
    paths = [path for path in (ours, mine if mine.exists() else None) if path is not None]
    files = [read_settings_file(path) for path in dict.fromkeys(paths)]
    for file in files:
        _check_file(file)
    return files


def _check_file(file: SettingsFile) -> None:
    """Every name in a file is one that we know, and every value one that fits: also those that are not asked for now."""
    tops = [
        setting.name for setting in SETTINGS if setting.is_file_setting and not setting.is_per_agent
    ]
    for name in file.table:
        if name in SETTINGS_BY_NAME and SETTINGS_BY_NAME[name].is_per_agent:
            raise StenoError(
                f"{file.location_of(name)}: {name} belongs to an agent: put it below [agents.claude]"
            )
        if name in SETTINGS_BY_NAME and not SETTINGS_BY_NAME[name].is_file_setting:
            raise StenoError(
                f"{file.location_of(name)}: {name} is not set in a file: use {SETTINGS_BY_NAME[name].option} or {SETTINGS_BY_NAME[name].variable}"
            )
        require_known_name(
            name,
            [*tops, "agents", TABLE_NAME],
            f"{file.location_of(name)}: no setting is called {name!r}",
        )
    if not isinstance(file.table.get(TABLE_NAME, {}), dict):
        raise StenoError(
            f"{file.location_of(TABLE_NAME)}: expected a table for each agent, such as [models.codex]"
        )
    agents = file.table.get("agents", {})
    if not isinstance(agents, dict) or not all(
        isinstance(table, dict) for table in agents.values()
    ):
        raise StenoError(
            f"{file.location_of('agents')}: expected a table for each agent, such as [agents.claude]"
        )
    for agent, table in agents.items():
        for name in table:
            require_known_name(
                name,
                AGENT_SETTINGS,
                f"{file.location_of('agents', agent, name)}: no setting of an agent is called {name!r}",
            )
        _agent_layer(file, agent)
    _file_layer(file)


def _check_agent_names(file: SettingsFile, unknown: Callable[[str], str | None]) -> None:
    """Whose settings and models are told is an agent."""
    for table in ("agents", TABLE_NAME):
        for name in file.table.get(table, {}):
            wrong = unknown(name)
            if wrong is not None:
                raise StenoError(f"{file.location_of(table, name)}: {wrong}")


def _file_layer(file: SettingsFile) -> Layer:
    """What a file says of every agent."""
    return {
        name: _file_value(file, value, name)
        for name, value in file.table.items()
        if name not in ("agents", TABLE_NAME)
    }


def _agent_layer(file: SettingsFile, agent: str) -> Layer:
    """What a file says of one agent."""
    table = file.table.get("agents", {}).get(agent, {})
    return {name: _file_value(file, value, "agents", agent, name) for name, value in table.items()}


def _file_value(file: SettingsFile, given: Any, *keys: str) -> SettingValue:
    """A value in a file. A relative path is relative to the file's folder; a program without a slash is looked for in PATH."""
    place = file.location_of(*keys)
    if keys[-1] == "env" and isinstance(given, dict):
        _check_env(file, given)
    found = _check_value(SETTINGS_BY_NAME[keys[-1]], given, place)
    if keys[-1] in ("add_dir", "mcp_config"):
        return SettingValue(tuple(_resolve_path(file, path) for path in found.value), place)
    if keys[-1] == "json_schema" or (keys[-1] == "program" and "/" in found.value):
        return SettingValue(_resolve_path(file, found.value), place)
    return found


def _check_env(file: SettingsFile, table: dict[str, Any]) -> None:
    """Every variable is a text; what a value is may be a secret."""
    for name, value in table.items():
        if not isinstance(value, str):
            raise StenoError(
                f'{file.location_of("env", name)}: expected a text in quotes, such as {name} = "1"'
            )


def _resolve_path(file: SettingsFile, path: str) -> str:
    return (
        path if path.lstrip().startswith("{") else str(file.path.parent / Path(path).expanduser())
    )


# -- names ---------------------------------------------------------------------------------------------------------


def require_known_name(
    name: str, known: Iterable[str], wrong: str, format_name: Callable[[str], str] = str
) -> None:
    """StenoError if nobody knows the name, with the one that may have been meant."""
    names = list(known)
    if name in names:
        return
    near = closest_name(name.replace("-", "_"), names)
    raise StenoError(
        wrong
        + (
            f"; did you mean {format_name(near)}?"
            if near
            else f"; known: {', '.join(map(format_name, names))}"
        )
    )


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """The name that may have been meant by one that nobody knows."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), 1)), None)
