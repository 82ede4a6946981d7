"""How Codex is started without a person: its command line for what is asked. Pure.

The prompt always goes by stdin ("-"): it may be of any length and begin with anything. `codex exec` asks nobody: what the
sandbox forbids is refused. Codex has no rules for single tools, no limit of turns or dollars, and takes no message while
it runs.
"""

import re
from typing import Any

from msgspec.json import encode

from ..backend import BACKEND_KEY_VARIABLE
from ..base import SCHEMA_FILE_PLACEHOLDER, LaunchCommand, LaunchOptions, is_object_schema

# The permission modes of every agent, as sandboxes; its own words pass as they are.
SANDBOX_BY_MODE = {
    "plan": "read-only",
    "acceptEdits": "workspace-write",
    "dontAsk": "workspace-write",
}
NATIVE_MODES = ("read-only", "workspace-write", "danger-full-access")
PERMISSION_MODES = ("default", "bypassPermissions", *SANDBOX_BY_MODE, *NATIVE_MODES)
MODELS_BY_SIZE = (
    "gpt-6-luna",
    "gpt-6.1-sol",
    "gpt-6-astra",
)  # by the list of models in 0.166.0: affordable, workhorse, frontier
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
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_session_id(text: str) -> bool:
    """Threads are called by UUIDs."""
    return _UUID.fullmatch(text) is not None


def supports_schema(schema: Any, version: str | None) -> bool:
    """The service takes strict schemas only: each object names all of its properties as required, and allows no others."""
    return is_object_schema(schema) and _is_strict(schema)


def _is_strict(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    names = schema.get("properties")
    if isinstance(names, dict) or schema.get("type") == "object":
        names = names if isinstance(names, dict) else {}
        if schema.get("additionalProperties") is not False or sorted(
            schema.get("required", [])
        ) != sorted(names):
            return False
        schema = {
            **schema,
            "properties": list(names.values()),
        }  # the name of a property is no word of the schema
    return all(
        _is_strict(value)
        for name, value in schema.items()
        if name not in ("enum", "const", "default", "examples")
    )


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """The command line for what is asked. The check for a git repository is left out: it was said where to work."""
    words = [
        program,
        "exec",
        "--json",
        "--skip-git-repo-check",
        *_sandbox_args(ask.permission_mode),
    ]
    if ask.model is not None:
        words += ["--model", ask.model]
    for folder in ask.add_dirs:
        words += ["--add-dir", folder]
    if ask.system_prompt is not None:
        words += [
            "--config",
            f"developer_instructions={encode(ask.system_prompt).decode()}",
        ]  # a JSON string is a TOML one
    words += _backend_args(ask)
    schema = None if ask.json_schema is None else ask.json_schema.encode()
    words += [] if schema is None else ["--output-schema", SCHEMA_FILE_PLACEHOLDER]
    words += ask.extra
    env = () if ask.backend is None else ((BACKEND_KEY_VARIABLE, ask.backend.key),)
    return LaunchCommand(
        (*words, *_session_args(ask), "-"),
        ask.prompt.encode("utf-8", "surrogateescape"),
        env=env,
        schema=schema,
    )


def _backend_args(ask: LaunchOptions) -> list[str]:
    """What leads it to another server: a provider of its own. It is told the name of the variable with the key, not the key."""
    if ask.backend is None:
        return []
    where = encode(ask.backend.openai_url).decode()
    provider = f'{{name="steno",base_url={where},wire_api="responses",env_key="{BACKEND_KEY_VARIABLE}",supports_websockets=false}}'
    words = ["--config", 'model_provider="steno"', "--config", f"model_providers.steno={provider}"]
    window = ask.backend.context_window
    return words + ([] if window is None else ["--config", f"model_context_window={window}"])


def _sandbox_args(mode: str | None) -> list[str]:
    if mode == "bypassPermissions":
        return [BYPASS_ARG]
    mode = SANDBOX_BY_MODE.get(mode or "", mode)
    return ["--sandbox", mode] if mode is not None and mode != "default" else []


def _session_args(ask: LaunchOptions) -> list[str]:
    if ask.resume is not None:
        return ["fork" if ask.fork else "resume", ask.resume]
    return ["resume", "--last"] if ask.continue_ else []


def encode_message(text: str) -> bytes:
    """Codex takes no message while it runs: nothing is sent."""
    return b""
