"""Copilot's tools, event types, errors, permission rules and exit codes, as tables. Pure."""

import re
from collections.abc import Sequence
from typing import Any

TOOL_KINDS = {
    **dict.fromkeys(
        ("bash", "read_bash", "write_bash", "stop_bash", "list_bash", "powershell"), "shell"
    ),
    **dict.fromkeys(("view", "show_file", "lsp"), "file_read"),
    "create": "file_write",
    **dict.fromkeys(("edit", "apply_patch", "str_replace", "insert"), "file_edit"),
    **dict.fromkeys(("grep", "glob", "rg", "tool_search"), "search"),
    **dict.fromkeys(("task", "read_agent", "list_agents", "write_agent"), "subagent"),
    **dict.fromkeys(("web_fetch", "web_search", "fetch"), "web"),
    **dict.fromkeys(("update_todo", "todo", "sql"), "todo"),
}
USER_INPUT_TOOLS = ("ask_user", "exit_plan_mode")
CHANGE_KINDS = {"create": "created", "delete": "deleted"}

# Events that carry nothing, or repeat others.
IGNORED_EVENT_TYPES = frozenset(
    {
        "assistant.turn_start",
        "assistant.turn_end",
        "assistant.message_start",
        "assistant.tool_call_delta",
        "assistant.idle",
        "assistant.reasoning_delta",
        "assistant.streaming_delta",
        "assistant.server_tool_progress",
        "assistant.intent",
        "model.call_start",
        "model.call_final_result",
        "tool.shell_output",
        "tool_search.activated",
        "session.skills_loaded",
        "session.mcp_servers_loaded",
        "session.background_tasks_changed",
        "session.custom_agents_updated",
        "session.extensions_loaded",
        "session.mcp_server_status_changed",
        "session.mcp_server_tools_loaded",
        "session.idle",
        "session.usage_info",
        "session.usage_checkpoint",
        "session.context_changed",
        "session.title_changed",
        "session.updated",
        "session.todos_changed",
        "session.compaction_start",
        "session.permissions_changed",
        "session.mode_changed",
        "session.managed_settings_resolved",
        "session.completion_receipt",
        "session.binary_asset",
        "session.plan_changed",
        "session.shutdown",
        "session.workspace_file_changed",
        "session.quota_observation",
        "pending_messages.modified",
        "system.message",
        "permission.requested",
        "permission.completed",
        "subagent.selected",
        "subagent.deselected",
        "subagent.configured",
        "agent.interrupted",
        "skill.invoked",
        "hook.progress",
        "commands.changed",
        "capabilities.changed",
    }
)
NOTICE_EVENT_TYPES = frozenset(
    {
        "session.info",
        "session.warning",
        "session.model_change",
        "session.truncation",
        "session.handoff",
        "session.snapshot_rewind",
        "session.task_complete",
        "session.autopilot_stopped",
        "system.notification",
        "session.context_cleared",
        "session.auto_mode_resolved",
        "session.session_limits_changed",
    }
)

# Error kinds by `errorType`; for a `query` the HTTP status decides.
_ERROR_KINDS = {
    "authentication": "authentication_failed",
    "authorization": "authentication_failed",
    "quota": "usage_limit_reached",
    "rate_limit": "rate_limit",
    "context_limit": "prompt_too_long",
    "policy": "refusal",
}


_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def classify_error(error_type: str | None, upstream_message: str) -> str | None:
    """The kind of an error, by its type and by the message of the service."""
    if "context_length_exceeded" in upstream_message:
        return "prompt_too_long"
    return _ERROR_KINDS.get(error_type or "")


def stop_reason_of(finish_reason: str | None) -> str | None:
    return _STOP_REASONS.get(finish_reason or "", finish_reason)


_DIFF_FILE_PATTERN = re.compile(
    r"(?m)^diff --git a(?P<path>/.*) b(?P=path)\n(?:(?P<mode>create|new|deleted) file mode)?"
)


def parse_diff_files(diff: str) -> list[tuple[str, str]]:
    """The files of a diff, each with its change; lines of their contents start with + or -."""
    changes = {"create": "created", "new": "created", "deleted": "deleted"}
    return [
        (match["path"], changes.get(match["mode"] or "", "modified"))
        for match in _DIFF_FILE_PATTERN.finditer(diff)
    ]


def tool_kind(name: str, mcp_server: str | None) -> str:
    return "mcp" if mcp_server is not None else TOOL_KINDS.get(name, "other")


def allow_rule(tool: str, input_: Any, cwd: str | None, reason: str | None) -> str:
    """The narrowest rule for --allow-tool that would have allowed a denied call."""
    fields = input_ if isinstance(input_, dict) else {}
    kind = TOOL_KINDS.get(tool)
    if kind == "shell":
        return _shell_rule(fields.get("command"))
    if kind in ("file_write", "file_edit"):
        path = fields.get("path")
        return f"write({path})" if isinstance(path, str) and path.startswith("/") else "write"
    url = fields.get("url")
    return f"url({url})" if isinstance(url, str) else tool


def _shell_rule(command: Any) -> str:
    """A program, for git and gh with the subcommand; the whole shell for compound commands."""
    if not isinstance(command, str) or re.search(r"[;&|<>$`\n]", command):
        return "shell"
    argv = command.split()
    if not argv:
        return "shell"
    length = 2 if argv[0] in ("git", "gh") else 1
    return f"shell({' '.join(argv[:length])})"


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict for an exit code without a result: Copilot did not start; stderr says why."""
    text = "\n".join(line for line in errors if line.strip())
    if code <= 0 or code == 127 or not text:
        return None
    is_auth = re.search(r"no authentication|not logged in|/login", text, re.I) is not None
    return "auth" if is_auth else "subprocess", text
