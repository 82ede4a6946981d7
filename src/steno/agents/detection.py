"""Which agent a decoded line can be of, told by its fields and never by a file's name (I1). Pure; it loads no reader.

One small test for each agent, the narrow ones before the wide ones: Qwen Code prints what Claude Code prints, and only its
first line names it. A line that several agents could have printed is left to the next one.
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
    """`codex exec --json`, or a rollout: {timestamp, type, payload}."""
    kind = _type_of(line)
    return kind is not None and (
        kind.startswith(_CODEX_TYPE_PREFIXES) or ("payload" in line and "timestamp" in line)
    )


def is_copilot(line: JsonObject) -> bool:
    """Everything has a `data` and an id, except the result, which has an exit code."""
    kind = _type_of(line)
    if kind is None:
        return False
    return (isinstance(line.get("data"), dict) and "id" in line) or (
        kind == "result" and "exitCode" in line
    )


def is_opencode(line: JsonObject) -> bool:
    """Everything is signed with a sessionID, spelled that way."""
    return _type_of(line) in _OPENCODE_TYPES and "sessionID" in line


def is_gemini(line: JsonObject) -> bool:
    """A line with a time and no subtype; the one document of the json format; or a chat that it keeps."""
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
    """Claude Code's shape, signed in the first line; what it keeps speaks of parts where Claude Code speaks of content."""
    if "qwen_code_version" in line:
        return True
    message = line.get("message")
    return "sessionId" in line and isinstance(message, dict) and "parts" in message


def detect_stderr(text: str) -> str | None:
    """Whose a line of stderr is, for a run that printed nothing else."""
    return next(
        (name for name, words in STDERR_MARKERS.items() if any(word in text for word in words)),
        None,
    )


# What only one program says on stderr when it fails before its first line.
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
LINE_DETECTORS: dict[str, Callable[[JsonObject], bool]] = {
    "codex": is_codex,
    "copilot": is_copilot,
    "opencode": is_opencode,
    "gemini": is_gemini,
    "qwen": is_qwen,
}
