"""How Gemini CLI is started without a person: its command line for what is asked. Pure.

The prompt goes by stdin: it may be of any length and begin with anything. What may be done unasked is its approval mode.
"""

import re

from ..base import LaunchCommand, LaunchOptions

UNSUPPORTED_OPTIONS = (
    "fork", "max_turns", "max_cost", "deny", "system_prompt", "mcp_config", "fallback_model", "json_schema", "steer",
)  # fmt: skip
MODE_ALIASES = {
    "acceptEdits": "auto_edit",
    "auto-edit": "auto_edit",
    "bypassPermissions": "yolo",
    "dontAsk": "default",
}
NATIVE_MODES = ("default", "auto_edit", "yolo", "plan")
MODELS_BY_SIZE = ("flash-lite", "flash", "pro")  # its own names for the newest of each
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_session_id(text: str) -> bool:
    """Sessions are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """The command line for what is asked."""
    words = [program, "-o", "stream-json"]
    mode = (
        None
        if ask.permission_mode is None
        else MODE_ALIASES.get(ask.permission_mode, ask.permission_mode)
    )
    resume = "latest" if ask.continue_ else ask.resume
    options = (
        ("-m", ask.model),
        ("--session-id", ask.session_id),
        ("--resume", resume),
        ("--approval-mode", mode),
    )
    for option, value in options:
        words += [] if value is None else [option, value]
    # One option for each word: a list would take in whatever comes after it.
    words += [f"--allowed-tools={rule}" for rule in ask.allow]
    words += [f"--include-directories={folder}" for folder in ask.add_dirs]
    return LaunchCommand((*words, *ask.extra), ask.prompt.encode("utf-8", "surrogateescape"))


def encode_message(text: str) -> bytes:
    """It takes no messages while it runs."""
    return b""
