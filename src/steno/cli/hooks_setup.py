"""`steno hooks install`, `uninstall` and `status`: edit the settings of Claude Code."""

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import StenoError
from ..views.table import Column, render_table
from . import claude_settings as settings
from .options import CommandParser
from .query_options import write_result
from .terminal import detect_style, print_error, print_lines

EXAMPLES = """examples:
  steno hooks install                       record every session in the ledger as it happens
  steno hooks install --policy ~/claude-policy.toml
  steno hooks install --scope project --policy steno-policy.toml --yes
  steno hooks status --json
  steno hooks uninstall                     restore the settings

`install` adds entries to the hooks in Claude Code's settings, after showing the change: Stop,
SubagentStop and SessionEnd import the session's transcript into the ledger; with --policy,
PreToolUse refuses a call that would break one of the rules allow_tools, forbid_tools,
forbid_commands, allow_files and forbid_files (see: steno check --list-rules). The model gets the
rule as the reason. If the policy cannot be read, calls are not refused, unless --fail-closed is
used. Restart sessions that are already open.
"""
ACTIONS = ("install", "uninstall", "status")
KEY = "hooks"
RECORD_EVENTS = ("Stop", "SubagentStop", "SessionEnd")
GATE_EVENT = "PreToolUse"
RECORD_TIMEOUT_SECONDS = 60
GATE_TIMEOUT_SECONDS = 10
CREATED_FILE_NAME = "hooks-created.json"  # by settings file: the entries that `install` created
OWN_COMMAND = re.compile(r"steno\S* hooks run( |$)")
Settings = dict[str, Any]


def run_setup(args: list[str]) -> int:
    """Change the settings after showing the change, or print what is installed."""
    options = _parse_args(args)
    if options.action == "status":
        return _print_status(options.form)
    path = settings.settings_path(options.scope)
    text = settings.read_settings(path)
    created = _created_entries(path)
    new_text = _uninstalled(text, created)
    names = None
    if options.action == "install":
        new_text, names = _installed(path, new_text, _commands(options))
    if new_text == text:
        print_lines([f"{path}: {'already up to date' if names else 'unchanged'}"])
    elif settings.apply_change(path, text, new_text, options.yes):
        _store_created_entries(path, names)
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "hooks", "Record Claude Code's sessions as they happen, and refuse calls.", EXAMPLES
    )
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument(
        "--scope",
        choices=tuple(settings.SCOPES),
        default="user",
        help="; ".join(f"{name}: {text}" for name, text in settings.SCOPES.items())
        + " (default: user)",
    )
    parser.add_argument("--policy", metavar="FILE", help="refuse calls that break these rules")
    parser.add_argument(
        "--fail-closed", action="store_true", help="refuse all calls if the policy cannot be read"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before writing")
    parser.add_json("status: print one JSON object with rows and total")
    parser.add_debug()
    options = parser.parse_args(args)
    if options.action != "install" and (options.policy or options.fail_closed):
        parser.error("--policy and --fail-closed are options of install")
    if options.fail_closed and not options.policy:
        parser.error("--fail-closed needs --policy FILE")
    if options.form and options.action != "status":
        parser.error("--json is an option of status")
    return options


# -- install -------------------------------------------------------------------------------------


def _commands(options: argparse.Namespace) -> dict[str, Settings]:
    """The hook of each event."""
    words = [*settings.steno_words(options.scope == "project"), "hooks", "run"]
    record = {"type": "command", "command": shlex.join(words), "timeout": RECORD_TIMEOUT_SECONDS}
    hooks: dict[str, Settings] = {}
    if options.policy:
        _check_policy(options.policy)
        command = f"{shlex.join(words)} --policy {_policy_word(options)}"
        command += " --fail-closed" if options.fail_closed else ""
        gate = {"type": "command", "command": command, "timeout": GATE_TIMEOUT_SECONDS}
        hooks[GATE_EVENT] = {"matcher": "*", "hooks": [gate]}
    return hooks | {event: {"hooks": [record]} for event in RECORD_EVENTS}


def _check_policy(policy_path: str) -> None:
    """StenoError for a policy that cannot refuse a call; other rules of it are named."""
    from ..checks.call_gate import GATE_RULES
    from ..checks.policy import load_policy

    policy = load_policy(Path(policy_path))
    if not set(policy.rules) & set(GATE_RULES):
        raise StenoError(f"{policy_path}: no rule about a call; use {', '.join(GATE_RULES)}")
    others = [name for name in policy.rules if name not in GATE_RULES]
    others += ["across"] if policy.across else []
    if others:
        print_error(f"{policy_path}: not about single calls, ignored by hooks: {', '.join(others)}")


def _policy_word(options: argparse.Namespace) -> str:
    """The policy in the shell command: in a shared file relative to the project, if it is there."""
    path = Path(options.policy).expanduser().resolve()
    folder = Path.cwd().resolve()
    if options.scope == "project" and path.is_relative_to(folder):
        return f'"$CLAUDE_PROJECT_DIR"/{shlex.quote(str(path.relative_to(folder)))}'
    return shlex.quote(str(path))


def _installed(path: Path, text: str, hooks: dict[str, Settings]) -> tuple[str, list[str]]:
    """The settings with our hooks, and the names of the entries that had to be created."""
    if not text.strip():
        return json.dumps({KEY: _groups(hooks)}, indent=2, ensure_ascii=False) + "\n", [
            "",
            KEY,
            *hooks,
        ]
    entry = settings.find_entry(text, KEY)
    if entry is None:
        return settings.insert_first(text, text.index("{"), _groups(hooks), KEY), [KEY, *hooks]
    if text[entry.value_start] != "{":
        raise StenoError(f"{path}: `hooks` is not an object; fix it first")
    created = []
    for event, group in reversed(hooks.items()):
        place = settings.find_entry(text, event, entry.value_start)
        if place is None:
            created.append(event)
            text = settings.insert_first(text, entry.value_start, [group], event)
        elif text[place.value_start] != "[":
            raise StenoError(f"{path}: `hooks.{event}` is not an array; fix it first")
        else:
            text = settings.insert_first(text, place.value_start, group)
    return text, created


def _groups(hooks: dict[str, Settings]) -> dict[str, list[Settings]]:
    return {event: [group] for event, group in hooks.items()}


# -- uninstall -----------------------------------------------------------------------------------


def _uninstalled(text: str, created: list[str] | None) -> str:
    """The settings without our hooks, and without entries that would be left empty.

    `created` are those entries that `install` created; None if that is not known.
    """
    original = text
    while text and (place := next(_own_hooks(text), None)) is not None:
        start, item = place[-1]
        for level, name in ((2, ""), (1, place[1][1].key), (0, KEY)):
            is_alone = len(settings.list_items(text, start)) == 1
            is_created = not name or created is None or name in created
            if not is_alone or not is_created:
                break
            start, item = place[level]  # what contains it would be empty
        text = settings.remove_item(text, start, item)
    is_file_created = text != original and (created is None or "" in created)
    return "" if is_file_created and "".join(text.split()) == "{}" else text


def _own_hooks(text: str) -> Iterator[list[tuple[int, settings.Item]]]:
    """Our hooks, each as the way to it: the start of a container and the item in it."""
    entry = settings.find_entry(text, KEY)
    if entry is None or text[entry.value_start] != "{":
        return
    way = [(text.index("{"), entry)]
    for event in settings.list_items(text, entry.value_start):
        if text[event.value_start] != "[":
            continue
        for group in settings.list_items(text, event.value_start):
            inner = None
            if text[group.value_start] == "{":
                inner = settings.find_entry(text, KEY, group.value_start)
            if inner is None or text[inner.value_start] != "[":
                continue
            for hook in settings.list_items(text, inner.value_start):
                if _is_own(json.loads(text[hook.value_start : hook.value_end])):
                    yield [
                        *way,
                        (entry.value_start, event),
                        (event.value_start, group),
                        (inner.value_start, hook),
                    ]


def _is_own(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and OWN_COMMAND.search(command) is not None


def _created_entries(path: Path) -> list[str] | None:
    names = _all_created().get(str(path))
    return names if isinstance(names, list) else None


def _all_created() -> Settings:
    try:
        value = json.loads(settings.recall(CREATED_FILE_NAME) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _store_created_entries(path: Path, names: list[str] | None) -> None:
    files = _all_created()
    files.pop(str(path), None)
    if names is not None:
        files[str(path)] = names
    settings.remember(CREATED_FILE_NAME, json.dumps(files) if files else None)


# -- status --------------------------------------------------------------------------------------


def _print_status(form: str | None) -> int:
    rows = [_scope_status(scope) for scope in settings.SCOPES]
    write_result(form, lambda: _status_lines(rows), lambda: rows)
    return 0


def _scope_status(scope: str) -> Settings:
    path = settings.settings_path(scope)
    text = settings.read_settings(path)
    events = {}
    for way in _own_hooks(text):
        hook = way[-1][1]
        events[way[1][1].key] = json.loads(text[hook.value_start : hook.value_end])["command"]
    return {"scope": scope, "path": str(path), "installed": bool(events), "events": events}


def _status_lines(rows: list[Settings]) -> list[str]:
    columns = [Column("scope"), Column("hooks"), Column("settings")]
    cells = [[row["scope"], ", ".join(row["events"]) or "-", row["path"]] for row in rows]
    gates = [row["events"][GATE_EVENT] for row in rows if GATE_EVENT in row["events"]]
    return [
        *render_table(detect_style(), columns, cells),
        *(f"calls are checked by: {command}" for command in gates),
    ]
