"""`steno statusline --install` and `--uninstall`: edit the settings of Claude Code.

Only the entry `statusLine` is changed; the rest of the file keeps its text.
"""

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..config.files import data_folder
from ..errors import StenoError
from ..private_files import create_private_folder
from .options import CommandParser
from .terminal import is_terminal, print_lines

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
PREVIOUS_FILE_NAME = "statusline-previous.json"
_SPACE = re.compile(r"[ \t\r\n]*")


class Entry(NamedTuple):
    """The places of an entry of a JSON object in its text."""

    key_start: int
    value_start: int
    value_end: int
    next_start: int  # of the next entry, or of the closing brace


def run_setup(args: list[str]) -> int:
    """Change the settings after showing the change; asks unless `--yes` is given."""
    options = _parse_args(args)
    path = _settings_path()
    text = _read(path)
    new_text, previous = _installed(path, text) if options.install else _uninstalled(path, text)
    if new_text == text:
        print_lines([f"{path}: already up to date" if options.install else f"{path}: unchanged"])
        return 0
    print_lines(_diff(path, text, new_text))
    if not options.yes and not _confirm():
        print_lines(["Dry run: nothing was changed; run again with --yes"])
        return 0
    _write(path, new_text)
    _remember(previous if options.install else None)
    print_lines([f"{path}: written"])
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


def _settings_path() -> Path:
    folder = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"


def _read(path: Path) -> str:
    """The text of the settings; StenoError if they are no JSON object."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise StenoError(f"{path}: cannot be read: {error}") from None
    if not text.strip():
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise StenoError(f"{path}: invalid JSON ({error}); fix it first") from None
    if not isinstance(value, dict):
        raise StenoError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return text


def _command() -> str:
    program = shutil.which("steno")
    words = [program] if program else [sys.executable, "-m", "steno"]
    return shlex.join([*words, "statusline"])


def _installed(path: Path, text: str) -> tuple[str, str | None]:
    """The settings with the entry, and the text of the value before it."""
    value = json.dumps({"type": "command", "command": _command()}, ensure_ascii=False)
    if not text.strip():
        return f'{{\n  "{KEY}": {value}\n}}\n', None
    entry = _find_entry(text)
    if entry is None:
        start = text.index("{") + 1
        indent = _SPACE.match(text, start)
        assert indent is not None  # noqa: S101  # the pattern matches the empty text
        is_empty = text[indent.end()] == "}"
        gap = indent[0] if indent[0] and not is_empty else ""
        comma = "" if is_empty else ", " if not gap else ","
        return f'{text[:start]}{gap}"{KEY}": {value}{comma}{text[start:]}', None
    old = text[entry.value_start : entry.value_end]
    if _is_own(json.loads(old)):
        return text[: entry.value_start] + value + text[entry.value_end :], _recall()
    return text[: entry.value_start] + value + text[entry.value_end :], old


def _uninstalled(path: Path, text: str) -> tuple[str, None]:
    entry = _find_entry(text) if text.strip() else None
    if entry is None:
        return text, None
    if not _is_own(json.loads(text[entry.value_start : entry.value_end])):
        raise StenoError(f"{path}: the status line is not steno's; left unchanged")
    previous = _recall()
    if previous is not None:
        return text[: entry.value_start] + previous + text[entry.value_end :], None
    has_next = text[entry.value_end :].lstrip().startswith(",")
    if has_next:
        return text[: entry.key_start] + text[entry.next_start :], None
    before = text[: entry.key_start].rstrip()
    if before.endswith(","):  # the last of several entries
        return before[:-1] + text[entry.value_end :], None
    rest = text[entry.value_end :]
    return ("" if (before + rest).split() == ["{", "}"] else before + rest), None


def _is_own(value: Any) -> bool:
    command = value.get("command") if isinstance(value, dict) else None
    return isinstance(command, str) and re.search(r"steno\S* statusline$", command) is not None


def _find_entry(text: str) -> Entry | None:
    """The last entry with the key, which is the one that counts. The text is a valid object."""
    found = None
    at = _skip_space(text, text.index("{") + 1)
    decoder = json.JSONDecoder()
    while text[at] == '"':
        key, end = decoder.raw_decode(text, at)
        value_start = _skip_space(text, _skip_space(text, end) + 1)
        _, value_end = decoder.raw_decode(text, value_start)
        after = _skip_space(text, value_end)
        next_start = _skip_space(text, after + 1) if text[after] == "," else after
        if key == KEY:
            found = Entry(at, value_start, value_end, next_start)
        at = next_start
    return found


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _diff(path: Path, old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), str(path), str(path), lineterm="", n=2
    )
    from ..views.formatting import clean

    return [clean(line) for line in lines]


def _confirm() -> bool:
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout):
        return False
    return input("Write this change? [y/N] ").strip().lower() in ("y", "yes")


def _write(path: Path, text: str) -> None:
    """Replace the file atomically; a link stays a link, and the mode stays the same."""
    target = path.resolve()
    draft = target.with_name(f".{target.name}.steno")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not text:
            target.unlink(missing_ok=True)
            return
        draft.write_text(text, "utf-8", newline="")
        draft.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o600)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StenoError(f"{path}: cannot be written: {error.strerror}") from None


def _previous_path() -> Path:
    return data_folder() / PREVIOUS_FILE_NAME


def _remember(previous: str | None) -> None:
    """Keep the text of the replaced value for `--uninstall`."""
    path = _previous_path()
    if previous is None:
        path.unlink(missing_ok=True)
        return
    create_private_folder(path.parent)
    path.write_text(previous, "utf-8", newline="")


def _recall() -> str | None:
    try:
        return _previous_path().read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
