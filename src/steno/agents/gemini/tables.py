"""Gemini CLI's tools, errors and exit codes, as tables. Pure."""

import re
from collections.abc import Sequence

from ... import event as ev
from .. import typed_reader

CONTEXT_WINDOW = 1_048_576  # of every Gemini model that the program knows

TOOL_KINDS = {
    "run_shell_command": "shell",
    "read_file": "file_read",
    "read_many_files": "file_read",
    "list_directory": "file_read",
    "read_mcp_resource": "file_read",
    "write_file": "file_write",
    "replace": "file_edit",
    "glob": "search",
    "grep_search": "search",
    "search_file_content": "search",
    "web_fetch": "web",
    "google_web_search": "web",
    "invoke_agent": "subagent",
    "write_todos": "todo",
    "tracker_create_task": "todo",
    "tracker_update_task": "todo",
    "tracker_get_task": "todo",
    "tracker_list_tasks": "todo",
    "ask_user": "other",
    "enter_plan_mode": "other",
    "exit_plan_mode": "other",
    "activate_skill": "other",
    "update_topic": "other",
    "save_memory": "other",
}
USER_INPUT_TOOLS = frozenset({"ask_user", "exit_plan_mode"})
FILE_WRITE_TOOLS = frozenset({"write_file", "replace"})
# The error of an allowed shell command that redirects to a file.
CONFIRMATION_REQUIRED_TEXT = "requires user confirmation, which is not supported"
COMMAND_FAILED_PREFIX = "Command exited with code: "  # the result of a command without output
# Without permission these tools are not registered, and calls fail as for an unknown tool.
PERMISSION_TOOLS = frozenset({"run_shell_command", "write_file", "replace", "web_fetch"})


def tool_kind(name: str) -> str:
    is_mcp = name.startswith("mcp_") or "__" in name
    return TOOL_KINDS.get(name) or ("mcp" if is_mcp else "other")


def context_window(model: str) -> int | None:
    return CONTEXT_WINDOW if model.startswith("gemini-") else None


EXIT_CODE_VERDICTS = {**typed_reader.EXIT_CODE_VERDICTS, 55: "subprocess"}
STATUS_VERDICTS = {
    400: "invalid_request",
    401: "auth",
    403: "auth",
    404: "invalid_request",
    408: "api",
    409: "invalid_request",
    413: "invalid_request",
    422: "invalid_request",
    429: "rate_limit",
    500: "api",
    502: "api",
    503: "api",
    504: "api",
}
_STATUS_BY_EXIT_CODE = {status % 256: status for status in STATUS_VERDICTS}
# The service sends these with other statuses too: an invalid key is a 400.
_ERROR_PATTERNS = (
    (
        r"API key not valid|API_KEY_INVALID|UNAUTHENTICATED|PERMISSION_DENIED",
        "authentication_failed",
    ),
    (r"RESOURCE_EXHAUSTED|Resource has been exhausted|exceeded your current quota", "rate_limit"),
)
_STDERR_NOISE_PATTERN = re.compile(
    r"^(?:Warning: |Ripgrep is not|\[STARTUP\]|YOLO mode|    at |Attempt \d+ failed"
    r"|Error executing tool|\s*[{}]?$|  status: )"
)
_RETRY_PATTERN = re.compile(r"Attempt (\d{1,9}) failed with status (\d{3})\. Retrying")
_MAX_ATTEMPTS = 10


def read_stderr(line: ev.Stderr) -> list[ev.Event]:
    """A failed request that is retried: it appears on stderr only."""
    match = _RETRY_PATTERN.match(line.text)
    if match is None:
        return []
    head = (0, None, None, line.at)
    attempt, status = map(int, match.groups())
    return [ev.Retry(*head, attempt, _MAX_ATTEMPTS, status, classify_error(line.text))]


def classify_error(text: str) -> str | None:
    """The kind of an error of the service; None if its text does not say."""
    return next((kind for pattern, kind in _ERROR_PATTERNS if re.search(pattern, text)), None)


def terminal_reason_of(error_type: str | None, message: str | None) -> str | None:
    """Why the run stopped; None if it only failed."""
    if error_type == "FatalCancellationError":
        return "aborted_streaming"
    if error_type == "FatalTurnLimitedError":
        return "max_turns"
    limit_messages = ("Maximum session turns", "Reached max session turns")
    return "max_turns" if (message or "").startswith(limit_messages) else None


def http_status_of(text: str) -> int | None:
    """The HTTP status in an error of the service: {"error":{"code":400,...}}."""
    match = re.search(r'"code":\s*(\d{3})\b', text)
    return int(match[1]) if match is not None else None


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict and the message for an exit code."""
    text = "\n".join(line for line in errors if not _STDERR_NOISE_PATTERN.match(line)).strip()
    if code in EXIT_CODE_VERDICTS:
        return EXIT_CODE_VERDICTS[code], text or f"exit code {code}: fatal error"
    status = _STATUS_BY_EXIT_CODE.get(code)
    if status is None:
        return None
    kind = classify_error("\n".join(errors))
    verdict = "auth" if kind == "authentication_failed" else kind or STATUS_VERDICTS[status]
    return verdict, text or f"exit code {code}: HTTP status {status}"
