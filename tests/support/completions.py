"""Chat Completions and Google's generateContent on loopback, with the steps of `modelserver`, for Gemini, OpenCode and Qwen.

A request without tools (a title, a helper) gets a short answer and takes no step. What was read from the cache is told inside
the input, as the real services do; neither knows cache writes. `make cli` installs the programs.
"""

import json
from pathlib import Path
from typing import Any

from .installed import installed as installed_program
from .modelserver import Answer, Fault, Hang, Step, Text, Usage
from .openai import ResponsesServer, _Exchange

VERSIONS = {"gemini": "0.61.0", "opencode": "1.18.33", "qwen": "0.15.10"}
MODELS = {"gemini": "gemini-2.5-flash", "opencode": "scripted/coder", "qwen": "coder"}
ASIDE = Answer((Text("ok"),), Usage(11, 0, 0, 2))


def installed(agent: str) -> str:
    """The program in the version that the tests run."""
    return installed_program(agent, VERSIONS[agent])


def clean_env(agent: str, home: Path, url: str) -> dict[str, str]:
    """What leads an agent to the scripted model, with a key that opens nothing; its settings are put into its HOME."""
    if agent == "gemini":
        quiet = {
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "maxAttempts": 1},
        }
        signed = {
            "security": {
                "auth": {"selectedType": "gemini-api-key"},
                "folderTrust": {"enabled": False},
            },
            **quiet,
        }
        (home / ".gemini").mkdir(parents=True, exist_ok=True)
        (home / ".gemini" / "settings.json").write_text(json.dumps(signed))
        return {
            "GEMINI_API_KEY": "not-a-key",
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
    if agent == "qwen":
        alone = {
            "memory": {"enableManagedAutoMemory": False}
        }  # no helper that may still be at work when the run is over
        (home / ".qwen").mkdir(parents=True, exist_ok=True)
        (home / ".qwen" / "settings.json").write_text(
            json.dumps({**alone, "model": {"generationConfig": {"maxRetries": 0}}})
        )
        return {
            "OPENAI_API_KEY": "sk-not-a-key",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_MODEL": MODELS[agent],
        }
    priced = {
        "cost": {"input": 1, "output": 2, "cache_read": 0.1},
        "limit": {"context": 128000, "output": 8192},
    }
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-not-a-key"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": options,
        "models": {"coder": priced},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {"scripted": provider},
        "model": MODELS[agent],
    }
    off = (
        "OPENCODE_DISABLE_MODELS_FETCH",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS",
        "OPENCODE_DISABLE_LSP_DOWNLOAD",
    )
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **dict.fromkeys(off, "1")}


class _Other(_Exchange):
    def do_POST(self) -> None:  # noqa: N802  # the name is given
        body = self.body()
        google = "generatecontent" in self.path.lower()
        if not google and not self.path.endswith("/chat/completions"):
            self.tell(404, {"error": {"message": self.path}})
            return
        number, step = self.server.model.take(body)
        if isinstance(step, Fault):
            inner = {
                "code": step.status,
                "message": step.message,
                "status": step.type,
                "type": step.type,
            }
            self.tell(step.status, {"error": inner}, step.headers)
        elif isinstance(step, Hang):
            self.stall()
        elif google:
            self._google(step, "stream" in self.path)
        else:
            self._completion(step, number, bool(body.get("stream")))

    def _google(self, step: Answer, streamed: bool) -> None:
        parts = [_part(block) for block in step.blocks]
        told: dict[str, Any] = {
            "candidates": [
                {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
            ]
        }
        usage = step.usage
        sent = usage.input + usage.cache_read
        counts = {
            "promptTokenCount": sent,
            "candidatesTokenCount": usage.output,
            "cachedContentTokenCount": usage.cache_read,
        }
        whole = {**told, "usageMetadata": {**counts, "totalTokenCount": sent + usage.output}}
        if streamed:
            self._lines([whole])
        else:
            self.tell(200, whole)

    def _completion(self, step: Answer, number: int, streamed: bool) -> None:
        usage = step.usage
        sent = usage.input + usage.cache_read
        counts = {
            "prompt_tokens": sent,
            "completion_tokens": usage.output,
            "total_tokens": sent + usage.output,
        }
        counted = {
            "usage": {**counts, "prompt_tokens_details": {"cached_tokens": usage.cache_read}}
        }
        text = "".join(block.text for block in step.blocks if isinstance(block, Text))
        calls = [
            _called(block, f"{number}_{n}", n)
            for n, block in enumerate(step.blocks)
            if not isinstance(block, Text)
        ]
        said: dict[str, Any] = {
            "role": "assistant",
            "content": text,
            **({"tool_calls": calls} if calls else {}),
        }
        base = {"id": f"chatcmpl-{number}", "created": 0, "model": "coder"}
        end = "tool_calls" if calls else "stop"
        if not streamed:
            self.tell(
                200,
                {
                    **base,
                    "choices": [{"index": 0, "message": said, "finish_reason": end}],
                    **counted,
                },
            )
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        first = {**chunk, "choices": [{"index": 0, "delta": said, "finish_reason": None}]}
        last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
        self._lines([first, last, {**chunk, "choices": [], **counted}], b"data: [DONE]\n\n")

    def _lines(self, values: list[dict[str, Any]], end: bytes = b"") -> None:
        self.stream()
        for value in values:
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.write(end)
        self.wfile.flush()


class CompletionsServer(ResponsesServer):
    """The server, in a thread of its own. Used with `with`; `url` is where it listens."""

    exchange = _Other

    def take(self, body: dict[str, Any]) -> tuple[int, Step]:
        """Keep a request, and say what it gets."""
        return super().take(body) if body.get("tools") else (0, ASIDE)


def _part(block: Any) -> dict[str, Any]:
    return (
        {"text": block.text}
        if isinstance(block, Text)
        else {"functionCall": {"name": block.name, "args": block.input}}
    )


def _called(block: Any, index: str, place: int) -> dict[str, Any]:
    function = {"name": block.name, "arguments": json.dumps(block.input)}
    return {"id": f"call_{index}", "index": place, "type": "function", "function": function}
