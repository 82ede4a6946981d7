"""How Claude Code is started without a person: its command line for what is asked, and the messages it takes. Pure.

The prompt always goes by stdin: it may be of any length and begin with anything, and no other program sees it in a list
of processes.
"""

import re
from typing import Any

import msgspec

from ..base import LaunchCommand, LaunchOptions, is_object_schema

HEADLESS_ARGS = ("--output-format", "stream-json", "--verbose")
FULL_PIPE_OUTPUT_SINCE = (
    2,
    1,
    325,
)  # versions up to 2.1.197 drop what a pipe has not taken when they exit; those between were not seen
BUDGET_OPTION_SINCE = (2, 0, 0)  # 1.0.100 has no option for a budget, 2.0.37 has
MODEL_VARIABLES = (
    "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
)  # fmt: skip
CONFLICTING_VARIABLES = (
    "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_CUSTOM_HEADERS",
)  # fmt: skip
PROMPT_SNAPSHOT_SINCE = (
    2,
    1,
    325,
)  # from here on a session keeps the system prompt that it began with, unless it is told otherwise
JSON_SCHEMA_SINCE = (
    2,
    1,
    197,
)  # the first version that was seen to answer in the shape of a schema; 2.1.50 was not
MODELS_BY_SIZE = ("haiku", "sonnet", "opus")  # its own names for the newest of each
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_session_id(text: str) -> bool:
    """Sessions are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def stdout_mode(version: str | None) -> str:
    """Where stdout must go for nothing to be lost: a file for versions that drop the end on a pipe."""
    known = _parse_version(version)
    return "file" if known is not None and known < FULL_PIPE_OUTPUT_SINCE else "pipe"


def _parse_version(text: str | None) -> tuple[int, ...] | None:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text or "")
    return None if found is None else tuple(map(int, found.groups()))


def supports_schema(schema: Any, version: str | None) -> bool:
    """The answer is a call of a tool, which takes an object."""
    known = _parse_version(version)
    return is_object_schema(schema) and (known is None or known >= JSON_SCHEMA_SINCE)


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """The command line for what is asked. A version that is not known is taken for a new one."""
    known = _parse_version(version)
    if known is not None and known < BUDGET_OPTION_SINCE:
        ask = msgspec.structs.replace(ask, max_cost=None)
    words = [program, "-p"]
    for option, values in _multi_value_args(
        ask
    ):  # each takes words up to the next option, so they come before all others
        if values:
            words += [option, *values]
    words += HEADLESS_ARGS
    if ask.steer:
        words += ["--input-format", "stream-json"]
    for option, value in _single_value_args(ask):
        if value is not None:
            words += [option, value]
    if (
        ask.system_prompt is not None
        and (ask.resume is not None or ask.continue_)
        and (known is None or known >= PROMPT_SNAPSHOT_SINCE)
    ):
        words += ["--system-prompt-snapshot", "off"]
    words += ["--fork-session"] if ask.fork else []
    words += ["--continue"] if ask.continue_ else []
    words += ["--include-partial-messages"] if ask.partial else []
    prompt = (
        encode_message(ask.prompt) if ask.steer else ask.prompt.encode("utf-8", "surrogateescape")
    )
    return LaunchCommand((*words, *ask.extra), prompt, stdout_mode(version), _backend_env(ask))


def _backend_env(ask: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """The variables that lead it to another server, with that model for everything: helpers and subagents ask for others."""
    if ask.backend is None:
        return ()
    models = dict.fromkeys(MODEL_VARIABLES, ask.model or "")
    away = dict.fromkeys(
        CONFLICTING_VARIABLES, ""
    )  # set by a person, each would lead it elsewhere, or with another key
    own = {"ANTHROPIC_BASE_URL": ask.backend.url, "ANTHROPIC_AUTH_TOKEN": ask.backend.key}
    return tuple({**away, **models, **own}.items())


def _single_value_args(ask: LaunchOptions) -> list[tuple[str, str | None]]:
    return [
        ("--model", ask.model),
        ("--session-id", ask.session_id),
        ("--resume", ask.resume),
        ("--max-turns", None if ask.max_turns is None else str(ask.max_turns)),
        (
            "--max-budget-usd",
            None if ask.max_cost is None else f"{ask.max_cost:.6f}".rstrip("0").rstrip("."),
        ),
        ("--permission-mode", ask.permission_mode),
        ("--append-system-prompt", ask.system_prompt),
        ("--fallback-model", ask.fallback_model),
        ("--json-schema", ask.json_schema),
    ]


def _multi_value_args(ask: LaunchOptions) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("--allowedTools", ask.allow),
        ("--disallowedTools", ask.deny),
        ("--add-dir", ask.add_dirs),
        ("--mcp-config", ask.mcp_config),
    ]


def encode_message(text: str) -> bytes:
    """A message of the user, as the agent reads it while it runs."""
    said = {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
    }
    return msgspec.json.encode(said) + b"\n"
