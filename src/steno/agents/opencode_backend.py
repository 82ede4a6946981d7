"""How OpenCode is led to a model server: a provider of its own, in a configuration that goes by its environment. Pure."""

from typing import Any

from msgspec.json import encode

from .backend import BACKEND_KEY_VARIABLE
from .values import LaunchOptions

PROVIDER_ID = "steno"
MAX_OUTPUT_TOKENS = 32_000  # tokens that it asks for at most, where the server does not tell: what it takes of a model of its own table


def backend_env(ask: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """The variables that lead it there. The configuration names the variable that holds the key, and not the key."""
    found = ask.backend
    if found is None:
        return ()
    anthropic = found.kind == "anthropic"
    package, url = ("@ai-sdk/anthropic", f"{found.url}/v1") if anthropic else ("@ai-sdk/openai-compatible", found.openai_url)
    model: dict[str, Any] = {"name": ask.model, "tool_call": True}
    if found.context_window is not None:
        model["limit"] = {"context": found.context_window, "output": min(MAX_OUTPUT_TOKENS, found.context_window // 2)}
    options = {"baseURL": url, "apiKey": f"{{env:{BACKEND_KEY_VARIABLE}}}"}
    provider = {"npm": package, "name": "steno", "options": options, "models": {ask.model: model}}
    name = f"{PROVIDER_ID}/{ask.model}"
    config = {"provider": {PROVIDER_ID: provider}, "model": name, "small_model": name}
    return (BACKEND_KEY_VARIABLE, found.key), ("OPENCODE_CONFIG_CONTENT", encode(config).decode())
