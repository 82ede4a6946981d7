"""The words that Codex uses: tools, kinds of lines, what its errors and refusals mean. Pure.

Fields first: a rollout tells errors by `codex_error_info`. The stream tells them by words alone, and those are Codex's own.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from ...codec.decode import decode_raw

TOOL_KINDS = {
    **dict.fromkeys(
        ("exec_command", "write_stdin", "shell", "shell_command", "local_shell", "container.exec"),
        "shell",
    ),
    "apply_patch": "file_edit",
    **dict.fromkeys(("view_image", "read_mcp_resource", "read_file", "list_dir"), "file_read"),
    **dict.fromkeys(
        ("tool_search", "grep_files", "list_mcp_resources", "list_mcp_resource_templates"), "search"
    ),
    "web_search": "web",
    "update_plan": "todo",
    **dict.fromkeys(
        ("spawn_agent", "send_input", "wait_agent", "wait", "close_agent", "resume_agent"),
        "subagent",
    ),
}
USER_INPUT_TOOLS = ("request_user_input",)
CHANGE_KINDS = {"add": "created", "delete": "deleted"}

# Lines of a rollout that hold no part of what happened, or hold it once more.
IGNORED_LINE_TYPES = frozenset({"world_state", "inter_agent_communication", "ghost_snapshot"})
IGNORED_EVENT_TYPES = frozenset(
    {
        "thread_settings_applied",
        "session_configured",
        "exec_command_begin",
        "exec_command_end",
        "exec_command_output_delta",
        "patch_apply_begin",
        "patch_apply_end",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "web_search_begin",
        "web_search_end",
        "turn_diff",
        "plan_update",
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "context_compacted",  # the line `compacted` tells it
        "background_event",
        "item_started",
        "thread_name_updated",
        "view_image_tool_call",
    }
)
IGNORED_ITEM_TYPES = frozenset(
    {
        "message",
        "reasoning",
        "ghost_snapshot",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "other",
    }
)

# What `codex_error_info` says, in the words of every agent.
_ERROR_INFO_KINDS = {
    "context_window_exceeded": "prompt_too_long",
    "usage_limit_exceeded": "usage_limit_reached",
    "unauthorized": "authentication_failed",
    "bad_request": "invalid_request",
    "cyber_policy": "refusal",
    "internal_server_error": None,
    "server_overloaded": None,
}
_ERROR_PATTERNS = (
    (r"ran out of room in the model's context window|context_length_exceeded", "prompt_too_long"),
    (r"usage limit|quota exceeded", "usage_limit_reached"),
    (r"invalid_request_error", "invalid_request"),
    (r"^Missing environment variable", "authentication_failed"),
    (
        r"stream closed before|error sending request|connection refused|waiting for network",
        "connection_failed",
    ),
)
_HTTP_STATUS_PATTERN = r"(?:unexpected status|last status:?) (\d{3})\b"


def classify_error(text: str, info: Raw | None = None) -> tuple[str | None, int | None]:
    """What an error is in the words of every agent, and its HTTP status; None where neither field nor word says it."""
    told = decode_raw(info) if info is not None else None
    status = _http_status_in(told)
    if isinstance(told, str) and told in _ERROR_INFO_KINDS:
        return _ERROR_INFO_KINDS[told], 500 if _ERROR_INFO_KINDS[told] is None else None
    found = re.search(_HTTP_STATUS_PATTERN, text)
    if status is None and found is not None:
        status = int(found[1])
    if status is not None:
        return None, status
    return next(
        (kind for words, kind in _ERROR_PATTERNS if re.search(words, text, re.I)), None
    ), None


def _http_status_in(told: object) -> int | None:
    """The status in {"http_connection_failed": {"http_status_code": 401}}."""
    inner = next(iter(told.values()), None) if isinstance(told, dict) else None
    status = inner.get("http_status_code") if isinstance(inner, dict) else None
    return status if isinstance(status, int) and 100 <= status < 600 else None


def parse_reconnect(text: str) -> tuple[int | None, int | None, str] | None:
    """Of "Reconnecting... 1/5 (why)": the attempt, the limit, why; None if it is not that."""
    found = re.match(r"(?s)Reconnecting\.\.\.(?: (\d{1,9})/(\d{1,9}))?\s*(.*)", text)
    if found is None:
        return None
    why = found[3].removeprefix("(").removesuffix(")")
    return (int(found[1]) if found[1] else None), (int(found[2]) if found[2] else None), why


# Refused before it ran: by the policy that asks nobody, or because the sandbox forbids to write.
_REJECTED_PATTERN = r"rejected|approval policy is never|blocked by (?:read-only sandbox|policy)"
_SANDBOX_ERROR_PATTERN = r"operation not permitted|permission denied|read-only file system|seccomp|landlock|failed to write file"
_NON_SANDBOX_EXIT_CODES = (
    0,
    2,
    126,
    127,
)  # codes of success, wrong use, not executable, not found: no sandbox made them
_EXIT_CODE_PATTERN = r"(?:Process exited with code|Exit code:) (-?\d+)"
_OUTPUT_HEAD_CHARS = 400  # characters in which an output says how the command ended


def is_refused(text: str, code: int | None, sandbox: str | None) -> bool:
    """Whether a failed call was refused: in Codex's words, or, in a sandbox, in those of the system.

    Codex tells by the same words and codes that its sandbox was the cause.
    """
    if code is None:
        return re.search(_REJECTED_PATTERN, text[:_OUTPUT_HEAD_CHARS], re.I) is not None
    if sandbox not in ("read-only", "workspace-write") or code in _NON_SANDBOX_EXIT_CODES:
        return False
    return re.search(_SANDBOX_ERROR_PATTERN, text, re.I) is not None


def parse_exit_code(output: str) -> int | None:
    """How a command ended, as the head of its output says it; None where it does not."""
    found = re.search(_EXIT_CODE_PATTERN, output[:_OUTPUT_HEAD_CHARS])
    if found is not None:
        return int(found[1])
    told = (
        re.search(r'"exit_code":\s*(-?\d+)', output[-_OUTPUT_HEAD_CHARS:])
        if output.startswith("{")
        else None
    )
    return int(told[1]) if told is not None else None


_FAILED_PATTERN = (
    r"^(?:unsupported (?:custom tool )?call|failed to |err: |error: |tool call error)"
    r"|rejected|approval policy is never|aborted by user"
)
STILL_RUNNING_TEXT = "Process running with session ID"


def is_failed(name: str, output: str, code: int | None) -> bool:
    """Whether an output is that of a call that failed. Only commands and patches say it by a code."""
    if code is not None:
        return code != 0
    if re.search(_FAILED_PATTERN, output[:_OUTPUT_HEAD_CHARS], re.I):
        return True
    return (
        name == "exec_command"
        and not output.startswith(("Chunk ID", "Wall time"))
        and STILL_RUNNING_TEXT not in output[:_OUTPUT_HEAD_CHARS]
    )


def parse_router_error(line: str) -> str | None:
    """Of a line of stderr that tells of a call that was never carried out: what the model was told."""
    found = re.match(r"\d{4}-\d\d-\d\dT\S+\s+ERROR codex_core::tools::router: error=(.*)", line)
    return found[1] if found is not None else None


def tool_name_in(text: str) -> str:
    """The tool that such a line speaks of."""
    found = re.match(r"unsupported (?:custom tool )?call: (\S+)", text)
    if found is not None:
        return found[1]
    return "apply_patch" if "patch" in text else "exec_command"


def unwrap_json_string(text: Raw) -> Raw:
    """Arguments that come as a string of JSON, as JSON; what is no object stays the string."""
    value = decode_raw(text)
    if isinstance(value, str):
        try:
            msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return text
        return Raw(value.encode())
    return text


def tool_kind(name: str) -> str:
    """The kind of a tool (E2)."""
    return "mcp" if name.startswith("mcp__") else TOOL_KINDS.get(name, "other")


def context_window(model: str) -> int | None:
    """The window that Codex was seen to report for a model: what is left after its own reserve."""
    return 258_400 if model.startswith("gpt-5") else None


def allow_rule(tool: str, given: object, cwd: str | None) -> str:
    """The setting that would have let a refused call through; Codex has no rules for single calls."""
    sandbox = given.get("sandbox_policy") if isinstance(given, dict) else None
    return f"sandbox_mode={'danger-full-access' if sandbox == 'workspace-write' else 'workspace-write'}"


_STDERR_NOISE_PATTERN = r"^(?:WARNING: proceeding|Reading (?:additional input|prompt) from stdin|\d{4}-\d\d-\d\dT[\d:.]+Z\s+(?:ERROR|WARN|INFO))"


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """What an exit code without the end of a turn means. A turn that fails says so: one that only stops was interrupted."""
    said = [line for line in errors if line.strip() and not re.match(_STDERR_NOISE_PATTERN, line)]
    if code == 1 and not said:
        return "interrupted", "the turn has no end (exit code 1): the run was interrupted"
    if code in (0, 127) or code < 0 or not said:
        return None
    text = "\n".join(said)
    return ("auth" if re.search(r"not logged in|codex login", text, re.I) else "subprocess"), text
