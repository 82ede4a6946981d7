"""`steno config`: every setting, its value, and where that comes from. It reads and prints; it changes nothing."""

import argparse
import os
from pathlib import Path
from typing import Any

import msgspec

from ..agents import AGENTS, unknown_agent_message
from ..codec.redact import redact, redact_value
from ..config import SETTINGS, SETTINGS_BY_NAME, Settings, load_settings
from ..config.files import user_settings_path
from ..errors import StenoError
from ..runner.capability_check import SizedModel, sized_models
from ..views.sanitize import clean, pad, width
from .options import CommandParser
from .terminal import print_error, print_json, print_lines

OTHER_VARIABLES = (
    "STENO_BACKEND_KEY",
    "STENO_DEBUG",
    "STENO_PRICES",
    "STENO_RUN",
    "STENO_SYNC_TOKEN",
)  # ours, and no settings
EXAMPLES = """examples:
  steno config                 each setting, its value, and where it comes from
  steno config --json          the same for programs
  STENO_MODEL=opus steno config | grep ^model

A setting comes from an option of `steno run`, else from a STENO_* variable, else from the project's steno.toml (the
nearest one from the folder upwards, to the root of its repository or to the home folder), else from the user's own.

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


def run(words: list[str]) -> int:
    """Carry out `steno config` and return its exit code."""
    options = _parse_args(words)
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise StenoError(f"--cwd {options.cwd}: this is not a folder")
    settings = load_settings(
        {}, os.environ, Path(os.path.normpath(cwd)), check_agent=unknown_agent_message
    )
    if options.form == "json":
        print_json(msgspec.json.encode(_as_json(settings)))
    else:
        print_lines(_render(settings))
    for name in _unknown_variables():
        print_error(f"{name}: no setting is called so; it changes nothing")
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "config", "Show every setting, its value, and where that comes from.", EXAMPLES
    )
    parser.add_argument("--cwd", metavar="DIR", help="as it is in this folder (default: here)")
    parser.add_argument(
        "--json", dest="form", action="store_const", const="json", help="one JSON object"
    )
    parser.add_debug()
    return parser.parse_args(words)


def _as_json(settings: Settings) -> dict[str, Any]:
    found = {
        name: {"value": redact_value(msgspec.to_builtins(one.value)), "source": one.source}
        for name, one in settings.values.items()
    }
    return {
        "settings": {setting.name: found[setting.name] for setting in SETTINGS},
        "models": {
            agent: {one.size: {"value": one.model, "source": one.source} for one in found}
            for agent, found in _models_by_agent(settings)
        },
        "files": [str(path) for path in settings.files],
    }


def _models_by_agent(settings: Settings) -> list[tuple[str, list[SizedModel]]]:
    """The models of each size, agent by agent."""
    return [(agent.name, sized_models(agent, settings)) for agent in AGENTS.values()]


def _render(settings: Settings) -> list[str]:
    rows = [
        (setting.name, clean(settings.source(setting.name)), _format_value(settings[setting.name]))
        for setting in SETTINGS
    ]
    sized = [
        (f"models.{agent}.{one.size}", clean(one.source), _format_value(one.model))
        for agent, found in _models_by_agent(settings)
        for one in found
    ]
    return [*_align_columns(rows), "", *_align_columns(sized), "", *_file_lines(settings)]


def _align_columns(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(width(row[column]) for row in rows) for column in (0, 1)]
    return [
        f"{pad(name, widths[0])}  {pad(source, widths[1])}  {value}" for name, source, value in rows
    ]


def _format_value(value: Any) -> str:
    """A value as it could be written in a file."""
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, dict):
        return clean(", ".join(redact(f"{name}={text}") for name, text in value.items()))
    if isinstance(value, bool):
        return str(value).lower()
    return clean(
        ", ".join(value)
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else redact(str(value))
    )


def _file_lines(settings: Settings) -> list[str]:
    mine = user_settings_path()
    read = [f"read: {clean(str(path))}" for path in settings.files]
    return read if mine in settings.files else [*read, f"not there: {clean(str(mine))}"]


def _unknown_variables() -> list[str]:
    """Variables that look like settings and are none."""
    known = {setting.variable for setting in SETTINGS_BY_NAME.values()} | set(OTHER_VARIABLES)
    return sorted(name for name in os.environ if name.startswith("STENO_") and name not in known)
