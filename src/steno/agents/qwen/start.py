"""How Qwen Code is started without a person, and what its exit codes mean. Pure.

The prompt goes by stdin: it may be of any length and begin with anything. What may be done unasked is its approval mode.
"""

import re
from collections.abc import Sequence

from ..base import LaunchCommand, LaunchOptions

# It has a --json-schema, and fails at the first answer in plain words: steno asks for a correction instead.
UNSUPPORTED_OPTIONS = ("fork", "max_cost", "fallback_model", "json_schema", "steer")
MODE_ALIASES = {
    "acceptEdits": "auto-edit",
    "auto_edit": "auto-edit",
    "bypassPermissions": "yolo",
    "dontAsk": "default",
}
NATIVE_MODES = ("plan", "default", "auto-edit", "yolo")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
EXIT_CODE_VERDICTS = {
    41: "auth",
    42: "subprocess",
    44: "subprocess",
    52: "subprocess",
    53: "max_turns",
    54: "subprocess",
}


def is_session_id(text: str) -> bool:
    """Sessions are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict's word and the message for an exit code; all of these come without a result."""
    word = EXIT_CODE_VERDICTS.get(code)
    return None if word is None else (word, "\n".join(errors).strip() or f"exit code {code}")


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """The command line for what is asked."""
    words = [program, "-o", "stream-json"]
    for option, value in _single_value_args(ask):
        words += [] if value is None else [option, value]
    words += ["--continue"] if ask.continue_ else []
    words += ["--include-partial-messages"] if ask.partial else []
    # One option for each word: a list would take in whatever comes after it.
    several = (
        ("--allowed-tools", ask.allow),
        ("--exclude-tools", ask.deny),
        ("--include-directories", ask.add_dirs),
    )
    words += [f"{option}={value}" for option, values in several for value in values]
    words += [f"--mcp-config={value}" for value in ask.mcp_config]
    words += [] if ask.backend is None else ["--auth-type", "openai"]
    return LaunchCommand(
        (*words, *ask.extra), ask.prompt.encode("utf-8", "surrogateescape"), env=_backend_env(ask)
    )


def _backend_env(ask: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """The variables that lead it to another server."""
    if ask.backend is None:
        return ()
    return (
        ("OPENAI_BASE_URL", ask.backend.openai_url),
        ("OPENAI_API_KEY", ask.backend.key),
        ("OPENAI_MODEL", ask.model or ""),
    )


def _single_value_args(ask: LaunchOptions) -> list[tuple[str, str | None]]:
    mode = (
        None
        if ask.permission_mode is None
        else MODE_ALIASES.get(ask.permission_mode, ask.permission_mode)
    )
    return [
        ("-m", ask.model),
        ("--session-id", ask.session_id),
        ("--resume", ask.resume),
        ("--max-session-turns", None if ask.max_turns is None else str(ask.max_turns)),
        ("--approval-mode", mode),
        ("--append-system-prompt", ask.system_prompt),
    ]


def encode_message(text: str) -> bytes:
    """No messages are sent to it while it runs."""
    return b""
