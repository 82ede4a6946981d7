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
    find_settings_files,
    load_model_sizes,
    read_settings_file,
)
from .options import FORMER_SETTING_NAMES, SETTINGS, SETTINGS_BY_NAME, Setting
from .values import parse_backend, parse_env, parse_services

__all__ = [
    "FORMER_SETTING_NAMES",
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


class Settings(Struct, frozen=True):
    """All settings of one run, and the layers they come from, strongest first.

    `settings_files` and `file_layers` correspond.
    """

    values: Layer
    option_layer: Layer
    environment_layer: Layer
    settings_files: list[SettingsFile]
    file_layers: list[Layer]
    models_by_size: ModelsBySize
    notes: list[str] = []  # for people: former names that were used

    @property
    def files(self) -> list[Path]:
        return [file.path for file in self.settings_files]

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def source(self, name: str) -> str:
        return self.values[name].source

    def for_fallback_agent(self, agent: str) -> Layer:
        """Return program, model and backend of a fallback agent.

        Options and variables set those of the first agent; only a model size is for all agents.
        """
        own_layers = [_agent_layer(file, agent) for file in self.settings_files]
        file_layers = [
            layer for pair in zip(own_layers, self.file_layers, strict=True) for layer in pair
        ]
        candidates = [self.option_layer, self.environment_layer, *file_layers]
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
    files = [read_settings_file(path) for path in find_settings_files(cwd, environ)]
    notes = [note for file in files for note in _rename_former(file)]
    for file in files:
        _check_file(file)
    for file in files:
        _check_agent_names(file, check_agent)

    option_layer: Layer = {}
    for name, value in options.items():
        if value is not None:
            message = f"unknown option {format_name(name)}"
            require_known_name(name, SETTINGS_BY_NAME, message, format_name)
            option_layer[name] = _check_value(SETTINGS_BY_NAME[name], value, format_name(name))
    environment_layer: Layer = {}
    for setting in SETTINGS:
        variable = setting.variable
        former = f"STENO_{setting.former_name.upper()}"
        if variable and setting.former_name and environ.get(former) and not environ.get(variable):
            notes.append(f"{former} is now called {variable}")
            environment_layer[setting.name] = _check_value(setting, environ[former], former)
        if variable is not None and environ.get(variable):  # an empty variable is not set
            environment_layer[setting.name] = _check_value(setting, environ[variable], variable)
    file_layers = [_file_layer(file) for file in files]

    layers = [option_layer, environment_layer, *file_layers]
    values = {setting.name: _first_value(setting.name, layers) for setting in SETTINGS}
    agent = str(values["agent"].value)
    agent_layers = [option_layer, environment_layer]
    for file, layer in zip(files, file_layers, strict=True):
        agent_layers += [_agent_layer(file, agent), layer]
    values.update({name: _first_value(name, agent_layers) for name in AGENT_SETTINGS})
    for name in ("env", "tag"):  # tables: the strongest value of each key wins
        tables = [layer[name] for layer in layers if name in layer]
        merged = {key: text for table in reversed(tables) for key, text in table.value.items()}
        sources = ", ".join(table.source for table in tables)
        values[name] = SettingValue(merged, sources or "default")
    return Settings(
        values=values,
        option_layer=option_layer,
        environment_layer=environment_layer,
        settings_files=files,
        file_layers=file_layers,
        models_by_size=load_model_sizes(files),
        notes=notes,
    )


def _first_value(name: str, layers: Iterable[Layer]) -> SettingValue:
    for layer in layers:
        if name in layer:
            return layer[name]
    return SettingValue(SETTINGS_BY_NAME[name].default, "default")


def _check_value(setting: Setting, value: Any, location: str) -> SettingValue:
    try:
        return SettingValue(setting.parse(value), location)
    except ValueError as expected:
        may_be_secret = setting.parse in (parse_env, parse_backend, parse_services)
        is_one_word = location.startswith("-") and isinstance(value, list) and len(value) == 1
        shown = value[0] if is_one_word else value
        found = "" if may_be_secret else f", found {shown!r}"
        raise StenoError(f"{location}: expected {expected}{found}") from None


# -- files ---------------------------------------------------------------------------------------


def _rename_former(file: SettingsFile) -> list[str]:
    """Put the values of former names below the new ones; a note about each."""
    notes = []
    for name, former in FORMER_SETTING_NAMES.items():
        if former in file.table and name not in file.table:
            notes.append(f"{file.location_of(former)}: {former} is now called {name}")
            file.table[name] = file.table.pop(former)
    return notes


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
    if name in ("add_dirs", "mcp_config"):
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
    if not names:
        raise StenoError(message)
    suggestion = closest_name(name.replace("-", "_"), names)
    if suggestion is not None:
        raise StenoError(f"{message}; did you mean {format_name(suggestion)}?")
    raise StenoError(f"{message}; expected one of {', '.join(map(format_name, names))}")


def closest_name(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    # Leading dashes would make all options look alike.
    names = {option.lstrip("-"): option for option in known}
    return next((names[match] for match in get_close_matches(name.lstrip("-"), names, 1)), None)
