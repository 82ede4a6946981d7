"""Which agent printed a line, going by its fields, without loading a reader. Pure.

Every test asks for what only that agent writes: other programs print JSON lines with the same
`type`s, and their runs must not be reported as this agent's. A line that many programs could have
printed, such as a message with a role and a content, identifies none.
"""

from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]
Shape = Callable[[JsonObject], bool]


def _has_text(line: JsonObject, *names: str) -> bool:
    return all(isinstance(line.get(name), str) for name in names)


def _has_object(line: JsonObject, *names: str) -> bool:
    return all(isinstance(line.get(name), dict) for name in names)


def type_of(line: JsonObject) -> str | None:
    kind = line.get("type")
    return kind if isinstance(kind, str) else None


# -- Codex -----------------------------------------------------------------------------------------

_CODEX_ROLLOUT_TYPES = frozenset(
    {
        "session_meta",
        "turn_context",
        "response_item",
        "event_msg",
        "compacted",
        "token_usage_record",
        "world_state",
    }
)
# Of the payload, in rollouts of 2025 that have its fields beside the timestamp.
_CODEX_UNWRAPPED_FIELDS = frozenset({"originator", "cli_version", "sandbox_policy"})
# The beginnings of the types in streams up to 0.42.
_CODEX_MESSAGE_PREFIXES = (
    "agent_",
    "background_event",
    "exec_command_",
    "mcp_tool_call_",
    "patch_apply_",
    "plan_update",
    "session_configured",
    "stream_error",
    "task_",
    "token_count",
    "turn_",
    "user_message",
    "web_search_",
)


def is_codex(line: JsonObject) -> bool:
    """A line of `codex exec --json`, or of a rollout: see `codex.wire` for their forms."""
    kind = type_of(line)
    if kind is None:
        return "type" not in line and _is_older_codex(line)
    if kind in _CODEX_ROLLOUT_TYPES:
        has_payload = _has_object(line, "payload") or bool(line.keys() & _CODEX_UNWRAPPED_FIELDS)
        return has_payload and _has_text(line, "timestamp")
    if kind == "thread.started":
        return _has_text(line, "thread_id")
    if kind == "turn.started":
        return line.keys() == {"type"}
    if kind == "turn.completed":
        return _has_object(line, "usage")
    if kind == "turn.failed":
        return _has_object(line, "error")
    return kind.startswith("item.") and _has_object(line, "item")


def _is_older_codex(line: JsonObject) -> bool:
    """A line without a type: the first two of a stream up to 0.42, and those of older rollouts."""
    message = line.get("msg")
    if isinstance(message, dict):
        kind = type_of(message)
        return line.keys() == {"id", "msg"} and (kind or "").startswith(_CODEX_MESSAGE_PREFIXES)
    session = line.get("session")
    if isinstance(line.get("items"), list) and isinstance(session, dict):
        return "instructions" in session
    return (
        line.keys() >= {"workdir", "provider", "sandbox"}
        or line.keys() >= {"id", "timestamp", "instructions"}
        or line == {"record_type": "state"}
    )


# -- Copilot, OpenCode -----------------------------------------------------------------------------


def is_copilot(line: JsonObject) -> bool:
    """All types have a dot and all lines `data` and a parent, except the result."""
    kind = type_of(line) or ""
    if kind == "result":
        return "exitCode" in line and _has_text(line, "sessionId")
    return (
        "." in kind
        and _has_object(line, "data")
        and _has_text(line, "id", "timestamp")
        and "parentId" in line
    )


_OPENCODE_TYPES = frozenset({"step_start", "text", "reasoning", "tool_use", "step_finish", "error"})


def is_opencode(line: JsonObject) -> bool:
    """All lines have a `sessionID`, in this spelling, and a part or an error."""
    if type_of(line) not in _OPENCODE_TYPES or not _has_text(line, "sessionID"):
        return False
    return "part" in line or "error" in line


# -- Gemini CLI, Qwen Code -------------------------------------------------------------------------

_GEMINI_STREAM_FIELDS = {
    "init": {"session_id", "model"},
    "tool_use": {"tool_name", "tool_id"},
    "tool_result": {"tool_id", "status"},
    "error": {"severity", "message"},
}


def is_gemini(line: JsonObject) -> bool:
    """A stream line, the document of `--output-format json`, or the first line of a chat."""
    kind = type_of(line)
    if kind is None:
        if is_gemini_chat(line):
            return True
        return _has_text(line, "session_id") and (
            _has_object(line, "stats") or _has_text(_object(line, "error"), "type", "message")
        )
    if not _has_text(line, "timestamp") or "subtype" in line or "sessionId" in line:
        return False
    fields = _GEMINI_STREAM_FIELDS.get(kind)
    if fields is not None:
        return line.keys() >= fields
    if kind == "message":  # the prompt is a line that any program could have printed
        return line.get("role") == "assistant" and "delta" in line
    if kind == "gemini":  # in a chat
        return _has_text(line, "id") and "content" in line
    return kind == "result" and "status" in line and ("stats" in line or "error" in line)


