"""The command line of `copilot`. Pure.

The prompt is passed on stdin: any length, any first character. It never asks: calls that no rule
allows are denied. Partial messages are always on.
"""

from ..base import (
    LaunchCommand,
    LaunchOptions,
    ProgramInfo,
    encode_prompt,
    option_args,
    repeated_args,
)

HEADLESS_ARGS = ("--output-format", "json", "--no-auto-update", "--no-color")
# Arguments for the permission modes of other agents.
MODE_ARGS = {
    "bypassPermissions": ("--allow-all",),
    "acceptEdits": ("--allow-tool", "write"),
    "plan": ("--plan",),
    "default": (),
    "dontAsk": (),
}
INITIAL_MODES = ("interactive", "autopilot")  # values of its --mode
FLAG_MODES = ("allow-all-tools", "allow-all", "yolo")
UNSUPPORTED_OPTIONS = (
    "fork",
    "max_turns",
    "max_cost",
    "system_prompt",
    "fallback_model",
    "json_schema",
    "steer",
)


def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
    argv = [program, *HEADLESS_ARGS, *_permission_args(options.permission_mode)]
    argv += option_args(("--model", options.model), ("--session-id", options.session_id))
    argv += repeated_args(
        ("--allow-tool", options.allow),
        ("--deny-tool", options.deny),
        ("--add-dir", options.add_dirs),
        ("--additional-mcp-config", map(_mcp_config_arg, options.mcp_config)),
    )
    if options.resume is not None:
        argv.append(f"--resume={options.resume}")
    if options.continue_:
        argv.append("--continue")
    return LaunchCommand(
        (*argv, *options.extra), encode_prompt(options.prompt), env=_backend_env(options)
    )


def _backend_env(options: LaunchOptions) -> tuple[tuple[str, str], ...]:
    backend = options.backend
    if backend is None:
        return ()
    anthropic = backend.kind == "anthropic"
    return (
        ("COPILOT_PROVIDER_TYPE", "anthropic" if anthropic else "openai"),
        ("COPILOT_PROVIDER_BASE_URL", backend.url if anthropic else backend.openai_url),
        ("COPILOT_PROVIDER_API_KEY", backend.key),
        ("COPILOT_PROVIDER_WIRE_API", "completions"),
        ("COPILOT_MODEL", options.model or ""),
        ("COPILOT_OFFLINE", "true"),
    )


def _permission_args(mode: str | None) -> tuple[str, ...]:
    if not mode:
        return ()
    if mode in FLAG_MODES:
        return (f"--{mode}",)
    return MODE_ARGS.get(mode, ("--mode", mode))


def _mcp_config_arg(config: str) -> str:
    """JSON, or a file, which Copilot marks with "@"."""
    return config if config.lstrip().startswith("{") else f"@{config}"
