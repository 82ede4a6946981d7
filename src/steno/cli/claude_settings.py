"""Edit the settings of Claude Code: single entries; the rest of the file keeps its text.

An entry is inserted as the first of its object or array. Removing it restores the text exactly.
"""

import difflib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..config.files import data_folder
from ..errors import StenoError
from ..executables import find_executable, own_command
from ..private_files import write_cache_file as write_private_file
from .terminal import print_lines

SCOPES = {
    "user": "all projects",
    "project": ".claude/settings.json, shared with others",
    "local": ".claude/settings.local.json, for you alone",
}
DEFAULT_INDENT = 2
_SPACE = re.compile(r"[ \t\r\n]*")
_decode_at = json.JSONDecoder().raw_decode


class Item(NamedTuple):
    """The places of an entry of an object, or of an element of an array, in the text."""

    key: str  # empty in an array
    start: int
    value_start: int
    value_end: int
    next_start: int  # of the next item, or of the closing bracket


def settings_path(scope: str = "user") -> Path:
    """The file of a scope; those of a project are below the current folder."""
    if scope == "user":
        folder = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(folder) if folder else Path.home() / ".claude") / "settings.json"
    name = "settings.json" if scope == "project" else "settings.local.json"
    return Path.cwd() / ".claude" / name


def read_settings(path: Path) -> str:
    """The text of the settings, empty without a file; StenoError if they are no JSON object."""
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
    except (ValueError, RecursionError) as error:
        raise StenoError(f"{path}: invalid JSON ({error}); fix it first") from None
    if not isinstance(value, dict):
        raise StenoError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return text


def steno_words(is_shared: bool = False) -> list[str]:
    """The start of a command for Claude Code; in a shared file, without this machine's paths."""
    program = "steno" if is_shared else find_executable("steno")
    return [program] if program else own_command()


# -- the text ------------------------------------------------------------------------------------


def list_items(text: str, start: int) -> list[Item]:
    """The items of the valid object or array that begins at `start`."""
    items = []
    is_object = text[start] == "{"
    at = _skip_space(text, start + 1)
    while text[at] not in "]}":
        key, value_start = "", at
        if is_object:
            key, end = _decode_at(text, at)
            value_start = _skip_space(text, _skip_space(text, end) + 1)
        _, value_end = _decode_at(text, value_start)
        after = _skip_space(text, value_end)
        next_start = _skip_space(text, after + 1) if text[after] == "," else after
        items.append(Item(key, at, value_start, value_end, next_start))
        at = next_start
    return items


def find_entry(text: str, key: str, start: int | None = None) -> Item | None:
    """The last entry with the key, which is the one that counts."""
    if not text.strip():
        return None
    items = list_items(text, text.index("{") if start is None else start)
    return next((item for item in reversed(items) if item.key == key), None)


def insert_first(text: str, start: int, value: Any, key: str | None = None) -> str:
    """The text with a first item in the object or array that begins at `start`."""
    at = start + 1
    gap = text[at : _skip_space(text, at)]
    is_empty = text[at + len(gap)] in "]}"
    if is_empty or not gap:
        gap = ""
    indent = gap.rpartition("\n")[2] if "\n" in gap else None
    item = ("" if key is None else f"{json.dumps(key)}: ") + format_value(value, indent)
    comma = "" if is_empty else "," if gap else ", "
    return f"{text[:at]}{gap}{item}{comma}{text[at:]}"


def format_value(value: Any, indent: str | None) -> str:
    """JSON in one line; in several lines if it is nested and its place is indented."""
    is_nested = isinstance(value, dict) and any(isinstance(one, list) for one in value.values())
    if indent is None or not is_nested:
        return json.dumps(value, ensure_ascii=False)
    text = json.dumps(value, ensure_ascii=False, indent=DEFAULT_INDENT)
    return text.replace("\n", f"\n{indent}")


def remove_item(text: str, start: int, item: Item) -> str:
    """The text without an item of the object or array that begins at `start`."""
    if text[_skip_space(text, item.value_end)] == ",":
        return text[: item.start] + text[item.next_start :]
    before = text[: item.start]
    if item != list_items(text, start)[0]:  # the last of several: its comma is before it
        before = before.rstrip()[:-1]
    return before + text[item.value_end :]


def replace_value(text: str, item: Item, value: str) -> str:
    return text[: item.value_start] + value + text[item.value_end :]


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


# -- the change ----------------------------------------------------------------------------------


def apply_change(path: Path, old: str, new: str, is_confirmed: bool) -> bool:
    """Show the change and write it, if it is confirmed; False if nothing was written."""
    print_lines(_diff(path, old, new))
    if not is_confirmed and not _confirm():
        print_lines(["Nothing was changed."])
        return False
    _write(path, new)
    print_lines([f"{path}: written"])
    return True


def _diff(path: Path, old: str, new: str) -> list[str]:
    from ..views.formatting import clean

    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), str(path), str(path), lineterm="", n=2
    )
    return [clean(line) for line in lines]


def _confirm() -> bool:
    """The answer from a terminal or a pipe; StenoError if there is none."""
    print_lines(["Write this change? [y/N]"])
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if not answer:
        raise StenoError("not confirmed, nothing was changed; to write it: --yes")
    return answer.strip().lower() in ("y", "yes")


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


# -- what was there before -----------------------------------------------------------------------


def remember(name: str, text: str | None) -> None:
    """Keep a text in the data folder until the change is undone; None deletes it."""
    path = data_folder() / name
    if text is None:
        path.unlink(missing_ok=True)
    else:
        write_private_file(path, text.encode())


def recall(name: str) -> str | None:
    try:
        return (data_folder() / name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
