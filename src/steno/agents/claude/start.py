"""Claude Code's command line for headless runs, and its format for messages on stdin. Pure.

The prompt is passed on stdin: it can have any length and any first character, and is not visible
in the process list.
"""

import re
from typing import Any

import msgspec

from ..base import (
    LaunchCommand,
    LaunchOptions,
    PermissionRelay,
    ProgramInfo,
    encode_prompt,
    is_object_schema,
    option_args,
)

HEADLESS_ARGS = ("--output-format", "stream-json", "--verbose")
# 2.1.197 and earlier lose unread pipe output at exit; versions in between were not tested.
FULL_PIPE_OUTPUT_SINCE = (2, 1, 325)
# Without it, versions that have it keep the first system prompt of a resumed session.
PROMPT_SNAPSHOT_OPTION = "--system-prompt-snapshot"
JSON_SCHEMA_SINCE = (2, 1, 197)  # the first version known to support it; 2.1.50 does not
# 1.0.60 has the others. --max-turns exists in all versions, but not in their help.
# 2.1.197 calls `default` what 2.1.325 calls `manual`, and both are accepted.
PERMISSION_MODES = (
    *("default", "manual", "plan", "acceptEdits", "auto", "dontAsk", "bypassPermissions"),
)
OPTION_NAMES = {
    "fork": "--fork-session",
    "max_cost": "--max-budget-usd",
    "json_schema": "--json-schema",
    "partial": "--include-partial-messages",
}
# Claude Code gives up on an MCP call without news after a while: later than steno does.
RELAY_MARGIN_SECONDS = 60.0
MODELS_BY_SIZE = ("haiku", "sonnet", "opus")  # aliases for the newest model of each size
MODEL_VARIABLES = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
# Each would select another server or another key than the backend's.
CONFLICTING_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "ANTHROPIC_CUSTOM_HEADERS",
)
Version = tuple[int, ...]


def _parse_version(text: str | None) -> Version | None:
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text or "")
    return None if match is None else tuple(map(int, match.groups()))


def _is_since(version: Version | None, first: Version) -> bool:
    """Whether a version has a feature. An unknown version is treated as a new one."""
    return version is None or version >= first


def stdout_mode(version: str | None) -> str:
    """Return "file" for versions that lose the end of their output on a pipe, else "pipe"."""
    return "pipe" if _is_since(_parse_version(version), FULL_PIPE_OUTPUT_SINCE) else "file"


def supports_schema(schema: Any, version: str | None) -> bool:
    """Whether the agent enforces a schema. It does so with a tool call, which takes an object."""
    return is_object_schema(schema) and _is_since(_parse_version(version), JSON_SCHEMA_SINCE)


def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
    """Build the command of a run."""
    argv = [program, "-p", *_list_args(options), *HEADLESS_ARGS]
    if options.steer:
        argv += ["--input-format", "stream-json"]
    argv += _value_args(options)
    if _needs_prompt_option(options) and info.has_option(PROMPT_SNAPSHOT_OPTION):
        argv += [PROMPT_SNAPSHOT_OPTION, "off"]
    if options.fork:
        argv.append("--fork-session")
    if options.continue_:
        argv.append("--continue")
    if options.partial:
        argv.append("--include-partial-messages")
    return LaunchCommand(
        argv=(*argv, *options.extra),
        stdin=encode_message(options.prompt) if options.steer else encode_prompt(options.prompt),
        stdout=stdout_mode(info.version),
        env=(*_backend_env(options), *_relay_env(options)),
    )


def _needs_prompt_option(options: LaunchOptions) -> bool:
    """Whether a system prompt is given for a session that already has one."""
    continues = options.resume is not None or options.continue_
    return continues and options.system_prompt is not None


def _list_args(options: LaunchOptions) -> list[str]:
    """Options that consume all arguments up to the next option: they come before the others."""
    argv: list[str] = []
    relay = options.permission_relay
    servers = () if relay is None else (_relay_config(relay),)
    # The relay's server has other tools too: asking a person for them would help no one.
    own_tools = () if relay is None else (f"mcp__{relay.server}",)
    for option, values in (
        ("--allowedTools", (*options.allow, *own_tools)),
        ("--disallowedTools", options.deny),
        ("--add-dir", options.add_dirs),
        ("--mcp-config", (*options.mcp_config, *servers)),
    ):
        if values:
            argv += [option, *values]
    return argv


def _value_args(options: LaunchOptions) -> list[str]:
    max_turns = None if options.max_turns is None else str(options.max_turns)
    max_cost = None
    if options.max_cost is not None:
        max_cost = f"{options.max_cost:.6f}".rstrip("0").rstrip(".")
    return option_args(
        ("--model", options.model),
        ("--session-id", options.session_id),
        ("--resume", options.resume),
        ("--max-turns", max_turns),
        ("--max-budget-usd", max_cost),
        ("--permission-mode", options.permission_mode),
        ("--permission-prompt-tool", _permission_tool(options)),
        ("--append-system-prompt", options.system_prompt),
        ("--fallback-model", options.fallback_model),
        ("--json-schema", options.json_schema),
    )


def _relay_config(relay: PermissionRelay) -> str:
    program, *args = relay.command
    timeout_ms = round((relay.timeout_seconds + RELAY_MARGIN_SECONDS) * 1000)
    server = {"type": "stdio", "command": program, "args": args, "timeout": timeout_ms}
    return msgspec.json.encode({"mcpServers": {relay.server: server}}).decode()


def _relay_env(options: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """2.1.197 fails if the server is not connected by the first call; 2.1.325 waits anyway."""
    return () if options.permission_relay is None else (("MCP_CONNECTION_NONBLOCKING", "0"),)


def _permission_tool(options: LaunchOptions) -> str | None:
    relay = options.permission_relay
    return None if relay is None else f"mcp__{relay.server}__{relay.tool}"


def _backend_env(options: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """Variables for another model server. Helpers and subagents must use the same model."""
    if options.backend is None:
        return ()
    return tuple(
        {
            **dict.fromkeys(CONFLICTING_VARIABLES, ""),
            **dict.fromkeys(MODEL_VARIABLES, options.model or ""),
            "ANTHROPIC_BASE_URL": options.backend.url,
            "ANTHROPIC_AUTH_TOKEN": options.backend.key,
        }.items()
    )


def encode_message(text: str) -> bytes:
    """Encode a user message for stdin of a run with `--input-format stream-json`."""
    message = {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
    }
    return msgspec.json.encode(message) + b"\n"
