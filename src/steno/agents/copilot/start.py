"""How Copilot is started without a person: its command line for what is asked. Pure.

The prompt goes by stdin: it may be of any length and begin with anything. Nobody is asked: what no rule allows is refused.
"""

import re

from ..values import Ask, Start

HEADLESS = ("--output-format", "json", "--no-auto-update", "--no-color")
# The permission modes of every agent, in its own words.
MODES = {
    "bypassPermissions": ("--allow-all",),
    "acceptEdits": ("--allow-tool", "write"),
    "plan": ("--plan",),
    "default": (),
    "dontAsk": (),
}
INITIAL = ("interactive", "autopilot")  # words of its --mode
OWN = ("allow-all-tools", "allow-all", "yolo")
CANNOT = ("fork", "max_turns", "max_cost", "system_prompt", "fallback_model", "json_schema", "steer")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_session(text: str) -> bool:
    """Sessions are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def start(ask: Ask, program: str, version: str | None = None) -> Start:
    """The command line for what is asked. Pieces of an answer come always."""
    words = [program, *HEADLESS, *_permissions(ask.permission_mode)]
    for option, value in (("--model", ask.model), ("--session-id", ask.session_id)):
        if value is not None:
            words += [option, value]
    for option, values in (("--allow-tool", ask.allow), ("--deny-tool", ask.deny), ("--add-dir", ask.add_dirs)):
        words += [f"{option}={value}" for value in values]
    words += [f"--additional-mcp-config={_config(given)}" for given in ask.mcp_config]
    words += [f"--resume={ask.resume}"] if ask.resume is not None else []
    words += ["--continue"] if ask.continue_ else []
    return Start((*words, *ask.extra), ask.prompt.encode("utf-8", "surrogateescape"), env=_served(ask))


def _served(ask: Ask) -> tuple[tuple[str, str], ...]:
    """The variables that lead it to another server, and to no other."""
    if ask.backend is None:
        return ()
    anthropic = ask.backend.kind == "anthropic"
    return (
        ("COPILOT_PROVIDER_TYPE", "anthropic" if anthropic else "openai"),
        ("COPILOT_PROVIDER_BASE_URL", ask.backend.url if anthropic else ask.backend.openai),
        ("COPILOT_PROVIDER_API_KEY", ask.backend.key),
        ("COPILOT_PROVIDER_WIRE_API", "completions"),
        ("COPILOT_MODEL", ask.model or ""),
        ("COPILOT_OFFLINE", "true"),
    )


def _permissions(mode: str | None) -> tuple[str, ...]:
    return (f"--{mode}",) if mode in OWN else MODES.get(mode or "default", ("--mode", mode or ""))


def _config(given: str) -> str:
    """A configuration is JSON, or a file, which it wants marked."""
    return given if given.lstrip().startswith("{") else f"@{given}"


def message(text: str) -> bytes:
    """Copilot takes no message while it runs: nothing is sent."""
    return b""
