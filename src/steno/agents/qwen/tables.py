"""Qwen Code's tools and errors, as tables. Pure."""

import re

TOOL_KINDS = {
    "run_shell_command": "shell",
    "monitor": "shell",
    "task_stop": "shell",
    "read_file": "file_read",
    "read_many_files": "file_read",
    "list_directory": "file_read",
    "write_file": "file_write",
    "edit": "file_edit",
    "replace": "file_edit",
    "notebook_edit": "notebook",
    "grep_search": "search",
    "glob": "search",
    "tool_search": "search",
    "search_file_content": "search",
    "agent": "subagent",
    "task": "subagent",
    "web_fetch": "web",
    "web_search": "web",
    "todo_write": "todo",
}
USER_INPUT_TOOLS = frozenset({"ask_user_question", "exit_plan_mode"})
FILE_WRITE_TOOLS = frozenset({"write_file", "edit", "replace", "notebook_edit"})
BACKGROUND_TOOLS = frozenset({"run_shell_command", "agent"})
FILE_CREATED_PREFIXES = ("Successfully created", "Created new file")
PERMISSION_DENIED_PREFIX = "Qwen Code requires permission to use"
LOOP_DETECTED_PREFIX = "Loop detection halted the run"
API_ERROR_PREFIX = "[API Error: "
_API_ERROR_PATTERN = re.compile(r"(?s)\[API Error: (.*)\]\s*(?:\n.*)?")  # advice may follow it
# What Qwen Code itself says of an answer that it rejects, after its last attempt.
_REJECTED_ANSWER_PATTERN = re.compile(
    r"\[API Error: Model "
    r"(?:stream ended|response (?:contained|continued|is|leaked|started|stream)) "
)
_HTTP_STATUS_PATTERN = re.compile(r"(?:(?:status|code)\W*)?(\d{3})\b")


def tool_kind(name: str) -> str:
    return TOOL_KINDS.get(name) or ("mcp" if name.startswith("mcp__") else "other")


def is_api_error(text: str) -> bool:
    """Whether a text of the model is in fact a failed request."""
    return _API_ERROR_PATTERN.fullmatch(text) is not None


def is_rejected_answer(text: str) -> bool:
    """Whether such a text is about an answer with usage: an empty one, or one that was cut off."""
    return _REJECTED_ANSWER_PATTERN.match(text) is not None


def http_status_of(text: str) -> int | None:
    """The HTTP status in "[API Error: 401 ...]"."""
    match = _HTTP_STATUS_PATTERN.match(text.removeprefix(API_ERROR_PREFIX))
    status = int(match[1]) if match is not None else 0
    return status if 400 <= status < 600 else None
