"""Load settings: options, then environment, then the project's steno.toml, then the user's.

    settings = load_settings({"max_turns": "20"}, os.environ, Path.cwd())
    settings["max_turns"], settings.source("max_turns")

Invalid values and unknown names raise StenoError with their location.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import StenoError
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
from .options import SETTINGS, SETTINGS_BY_NAME, Setting, parse_backend, parse_env

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

AGENT_SETTINGS = ("program", "model", "backend")  # allowed below [agents.NAME]


class SettingValue(Struct, frozen=True):
    value: Any
    source: str  # an option, a variable, a location in a file, or `default`


Layer = dict[str, SettingValue]


class Layers(Struct, frozen=True):
    """Settings by origin, strongest first; `files` and `settings_files` correspond."""

    options: Layer
    environment: Layer
    files: list[Layer]
    settings_files: list[SettingsFile]

    def all(self) -> list[Layer]:
        return [self.options, self.environment, *self.files]

    def for_agent(self, agent: str) -> list[Layer]:
        """Return the layers of the files, each after what the file says about the agent."""
        layers = []
        for file, layer in zip(self.settings_files, self.files, strict=True):
            layers += [_agent_layer(file, agent), layer]
        return layers


class Settings:
    """All settings of one run."""

    def __init__(self, values: Layer, layers: Layers) -> None:
        self.values = values
        self.files = [file.path for file in layers.settings_files]
        self.models_by_size: ModelsBySize = load_model_sizes(layers.settings_files)
        self._layers = layers

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def source(self, name: str) -> str:
        return self.values[name].source

    def for_fallback_agent(self, agent: str) -> Layer:
        """Return program, model and backend of a fallback agent.

        Options and variables set those of the first agent; only a model size is for all agents.
        """
        layers = self._layers
        own_layers = [_agent_layer(file, agent) for file in layers.settings_files]
        file_layers = [
            layer for pair in zip(own_layers, layers.files, strict=True) for layer in pair
        ]
        candidates = [layers.options, layers.environment, *file_layers]
        with_model = [
            layer
            for layer in candidates
            if "model" in layer
            and (any(layer is own for own in own_layers) or layer["model"].value in MODEL_SIZES)
        ]
        return {
            "program": _first_value("program", own_layers),
            "model": _first_value("model", with_model),
            "backend": _first_value("backend", file_layers),
        }


def load_settings(
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    format_name: Callable[[str], str] = str,
    check_agent: Callable[[str], str | None] = lambda agent: None,
) -> Settings:
    """Load the settings for a run in `cwd`.

    Options that are None are not set. `format_name` returns the name of an option as users write
    it, `check_agent` what is wrong with the name of an agent.
    """
    files = _load_files(cwd, environ)
    for file in files:
        _check_agent_names(file, check_agent)
    layers = Layers(
        options=_option_layer(options, format_name),
        environment=_environment_layer(environ),
        files=[_file_layer(file) for file in files],
        settings_files=files,
    )
    values = {setting.name: _first_value(setting.name, layers.all()) for setting in SETTINGS}
    agent = str(values["agent"].value)
    agent_layers = [layers.options, layers.environment, *layers.for_agent(agent)]
    values.update({name: _first_value(name, agent_layers) for name in AGENT_SETTINGS})
    values["env"] = _merge_env(layers.all())
    return Settings(values, layers)


def _first_value(name: str, layers: Iterable[Layer]) -> SettingValue:
    for layer in layers:
        if name in layer:
            return layer[name]
    return SettingValue(SETTINGS_BY_NAME[name].default, "default")


def _merge_env(layers: list[Layer]) -> SettingValue:
    """Merge the variables for the agent from all layers; the strongest value of a name wins."""
    values = [layer["env"] for layer in layers if "env" in layer]
    merged = {name: text for value in reversed(values) for name, text in value.value.items()}
    return SettingValue(merged, ", ".join(value.source for value in values) or "default")


def _check_value(setting: Setting, value: Any, location: str) -> SettingValue:
    try:
        return SettingValue(setting.parse(value), location)
    except ValueError as expected:
        may_be_secret = setting.parse in (parse_env, parse_backend)
        found = "" if may_be_secret else f", found {value!r}"
        raise StenoError(f"{location}: expected {expected}{found}") from None


# -- layers --------------------------------------------------------------------------------------


def _option_layer(options: Mapping[str, Any], format_name: Callable[[str], str]) -> Layer:
    layer = {}
    for name, value in options.items():
        if value is not None:
            message = f"unknown option {format_name(name)}"
            require_known_name(name, SETTINGS_BY_NAME, message, format_name)
            layer[name] = _check_value(SETTINGS_BY_NAME[name], value, format_name(name))
    return layer


def _environment_layer(environ: Mapping[str, str]) -> Layer:
    layer = {}
    for setting in SETTINGS:
        name = setting.variable
        if name is not None and environ.get(name):  # an empty variable is not set
            layer[setting.name] = _check_value(setting, environ[name], name)
    return layer


def _load_files(cwd: Path, environ: Mapping[str, str]) -> list[SettingsFile]:
    """Read and check the project's file and the user's, if they exist."""
    project_path = project_settings_path(cwd, environ)
    user_path = user_settings_path()
    paths = [] if project_path is None else [project_path]
    if user_path.exists() and user_path not in paths:
        paths.append(user_path)
    files = [read_settings_file(path) for path in paths]
    for file in files:
        _check_file(file)
    return files


def _check_file(file: SettingsFile) -> None:
    """Check every name and value of a file, also those that this run doesn't use."""
    for name in file.table:
        _check_top_name(file, name)
    for table, example in ((TABLE_NAME, "[models.codex]"), ("agents", "[agents.claude]")):
        tables = file.table.get(table, {})
        is_valid = isinstance(tables, dict)
        if is_valid and table == "agents":
            is_valid = all(isinstance(settings, dict) for settings in tables.values())
        if not is_valid:
            location = file.location_of(table)
            raise StenoError(f"{location}: expected a table for each agent, such as {example}")
    for agent, settings in file.table.get("agents", {}).items():
        for name in settings:
            location = file.location_of("agents", agent, name)
            require_known_name(name, AGENT_SETTINGS, f"{location}: unknown agent setting {name!r}")
        _agent_layer(file, agent)
    _file_layer(file)


