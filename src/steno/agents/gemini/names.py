"""The words that Gemini CLI uses, as tables: tools, windows, permissions. Data, and how a rule is written."""

from typing import Any

WINDOW = 1_048_576  # of every Gemini model that the program knows


def _tools(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


TOOLS = {
    **_tools("shell", "run_shell_command"),
    **_tools("file_read", "read_file", "read_many_files", "list_directory", "read_mcp_resource"),
    **_tools("file_write", "write_file"),
    **_tools("file_edit", "replace"),
    **_tools("search", "glob", "grep_search", "search_file_content"),
    **_tools("web", "web_fetch", "google_web_search"),
    **_tools("subagent", "invoke_agent"),
    **_tools("todo", "write_todos", "tracker_create_task", "tracker_update_task", "tracker_get_task", "tracker_list_tasks"),
    **_tools("other", "ask_user", "enter_plan_mode", "exit_plan_mode", "activate_skill", "update_topic", "save_memory"),
}
ASKS = frozenset({"ask_user", "exit_plan_mode"})
WRITES = frozenset({"write_file", "replace"})
UNASKED = "requires user confirmation, which is not supported"  # a command of an allowed tool that writes to a file by itself
# Tools that need a permission: without one they are not there at all, and a call of one fails as if it did not exist.
GUARDED = frozenset({"run_shell_command", "write_file", "replace", "web_fetch"})


def kind_of(name: str) -> str:
    """The kind of a tool (E2); MCP tools carry it in their name."""
    return TOOLS.get(name) or ("mcp" if name.startswith("mcp_") or "__" in name else "other")


def window(model: str) -> int | None:
    """The context window of a model that is known without being told, else None."""
    return WINDOW if model.startswith("gemini-") else None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have let this call through."""
    command = given.get("command") if isinstance(given, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool
