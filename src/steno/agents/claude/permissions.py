"""The rules for `--allowedTools` that would have allowed a call that Claude Code denied. Pure.

A denial names what lacks a permission: parts of a command, a path, or the whole command. A rule for
the whole command allows none of its parts, and redirections need a rule for the file. Every form
was applied to 2.1.197 and 2.1.325: see tests/runner/test_allow_rules_real.py.
"""

import re
import shlex
from typing import Any

from msgspec import Struct

from ...report import resolve_path

# An Edit rule covers all of them.
FILE_EDIT_TOOLS = ("Write", "Edit", "MultiEdit", "NotebookEdit")
PROTECTED_FOLDER = ".claude"  # its files can't be written, whatever the rules
# Denials that no rule changes: a hook, a deny rule, a removed tool, plan mode, a protected file.
_FINAL_DENIAL_PATTERN = re.compile(
    r"PreToolUse:|\w+ operation blocked by hook:"
    r"|(?:<tool_use_error>)?(?:Error: )?No such tool available"
    r"|(?s:Permission to use .*has been denied\.$)"
    r"|.*while in plan mode|.*which is a sensitive file"
)
# Denials that only a rule for all commands changes.
_UNCHECKED_PREFIXES = (
    "Commands that change directories and perform write operations",
    "Glob patterns are not allowed in write operations",
    "This command uses the `&` background operator",
)
_PARTS_PATTERN = re.compile(r"(?s).*multiple operations\. The following parts? requires? approval:")
_PATH_PATTERN = re.compile(
    r"(?:(?P<redirect>Output redirection to)|\S+ in) '(?P<path>[^']+)' "
    r"(?:(?P<write>needs approval)|was blocked\. .*? may only (?P<verb>\w+))"
)
_READ_VERBS = ("concatenate", "list", "read", "search", "change", "display", "count", "sort")
# Such a command is allowed only by a rule with exactly its text.
_UNANALYZED_PATTERN = re.compile(r"Contains |.*(?:can't be checked|analyz)")
_TOKEN_PATTERN = re.compile(
    r"(?P<space>[ \t]+)|(?P<redirect>\d*>&\d|(?:\d*|&)>>?\|?)|(?P<operator>&&|\|\||\|&|[|;\n&])"
    r"""|(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s|&;<>()\\'"`])+)""",
    re.DOTALL,
)


class ShellPart(Struct):
    """One command of a command line, without its redirections, and the files it writes."""

    text: str = ""
    files: tuple[str, ...] = ()


def allow_rule(tool: str, input_: Any, cwd: str | None, reason: str | None) -> str | None:
    """The narrowest rules that would have allowed a denied call; None if no rule would."""
    reason = reason or ""
    fields = input_ if isinstance(input_, dict) else {}
    if _FINAL_DENIAL_PATTERN.match(reason):
        return None
    if tool == "Bash" and isinstance(fields.get("command"), str):
        return " ".join(dict.fromkeys(_shell_rules(fields["command"].strip(), reason, cwd)))
    if tool in FILE_EDIT_TOOLS:
        path = fields.get("file_path") or fields.get("notebook_path")
        if isinstance(path, str) and PROTECTED_FOLDER in path.split("/"):
            return None
        return _path_rule("Edit", path, cwd) or tool
    if tool == "Read":
        return _path_rule("Read", fields.get("file_path"), cwd) or tool
    if tool == "WebFetch" and isinstance(fields.get("url"), str):
        host = _hostname(fields["url"])
        return f"WebFetch(domain:{host})" if host else tool
    return tool


def _shell_rules(command: str, reason: str, cwd: str | None) -> list[str]:
    if reason.startswith(_UNCHECKED_PREFIXES):
        return ["Bash"]
    named = _PARTS_PATTERN.match(reason)
    path = _PATH_PATTERN.match(reason)
    parts = split_command(command) if named or path else None
    if not parts:
        rule = _rule("Bash", command)
        is_exact = rule == f"Bash({command})"
        return [rule if is_exact or not _UNANALYZED_PATTERN.match(reason) else "Bash"]
    if re.search(r"(?<![&>])&(?![&>])", command):
        return ["Bash"]  # in the background: no rule for a single command is enough
    if named:
        listed = reason[named.end() :]
        parts = [part for part in parts if part.text in listed or part.files]
    rules = [_rule("Bash", part.text) for part in parts if part.text]
    files = [file for part in parts for file in part.files if file != "/dev/null"]
    rules += [_path_rule("Edit", file, cwd) for file in files]
    if path is not None and not path["redirect"]:
        is_read = path["verb"] in _READ_VERBS and not path["write"]
        if is_read or not resolve_path(path["path"], cwd)[2]:
            rules.append(_path_rule("Read" if is_read else "Edit", path["path"], cwd))
    return rules


def split_command(command: str) -> list[ShellPart] | None:
    """The commands of a line; None if it has nested commands or other syntax than operators."""
    parts = [ShellPart()]
    is_target = False  # the next word is the file of a redirection
    position = 0
    while position < len(command):
        match = _TOKEN_PATTERN.match(command, position)
        if match is None:
            return None
        position = match.end()
        part = parts[-1]
        text = match[0]
        if match["operator"]:
            parts.append(ShellPart())
        elif match["redirect"]:
            is_target = ">&" not in text
        elif match["word"] and is_target:
            is_target = False
            if "$" in text:
                return None
            part.files += tuple(shlex.split(text))
        elif match["word"] or not is_target:
            part.text += text
    for part in parts:
        part.text = part.text.strip().removeprefix("! ")
    return parts


def _path_rule(tool: str, path: Any, cwd: str | None) -> str:
    """A rule for a file, by a pattern as in .gitignore; empty without a path."""
    if not isinstance(path, str) or not path:
        return ""
    relative, absolute, inside = resolve_path(path, cwd)
    name = absolute
    if inside or absolute == (cwd or "").rstrip("/"):
        name = relative if inside else "."
    elif absolute.startswith("/"):
        name = f"/{absolute}"
    pattern = re.sub(r"^(?=[!#])|(?=[\[\]])", r"\\", name.replace("\\", "?"))
    return _rule(tool, pattern, "?")


def _rule(tool: str, content: str, wildcard: str = "*") -> str:
    """A rule. Its list ends at a space or comma after any `)`: replace those by a wildcard."""
    text = ""
    is_inside = True
    for char in content:
        if char in "()":
            is_inside = char == "("
        if not is_inside and (char == "," or char.isspace()):
            text += wildcard if wildcard == "?" or not text.endswith(wildcard) else ""
        else:
            text += char
    return f"{tool}({text})"


def _hostname(url: str) -> str | None:
    from urllib.parse import urlsplit  # slow to import, rarely needed

    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