def _check_top_name(file: SettingsFile, name: str) -> None:
    location = file.location_of(name)
    setting = SETTINGS_BY_NAME.get(name)
    if setting is not None and setting.is_per_agent:
        raise StenoError(f"{location}: {name} is an agent setting: put it below [agents.claude]")
    if setting is not None and not setting.is_file_setting:
        raise StenoError(
            f"{location}: {name} can't be set in a file: use {setting.option} or {setting.variable}"
        )
    known = [
        setting.name for setting in SETTINGS if setting.is_file_setting and not setting.is_per_agent
    ]
    require_known_name(
        name, [*known, "agents", TABLE_NAME], f"{location}: unknown setting {name!r}"
    )


def _check_agent_names(file: SettingsFile, check_agent: Callable[[str], str | None]) -> None:
    for table in ("agents", TABLE_NAME):
        for name in file.table.get(table, {}):
            problem = check_agent(name)
            if problem is not None:
                raise StenoError(f"{file.location_of(table, name)}: {problem}")


def _file_layer(file: SettingsFile) -> Layer:
    """Return what a file sets for all agents."""
    return {
        name: _file_value(file, value, name)
        for name, value in file.table.items()
        if name not in ("agents", TABLE_NAME)
    }


def _agent_layer(file: SettingsFile, agent: str) -> Layer:
    """Return what a file sets for one agent."""
    table = file.table.get("agents", {}).get(agent, {})
    return {name: _file_value(file, value, "agents", agent, name) for name, value in table.items()}


def _file_value(file: SettingsFile, value: Any, *keys: str) -> SettingValue:
    """Parse a value. Paths are relative to the file; a program without a slash is in PATH."""
    location = file.location_of(*keys)
    name = keys[-1]
    if name == "env" and isinstance(value, dict):
        _check_env(file, value)
    parsed = _check_value(SETTINGS_BY_NAME[name], value, location)
    if name in ("add_dir", "mcp_config"):
        return SettingValue(tuple(_resolve_path(file, path) for path in parsed.value), location)
    if name == "json_schema" or (name == "program" and "/" in parsed.value):
        return SettingValue(_resolve_path(file, parsed.value), location)
    return parsed


def _check_env(file: SettingsFile, table: dict[str, Any]) -> None:
    """Require text; the message doesn't show the value, which may be a secret."""
    for name, value in table.items():
        if not isinstance(value, str):
            location = file.location_of("env", name)
            raise StenoError(f'{location}: expected text in quotes, such as {name} = "1"')


def _resolve_path(file: SettingsFile, path: str) -> str:
    if path.lstrip().startswith("{"):  # JSON instead of a path
        return path
    return str(file.path.parent / Path(path).expanduser())


# -- names ---------------------------------------------------------------------------------------


def require_known_name(
    name: str, known: Iterable[str], message: str, format_name: Callable[[str], str] = str
) -> None:
    """Raise StenoError with a suggestion if the name is not known."""
    names = list(known)
    if name in names:
        return
    suggestion = closest_name(name.replace("-", "_"), names)
    if suggestion is not None:
        raise StenoError(f"{message}; did you mean {format_name(suggestion)}?")
    raise StenoError(f"{message}; expected one of {', '.join(map(format_name, names))}")


def closest_name(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    # Leading dashes would make all options look alike.
    names = {option.lstrip("-"): option for option in known}
    return next((names[match] for match in get_close_matches(name.lstrip("-"), names, 1)), None)
