"""`steno statusline --install` and `--uninstall`: edit the settings of Claude Code."""

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import Any

from ..errors import StenoError
from . import claude_settings as settings
from .options import CommandParser
from .terminal import print_lines

SUMMARY = "Print a status line for Claude Code from the JSON that it writes to stdin."
EXAMPLES = """examples:
  steno statusline --install        add it to Claude Code's settings, after showing the change
  steno statusline --install --yes
  steno statusline --uninstall      restore the settings

The line has the context, the usage limits with their reset times (subscriptions), the cost of the
session and of today, and the tightest budget (see: steno budget). The limits are stored in the
ledger (see: steno limits). Figures of the ledger need an existing SQLite ledger.
"""
KEY = "statusLine"
PREVIOUS_FILE_NAME = "statusline-previous.json"  # the value that `--install` replaced


def run_setup(args: list[str]) -> int:
    """Change the settings after showing the change; asks unless `--yes` is given."""
    options = _parse_args(args)
    path = settings.settings_path()
    text = settings.read_settings(path)
    new_text, previous = _installed(text) if options.install else _uninstalled(path, text)
    if new_text == text:
        print_lines([f"{path}: already up to date" if options.install else f"{path}: unchanged"])
    elif settings.apply_change(path, text, new_text, options.yes):
        settings.remember(PREVIOUS_FILE_NAME, previous)
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("statusline", SUMMARY, EXAMPLES)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--install", action="store_true", help="add it to Claude Code's settings")
    choice.add_argument("--uninstall", action="store_true", help="restore Claude Code's settings")
    parser.add_argument("--yes", action="store_true", help="write without asking for confirmation")
    options = parser.parse_args(args)
    if not options.install and not options.uninstall:
        parser.error("--yes: use it with --install or --uninstall")
    return options


def _installed(text: str) -> tuple[str, str | None]:
    """The settings with the entry, and the text of the value before it."""
    command = shlex.join([*settings.steno_words(), "statusline"])
    value = {"type": "command", "command": command}
    if not text.strip():
        return f"{{\n  {json.dumps(KEY)}: {settings.format_value(value, '')}\n}}\n", None
    entry = settings.find_entry(text, KEY)
    if entry is None:
        return settings.insert_first(text, text.index("{"), value, KEY), None
    old = text[entry.value_start : entry.value_end]
    new_text = settings.replace_value(text, entry, settings.format_value(value, None))
    is_own = _is_own(json.loads(old))
    return new_text, settings.recall(PREVIOUS_FILE_NAME) if is_own else old


def _uninstalled(path: Path, text: str) -> tuple[str, None]:
    entry = settings.find_entry(text, KEY)
    if entry is None:
        return text, None
    if not _is_own(json.loads(text[entry.value_start : entry.value_end])):
        raise StenoError(f"{path}: the status line is not steno's; left unchanged")
    previous = settings.recall(PREVIOUS_FILE_NAME)
    if previous is not None:
        return settings.replace_value(text, entry, previous), None
    rest = settings.remove_item(text, text.index("{"), entry)
    return ("" if rest.split() == ["{", "}"] else rest), None


def _is_own(value: Any) -> bool:
    command = value.get("command") if isinstance(value, dict) else None
    return isinstance(command, str) and re.search(r"steno\S* statusline$", command) is not None
