"""Claude Code's tools, models and line types, as tables. Pure."""

# Side effects of a tool call: may run in the background, writes a file, asks the user, starts a
# subagent.
ROLE_BACKGROUND = 1
ROLE_FILE_WRITE = 2
ROLE_USER_INPUT = 3
ROLE_SUBAGENT = 4
# A call without this key runs in the foreground. To be searched with `find`: `in` costs ten times
# as much.
BACKGROUND_KEY = b'"run_in_background"'


def _tool_entries(kind: str, role: int, *names: str) -> dict[str | None, tuple[str, str, int]]:
    return {name: (name, kind, role) for name in names}


def tool_kind(name: str) -> str:
    """The kind of a tool that is not in the table."""
    return "mcp" if name.startswith("mcp__") else "other"


class ToolTable(dict[str | None, tuple[str, str, int]]):
    """Tools by name: (name, kind, role). The name is one shared string for thousands of calls."""

    def __missing__(self, name: str | None) -> tuple[str, str, int]:
        return name or "", tool_kind(name or ""), 0


# Includes the names of older versions.
TOOLS = ToolTable(
    {
        **_tool_entries("shell", ROLE_BACKGROUND, "Bash"),
        **_tool_entries(
            "shell", 0, "BashOutput", "TaskOutput", "KillShell", "KillBash", "TaskStop", "Monitor"
        ),
        **_tool_entries("file_read", 0, "Read", "LS", "NotebookRead"),
        **_tool_entries("file_write", ROLE_FILE_WRITE, "Write"),
        **_tool_entries("file_edit", ROLE_FILE_WRITE, "Edit", "MultiEdit"),
        **_tool_entries("notebook", ROLE_FILE_WRITE, "NotebookEdit"),
        **_tool_entries("search", 0, "Grep", "Glob", "ToolSearch"),
        **_tool_entries("subagent", ROLE_SUBAGENT, "Task", "Agent"),
        **_tool_entries("web", 0, "WebFetch", "WebSearch"),
        **_tool_entries("other", ROLE_USER_INPUT, "AskUserQuestion", "ExitPlanMode"),
        **_tool_entries(
            "todo", 0, "TodoWrite", "TodoRead", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"
        ),
    }
)
SYNTHETIC_MODEL = "<synthetic>"  # the program wrote the message, not a model
# Types of stream lines: the conversation, and everything else.
CONVERSATION_TYPES = ("assistant", "user")
OTHER_LINE_TYPES = ("system", "result", "rate_limit_event", "tool_progress")
FINISHED_TASK_STATUSES = frozenset({"completed", "failed", "stopped", "killed"})

# Windows that the program reported, for runs that end before their result line.
CONTEXT_WINDOWS = {
    "claude-opus-5-5": 1_000_000,
    "claude-sonnet-5-5": 1_000_000,
    "claude-haiku-5-5": 1_000_000,
    "claude-opus-4-8": 200_000,
    "claude-opus-4-6": 200_000,
    "claude-opus-4-1-20250805": 200_000,
    "claude-sonnet-5": 200_000,
    "claude-sonnet-4-6": 200_000,
    "claude-sonnet-4-5-20250929": 200_000,
    "claude-haiku-4-5-20251001": 200_000,
    "claude-3-5-haiku-20241022": 200_000,
}

# Transcript lines without conversation content; some are huge request snapshots.
IGNORED_LINE_TYPES = frozenset(
    [
        "summary",
        "queue-operation",
        "attachment",
        "atis-latch",
        "api-request",
        "api-request-shape",
        "api-request-blob",
        "last-prompt",
        "tools-used",
        "mode",
        "file-history-snapshot",
        "progress",
        "permission-mode",
        "custom-title",
        "ai-title",
        "agent-name",
        "control_response",
        "control_request",
        "control_cancel_request",
        "keep_alive",
        "streamlined_text",
    ]
)

# `system` subtypes in the program's own schema (2.1.325) that do not affect a report.
NOTICE_SUBTYPES = frozenset(
    [
        "agents_killed",
        "api_error",
        "away_summary",
        "background_tasks_changed",
        "cloud_session_delta",
        "code_change_published",
        "commands_changed",
        "control_request_progress",
        "dev_intent",
        "elicitation_complete",
        "feedback_draft_queued",
        "file_attachments_missing",
        "file_snapshot",
        "files_persisted",
        "hook_progress",
        "inherited_asks_settled",
        "instruction_size_warning",
        "local_command",
        "local_command_output",
        "memory_recall",
        "memory_saved",
        "mirror_error",
        "model_consent_fallback",
        "model_fallback",
        "model_refusal_fallback",
        "notification",
        "peer_message_hold",
        "per_turn_effort_changed",
        "permission_check_status",
        "permission_retry",
        "plugin_install",
        "post_turn_summary",
        "scheduled_task_fire",
        "session_metadata",
        "session_state_changed",
        "session_title_changed",
        "session_writes_lost",
        "status",
        "stop_hook_summary",
        "task_summary",
        "thinking",
        "thinking_tokens",
        "turn_duration",
        "turn_handoff_available",
        "turn_preempted",
        "upgrade_relay_marker",
        "vcs_state_changed",
        "worker_shutting_down",
    ]
)

# Message blocks that are handled elsewhere or irrelevant for a report.
IGNORED_BLOCK_TYPES = frozenset(
    {"redacted_thinking", "image", "document", "search_result", "container_upload"}
)
SERVER_TOOL_BLOCK_TYPES = frozenset({"server_tool_use", "mcp_tool_use"})


def context_window(model: str) -> int | None:
    """The context window of a model, if known."""
    if model.endswith("[1m]"):
        return 1_000_000
    return CONTEXT_WINDOWS.get(model)
