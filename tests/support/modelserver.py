"""A model that is scripted: the Anthropic Messages API on loopback, answering from a list of steps.

Each request of an agent's main loop takes the next step, and the last step is repeated. Requests without tools (titles
and the like) get a short answer and take none. Every request is kept, so that a test can look at what was said to the
model. It never judges a request, and it is reachable from this machine only.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .loopback import Exchange, Loopback

HELD = 20.0  # seconds that an answer waits for what it waits for
PIECE = 30  # characters of a text that one event of a stream carries; more of a long one


class Usage(Struct, frozen=True):
    """The four counters of one request."""

    input: int = 4
    cache_write: int = 700
    cache_read: int = 9_000
    output: int = 60

    def start(self) -> dict[str, Any]:
        """As it stands at the start of a stream: the output is not counted yet."""
        return {**self.end(), "output_tokens": 1, "service_tier": "standard"}

    def end(self) -> dict[str, Any]:
        """As it stands at the end."""
        return {
            "input_tokens": self.input,
            "cache_creation_input_tokens": self.cache_write,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        }


class Text(Struct, frozen=True):
    """A block of text."""

    text: str

    def opened(self, index: str) -> dict[str, Any]:
        """The block before its first piece."""
        return {"type": "text", "text": ""}

    def whole(self, index: str) -> dict[str, Any]:
        """The block as one."""
        return {"type": "text", "text": self.text}

    def pieces(self) -> Iterator[dict[str, Any]]:
        """The block bit by bit."""
        size = max(PIECE, len(self.text) // 50)
        for start in range(0, len(self.text), size):
            yield {"type": "text_delta", "text": self.text[start : start + size]}


class Call(Struct, frozen=True):
    """A call of a tool."""

    name: str
    input: dict[str, Any]

    def opened(self, index: str) -> dict[str, Any]:
        """The block before its first piece."""
        return {"type": "tool_use", "id": f"toolu_{index}", "name": self.name, "input": {}}

    def whole(self, index: str) -> dict[str, Any]:
        """The block as one."""
        return {**self.opened(index), "input": self.input}

    def pieces(self) -> Iterator[dict[str, Any]]:
        """The block bit by bit."""
        yield {"type": "input_json_delta", "partial_json": json.dumps(self.input)}


class Answer(Struct, frozen=True):
    """The model answers. `stall_after` and `close_after` are numbers of events: then nothing more comes, or the end.

    `once`: it answers when this is so, at the latest after HELD seconds.
    """

    blocks: tuple[Text | Call, ...] = ()
    usage: Usage = Usage()
    stop: str | None = None
    stall_after: int | None = None
    close_after: int | None = None
    once: Callable[[], bool] | None = None

    @property
    def stop_reason(self) -> str:
        """Why the model stopped: for a tool, or because it was done."""
        called = any(isinstance(block, Call) for block in self.blocks)
        return self.stop or ("tool_use" if called else "end_turn")


class Fault(Struct, frozen=True):
    """The service fails."""

    status: int
    type: str = "api_error"
    message: str = "scripted"
    headers: dict[str, str] = {}  # each value gets its own


class Hang(Struct, frozen=True):
    """The service takes the request and says nothing at all."""


Step = Answer | Fault | Hang


def say(text: str, **more: Any) -> Answer:
    """The model says something."""
    return Answer((Text(text),), **more)


def call(name: str, **arguments: Any) -> Answer:
    """The model calls a tool."""
    return Answer((Call(name, arguments),))


def once(so: Callable[[], bool], answer: Answer) -> Answer:
    """The same answer, held back until something is so."""
    return replace(answer, once=so)


def limited(reset: int) -> Fault:
    """The usage limit of a subscription is reached; it is over at `reset`, in seconds since 1970."""
    told = {
        "status": "rejected",
        "reset": str(reset),
        "representative-claim": "five_hour",
        "overage-status": "rejected",
    }
    return Fault(
        429,
        "rate_limit_error",
        "limited",
        {f"anthropic-ratelimit-unified-{name}": text for name, text in told.items()},
    )


class Request(Struct, frozen=True):
    """What an agent asked. `step` is None where it took none."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    step: int | None

    def texts(self) -> list[str]:
        """Every text in its messages, oldest first."""
        found = []
        for message in self.body.get("messages", ()):
            content = message.get("content")
            found += (
                [content]
                if isinstance(content, str)
                else [block["text"] for block in content if "text" in block]
            )
        return found


class _Exchange(Exchange):
    """One request and its answer."""

    def do_HEAD(self) -> None:  # noqa: N802  # the name is given
        self.tell(200, {})

    def do_GET(self) -> None:  # noqa: N802  # the name is given
        self.tell(
            404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}}
        )

    def do_POST(self) -> None:  # noqa: N802  # the name is given
        body = self.body()
        if "/messages" not in self.path:
            self.tell(200, {})
        elif "count_tokens" in self.path:
            self.tell(200, {"input_tokens": 1234})
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(body, *self.server.model.take(self.path, headers, body))

    def _answer(self, body: dict[str, Any], number: int, step: Step) -> None:
        if isinstance(step, Fault):
            error = {"type": "error", "error": {"type": step.type, "message": step.message}}
            self.tell(step.status, error, step.headers)
            return
        if isinstance(step, Hang):
            self.stall()
            return
        if step.once is not None:
            self._hold(step.once)
        if body.get("stream"):
            self._stream(step, list(_events(step, str(body.get("model")), number)))
        else:
            self.tell(200, _message(step, str(body.get("model")), number))

    def _stream(self, step: Answer, events: list[dict[str, Any]]) -> None:
        self.stream()
        for event in events[
            : min(step.close_after or len(events), step.stall_after or len(events))
        ]:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        if step.stall_after is not None:
            self.stall()

    def _hold(self, so: Callable[[], bool]) -> None:
        """Wait until something is so, or too long."""
        end = time.monotonic() + HELD
        while not so() and time.monotonic() < end:
            time.sleep(0.005)


class ModelServer(Loopback):
    """The server, in a thread of its own. Used with `with`; `url` is where it listens."""

    exchange = _Exchange

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps = steps
        self.requests: list[Request] = []

    @property
    def asked(self) -> list[Request]:
        """The requests that took a step."""
        return [request for request in self.requests if request.step is not None]

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, Step]:
        """Keep a request, and say what it gets: the number of the answer and the step."""
        with self.lock:
            number = len(self.asked)
            main = bool(body.get("tools"))
            self.requests.append(Request(path, headers, body, number if main else None))
            return len(self.requests), self.steps[
                min(number, len(self.steps) - 1)
            ] if main else say("ok", usage=Usage(1, 0, 0, 1))


def _message(step: Answer, model: str, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04d}",
        "type": "message",
        "role": "assistant",
        "model": model.partition("[")[0],
        "content": [block.whole(f"{number}_{index}") for index, block in enumerate(step.blocks)],
        "stop_reason": step.stop_reason,
        "stop_sequence": None,
        "usage": step.usage.end(),
    }


def _events(step: Answer, model: str, number: int) -> Iterator[dict[str, Any]]:
    """The events of a stream, in the order of the real service."""
    begun = {
        **_message(step, model, number),
        "content": [],
        "stop_reason": None,
        "usage": step.usage.start(),
    }
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(step.blocks):
        yield {
            "type": "content_block_start",
            "index": index,
            "content_block": block.opened(f"{number}_{index}"),
        }
        for piece in block.pieces():
            yield {"type": "content_block_delta", "index": index, "delta": piece}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": step.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": step.usage.end()}
    yield {"type": "message_stop"}
