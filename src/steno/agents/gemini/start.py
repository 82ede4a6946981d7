"""The command line of `gemini`. Pure.

The prompt is passed on stdin: any length, any first character. The approval mode decides what is
allowed without asking. Stdout is a file: on a pipe, every version loses the end of an answer above
100 KB when it exits.
"""

from ..base import LaunchCommand, LaunchOptions, encode_prompt, option_args, repeated_args
from ..typed_reader import approval_mode

UNSUPPORTED_OPTIONS = (
    "fork",
    "max_turns",
    "max_cost",
    "deny",
    "system_prompt",
    "mcp_config",
    "fallback_model",
    "json_schema",
    "steer",
)
MODE_ALIASES = {
    "acceptEdits": "auto_edit",
    "auto-edit": "auto_edit",
    "bypassPermissions": "yolo",
    "dontAsk": "default",
}
NATIVE_MODES = ("default", "auto_edit", "yolo", "plan")
MODELS_BY_SIZE = ("flash-lite", "flash", "pro")  # its own aliases for the newest of each


def build_command(
    options: LaunchOptions, program: str, version: str | None = None
) -> LaunchCommand:
    argv = [program, "-o", "stream-json"]
    argv += option_args(
        ("-m", options.model),
        ("--session-id", options.session_id),
        ("--resume", "latest" if options.continue_ else options.resume),
        ("--approval-mode", approval_mode(options.permission_mode, MODE_ALIASES)),
    )
    argv += repeated_args(
        ("--allowed-tools", options.allow),
        ("--include-directories", options.add_dirs),
    )
    return LaunchCommand((*argv, *options.extra), encode_prompt(options.prompt), stdout="file")
