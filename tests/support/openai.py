"""The OpenAI Responses API on loopback, scripted like `modelserver`, for Codex and Copilot.

Every request takes the next step; the last one is repeated. As in the real service, input includes
cache reads and writes. The programs are installed by `make cli`.
"""

import json
import os
from pathlib import Path
from typing import Any

from .agent_programs import installed as installed_program
from .loopback import Exchange, Loopback
from .modelserver import Answer, Fault, Hang, Step, Text

VERSIONS = {"codex": "0.166.0", "copilot": "1.0.102"}
MODELS = {"codex": "gpt-5.5", "copilot": "gpt-5"}  # known to the program


def installed(agent: str) -> str:
    """The path of the program in the tested version, or skip the test."""
    return installed_program(agent, VERSIONS[agent])


def clean_env(agent: str, home: Path, url: str) -> dict[str, str]:
    """An environment with its own HOME, the scripted model, and an invalid key."""
    env = {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8"}
    if agent == "codex":
        return {**env, "SCRIPTED_KEY": "sk-not-a-key"}
    return {
        **env,
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "sk-not-a-key",
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_MODEL": MODELS[agent],
        "COPILOT_OFFLINE": "true",
    }


def settings(agent: str, url: str) -> tuple[str, ...]:
    """The arguments that point an agent at the scripted model."""
    if agent != "codex":
        return ()
    fields = (
        f'name="Scripted",base_url="{url}/v1",wire_api="responses",env_key="SCRIPTED_KEY",'
        "supports_websockets=false"
    )
    provider = f"model_providers.scripted={{{fields},request_max_retries=0,stream_max_retries=0}}"
    return ("--config", 'model_provider="scripted"', "--config", provider, "--model", MODELS[agent])


class ResponsesExchange(Exchange):
    def do_GET(self) -> None:  # noqa: N802  # defined by http.server
        self.respond(404, {"error": {"message": self.path}})

    def do_POST(self) -> None:  # noqa: N802  # defined by http.server
        body = self.body()
        if not self.path.endswith("/responses"):
            self.respond(404, {"error": {"message": self.path}})
            return
        number, step = self.server.model.take(body)
        if isinstance(step, Fault):
            error = {"message": step.message, "type": step.type, "param": None, "code": None}
            self.respond(step.status, {"error": error}, step.headers)
        elif isinstance(step, Hang):
            self.stall()
        else:
            self.hold(step.once)
            self._stream(step, number, str(body.get("model")))

    def _stream(self, step: Answer, number: int, model: str) -> None:
        self.stream()
        base = {
            "id": f"resp_{number:04d}",
            "object": "response",
            "created_at": 0,
            "model": model,
            "output": [],
        }
        self._event({"type": "response.created", "response": {**base, "status": "in_progress"}})
        items = [_item(block, f"{number}_{index}") for index, block in enumerate(step.blocks)]
        for index, item in enumerate(items):
            self._event({"type": "response.output_item.added", "output_index": index, "item": item})
            self._event({"type": "response.output_item.done", "output_index": index, "item": item})
        response = {**base, "status": "completed", "output": items, "usage": _usage(step)}
        self._event({"type": "response.completed", "response": response})

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


class ResponsesServer(Loopback):
    """The server, in its own thread."""

    exchange = ResponsesExchange

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps = steps
        self.requests: list[dict[str, Any]] = []
        self.sent: list[tuple[str, Step]] = []  # every answer, with the model of its request

    def take(self, body: dict[str, Any]) -> tuple[int, Step]:
        """Record a request and return its step."""
        with self.lock:
            self.requests.append(body)
            step = self.steps[min(len(self.requests), len(self.steps)) - 1]
            self.sent.append((str(body.get("model") or ""), step))
            return len(self.requests), step


def _item(block: Any, index: str) -> dict[str, Any]:
    if isinstance(block, Text):
        content = [{"type": "output_text", "text": block.text, "annotations": []}]
        return {
            "type": "message",
            "id": f"msg_{index}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    shared = {
        "id": f"fc_{index}",
        "call_id": f"call_{index}",
        "name": block.name,
        "status": "completed",
    }
    if block.name == "apply_patch":
        return {"type": "custom_tool_call", **shared, "input": block.input["patch"]}
    return {"type": "function_call", **shared, "arguments": json.dumps(block.input)}


def _usage(step: Answer) -> dict[str, Any]:
    usage = step.usage
    input_tokens = usage.input + usage.cache_write + usage.cache_read
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + usage.output,
    }