def is_gemini_chat(line: JsonObject) -> bool:
    """The first line of a chat, or a whole one. Qwen Code up to 0.2 wrote the same, as "qwen"."""
    if not _has_text(line, "sessionId", "projectHash"):
        return False
    messages = line.get("messages")
    if not isinstance(messages, list):
        return True
    kinds = (type_of(message) for message in messages if isinstance(message, dict))
    return "qwen" not in kinds


def _object(line: JsonObject, name: str) -> JsonObject:
    value = line.get(name)
    return value if isinstance(value, dict) else {}


def is_qwen(line: JsonObject) -> bool:
    """The first line of a stream, or a transcript line: `parts` where Claude Code has `content`."""
    if "qwen_code_version" in line:
        return True
    if not _has_text(line, "sessionId", "uuid"):
        return False
    return "parts" in _object(line, "message") or "systemPayload" in line


# -- Claude Code -----------------------------------------------------------------------------------

_RESULT_FIELDS = ("result", "is_error", "num_turns", "usage", "total_cost_usd")
# Lines with neither a message nor a subtype, and the fields that show them to be Claude Code's.
_CLAUDE_FIELDS = {
    "stream_event": {"event", "session_id"},
    "rate_limit_event": set(),
    "tool_progress": {"tool_use_id", "session_id"},
    "cost-state": {"totalCostUSD", "sessionId"},
    "summary": {"summary", "leafUuid"},
    "queue-operation": {"operation", "sessionId"},
    "attachment": {"attachment", "sessionId"},
    "last-prompt": {"sessionId"},
    "tools-used": {"sessionId"},
    "mode": {"mode", "sessionId"},
    "file-history-snapshot": {"messageId", "snapshot"},
    "progress": {"data", "sessionId", "uuid"},
    "permission-mode": {"permissionMode", "sessionId"},
    "custom-title": {"customTitle", "sessionId"},
    "ai-title": {"aiTitle", "sessionId"},
    "agent-name": {"agentName", "sessionId"},
    "control_response": {"response"},
    "control_request": {"request", "request_id"},
    "streamlined_text": {"text", "session_id"},
    "streamlined_tool_use_summary": {"tool_summary", "session_id"},
    "conversation_reset": {"new_conversation_id", "session_id"},
    "atis-latch": {"sessionId"},
    "api-request": {"sessionId"},
    "api-request-shape": {"sessionId"},
    "api-request-blob": {"sessionId"},
}


def is_claude(line: JsonObject) -> bool:
    """A line of its stream, its result, or a line of a transcript."""
    kind = type_of(line)
    if kind is None:
        return False
    fields = _CLAUDE_FIELDS.get(kind)
    if fields is not None:
        return line.keys() >= fields
    if kind == "result":
        if line.keys() >= {"modelUsage", "total_cost_usd"}:
            return True
        if "subtype" not in line and isinstance(line.get("is_error"), bool):
            return isinstance(line.get("result"), str) and "request_id" not in line
        subtype = line.get("subtype")
        is_known = isinstance(subtype, str) and subtype.startswith(("success", "error"))
        is_known = is_known and "request_id" not in line  # of the Cursor CLI
        return is_known and any(name in line for name in _RESULT_FIELDS)
    if kind == "system" and line.get("subtype") == "init" and "session_id" not in line:
        return any(name in line for name in ("tools", "mcp_servers", "apiKeySource", "cwd"))
    session = line.get("session_id", line.get("sessionId"))
    has_session = isinstance(session, str)
    if kind == "system":
        return has_session and (_has_text(line, "subtype") or "uuid" in line)
    if kind in ("assistant", "user"):
        message = _object(line, "message")
        if "content" not in message or message.get("role") != kind:
            return False
        if not has_session:  # before the init line, in a stream that was filtered
            return session is None and "parent_tool_use_id" in line and "usage" in message
        return "parent_tool_use_id" in line or "uuid" in line or "usage" in message
    return False


# -- programs that print what Claude Code prints ---------------------------------------------------

# Of old versions, and of lines that were shortened.
_CLAUDE_TOOLS = frozenset(
    (
        *("Task", "Bash", "BashOutput", "KillBash", "KillShell", "Glob", "Grep", "LS", "Read"),
        *("Edit", "MultiEdit", "Write", "NotebookRead", "NotebookEdit", "WebFetch", "WebSearch"),
        *("TodoRead", "TodoWrite", "ExitPlanMode", "exit_plan_mode", "SlashCommand"),
    )
)
_CLAUDE_INIT_FIELDS = frozenset({"mcp_servers", "apiKeySource"})
_GROK_TOOLS = ("run_terminal_command", "search_replace", "spawn_subagent")


