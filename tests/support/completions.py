"""Chat Completions and Google's generateContent on loopback, scripted like `modelserver`.

For Gemini, OpenCode and Qwen, installed by `make cli`. A request without tools (a title, a helper)
gets a short answer and takes no step. As in the real services, input includes cache reads, and
there are no cache writes.
"""

import json
from pathlib import Path
from typing import Any

from .agent_programs import installed as installed_program
from .modelserver import Answer, Fault, Hang, Step, Text, Usage
from .openai import ResponsesExchange, ResponsesServer

VERSIONS = {"gemini": "0.61.0", "opencode": "1.18.33", "qwen": "0.15.10"}
MODELS = {"gemini": "gemini-2.5-flash", "opencode": "scripted/coder", "qwen": "coder"}
ASIDE = Answer((Text("ok"),), Usage(11, 0, 0, 2))


def installed(agent: str, version: str = "") -> str:
    """The path of the program, in the main tested version unless named, or skip the test."""
    return installed_program(agent, version or VERSIONS[agent])


def clean_env(agent: str, home: Path, url: str) -> dict[str, str]:
    """The environment for the scripted model, with an invalid key; settings go into HOME."""
    if agent == "gemini":
        settings: dict[str, Any] = {
            "security": {
                "auth": {"selectedType": "gemini-api-key"},
                "folderTrust": {"enabled": False},
            },
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "maxAttempts": 1},
        }
        _write_settings(home / ".gemini", settings)
        return {
            "GEMINI_API_KEY": "not-a-key",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
    if agent == "qwen":
        settings = {
            "memory": {"enableManagedAutoMemory": False},  # its helper may outlive the run
            "model": {"generationConfig": {"maxRetries": 0}},
        }
        _write_settings(home / ".qwen", settings)
        return {
            "OPENAI_API_KEY": "sk-not-a-key",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_MODEL": MODELS[agent],
        }
    return _opencode_env(url)


def _write_settings(folder: Path, settings: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings))


def _opencode_env(url: str) -> dict[str, str]:
    model = {
        "cost": {"input": 1, "output": 2, "cache_read": 0.1},
        "limit": {"context": 128000, "output": 8192},
    }
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-not-a-key"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": options,
        "models": {"coder": model},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {"scripted": provider},
        "model": MODELS["opencode"],
    }
    disabled = (
        "OPENCODE_DISABLE_MODELS_FETCH",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS",
        "OPENCODE_DISABLE_LSP_DOWNLOAD",
    )
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **dict.fromkeys(disabled, "1")}


class CompletionsExchange(ResponsesExchange):
    def do_POST(self) -> None:  # noqa: N802  # defined by http.server
        body = self.body()
        google = "generatecontent" in self.path.lower()
        if google:
            body["model"] = self.path.rpartition("/")[2].partition(":")[0]
        if not google and not self.path.endswith("/chat/completions"):
            self.respond(404, {"error": {"message": self.path}})
            return
        number, step = self.server.model.take(body)
        if isinstance(step, Fault):
            inner = {
                "code": step.status,
                "message": step.message,
                "status": step.type,
                "type": step.type,
            }
            self.respond(step.status, {"error": inner}, step.headers)
        elif isinstance(step, Hang):
            self.stall()
        else:
            self.hold(step.once)
            self._send_answer(step, number, body, google)

    def _send_answer(self, step: Answer, number: int, body: dict[str, Any], google: bool) -> None:
        if google:
            self._google(step, "stream" in self.path)
        else:
            self._completion(step, number, bool(body.get("stream")))

    def _google(self, step: Answer, streamed: bool) -> None:
        parts = [_part(block) for block in step.blocks]
        response: dict[str, Any] = {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            ]
        }
        usage = step.usage
        prompt_tokens = usage.input + usage.cache_read
        counts = {
            "promptTokenCount": prompt_tokens,
            "candidatesTokenCount": usage.output,
            "cachedContentTokenCount": usage.cache_read,
        }
        response_ = {
            **response,
            "usageMetadata": {**counts, "totalTokenCount": prompt_tokens + usage.output},
        }
        if streamed:
            self._send_events([response_])
        else:
            self.respond(200, response_)

    def _completion(self, step: Answer, number: int, streamed: bool) -> None:
        usage = step.usage
        prompt_tokens = usage.input + usage.cache_read
        counts = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": usage.output,
            "total_tokens": prompt_tokens + usage.output,
        }
        usage_ = {"usage": {**counts, "prompt_tokens_details": {"cached_tokens": usage.cache_read}}}
        text = "".join(block.text for block in step.blocks if isinstance(block, Text))
        calls = [
            _tool_call(block, f"{number}_{n}", n)
            for n, block in enumerate(step.blocks)
            if not isinstance(block, Text)
        ]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text,
            **({"tool_calls": calls} if calls else {}),
        }
        base = {"id": f"chatcmpl-{number}", "created": 0, "model": "coder"}
        finish_reason = "tool_calls" if calls else "stop"
        if not streamed:
            self.respond(
                200,
                {
                    **base,
                    "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
                    **usage_,
                },
            )
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        first = {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
        self._send_events([first, last, {**chunk, "choices": [], **usage_}], b"data: [DONE]\n\n")

    def _send_events(self, values: list[dict[str, Any]], end: bytes = b"") -> None:
        self.stream()
        for value in values:
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.write(end)
        self.wfile.flush()


class CompletionsServer(ResponsesServer):
    """The server, in its own thread."""

    exchange = CompletionsExchange

    def take(self, body: dict[str, Any]) -> tuple[int, Step]:
        """Record a request and return its step."""
        if body.get("tools"):
            return super().take(body)
        with self.lock:
            self.sent.append((str(body.get("model") or ""), ASIDE))
        return 0, ASIDE


def _part(block: Any) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"text": block.text}
    return {"functionCall": {"name": block.name, "args": block.input}}


def _tool_call(block: Any, id_suffix: str, index: int) -> dict[str, Any]:
    function = {"name": block.name, "arguments": json.dumps(block.input)}
    return {"id": f"call_{id_suffix}", "index": index, "type": "function", "function": function}
