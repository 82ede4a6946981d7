"""The words that Copilot uses: tools, kinds of events, what its errors mean, its permission rules. Pure."""

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

# Events that hold no part of what happened, or hold it once more.
IGNORED_EVENT_TYPES = frozenset(
    {
        *(
            "assistant.turn_start",
            "assistant.turn_end",
            "assistant.message_start",
            "assistant.tool_call_delta",
            "assistant.idle",
        ),
        *(
            "assistant.reasoning_delta",
            "assistant.streaming_delta",
            "assistant.server_tool_progress",
            "assistant.intent",
        ),
        *(
            "model.call_start",
            "model.call_final_result",
            "tool.shell_output",
            "tool.user_requested",
            "tool_search.activated",
        ),
        *(
            "session.skills_loaded",
            "session.mcp_servers_loaded",
            "session.background_tasks_changed",
            "session.custom_agents_updated",
        ),
        *(
            "session.extensions_loaded",
            "session.mcp_server_status_changed",
            "session.mcp_server_tools_loaded",
            "session.idle",
        ),
        *(
            "session.usage_info",
            "session.usage_checkpoint",
            "session.context_changed",
            "session.title_changed",
            "session.updated",
        ),
        *(
            "session.todos_changed",
            "session.compaction_start",
            "session.permissions_changed",
            "session.mode_changed",
        ),
        *(
            "session.managed_settings_resolved",
            "session.completion_receipt",
            "session.binary_asset",
            "session.plan_changed",
        ),
        *(
            "session.shutdown",
            "session.workspace_file_changed",
            "session.quota_observation",
            "pending_messages.modified",
        ),
        *(
            "system.message",
            "permission.requested",
            "permission.completed",
            "subagent.selected",
            "subagent.deselected",
        ),
        *(
            "subagent.configured",
            "agent.interrupted",
            "skill.invoked",
            "hook.progress",
            "commands.changed",
            "capabilities.changed",
        ),
    }
)
NOTICE_EVENT_TYPES = frozenset(
    {
        *(
            "session.info",
            "session.warning",
            "session.model_change",
            "session.truncation",
            "session.handoff",
        ),
        *(
            "session.snapshot_rewind",
            "session.task_complete",
            "session.autopilot_stopped",
            "system.notification",
        ),
        *(
            "session.context_cleared",
            "session.auto_mode_resolved",
            "session.session_limits_changed",
        ),
    }
)

# What `errorType` says, in the words of every agent; a `query` is told by its status.
_ERROR_KINDS = {
    "authentication": "authentication_failed",
    "authorization": "authentication_failed",
    "quota": "usage_limit_reached",
    "rate_limit": "rate_limit",
    "context_limit": "prompt_too_long",
    "policy": "refusal",
}


def classify_error(kind: str | None, upstream: str) -> str | None:
    """What an error is in the words of every agent, by its type and by what the service had said."""
    return (
        "prompt_too_long" if "context_length_exceeded" in upstream else _ERROR_KINDS.get(kind or "")
    )


def stop_reason_of(reason: str | None) -> str | None:
    """Why a model stopped, in the words of every agent."""
    return {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}.get(
        reason or "", reason
    )


def tool_kind(name: str, server: str | None) -> str:
    """The kind of a tool (E2)."""
    return "mcp" if server is not None else TOOL_KINDS.get(name, "other")


def context_window(model: str) -> int | None:
    """The file that it keeps tells the window of each request; nothing is known without it."""
    return None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """The narrowest rule for `--allow-tool` that would have let this call through."""
    asked = given if isinstance(given, dict) else {}
    if TOOL_KINDS.get(tool) == "shell":
        return _shell_rule(asked.get("command"))
    if TOOL_KINDS.get(tool) in ("file_write", "file_edit"):
        path = asked.get("path")
        return f"write({path})" if isinstance(path, str) and path.startswith("/") else "write"
    url = asked.get("url")
    return f"url({url})" if isinstance(url, str) else tool


def _shell_rule(command: Any) -> str:
    """Rules name the command; of git and gh also the first word after it. Several commands in one need the whole shell."""
    if not isinstance(command, str) or re.search(r"[;&|<>$`\n]", command):
        return "shell"
    words = command.split()
    several = 2 if words[:1] in (["git"], ["gh"]) and len(words) > 1 else 1
    return f"shell({' '.join(words[:several])})" if words else "shell"


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """What an exit code without a result means: it did not start, and says why on stderr."""
    text = "\n".join(line for line in errors if line.strip())
    if code <= 0 or code == 127 or not text:
        return None
    return (
        "auth" if re.search(r"no authentication|not logged in|/login", text, re.I) else "subprocess"
    ), text
