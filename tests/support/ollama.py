"""An Ollama server on loopback: one scripted model with three protocols, and Ollama's own API.

`told` has the answers about the model by path; other paths are answered with 404. All requests are
recorded with their headers, so that a test can check which key was sent.
"""

import json
from typing import Any

from msgspec import Struct

from .completions import ASIDE, CompletionsExchange, CompletionsServer
from .modelserver import Fault, Hang, Step, message_events, whole_message
from .openai import ResponsesExchange

MODEL = "coder:7b"


class Seen(Struct, frozen=True):
    path: str
    headers: dict[str, str]

    @property
    def key(self) -> str | None:
        return (
            self.headers.get("x-api-key")
            or (self.headers.get("authorization") or "").removeprefix("Bearer ")
            or None
        )


def shown(
    num_ctx: int | None = None, trained: int = 131_072, loaded: int | None = None
) -> dict[str, Any]:
    """Ollama's answers about its model: the window as loaded, as configured, and as trained."""
    models = [] if loaded is None else [{"name": MODEL, "model": MODEL, "context_length": loaded}]
    parameters = 'stop "<|end|>"' + (
        "" if num_ctx is None else f"\nnum_ctx                        {num_ctx}"
    )
    info = {
        "general.architecture": "coder",
        "coder.context_length": trained,
        "coder.embedding_length": 4096,
    }
    return {
        "/api/ps": {"models": models},
        "/api/show": {"parameters": parameters, "model_info": info},
    }


class OllamaExchange(CompletionsExchange):
    def _record(self) -> "OllamaServer":
        model = self.server.model
        assert isinstance(model, OllamaServer)
        model.seen.append(
            Seen(self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        return model

    def do_HEAD(self) -> None:  # noqa: N802  # defined by http.server
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:  # noqa: N802  # defined by http.server
        self._respond_about(self._record())

    def do_POST(self) -> None:  # noqa: N802  # defined by http.server
        model, path = self._record(), self.path.partition("?")[0]
        if path.endswith("/responses"):
            ResponsesExchange.do_POST(self)
        elif path.endswith("/chat/completions"):
            super().do_POST()
        elif path.endswith("/messages"):
            self._messages()
        elif path.endswith("/count_tokens"):
            self.body()
            self.respond(200, {"input_tokens": 1234})
        else:
            self.body()
            self._respond_about(model)

    def _respond_about(self, model: "OllamaServer") -> None:
        """Answer a question about the model; `bytes` are sent as they are."""
        answer = model.told.get(self.path.partition("?")[0])
        if isinstance(answer, bytes):
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
        elif isinstance(answer, str) and answer.startswith("http"):
            self.send_response(302)
            self.send_header("location", answer)
            self.send_header("content-length", "0")
            self.end_headers()
        elif answer == "silence":
            self.stall()
        elif answer is None:
            self.respond(404, {"error": "not found"})
        else:
            self.respond(200, answer)

    def _messages(self) -> None:
        body = self.body()
        number, step = self.server.model.take(body)
        if isinstance(step, Fault):
            self.respond(
                step.status,
                {"type": "error", "error": {"type": step.type, "message": step.message}},
                step.headers,
            )
        elif isinstance(step, Hang):
            self.stall()
        elif body.get("stream"):
            self.stream()
            for event in message_events(step, str(body.get("model")), number):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
        else:
            self.respond(200, whole_message(step, str(body.get("model")), number))


class OllamaServer(CompletionsServer):
    """The server, in its own thread."""

    exchange = OllamaExchange

    def __init__(self, *steps: Step, told: dict[str, Any] | None = None) -> None:
        super().__init__(*(steps or (ASIDE,)))
        self.told = shown(num_ctx=32_768) if told is None else told
        self.seen: list[Seen] = []

    def keys(self) -> set[str | None]:
        """The keys of the requests to the model."""
        return {
            seen.key
            for seen in self.seen
            if not seen.path.startswith("/api/") and not seen.path.endswith("/models")
        }

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]
