"""The command line of `qwen`, and its exit codes. Pure.

The prompt is passed on stdin: any length, any first character. The approval mode decides what is
allowed without asking. Stdout is a file: on a pipe, every version loses the end of an answer above
100 KB when it exits.
"""

import re
from collections.abc import Sequence

from ..base import LaunchCommand, LaunchOptions, encode_prompt, option_args, repeated_args
from ..typed_reader import EXIT_CODE_VERDICTS, approval_mode, error_headline

# Its --json-schema fails at the first plain-text answer; steno asks for a correction instead.
UNSUPPORTED_OPTIONS = ("fork", "max_cost", "fallback_model", "json_schema", "steer")
MODE_ALIASES = {
    "acceptEdits": "auto-edit",
    "auto_edit": "auto-edit",
    "bypassPermissions": "yolo",
    "dontAsk": "default",
}
_EXIT_CODE_VERDICTS = {**EXIT_CODE_VERDICTS, 55: "max_budget"}  # its limit of time or tool calls
_STDERR_NOISE_PATTERN = re.compile(
    r"Warning: |Ripgrep not available|Retrying (?:in \d|provider attempt)|Falling back from "
)
NATIVE_MODES = ("plan", "default", "auto-edit", "yolo")


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict and the message for an exit code without a result."""
    verdict = _EXIT_CODE_VERDICTS.get(code)
    if verdict is None:
        return None
    return verdict, error_headline(errors, _STDERR_NOISE_PATTERN) or f"exit code {code}"


def build_command(
    options: LaunchOptions, program: str, version: str | None = None
) -> LaunchCommand:
    argv = [program, "-o", "stream-json"]
    argv += option_args(
        ("-m", options.model),
        ("--session-id", options.session_id),
        ("--resume", options.resume),
        ("--max-session-turns", None if options.max_turns is None else str(options.max_turns)),
        ("--approval-mode", approval_mode(options.permission_mode, MODE_ALIASES)),
        ("--append-system-prompt", options.system_prompt),
    )
    if options.continue_:
        argv.append("--continue")
    if options.partial:
        argv.append("--include-partial-messages")
    argv += repeated_args(
        ("--allowed-tools", options.allow),
        ("--exclude-tools", options.deny),
        ("--include-directories", options.add_dirs),
        ("--mcp-config", options.mcp_config),
    )
    if options.backend is not None:
        argv += ["--auth-type", "openai"]
    return LaunchCommand(
        argv=(*argv, *options.extra),
        stdin=encode_prompt(options.prompt),
        stdout="file",
        env=_backend_env(options),
    )


def _backend_env(options: LaunchOptions) -> tuple[tuple[str, str], ...]:
    if options.backend is None:
        return ()
    return (
        ("OPENAI_BASE_URL", options.backend.openai_url),
        ("OPENAI_API_KEY", options.backend.key),
        ("OPENAI_MODEL", options.model or ""),
    )
