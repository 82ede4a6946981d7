"""Codex's tools, line types, errors and exit codes, as tables. Pure.

Rollouts classify errors by `codex_error_info`; the stream has only their text.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

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
CHANGE_KINDS = {"add": "created", "delete": "deleted", "A": "created", "D": "deleted"}

# Rollout lines that carry nothing, or repeat other lines.
IGNORED_LINE_TYPES = frozenset(
    {
        "world_state",
        "inter_agent_communication",
        "inter_agent_communication_metadata",
        "ghost_snapshot",
    }
)
IGNORED_EVENT_TYPES = frozenset(
    {
        "thread_settings_applied",
        "session_configured",
        "exec_command_begin",
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
        "context_compacted",  # same as the line `compacted`
        "background_event",
        "item_started",
        "thread_name_updated",
        "view_image_tool_call",
    }
)
IGNORED_ITEM_TYPES = frozenset(
    {
        "ghost_snapshot",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "context_compaction",
        "other",
    }
)

# What the model sends besides messages.
MODEL_ITEM_TYPES = frozenset(
    {"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call"}
)

# Error kinds by `codex_error_info`.
_ERROR_INFO_KINDS = {
    "context_window_exceeded": "prompt_too_long",
    "usage_limit_exceeded": "usage_limit_reached",
    "unauthorized": "authentication_failed",
    "bad_request": "invalid_request",
    "model_not_found": "model_not_found",
    "cyber_policy": "refusal",
    "misalignment_policy_violation": "refusal",
    "internal_server_error": None,
    "server_overloaded": None,
}
_ERROR_PATTERNS = (
    (r"ran out of room in the model's context window|context_length_exceeded", "prompt_too_long"),
    (r"usage limit", "usage_limit_reached"),
    (r"invalid_request_error", "invalid_request"),
    (r"^Missing environment variable", "authentication_failed"),
    (
        r"stream closed before|error sending request|connection refused|waiting for network",
        "connection_failed",
    ),
)
_OUT_OF_CREDIT_PATTERN = r"quota exceeded"
_HTTP_STATUS_PATTERN = r"(?:unexpected status|last status:?) (\d{3})\b"


def classify_error(text: str, info: Raw | None = None) -> tuple[str | None, int | None]:
    """The kind of an error and its HTTP status, by `codex_error_info`, else by the text."""
    if re.search(_OUT_OF_CREDIT_PATTERN, text, re.I):  # its info is that of a usage limit
        return "billing_error", None
    details = decode_raw(info) if info is not None else None
    if isinstance(details, str) and details in _ERROR_INFO_KINDS:
        kind = _ERROR_INFO_KINDS[details]
        return kind, 500 if kind is None else None
    status = _http_status_in(details)
    match = re.search(_HTTP_STATUS_PATTERN, text)
    if status is None and match is not None:
        status = int(match[1])
    if status is not None:
        return None, status
    for pattern, kind in _ERROR_PATTERNS:
        if re.search(pattern, text, re.I):
            return kind, None
    return None, None


def _http_status_in(details: object) -> int | None:
    """The status in {"http_connection_failed": {"http_status_code": 401}}."""
    inner = next(iter(details.values()), None) if isinstance(details, dict) else None
    status = inner.get("http_status_code") if isinstance(inner, dict) else None
    return status if isinstance(status, int) and 100 <= status < 600 else None


_RECONNECT_PATTERN = re.compile(
    r"Reconnecting\.\.\.(?: (?P<attempt>\d{1,9})/(?P<limit>\d{1,9}))?\s*\(?(?P<reason>.*?)\)?", re.S
)
# Up to 0.42.
_RETRY_PATTERN = re.compile(
    r"(?:stream error: )?(?P<reason>.*); retrying (?P<attempt>\d{1,9})/(?P<limit>\d{1,9})"
    r" in (?P<delay>\d{1,9}(?:\.\d+)?)(?P<unit>ms|s)\W*",
    re.S,
)


class Reconnect(Struct, frozen=True):
    """What an error text says about another attempt."""

    attempt: int | None
    limit: int | None
    reason: str
    delay_ms: int | None = None


def parse_reconnect(text: str) -> Reconnect | None:
    """Parse "Reconnecting... 1/5 (reason)" or "reason; retrying 1/5 in 211ms"; None for others."""
    match = _RECONNECT_PATTERN.fullmatch(text) or _RETRY_PATTERN.fullmatch(text)
    if match is None:
        return None
    groups = match.groupdict()
    delay = groups.get("delay")
    return Reconnect(
        attempt=int(groups["attempt"]) if groups["attempt"] else None,
        limit=int(groups["limit"]) if groups["limit"] else None,
        reason=groups["reason"],
        delay_ms=round(float(delay) * (1 if groups["unit"] == "ms" else 1000)) if delay else None,
    )


# Denied before it ran: by the approval policy "never", or by a sandbox without write access.
# Up to 0.44 a command that the sandbox stopped has the output "failed in sandbox NAME with ...".
_REJECTED_PATTERN = (
    r"rejected|approval policy is never|blocked by (?:read-only sandbox|policy)|^failed in sandbox "
)
_SANDBOX_ERROR_PATTERN = (
    r"operation not permitted|permission denied|read-only file system|seccomp|landlock"
    r"|failed to write file"
)
# Success, wrong use, not executable, not found: never caused by a sandbox.
_NON_SANDBOX_EXIT_CODES = (0, 2, 126, 127)
_OUTPUT_HEAD_CHARS = 400  # the part of an output that says why a call was denied


def is_refused(text: str, code: int | None, sandbox: str | None) -> bool:
    """Whether a failed call was denied: by Codex, or by the system inside a sandbox.

    Codex uses the same texts and exit codes to detect that its sandbox was the cause.
    """
    if code is None:
        return re.search(_REJECTED_PATTERN, text[:_OUTPUT_HEAD_CHARS], re.I) is not None
    if sandbox not in ("read-only", "workspace-write") or code in _NON_SANDBOX_EXIT_CODES:
        return False
    return re.search(_SANDBOX_ERROR_PATTERN, text, re.I) is not None


def change_kind(kind: str) -> str:
    return CHANGE_KINDS.get(kind, "modified")


def parse_router_error(line: str) -> str | None:
    """The message in a stderr line about a call that was never executed; None for other lines."""
    match = re.match(r"\d{4}-\d\d-\d\dT\S+\s+ERROR codex_core::tools::router: error=(.*)", line)
    return match[1] if match is not None else None


def tool_name_in(message: str) -> str:
    """The tool that a router error is about."""
    match = re.match(r"unsupported (?:custom tool )?call: (\S+)", message)
    if match is not None:
        return match[1]
    return "apply_patch" if "patch" in message else "exec_command"


def unwrap_json_string(text: Raw) -> Raw:
    """Arguments that are JSON inside a string, as JSON; other values unchanged."""
    value = decode_raw(text)
    if isinstance(value, str):
        try:
            msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return text
        return Raw(value.encode())
    return text


def tool_kind(name: str) -> str:
    return "mcp" if name.startswith("mcp__") else TOOL_KINDS.get(name, "other")


def context_window(model: str) -> int | None:
    """The window that Codex reports for a model: without its own reserve."""
    return 258_400 if model.startswith("gpt-5") else None


def guesses_window(model: str, window: int) -> bool:
    """Whether a reported window is that of the "fallback metadata" for unknown models."""
    is_known = not model or model.startswith(("gpt-", "codex-", "o3", "o4"))
    return window in (258_400, 272_000) and not is_known


def allow_rule(tool: str, input_: object, cwd: str | None, reason: str | None) -> str:
    """The setting that would have allowed a denied call; Codex has no rules for single calls."""
    sandbox = input_.get("sandbox_policy") if isinstance(input_, dict) else None
    if sandbox == "workspace-write":
        return "sandbox_mode=danger-full-access"
    return "sandbox_mode=workspace-write"


_STDERR_NOISE_PATTERN = (
    r"^(?:WARNING: proceeding|Reading (?:additional input|prompt) from stdin"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z\s+(?:ERROR|WARN|INFO))"
)


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict for an exit code without a result. A failing turn says why; one that stops
    without a message was interrupted.
    """
    messages = [
        line for line in errors if line.strip() and not re.match(_STDERR_NOISE_PATTERN, line)
    ]
    if code == 1 and not messages:
        return "interrupted", "the turn did not finish (exit code 1): the run was interrupted"
    if code in (0, 127) or code < 0 or not messages:
        return None
    text = "\n".join(messages)
    return ("auth" if re.search(r"not logged in|codex login", text, re.I) else "subprocess"), text
