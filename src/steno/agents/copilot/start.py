"""How Copilot is started without a person: its command line for what is asked. Pure.

The prompt goes by stdin: it may be of any length and begin with anything. Nobody is asked: what no rule allows is refused.
"""

import re

from ..base import LaunchCommand, LaunchOptions

HEADLESS_ARGS = ("--output-format", "json", "--no-auto-update", "--no-color")
# The permission modes of every agent, in its own words.
MODE_ARGS = {
    "bypassPermissions": ("--allow-all",),
    "acceptEdits": ("--allow-tool", "write"),
    "plan": ("--plan",),
    "default": (),
    "dontAsk": (),
}
INITIAL_MODES = ("interactive", "autopilot")  # words of its --mode
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
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_session_id(text: str) -> bool:
    """Sessions are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """The command line for what is asked. Pieces of an answer come always."""
    words = [program, *HEADLESS_ARGS, *_permission_args(ask.permission_mode)]
    for option, value in (("--model", ask.model), ("--session-id", ask.session_id)):
        if value is not None:
            words += [option, value]
    for option, values in (
        ("--allow-tool", ask.allow),
        ("--deny-tool", ask.deny),
        ("--add-dir", ask.add_dirs),
    ):
        words += [f"{option}={value}" for value in values]
    words += [f"--additional-mcp-config={_mcp_config_arg(given)}" for given in ask.mcp_config]
    words += [f"--resume={ask.resume}"] if ask.resume is not None else []
    words += ["--continue"] if ask.continue_ else []
    return LaunchCommand(
        (*words, *ask.extra), ask.prompt.encode("utf-8", "surrogateescape"), env=_backend_env(ask)
    )


def _backend_env(ask: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """The variables that lead it to another server, and to no other."""
    if ask.backend is None:
        return ()
    anthropic = ask.backend.kind == "anthropic"
    return (
        ("COPILOT_PROVIDER_TYPE", "anthropic" if anthropic else "openai"),
        ("COPILOT_PROVIDER_BASE_URL", ask.backend.url if anthropic else ask.backend.openai_url),
        ("COPILOT_PROVIDER_API_KEY", ask.backend.key),
        ("COPILOT_PROVIDER_WIRE_API", "completions"),
        ("COPILOT_MODEL", ask.model or ""),
        ("COPILOT_OFFLINE", "true"),
    )


def _permission_args(mode: str | None) -> tuple[str, ...]:
    return (
        (f"--{mode}",)
        if mode in FLAG_MODES
        else MODE_ARGS.get(mode or "default", ("--mode", mode or ""))
    )


def _mcp_config_arg(given: str) -> str:
    """A configuration is JSON, or a file, which it wants marked."""
    return given if given.lstrip().startswith("{") else f"@{given}"


def encode_message(text: str) -> bytes:
    """Copilot takes no message while it runs: nothing is sent."""
    return b""
