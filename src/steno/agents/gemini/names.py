"""The words that Gemini CLI uses, as tables: tools, windows, permissions. Data, and how a rule is written."""

from typing import Any

CONTEXT_WINDOW = 1_048_576  # of every Gemini model that the program knows


def _tool_entries(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


TOOL_KINDS = {
    **_tool_entries("shell", "run_shell_command"),
    **_tool_entries("file_read", "read_file", "read_many_files", "list_directory", "read_mcp_resource"),
    **_tool_entries("file_write", "write_file"),
    **_tool_entries("file_edit", "replace"),
    **_tool_entries("search", "glob", "grep_search", "search_file_content"),
    **_tool_entries("web", "web_fetch", "google_web_search"),
    **_tool_entries("subagent", "invoke_agent"),
    **_tool_entries("todo", "write_todos", "tracker_create_task", "tracker_update_task", "tracker_get_task", "tracker_list_tasks"),
    **_tool_entries("other", "ask_user", "enter_plan_mode", "exit_plan_mode", "activate_skill", "update_topic", "save_memory"),
}
USER_INPUT_TOOLS = frozenset({"ask_user", "exit_plan_mode"})
FILE_WRITE_TOOLS = frozenset({"write_file", "replace"})
CONFIRMATION_REQUIRED_TEXT = "requires user confirmation, which is not supported"  # a command of an allowed tool that writes to a file by itself
# Tools that need a permission: without one they are not there at all, and a call of one fails as if it did not exist.
PERMISSION_TOOLS = frozenset({"run_shell_command", "write_file", "replace", "web_fetch"})


def tool_kind(name: str) -> str:
    """The kind of a tool (E2); MCP tools carry it in their name."""
    return TOOL_KINDS.get(name) or ("mcp" if name.startswith("mcp_") or "__" in name else "other")


def context_window(model: str) -> int | None:
    """The context window of a model that is known without being told, else None."""
    return CONTEXT_WINDOW if model.startswith("gemini-") else None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have let this call through."""
    command = given.get("command") if isinstance(given, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool
