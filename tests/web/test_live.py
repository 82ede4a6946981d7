"""Streams of news: a snapshot first, no repetition after a reconnect, and no wait for the slow."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from steno.errors import LedgerError
from steno.web.conversations import ConversationCache
from steno.web.live import OVERVIEW, QUEUE_EVENTS, ActiveRuns, EventStream, LiveHub, Topic
from tests.web.conftest import LONG

BIG = 64 << 10
SMALL_BUFFER = 4096


class Stream:
    """A server with one hub, whose events a test publishes itself."""

    def __init__(self) -> None:
        self.hub = LiveHub(
            active=ActiveRuns(),
            conversations=ConversationCache(),
            render_rows=lambda rows: "",
            render_steps=lambda *steps: "",
            open_requests=list,
            render_requests=lambda *requests: "",
            on_error=print,
        )
        self.topic = self.hub._topics.setdefault(OVERVIEW, Topic())
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        app = Starlette(routes=[Route("/live", self._subscribe)])
        config = uvicorn.Config(app, http="h11", ws="none", log_level="critical")
        self.server = uvicorn.Server(config)
        self.count = 0  # of subscriptions
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        asyncio.run(self.server.serve(sockets=[self.listener]))

    async def _subscribe(self, request: Request) -> EventStream:
        self.loop = asyncio.get_running_loop()
        stream = self.hub.subscribe(OVERVIEW, request.headers.get("last-event-id"))
        self.count += 1
        return stream

    def connect(self, last_id: str = "", buffer: int | None = None) -> Any:
        """A connection that has asked for the stream."""
        connection = socket.socket()
        if buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(LONG)
        connection.connect(self.listener.getsockname())
        before = self.count
        header = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        connection.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        wait_for(lambda: self.count > before)
        return connection

    def publish(self, number: int, size: int = 10) -> None:
        event = b"id: e%d\ndata: %s\n\n" % (number, b"x" * size)
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.topic.publish, f"e{number}", event, event)

    def close(self) -> None:
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join(LONG)


def wait_for(condition: Any) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def stream() -> Iterator[Stream]:
    opened = Stream()
    yield opened
    opened.close()


def next_id(lines: Any) -> str:
    """The ID of the next event."""
    for line in lines:
        if line.startswith(b"id: "):
            return str(line.decode().strip()[4:])
    raise AssertionError("the stream has ended")


def test_who_does_not_read_is_closed_and_delays_no_other(stream: Stream) -> None:
    with closing(stream.connect(buffer=SMALL_BUFFER)), closing(stream.connect()) as fast:
        lines = fast.makefile("rb")
        count = 0
        while len(stream.topic.listeners) == 2:
            assert count < 20 * QUEUE_EVENTS
            count += 1
            stream.publish(count, BIG)
            assert next_id(lines) == f"e{count}"
        assert count > QUEUE_EVENTS
        stream.publish(count + 1)
        assert next_id(lines) == f"e{count + 1}"


def test_a_reconnect_gets_the_snapshot_unless_it_has_it(stream: Stream) -> None:
    with closing(stream.connect()) as first:
        stream.publish(1)
        assert next_id(first.makefile("rb")) == "e1"
        with closing(stream.connect(last_id="e0")) as behind:
            assert next_id(behind.makefile("rb")) == "e1"
        with closing(stream.connect(last_id="e1")) as current:
            lines = current.makefile("rb")
            stream.publish(2)
            assert next_id(lines) == "e2"


def test_a_failing_poll_is_reported_once_and_tried_again() -> None:
    """What fails for one kind of news delays no other; afterwards the page is live again."""
    results: list[Exception | str] = [TypeError("first"), TypeError("first"), "<p>fine"]
    errors: list[Exception] = []

    def render_rows(rows: object) -> str:
        found = results.pop(0) if len(results) > 1 else results[0]
        if isinstance(found, Exception):
            raise found
        return found

    def open_requests() -> list[Any]:
        raise LedgerError("the server is gone")

    async def first_event() -> bytes | None:
        hub = LiveHub(
            active=ActiveRuns(),
            conversations=ConversationCache(),
            render_rows=render_rows,
            render_steps=lambda *steps: "",
            open_requests=open_requests,
            render_requests=lambda *requests: "",
            on_error=errors.append,
        )
        polling = asyncio.create_task(hub.run())
        hub.subscribe(OVERVIEW, None)
        (queue,) = hub._topics[OVERVIEW].listeners
        event = await asyncio.wait_for(queue.get(), LONG)
        polling.cancel()
        return event

    event = asyncio.run(first_event())
    assert event is not None
    assert b'"html":"<p>fine"' in event
    assert list(map(str, errors[:2])) == ["the server is gone", "first"]
    assert set(map(str, errors[2:])) <= {"the server is gone"}
