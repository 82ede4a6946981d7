"""Gemini CLI's tools, errors and exit codes, as tables. Pure."""

import re
from collections.abc import Sequence

from msgspec import Struct

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
STOP_EXECUTION = "stop_execution"  # the error of a call after which a hook stopped the run
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
    (
        r"RESOURCE_EXHAUSTED|Resource has been exhausted|exceeded your current quota"
        r"|RetryableQuotaError|TerminalQuotaError",
        "rate_limit",
    ),
    (r"input token count .{0,40}exceeds the maximum number of tokens", "prompt_too_long"),
)
_VERDICT_BY_ERROR = {
    "authentication_failed": "auth",
    "rate_limit": "rate_limit",
    "prompt_too_long": "context_full",
}
_STDERR_NOISE_PATTERN = re.compile(
    r"^(?:Warning: |Ripgrep is not|\[STARTUP\]|YOLO mode|    at |Attempt \d+ failed"
    r"|Error executing tool|\s*[{}]?$|  status: )"
)
BLOCKED_PREFIX = "Agent execution blocked: "  # by a hook; some let the model try again
# Warnings after which the run ends with a success, unless the model continues.
_STOP_WARNINGS = (
    ("Loop detected, stopping execution", "loop_detected"),
    ("Agent execution stopped: ", STOP_EXECUTION),
    (BLOCKED_PREFIX, STOP_EXECUTION),
)
_STDERR_STOP_PATTERN = re.compile(
    r"Error executing tool \S+: Agent execution stopped by hook: (.*)"
)
_STDERR_QUOTA_PATTERN = re.compile(
    r"Error when talking to Gemini API .*(?:Retryable|Terminal)QuotaError: (.+)"
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


class EndReason(Struct, frozen=True):
    """Why a run ended: the names of a result's `terminal_reason` and `api_error`."""

    message: str
    terminal_reason: str | None = None
    api_error: str | None = None


def stop_warning(text: str) -> EndReason | None:
    """The reason if a warning says that the run was stopped."""
    for prefix, terminal_reason in _STOP_WARNINGS:
        if text.startswith(prefix):
            return EndReason(text.removeprefix(prefix) or text, terminal_reason)
    return None


def end_reason_of_stderr(text: str) -> EndReason | None:
    """What only stderr says about the end: the json format omits a hook's stop, 0.45 the quota."""
    match = _STDERR_STOP_PATTERN.match(text)
    if match is not None:
        return EndReason(match[1], STOP_EXECUTION)
    match = _STDERR_QUOTA_PATTERN.match(text)
    return None if match is None else EndReason(f"[API Error: {match[1]}]", None, "rate_limit")


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
    text = typed_reader.error_headline(errors, _STDERR_NOISE_PATTERN)
    if code in EXIT_CODE_VERDICTS:
        return EXIT_CODE_VERDICTS[code], text or f"exit code {code}: fatal error"
    status = _STATUS_BY_EXIT_CODE.get(code)
    if status is None:
        return None
    kind = classify_error("\n".join(errors))
    verdict = STATUS_VERDICTS[status] if kind is None else _VERDICT_BY_ERROR[kind]
    return verdict, text or f"exit code {code}: HTTP status {status}"
