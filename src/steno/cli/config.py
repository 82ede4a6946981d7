"""`steno config`: shows every setting with its value and source."""

import argparse
import os
from pathlib import Path
from typing import Any

import msgspec

from ..agents import AGENTS, unknown_agent_message
from ..codec.redact import redact, redact_service_url, redact_value
from ..config import SETTINGS, SETTINGS_BY_NAME, Settings, load_settings
from ..config.files import user_settings_path
from ..errors import StenoError
from ..runner.doctor import SizedModel, sized_models
from ..views.formatting import clean, pad, width
from .options import CommandParser
from .terminal import print_error, print_json, print_lines

OTHER_VARIABLES = (
    "STENO_BACKEND_KEY",
    "STENO_DEBUG",
    "STENO_PRICES",
    "STENO_RUN",
    "STENO_SYNC_TOKEN",
)  # variables of steno that are not settings
EXAMPLES = """examples:
  steno config
  steno config --json
  STENO_MODEL=opus steno config | grep ^model

Sources, highest priority first: an option of `steno run`, a STENO_* variable, the project's
steno.toml (the nearest one, searched upwards to the root of the repository or the home folder), the
user's steno.toml.

  # steno.toml
  max_turns = 40
  silence = "10m"
  allow = ["Edit", "Bash(make test)"]

  [env]
  CI = "1"

  [agents.claude]
  model = "opus"

  [models.opencode]
  small = "anthropic/claude-haiku-4-5"
"""


def run(args: list[str]) -> int:
    """Run `steno config` and return its exit code."""
    options = _parse_args(args)
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise StenoError(f"--cwd {options.cwd}: not a folder")
    settings = load_settings(
        {}, os.environ, Path(os.path.normpath(cwd)), check_agent=unknown_agent_message
    )
    if options.form == "json":
        print_json(msgspec.json.encode(_as_json(settings)))
    else:
        print_lines(_render(settings))
    for name in _unknown_variables():
        print_error(f"{name}: unknown setting, ignored")
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "config", "Show every setting, its value and where it comes from.", EXAMPLES
    )
    parser.add_argument(
        "--cwd", metavar="DIR", help="show the settings for this folder (default: .)"
    )
    parser.add_json()
    parser.add_debug()
    return parser.parse_args(args)


def _as_json(settings: Settings) -> dict[str, Any]:
    values = {
        name: {
            "value": redact_value(msgspec.to_builtins(_without_urls(name, entry.value))),
            "source": entry.source,
        }
        for name, entry in settings.values.items()
    }
    return {
        "settings": {setting.name: values[setting.name] for setting in SETTINGS},
        "models": {
            agent: {entry.size: {"value": entry.model, "source": entry.source} for entry in models}
            for agent, models in _models_by_agent(settings)
        },
        "files": [str(path) for path in settings.files],
    }


def _models_by_agent(settings: Settings) -> list[tuple[str, list[SizedModel]]]:
    return [(agent.name, sized_models(agent, settings)) for agent in AGENTS.values()]


def _render(settings: Settings) -> list[str]:
    rows = [
        (
            setting.name,
            clean(settings.source(setting.name)),
            _format_value(_without_urls(setting.name, settings[setting.name])),
        )
        for setting in SETTINGS
    ]
    model_rows = [
        (f"models.{agent}.{entry.size}", clean(entry.source), _format_value(entry.model))
        for agent, models in _models_by_agent(settings)
        for entry in models
    ]
    return [*_align_columns(rows), "", *_align_columns(model_rows), "", *_file_lines(settings)]


def _without_urls(name: str, value: Any) -> Any:
    """The value of a setting; of notification services only the kind."""
    return tuple(map(redact_service_url, value)) if name == "notify" else value


def _align_columns(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(width(row[column]) for row in rows) for column in (0, 1)]
    return [
        f"{pad(name, widths[0])}  {pad(source, widths[1])}  {value}" for name, source, value in rows
    ]


def _format_value(value: Any) -> str:
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, dict):
        return clean(", ".join(redact(f"{name}={text}") for name, text in value.items()))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return clean(", ".join(map(str, value)))
    return clean(f"{value:g}" if isinstance(value, float) else redact(str(value)))


def _file_lines(settings: Settings) -> list[str]:
    user_file = user_settings_path()
    lines = [f"read: {clean(str(path))}" for path in settings.files]
    if user_file not in settings.files:
        lines.append(f"not found: {clean(str(user_file))}")
    return lines


def _unknown_variables() -> list[str]:
    """STENO_* variables that are no settings."""
    known = {setting.variable for setting in SETTINGS_BY_NAME.values()} | set(OTHER_VARIABLES)
    return sorted(name for name in os.environ if name.startswith("STENO_") and name not in known)
