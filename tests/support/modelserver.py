"""The Anthropic Messages API on loopback, answering from a list of steps.

Each request of an agent's main loop takes the next step; the last one is repeated. Requests without
tools (such as titles) get a short answer and take no step. All requests are recorded, so that a
test can check what was sent to the model.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .loopback import Exchange, Loopback

DELTA_CHARS = 30  # per event of a stream; more for long texts


class Usage(Struct, frozen=True):
    """The four counters of one request."""

    input: int = 4
    cache_write: int = 700
    cache_read: int = 9_000
    output: int = 60

    def start(self) -> dict[str, Any]:
        """The usage at the start of a stream, without the output."""
        return {**self.end(), "output_tokens": 1, "service_tier": "standard"}

    def end(self) -> dict[str, Any]:
        return {
            "input_tokens": self.input,
            "cache_creation_input_tokens": self.cache_write,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        }


class Text(Struct, frozen=True):
    text: str

    def start_block(self, index: str) -> dict[str, Any]:
        return {"type": "text", "text": ""}

    def full_block(self, index: str) -> dict[str, Any]:
        return {"type": "text", "text": self.text}

    def deltas(self) -> Iterator[dict[str, Any]]:
        size = max(DELTA_CHARS, len(self.text) // 50)
        for start in range(0, len(self.text), size):
            yield {"type": "text_delta", "text": self.text[start : start + size]}


class Call(Struct, frozen=True):
    name: str
    input: dict[str, Any]

    def start_block(self, index: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{index}", "name": self.name, "input": {}}

    def full_block(self, index: str) -> dict[str, Any]:
        return {**self.start_block(index), "input": self.input}

    def deltas(self) -> Iterator[dict[str, Any]]:
        yield {"type": "input_json_delta", "partial_json": json.dumps(self.input)}


class Answer(Struct, frozen=True):
    """An answer of the model.

    After `stall_after` events nothing more is sent; after `close_after` events the stream ends.
    `once`: wait for this condition, see `Exchange.hold`.
    """

    blocks: tuple[Text | Call, ...] = ()
    usage: Usage = Usage()
    stop: str | None = None
    stall_after: int | None = None
    close_after: int | None = None
    once: Callable[[], bool] | None = None
    headers: dict[str, str] = {}  # msgspec copies the default

    @property
    def stop_reason(self) -> str:
        called = any(isinstance(block, Call) for block in self.blocks)
        return self.stop or ("tool_use" if called else "end_turn")


class Fault(Struct, frozen=True):
    """An error of the service."""

    status: int
    type: str = "api_error"
    message: str = "scripted"
    headers: dict[str, str] = {}  # msgspec copies the default


class Hang(Struct, frozen=True):
    """No response at all."""


Step = Answer | Fault | Hang


def say(text: str, **more: Any) -> Answer:
    return Answer((Text(text),), **more)


def call(name: str, **arguments: Any) -> Answer:
    return Answer((Call(name, arguments),))


def once(condition: Callable[[], bool], answer: Answer) -> Answer:
    """The same answer, held back until a condition holds."""
    return replace(answer, once=condition)


def limited(reset: int) -> Fault:
    """The usage limit of a subscription is reached until `reset`, in seconds since 1970."""
    limit = {
        "status": "rejected",
        "reset": str(reset),
        "representative-claim": "five_hour",
        "overage-status": "rejected",
    }
    return Fault(
        429,
        "rate_limit_error",
        "limited",
        {f"anthropic-ratelimit-unified-{name}": text for name, text in limit.items()},
    )


class Request(Struct, frozen=True):
    """A request of an agent. `step` is None if it took none."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    step: int | None

    def texts(self) -> list[str]:
        """Every text in its messages, oldest first."""
        texts = []
        for message in self.body.get("messages", ()):
            content = message.get("content")
            if isinstance(content, str):
                texts.append(content)
            else:
                texts += [block["text"] for block in content if "text" in block]
        return texts


class MessagesExchange(Exchange):
    def do_HEAD(self) -> None:  # noqa: N802  # defined by http.server
        self.respond(200, {})

    def do_GET(self) -> None:  # noqa: N802  # defined by http.server
        self.respond(
            404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}}
        )

    def do_POST(self) -> None:  # noqa: N802  # defined by http.server
        body = self.body()
        if "/messages" not in self.path:
            self.respond(200, {})
        elif "count_tokens" in self.path:
            self.respond(200, {"input_tokens": 1234})
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(body, *self.server.model.take(self.path, headers, body))

    def _answer(self, body: dict[str, Any], number: int, step: Step) -> None:
        if isinstance(step, Fault):
            error = {"type": "error", "error": {"type": step.type, "message": step.message}}
            self.respond(step.status, error, step.headers)
            return
        if isinstance(step, Hang):
            self.stall()
            return
        self.hold(step.once)
        if body.get("stream"):
            self._stream(step, list(message_events(step, str(body.get("model")), number)))
        else:
            message = whole_message(step, str(body.get("model")), number)
            self.respond(200, message, step.headers)

    def _stream(self, step: Answer, events: list[dict[str, Any]]) -> None:
        self.stream(step.headers)
        limit = min(step.close_after or len(events), step.stall_after or len(events))
        for event in events[:limit]:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        if step.stall_after is not None:
            self.stall()


class ModelServer(Loopback):
    """The server, in its own thread."""

    exchange = MessagesExchange

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps = steps
        self.requests: list[Request] = []
        self.sent: list[tuple[str, Step]] = []  # every answer, with the model of its request

    @property
    def asked(self) -> list[Request]:
        """The requests that took a step."""
        return [request for request in self.requests if request.step is not None]

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, Step]:
        """Record a request and return the number of the answer and its step."""
        with self.lock:
            number = len(self.asked)
            is_main = bool(body.get("tools"))
            self.requests.append(Request(path, headers, body, number if is_main else None))
            step: Step = say("ok", usage=Usage(1, 0, 0, 1))
            if is_main:
                step = self.steps[min(number, len(self.steps) - 1)]
            self.sent.append((str(body.get("model")), step))
            return len(self.requests), step


def whole_message(step: Answer, model: str, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": model.partition("[")[0],
        "content": [
            block.full_block(f"{number}_{index}") for index, block in enumerate(step.blocks)
        ],
        "stop_reason": step.stop_reason,
        "stop_sequence": None,
        "usage": step.usage.end(),
    }


def message_events(step: Answer, model: str, number: int) -> Iterator[dict[str, Any]]:
    """The events of a stream, in the order of the real service."""
    started = {
        **whole_message(step, model, number),
        "content": [],
        "stop_reason": None,
        "usage": step.usage.start(),
    }
    yield {"type": "message_start", "message": started}
    for index, block in enumerate(step.blocks):
        yield {
            "type": "content_block_start",
            "index": index,
            "content_block": block.start_block(f"{number}_{index}"),
        }
        for delta in block.deltas():
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": step.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": step.usage.end()}
    yield {"type": "message_stop"}
