"""The words that Qwen Code uses, as tables: tools, windows, permissions. Data, and how a rule is written."""

from typing import Any


def _tool_entries(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


TOOL_KINDS = {
    **_tool_entries("shell", "run_shell_command", "monitor", "task_stop"),
    **_tool_entries("file_read", "read_file", "read_many_files", "list_directory"),
    **_tool_entries("file_write", "write_file"),
    **_tool_entries("file_edit", "edit", "replace"),
    **_tool_entries("notebook", "notebook_edit"),
    **_tool_entries("search", "grep_search", "glob", "tool_search", "search_file_content"),
    **_tool_entries("subagent", "agent", "task"),
    **_tool_entries("web", "web_fetch", "web_search"),
    **_tool_entries("todo", "todo_write"),
}
USER_INPUT_TOOLS = frozenset({"ask_user_question", "exit_plan_mode"})
FILE_WRITE_TOOLS = frozenset({"write_file", "edit", "replace", "notebook_edit"})
PERMISSION_DENIED_PREFIX = "Qwen Code requires permission to use"


def tool_kind(name: str) -> str:
    """The kind of a tool (E2); MCP tools carry it in their name."""
    return TOOL_KINDS.get(name) or ("mcp" if name.startswith("mcp__") else "other")


def context_window(model: str) -> int | None:
    """Its models are those of any provider; none is known here."""
    return None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have let this call through."""
    command = given.get("command") if isinstance(given, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool
