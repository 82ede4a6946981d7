"""How Claude Code is started without a person: its command line for what is asked, and the messages it takes. Pure.

The prompt always goes by stdin: it may be of any length and begin with anything, and no other program sees it in a list
of processes.
"""

import re
from typing import Any

import msgspec

from ..values import Ask, Start, an_object

HEADLESS = ("--output-format", "stream-json", "--verbose")
KEEPS_ITS_END = (2, 1, 325)  # versions up to 2.1.197 drop what a pipe has not taken when they exit; those between were not seen
BUDGETS = (2, 0, 0)  # 1.0.100 has no option for a budget, 2.0.37 has
MODELS = (
    "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
)  # fmt: skip
ELSEWHERE = (
    "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_CUSTOM_HEADERS",
)  # fmt: skip
SNAPSHOTS = (2, 1, 325)  # from here on a session keeps the system prompt that it began with, unless it is told otherwise
SHAPES = (2, 1, 197)  # the first version that was seen to answer in the shape of a schema; 2.1.50 was not
SIZES = ("haiku", "sonnet", "opus")  # its own names for the newest of each
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_session(text: str) -> bool:
    """Sessions are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def stdout_for(version: str | None) -> str:
    """Where stdout must go for nothing to be lost: a file for versions that drop the end on a pipe."""
    known = _version(version)
    return "file" if known is not None and known < KEEPS_ITS_END else "pipe"


def _version(text: str | None) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text or "")
    return None if found is None else tuple(map(int, found.groups()))


def shapes(schema: Any, version: str | None) -> bool:
    """The answer is a call of a tool, which takes an object."""
    known = _version(version)
    return an_object(schema) and (known is None or known >= SHAPES)


def start(ask: Ask, program: str, version: str | None = None) -> Start:
    """The command line for what is asked. A version that is not known is taken for a new one."""
    known = _version(version)
    if known is not None and known < BUDGETS:
        ask = msgspec.structs.replace(ask, max_cost=None)
    words = [program, "-p"]
    for option, values in _several(ask):  # each takes words up to the next option, so they come before all others
        if values:
            words += [option, *values]
    words += HEADLESS
    if ask.steer:
        words += ["--input-format", "stream-json"]
    for option, value in _single(ask):
        if value is not None:
            words += [option, value]
    if ask.system_prompt is not None and (ask.resume is not None or ask.continue_) and (known is None or known >= SNAPSHOTS):
        words += ["--system-prompt-snapshot", "off"]
    words += ["--fork-session"] if ask.fork else []
    words += ["--continue"] if ask.continue_ else []
    words += ["--include-partial-messages"] if ask.partial else []
    prompt = message(ask.prompt) if ask.steer else ask.prompt.encode("utf-8", "surrogateescape")
    return Start((*words, *ask.extra), prompt, stdout_for(version), _served(ask))


def _served(ask: Ask) -> tuple[tuple[str, str], ...]:
    """The variables that lead it to another server, with that model for everything: helpers and subagents ask for others."""
    if ask.backend is None:
        return ()
    models = dict.fromkeys(MODELS, ask.model or "")
    away = dict.fromkeys(ELSEWHERE, "")  # set by a person, each would lead it elsewhere, or with another key
    own = {"ANTHROPIC_BASE_URL": ask.backend.url, "ANTHROPIC_AUTH_TOKEN": ask.backend.key}
    return tuple({**away, **models, **own}.items())


def _single(ask: Ask) -> list[tuple[str, str | None]]:
    return [
        ("--model", ask.model),
        ("--session-id", ask.session_id),
        ("--resume", ask.resume),
        ("--max-turns", None if ask.max_turns is None else str(ask.max_turns)),
        ("--max-budget-usd", None if ask.max_cost is None else f"{ask.max_cost:.6f}".rstrip("0").rstrip(".")),
        ("--permission-mode", ask.permission_mode),
        ("--append-system-prompt", ask.system_prompt),
        ("--fallback-model", ask.fallback_model),
        ("--json-schema", ask.json_schema),
    ]


def _several(ask: Ask) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("--allowedTools", ask.allow),
        ("--disallowedTools", ask.deny),
        ("--add-dir", ask.add_dirs),
        ("--mcp-config", ask.mcp_config),
    ]


def message(text: str) -> bytes:
    """A message of the user, as the agent reads it while it runs."""
    said = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}
    return msgspec.json.encode(said) + b"\n"
