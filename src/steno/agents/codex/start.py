"""The command line of `codex exec`. Pure.

The prompt is always passed on stdin ("-"): any length, any first character. `codex exec` never
asks: what the sandbox forbids is denied. Codex has no rules for single tools, no limit of turns or
dollars, and takes no messages while it runs.
"""

from typing import Any

from msgspec.json import encode

from ..base import (
    BACKEND_KEY_VARIABLE,
    SCHEMA_FILE_PLACEHOLDER,
    LaunchCommand,
    LaunchOptions,
    ProgramInfo,
    encode_prompt,
    is_object_schema,
)

# Sandboxes for the permission modes of other agents; its own modes are passed as they are.
SANDBOX_BY_MODE = {
    "plan": "read-only",
    "acceptEdits": "workspace-write",
    "dontAsk": "workspace-write",
}
NATIVE_MODES = ("read-only", "workspace-write", "danger-full-access")
PERMISSION_MODES = ("default", "bypassPermissions", *SANDBOX_BY_MODE, *NATIVE_MODES)
# From the list of models in 0.166.0: affordable, workhorse, frontier.
MODELS_BY_SIZE = ("gpt-6-luna", "gpt-6.1-sol", "gpt-6-astra")
OPTION_NAMES = {"fork": "fork"}  # a subcommand; not in 0.142 and earlier
BYPASS_ARG = "--dangerously-bypass-approvals-and-sandbox"
UNSUPPORTED_OPTIONS = (
    "session_id",
    "max_turns",
    "max_cost",
    "allow",
    "deny",
    "mcp_config",
    "fallback_model",
    "partial",
    "steer",
)
# Schema keywords whose values are data, not schemas.
_DATA_KEYWORDS = ("enum", "const", "default", "examples")


def supports_schema(schema: Any, version: str | None) -> bool:
    """Only strict schemas: objects require all of their properties and allow no others."""
    return is_object_schema(schema) and _is_strict(schema)


def _is_strict(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) or schema.get("type") == "object":
        properties = properties if isinstance(properties, dict) else {}
        if schema.get("additionalProperties") is not False:
            return False
        if sorted(schema.get("required", [])) != sorted(properties):
            return False
        # A property's name is not a schema keyword: check the values only.
        schema = {**schema, "properties": list(properties.values())}
    return all(_is_strict(value) for name, value in schema.items() if name not in _DATA_KEYWORDS)


def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
    """Build the command. The check for a git repository is off: the folder was chosen already."""
    argv = [program, "exec", "--json", "--skip-git-repo-check"]
    argv += _sandbox_args(options.permission_mode)
    if options.model is not None:
        argv += ["--model", options.model]
    for folder in options.add_dirs:
        argv += ["--add-dir", folder]
    if options.system_prompt is not None:  # a JSON string is a TOML string
        instructions = encode(options.system_prompt).decode()
        argv += ["--config", f"developer_instructions={instructions}"]
    argv += _backend_args(options)
    if options.json_schema is not None:
        argv += ["--output-schema", SCHEMA_FILE_PLACEHOLDER]
    argv += [*options.extra, *_session_args(options), "-"]
    backend = options.backend
    return LaunchCommand(
        tuple(argv),
        encode_prompt(options.prompt),
        env=() if backend is None else ((BACKEND_KEY_VARIABLE, backend.key),),
        schema=None if options.json_schema is None else options.json_schema.encode(),
    )


def _backend_args(options: LaunchOptions) -> list[str]:
    """A model provider in the configuration; it names the variable with the key, not the key."""
    if options.backend is None:
        return []
    url = encode(options.backend.openai_url).decode()
    provider = (
        f'{{name="steno",base_url={url},wire_api="responses",'
        f'env_key="{BACKEND_KEY_VARIABLE}",supports_websockets=false}}'
    )
    argv = ["--config", 'model_provider="steno"', "--config", f"model_providers.steno={provider}"]
    window = options.backend.context_window
    if window is not None:
        argv += ["--config", f"model_context_window={window}"]
    return argv


def _sandbox_args(mode: str | None) -> list[str]:
    if mode == "bypassPermissions":
        return [BYPASS_ARG]
    mode = SANDBOX_BY_MODE.get(mode or "", mode)
    return ["--sandbox", mode] if mode is not None and mode != "default" else []


def _session_args(options: LaunchOptions) -> list[str]:
    if options.resume is not None:
        return ["fork" if options.fork else "resume", options.resume]
    return ["resume", "--last"] if options.continue_ else []
