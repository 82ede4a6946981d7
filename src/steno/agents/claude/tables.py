"""Claude Code's tools, models and line types, as tables. Pure."""

# Side effects of a tool call: may run in the background; if it succeeds, writes a file or stops a
# background task; asks the user; starts a subagent.
ROLE_BACKGROUND = 1
ROLE_EFFECT = 2
ROLE_USER_INPUT = 3
ROLE_SUBAGENT = 4
# A call without this key runs in the foreground. To be searched with `find`: `in` costs ten times
# as much.
BACKGROUND_KEY = b'"run_in_background"'


def tool_kind(name: str) -> str:
    """The kind of a tool that is not in the table."""
    return "mcp" if name.startswith("mcp__") else "other"


class ToolTable(dict[str | None, tuple[str, str, int]]):
    """Tools by name: (name, kind, role). The name is one shared string for thousands of calls."""

    def __missing__(self, name: str | None) -> tuple[str, str, int]:
        return name or "", tool_kind(name or ""), 0


# By kind and role; includes the names of older versions.
_TOOL_NAMES = {
    ("shell", ROLE_BACKGROUND): ("Bash",),
    ("shell", 0): ("BashOutput", "TaskOutput", "Monitor"),
    ("shell", ROLE_EFFECT): ("KillShell", "KillBash", "TaskStop"),
    ("file_read", 0): ("Read", "LS", "NotebookRead"),
    ("file_write", ROLE_EFFECT): ("Write",),
    ("file_edit", ROLE_EFFECT): ("Edit", "MultiEdit"),
    ("notebook", ROLE_EFFECT): ("NotebookEdit",),
    ("search", 0): ("Grep", "Glob", "ToolSearch"),
    ("subagent", ROLE_SUBAGENT): ("Task", "Agent"),
    ("web", 0): ("WebFetch", "WebSearch"),
    ("other", ROLE_USER_INPUT): ("AskUserQuestion", "ExitPlanMode"),
    ("todo", 0): ("TodoWrite", "TodoRead", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"),
}
TOOLS = ToolTable({name: (name, *group) for group, names in _TOOL_NAMES.items() for name in names})
SYNTHETIC_MODEL = "<synthetic>"  # the program wrote the message, not a model
# Types of stream lines: the conversation, and everything else.
CONVERSATION_TYPES = ("assistant", "user")
OTHER_LINE_TYPES = ("system", "result", "rate_limit_event", "tool_progress")
# Fields of a result that are not read; others are reported as unknown.
IGNORED_RESULT_FIELDS = frozenset(
    {
        "type",
        "subtype",
        "session_id",
        "fast_mode_state",
        "fast_mode_disabled_reason",
        "ttft_ms",
        "ttft_stream_ms",
        "time_to_request_ms",
        "first_content_frame_ms",
        "queued_turn_count",
        "safety_stops",
        "api_error_type",
        "invalid_config_file",
        "timestamp",
        "parent_tool_use_id",
        "stats",  # Qwen Code, whose results are read the same way
        "error",
    }
)
# Categories of `/context`, by the field of `event.ContextUsage`.
CONTEXT_CATEGORIES = {
    "System prompt": "system_prompt",
    "System tools": "tools",
    "MCP tools": "tools",
    "Memory files": "memory_files",
    "Custom agents": "agents",
    "Skills": "skills",
    "Messages": "messages",
}
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

# Lines beside the conversation. Only those with a builder in `other_lines` are read; some of the
# others are huge request snapshots.
SIDE_LINE_TYPES = frozenset(
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
        "streamlined_tool_use_summary",
        "conversation_reset",
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
        "conversation_reset",
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

# Message blocks without anything to read: they are encrypted.
IGNORED_BLOCK_TYPES = frozenset({"redacted_thinking"})
ATTACHMENT_BLOCK_TYPES = frozenset({"image", "document", "search_result", "container_upload"})
SERVER_TOOL_BLOCK_TYPES = frozenset({"server_tool_use", "mcp_tool_use"})


def guesses_window(model: str, window: int) -> bool:
    """Whether a reported window is what the program takes for models it does not know.

    Newer versions mark such figures (`costBasis`). All know the models of their own vendor.
    """
    return window == 200_000 and "claude" not in model.lower()


def context_window(model: str) -> int | None:
    """The context window of a model, if known."""
    if model.endswith("[1m]"):
        return 1_000_000
    return CONTEXT_WINDOWS.get(model)
