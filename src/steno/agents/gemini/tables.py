"""The words that Gemini CLI uses, as tables: tools, windows, permissions. Data, and how a rule is written."""

import re
from collections.abc import Sequence
from typing import Any

from ... import event as ev

CONTEXT_WINDOW = 1_048_576  # of every Gemini model that the program knows


def _tool_entries(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


TOOL_KINDS = {
    **_tool_entries("shell", "run_shell_command"),
    **_tool_entries(
        "file_read", "read_file", "read_many_files", "list_directory", "read_mcp_resource"
    ),
    **_tool_entries("file_write", "write_file"),
    **_tool_entries("file_edit", "replace"),
    **_tool_entries("search", "glob", "grep_search", "search_file_content"),
    **_tool_entries("web", "web_fetch", "google_web_search"),
    **_tool_entries("subagent", "invoke_agent"),
    **_tool_entries(
        "todo",
        "write_todos",
        "tracker_create_task",
        "tracker_update_task",
        "tracker_get_task",
        "tracker_list_tasks",
    ),
    **_tool_entries(
        "other",
        "ask_user",
        "enter_plan_mode",
        "exit_plan_mode",
        "activate_skill",
        "update_topic",
        "save_memory",
    ),
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


EXIT_CODE_VERDICTS = {
    41: "auth",
    42: "subprocess",
    44: "subprocess",
    52: "subprocess",
    53: "max_turns",
    54: "subprocess",
    55: "subprocess",
}
# HTTP statuses that were seen or can be expected; an exit code is one of them modulo 256.
HTTP_STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504)
STATUS_VERDICTS = {
    401: "auth", 403: "auth", 429: "rate_limit", 408: "api",
    **dict.fromkeys((400, 404, 409, 413, 422), "invalid_request"),
    **dict.fromkeys((500, 502, 503, 504), "api"),
}  # fmt: skip
_STATUS_BY_EXIT_CODE = {status % 256: status for status in HTTP_STATUSES}
# The service says these in place of, or beside, a status: a wrong key comes as a 400.
_ERROR_PATTERNS = (
    (
        r"API key not valid|API_KEY_INVALID|UNAUTHENTICATED|PERMISSION_DENIED",
        "authentication_failed",
    ),
    (r"RESOURCE_EXHAUSTED|Resource has been exhausted|exceeded your current quota", "rate_limit"),
)
_STDERR_NOISE_PATTERN = re.compile(
    r"^(?:Warning: |Ripgrep is not|\[STARTUP\]|YOLO mode|    at |Attempt \d+ failed|Error executing tool|\s*[{}]?$|  status: )"
)
_RETRY_PATTERN = re.compile(r"Attempt (\d{1,9}) failed with status (\d{3})\. Retrying")


def read_stderr(line: ev.Stderr) -> list[ev.Event]:
    """A failed request that will be tried again is told on stderr alone."""
    found = _RETRY_PATTERN.match(line.text)
    if found is None:
        return []
    return [
        ev.Retry(
            0, None, None, line.at, int(found[1]), 10, int(found[2]), classify_error(line.text)
        )
    ]


def classify_error(text: str) -> str | None:
    """The name that the agents' vocabulary has for what the service said; None where it has none."""
    return next((name for words, name in _ERROR_PATTERNS if re.search(words, text)), None)


def http_status_of(text: str) -> int | None:
    """The HTTP status in an error text of the service, which is JSON: {"error":{"code":400,...}}."""
    found = re.search(r'"code":\s*(\d{3})\b', text)
    return int(found[1]) if found is not None else None


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict's word and the message for an exit code."""
    status = _STATUS_BY_EXIT_CODE.get(code)
    if code not in EXIT_CODE_VERDICTS and status is None:
        return None
    text = "\n".join(line for line in errors if not _STDERR_NOISE_PATTERN.match(line)).strip()
    named = classify_error("\n".join(errors)) if status is not None else None
    word = (
        EXIT_CODE_VERDICTS.get(code)
        or {"authentication_failed": "auth"}.get(named or "", named)
        or STATUS_VERDICTS[status or 500]
    )
    what = f"HTTP status {status}" if status is not None else "a fatal error"
    return word, text or f"exit code {code}: {what}"