def imitated_session(line: JsonObject) -> str | None:
    """The session of another program that prints the lines of Claude Code, if the line shows it.

    Known: grok 1.0 (--output-format streaming-messages-json), the Cursor CLI, Amp, Factory Droid.
    """
    session = line.get("session_id")
    if not isinstance(session, str):
        return None
    if session.startswith("T-"):  # Amp names its threads so
        return session
    if type_of(line) == "assistant":
        content = _object(line, "message").get("content")
        blocks = content if isinstance(content, list) else []
        names = [block.get("name") for block in blocks if isinstance(block, dict)]
        return session if any(name in _GROK_TOOLS for name in names) else None
    if type_of(line) != "system" or line.get("subtype") != "init":
        return None
    return session if _is_other_init(line) else None


def _is_other_init(line: JsonObject) -> bool:
    """Whether an init line is another program's: Claude Code's tools have capital letters."""
    if "claude_code_version" in line or "qwen_code_version" in line:
        return False
    tools = line.get("tools")
    if not isinstance(tools, list):
        return "permissionMode" in line and "mcp_servers" not in line  # Cursor
    if not _CLAUDE_TOOLS.issuperset(map(str, tools)) and not line.keys() & _CLAUDE_INIT_FIELDS:
        return True  # Droid
    own = [name for name in tools if isinstance(name, str) and not name.startswith("mcp__")]
    return bool(own) and not any(name[:1].isupper() for name in own)


# -- formats that are refused ----------------------------------------------------------------------


def _is_chat_message(line: JsonObject) -> bool:
    return _has_text(line, "role") and ("content" in line or "tool_calls" in line)


_OTHER_FORMATS: tuple[tuple[str, Shape], ...] = (
    ("steno's reports", lambda x: str(x.get("schema", "")).startswith("steno.report/")),
    (
        "output or a session of pi",
        lambda x: type_of(x) == "session" and {"version", "cwd"} <= x.keys(),
    ),
    (
        "output or a session of Kimi Code",
        lambda x: x.get("role") == "meta" or "protocol_version" in x,
    ),
    ("output or a session of Kimi Code", lambda x: {"type", "agentId", "time"} <= x.keys()),
    ("output of grok", lambda x: type_of(x) == "available_commands"),
    (
        "another program's output in the format of Claude Code",
        lambda x: imitated_session(x) is not None,
    ),
    ("output of grok", lambda x: {"stopReason", "requestId", "modelUsage"} <= x.keys()),
    (
        "output of Cline",
        lambda x: type_of(x) in ("hook_event", "agent_event", "run_result") and "ts" in x,
    ),
    ("output of Mistral Vibe", lambda x: {"generationStatus", "turnId"} <= x.keys()),
    ("an ACP recording", lambda x: "sessionUpdate" in _object(_object(x, "params"), "update")),
    ("JSON-RPC messages", lambda x: "jsonrpc" in x or "jsonrpc" in str(x.get("line", ""))[:20]),
    ("the journal of a workflow", lambda x: {"type", "key", "agentId"} <= x.keys()),
    ("a chat of Qwen Code up to 0.2", lambda x: {"sessionId", "projectHash"} <= x.keys()),
    ("an export of OpenCode", lambda x: {"info", "messages"} <= x.keys()),
    ("a session of Copilot before 1.0", lambda x: {"sessionId", "chatMessages"} <= x.keys()),
    ("an answer of a model's API", lambda x: "choices" in x or x.get("object") == "response"),
    ("an answer of a model's API", lambda x: type_of(x) == "message" and "stop_reason" in x),
    ("messages of a chat", _is_chat_message),
)


def describe_other(line: JsonObject) -> str:
    """What an object that is no agent's looks like, for a message."""
    for name, matches in _OTHER_FORMATS:
        if matches(line):
            return name
    kind = type_of(line)
    if kind is not None:
        return f"JSON of an unknown format, with type {kind[:40]!r}"
    return f"JSON of an unknown format, with fields {', '.join(list(line)[:4])[:80]!r}"


# In the order of the tests; Claude Code is last: its tests are the widest, and Qwen Code prints the
# same stream, of which only the first line is its own.
SHAPES: dict[str, Shape] = {
    "codex": is_codex,
    "copilot": is_copilot,
    "opencode": is_opencode,
    "gemini": is_gemini,
    "qwen": is_qwen,
    "claude": is_claude,
}
