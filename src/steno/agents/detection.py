"""Detect the agent that printed a line by its fields, without loading a reader. Pure.

Each test is narrow enough to reject the lines of the other agents. Qwen Code prints the same lines
as Claude Code; only its first line identifies it, so a line that fits both is not Qwen's.
"""

from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]
_CODEX_TYPE_PREFIXES = ("thread.", "turn.", "item.")
_OPENCODE_TYPES = frozenset({"step_start", "text", "reasoning", "tool_use", "step_finish", "error"})
_GEMINI_TYPES = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})


def _type_of(line: JsonObject) -> str | None:
    kind = line.get("type")
    return kind if isinstance(kind, str) else None


def is_codex(line: JsonObject) -> bool:
    """A line of `codex exec --json`, or of a rollout: {timestamp, type, payload}."""
    kind = _type_of(line)
    return kind is not None and (
        kind.startswith(_CODEX_TYPE_PREFIXES) or ("payload" in line and "timestamp" in line)
    )


def is_copilot(line: JsonObject) -> bool:
    """All lines have `data` and `id`, except the result, which has `exitCode`."""
    kind = _type_of(line)
    if kind is None:
        return False
    return (isinstance(line.get("data"), dict) and "id" in line) or (
        kind == "result" and "exitCode" in line
    )


def is_opencode(line: JsonObject) -> bool:
    """All lines have a `sessionID`, in this spelling."""
    return _type_of(line) in _OPENCODE_TYPES and "sessionID" in line


def is_gemini(line: JsonObject) -> bool:
    """A stream line, the document of `--output-format json`, or a chat file."""
    kind = _type_of(line)
    if kind is None:
        return ("session_id" in line and ("response" in line or "error" in line)) or (
            "sessionId" in line and "projectHash" in line
        )
    if (
        kind not in _GEMINI_TYPES
        or not isinstance(line.get("timestamp"), str)
        or "subtype" in line
        or "sessionId" in line
    ):
        return False
    return kind != "result" or "status" in line


def is_qwen(line: JsonObject) -> bool:
    """The first line of a stream, or a transcript line: `parts` where Claude Code has `content`."""
    if "qwen_code_version" in line:
        return True
    message = line.get("message")
    return "sessionId" in line and isinstance(message, dict) and "parts" in message


# Texts that only one agent prints to stderr when it fails before its first line.
STDERR_MARKERS = {
    "codex": ("codex_home:", "Usage: codex ", "codex_core::", "OpenAI Codex v", "codex login"),
    "copilot": (
        "Copilot can be authenticated",
        "copilot --help",
        "copilot --resume",
        "GitHub Copilot CLI",
    ),
    "gemini": ("Gemini API", "Gemini CLI", "gemini [options]"),
    "qwen": ("Qwen Code", "qwen [options]"),
}
# In the order of the tests; Claude Code is last, see `registry.detect_builtin`.
LINE_DETECTORS: dict[str, Callable[[JsonObject], bool]] = {
    "codex": is_codex,
    "copilot": is_copilot,
    "opencode": is_opencode,
    "gemini": is_gemini,
    "qwen": is_qwen,
}
