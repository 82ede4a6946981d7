"""Claude Code's permission rules: how the rule that allows one refused call is written. Pure."""

from typing import Any

from ...paths import resolve_path

FILE_EDIT_TOOLS = ("Write", "Edit", "MultiEdit", "NotebookEdit")  # an Edit rule covers every tool that writes files


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for `--allowedTools` that would have let this call through."""
    asked = given if isinstance(given, dict) else {}
    if tool == "Bash" and isinstance(asked.get("command"), str):
        return f"Bash({asked['command']})"
    if tool in FILE_EDIT_TOOLS:
        return _edit_rule(asked.get("file_path") or asked.get("notebook_path"), tool, cwd)
    if tool == "WebFetch" and isinstance(asked.get("url"), str):
        host = _hostname(asked["url"])
        return f"WebFetch(domain:{host})" if host else tool
    return tool


def _edit_rule(path: Any, tool: str, cwd: str | None) -> str:
    if not isinstance(path, str) or not path:
        return tool
    relative, absolute, inside = resolve_path(path, cwd)
    if inside or absolute == (cwd or "").rstrip("/"):
        return f"Edit({relative if inside else '.'})"
    return f"Edit(/{absolute})" if absolute.startswith("/") else f"Edit({absolute})"


def _hostname(url: str) -> str | None:
    from urllib.parse import urlsplit  # only a refused fetch needs it

    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
