"""A server such as Ollama on loopback: one model, spoken to by three protocols, and told of by its own. Scripted like the others.

`told` are the answers to questions about the model by path; what is not there is answered 404. Every request is kept with its
headers, so that a test can see which key came.
"""

import json
from typing import Any

from msgspec import Struct

from . import completions, openai
from .completions import ASIDE, CompletionsServer
from .modelserver import Fault, Hang, Step, _events, _message

MODEL = "coder:7b"


class Seen(Struct, frozen=True):
    """A request."""

    path: str
    headers: dict[str, str]

    @property
    def key(self) -> str | None:
        """The key that came with it."""
        return (
            self.headers.get("x-api-key")
            or (self.headers.get("authorization") or "").removeprefix("Bearer ")
            or None
        )


def shown(
    num_ctx: int | None = None, trained: int = 131_072, loaded: int | None = None
) -> dict[str, Any]:
    """What Ollama tells of its model: how it is loaded, how it will be, and what it was made for."""
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


class _Ollama(completions._Other):
    def _keep(self) -> "OllamaServer":
        model = self.server.model
        assert isinstance(model, OllamaServer)
        model.seen.append(
            Seen(self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        return model

    def do_HEAD(self) -> None:  # noqa: N802  # the name is given
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:  # noqa: N802
        self._tell(self._keep())

    def do_POST(self) -> None:  # noqa: N802  # the name is given
        model, path = self._keep(), self.path.partition("?")[0]
        if path.endswith("/responses"):
            openai._Exchange.do_POST(self)
        elif path.endswith("/chat/completions"):
            super().do_POST()
        elif path.endswith("/messages"):
            self._messages()
        elif path.endswith("/count_tokens"):
            self.body()
            self.tell(200, {"input_tokens": 1234})
        else:
            self.body()
            self._tell(model)

    def _body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}"
        )
        return found

    def _tell(self, model: "OllamaServer") -> None:
        found = model.told.get(self.path.partition("?")[0])
        if isinstance(found, bytes):  # as it is, whatever it is
            self.send_response(200)
            self.send_header("content-length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)
        elif isinstance(found, str) and found.startswith("http"):  # it sends us elsewhere
            self.send_response(302)
            self.send_header("location", found)
            self.send_header("content-length", "0")
            self.end_headers()
        elif found == "silence":
            self.close_connection = True
            model.closing.wait()
        else:
            self.tell(
                404 if found is None else 200, {"error": "not found"} if found is None else found
            )

    def _messages(self) -> None:
        body = self.body()
        number, step = self.server.model.take(body)
        if isinstance(step, Fault):
            self.tell(
                step.status,
                {"type": "error", "error": {"type": step.type, "message": step.message}},
                step.headers,
            )
        elif isinstance(step, Hang):
            self.stall()
        elif body.get("stream"):
            self.stream()
            for event in _events(step, str(body.get("model")), number):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
        else:
            self.tell(200, _message(step, str(body.get("model")), number))


class OllamaServer(CompletionsServer):
    """The server, in a thread of its own. Used with `with`; `url` is where it listens."""

    exchange = _Ollama

    def __init__(self, *steps: Step, told: dict[str, Any] | None = None) -> None:
        super().__init__(*(steps or (ASIDE,)))
        self.told = shown(num_ctx=32_768) if told is None else told
        self.seen: list[Seen] = []

    def keys(self) -> set[str | None]:
        """The keys that came with requests to the model."""
        return {
            seen.key
            for seen in self.seen
            if not seen.path.startswith("/api/") and not seen.path.endswith("/models")
        }

    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [seen.path for seen in self.seen]
