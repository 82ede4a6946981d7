"""How OpenCode is led to a model server: a provider of its own, in a configuration that goes by its environment. Pure."""

from typing import Any

from msgspec.json import encode

from .backend import KEY
from .values import Ask

PROVIDER = "steno"
OUTPUT = 32_000  # tokens that it asks for at most, where the server does not tell: what it takes of a model of its own table


def served(ask: Ask) -> tuple[tuple[str, str], ...]:
    """The variables that lead it there. The configuration names the variable that holds the key, and not the key."""
    found = ask.backend
    if found is None:
        return ()
    anthropic = found.kind == "anthropic"
    package, url = ("@ai-sdk/anthropic", f"{found.url}/v1") if anthropic else ("@ai-sdk/openai-compatible", found.openai)
    model: dict[str, Any] = {"name": ask.model, "tool_call": True}
    if found.window is not None:
        model["limit"] = {"context": found.window, "output": min(OUTPUT, found.window // 2)}
    options = {"baseURL": url, "apiKey": f"{{env:{KEY}}}"}
    provider = {"npm": package, "name": "steno", "options": options, "models": {ask.model: model}}
    name = f"{PROVIDER}/{ask.model}"
    config = {"provider": {PROVIDER: provider}, "model": name, "small_model": name}
    return (KEY, found.key), ("OPENCODE_CONFIG_CONTENT", encode(config).decode())
