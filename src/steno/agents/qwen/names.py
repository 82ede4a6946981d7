"""The words that Qwen Code uses, as tables: tools, windows, permissions. Data, and how a rule is written."""

from typing import Any


def _tools(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


TOOLS = {
    **_tools("shell", "run_shell_command", "monitor", "task_stop"),
    **_tools("file_read", "read_file", "read_many_files", "list_directory"),
    **_tools("file_write", "write_file"),
    **_tools("file_edit", "edit", "replace"),
    **_tools("notebook", "notebook_edit"),
    **_tools("search", "grep_search", "glob", "tool_search", "search_file_content"),
    **_tools("subagent", "agent", "task"),
    **_tools("web", "web_fetch", "web_search"),
    **_tools("todo", "todo_write"),
}
ASKS = frozenset({"ask_user_question", "exit_plan_mode"})
WRITES = frozenset({"write_file", "edit", "replace", "notebook_edit"})
DECLINED = "Qwen Code requires permission to use"


def kind_of(name: str) -> str:
    """The kind of a tool (E2); MCP tools carry it in their name."""
    return TOOLS.get(name) or ("mcp" if name.startswith("mcp__") else "other")


def window(model: str) -> int | None:
    """Its models are those of any provider; none is known here."""
    return None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have let this call through."""
    command = given.get("command") if isinstance(given, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool
