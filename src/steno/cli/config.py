"""`steno config`: every setting, its value, and where that comes from. It reads and prints; it changes nothing."""

import argparse
import os
from pathlib import Path
from typing import Any

import msgspec

from ..agents import AGENTS, unknown
from ..prepare.models import Sized, sizes
from ..redact import redact, redact_all
from ..report import StenoError
from ..screen.clean import clean, pad, width
from ..settings import BY_NAME, SETTINGS, Settings, load
from ..settings.files import user_path
from .options import Parser
from .terminal import complain, put, put_json

OTHERS = ("STENO_BACKEND_KEY", "STENO_DEBUG", "STENO_PRICES", "STENO_RUN", "STENO_SYNC_TOKEN")  # ours, and no settings
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
    options = _options(words)
    cwd = Path(options.cwd or ".").absolute()
    if not cwd.is_dir():
        raise StenoError(f"--cwd {options.cwd}: this is not a folder")
    settings = load({}, os.environ, Path(os.path.normpath(cwd)), unknown=unknown)
    if options.form == "json":
        put_json(msgspec.json.encode(_values(settings)))
    else:
        put(_lines(settings))
    for name in _unknown():
        complain(f"{name}: no setting is called so; it changes nothing")
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("config", "Show every setting, its value, and where that comes from.", EXAMPLES)
    parser.add_argument("--cwd", metavar="DIR", help="as it is in this folder (default: here)")
    parser.add_argument("--json", dest="form", action="store_const", const="json", help="one JSON object")
    parser.add_debug()
    return parser.parse_args(words)


def _values(settings: Settings) -> dict[str, Any]:
    found = {
        name: {"value": redact_all(msgspec.to_builtins(one.value)), "source": one.source} for name, one in settings.values.items()
    }
    return {
        "settings": {setting.name: found[setting.name] for setting in SETTINGS},
        "models": {
            agent: {one.size: {"value": one.model, "source": one.source} for one in found} for agent, found in _models(settings)
        },
        "files": [str(path) for path in settings.files],
    }


def _models(settings: Settings) -> list[tuple[str, list[Sized]]]:
    """The models of each size, agent by agent."""
    return [(agent.name, sizes(agent, settings)) for agent in AGENTS.values()]


def _lines(settings: Settings) -> list[str]:
    rows = [(setting.name, clean(settings.source(setting.name)), _shown(settings[setting.name])) for setting in SETTINGS]
    sized = [
        (f"models.{agent}.{one.size}", clean(one.source), _shown(one.model))
        for agent, found in _models(settings)
        for one in found
    ]
    return [*_columns(rows), "", *_columns(sized), "", *_files(settings)]


def _columns(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(width(row[column]) for row in rows) for column in (0, 1)]
    return [f"{pad(name, widths[0])}  {pad(source, widths[1])}  {value}" for name, source, value in rows]


def _shown(value: Any) -> str:
    """A value as it could be written in a file."""
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, dict):
        return clean(", ".join(redact(f"{name}={text}") for name, text in value.items()))
    if isinstance(value, bool):
        return str(value).lower()
    return clean(
        ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else redact(str(value))
    )


def _files(settings: Settings) -> list[str]:
    mine = user_path()
    read = [f"read: {clean(str(path))}" for path in settings.files]
    return read if mine in settings.files else [*read, f"not there: {clean(str(mine))}"]


def _unknown() -> list[str]:
    """Variables that look like settings and are none."""
    known = {setting.variable for setting in BY_NAME.values()} | set(OTHERS)
    return sorted(name for name in os.environ if name.startswith("STENO_") and name not in known)
