"""News for open pages by server-sent events: active runs, and the steps of one run.

One task asks all active runs for their state while a page is open, renders each piece of news
once, and puts the same bytes into the queue of every listener. A listener that does not read is
closed when its queue is full or a write takes too long; the others never wait for it. Each event
has an ID: a browser that reconnects, such as after sleep, gets a snapshot unless it has the last.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from ..errors import StenoError
from ..export.conversation import Step
from ..ledger.queries.team import PermissionRequest
from ..runner.run_status import active_run_states
from .conversations import ConversationCache, Slice

POLL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
WRITE_TIMEOUT_SECONDS = 10.0
QUEUE_EVENTS = 32
TAIL_STEPS = 60  # of a run, sent to a page that has none or others
READ_PAUSE_FACTOR = 4  # a recording that takes 1 s to read is read every 5 s
OVERVIEW = ""  # topic of the active runs; the topic of a run is its ID
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
]

ActiveRows = list[dict[str, Any]]
RenderRows = Callable[[ActiveRows], str]
RenderSteps = Callable[[Sequence[Step], int | None], str]
OpenRequests = Callable[[], list[PermissionRequest]]
RenderRequests = Callable[[list[PermissionRequest], bool], str]


class ActiveRuns:
    """The states of active runs, asked for at most once a second."""

    def __init__(self) -> None:
        self._rows: ActiveRows = []
        self._asked_at = 0.0

    def rows(self) -> ActiveRows:
        if time.monotonic() - self._asked_at > POLL_SECONDS:
            self._rows = active_run_states()
            self._asked_at = time.monotonic()
        return self._rows


class Topic:
    """What the listeners of one stream share: the last event, and the state it shows."""

    def __init__(self) -> None:
        self.listeners: set[asyncio.Queue[bytes | None]] = set()
        self.event_id = ""
        self.snapshot = b""
        self.steps: list[Step] = []  # the last ones of a run
        self.next_read_at = 0.0
        self.requests_event: bytes | None = None  # the last one about permission requests

    def publish(self, event_id: str, event: bytes, snapshot: bytes) -> None:
        self.event_id = event_id
        self.snapshot = snapshot
        self.send(event)

    def send(self, event: bytes | None) -> None:
        """Queue an event for all listeners; None ends their streams."""
        for queue in list(self.listeners):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:  # does not read
                self.listeners.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)


class LiveHub:
    """Asks active runs for news and sends them to the listeners."""

    def __init__(
        self,
        *,
        active: ActiveRuns,
        conversations: ConversationCache,
        render_rows: RenderRows,
        render_steps: RenderSteps,
        open_requests: OpenRequests,
        render_requests: RenderRequests,
    ) -> None:
        self._active = active
        self._conversations = conversations
        self._render_rows = render_rows
        self._render_steps = render_steps
        self._open_requests = open_requests
        self._render_requests = render_requests
        self._topics: dict[str, Topic] = {}
        self._wake = asyncio.Event()
        self._is_closed = False
        self._boot = secrets.token_hex(4)
        self._count = 0

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for topic in self._topics.values():
            topic.send(None)
        self._wake.set()

    async def run(self) -> None:
        """Poll while there are listeners, until cancelled."""
        while not self._is_closed:
            if not any(topic.listeners for topic in self._topics.values()):
                self._wake.clear()
                await self._wake.wait()
                continue
            with suppress(StenoError):
                await self._poll()
            await asyncio.sleep(POLL_SECONDS)

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._boot}-{self._count}"

    async def _poll(self) -> None:
        rows = await asyncio.to_thread(self._active.rows)
        with suppress(StenoError):  # the ledger may be back at the next poll
            requests = await asyncio.to_thread(self._open_requests)
            for name, topic in self._topics.items():
                self._publish_requests(name, topic, requests)
        for name, topic in list(self._topics.items()):
            if not topic.listeners:
                del self._topics[name]
            elif name == OVERVIEW:
                self._publish_rows(topic, rows)
            else:
                row = next((row for row in rows if row["run_id"] == name), None)
                await self._publish_run(topic, row)

    def _publish_rows(self, topic: Topic, rows: ActiveRows) -> None:
        html = self._render_rows(rows)
        payload = msgspec.json.encode({"html": html, "runs": sorted(row["run_id"] for row in rows)})
        if not topic.snapshot.endswith(payload + b"\n\n"):
            event_id = self._next_id()
            event = _encode_event("active", payload, event_id)
            topic.publish(event_id, event, event)

    def _publish_requests(self, name: str, topic: Topic, requests: list[PermissionRequest]) -> None:
        """Send the requests of all runs, or of one; without an ID, as each has all of them."""
        on_run_page = name != OVERVIEW
        shown = [one for one in requests if not on_run_page or one.run == name]
        payload = msgspec.json.encode({"html": self._render_requests(shown, on_run_page)})
        event = b"event: requests\ndata: %s\n\n" % payload
        if event != topic.requests_event:
            topic.requests_event = event
            topic.send(event)

    async def _publish_run(self, topic: Topic, row: dict[str, Any] | None) -> None:
        if row is None or row["recording"] is None:
            topic.send(_encode_event("finished", b"{}", self._next_id()))
            return
        now = time.monotonic()
        if now < topic.next_read_at:
            return
        reader = await asyncio.to_thread(self._conversations.get, row["recording"])
        total = len(reader)
        start = max(1, total - TAIL_STEPS + 1)
        tail = await asyncio.to_thread(reader.slice, start, TAIL_STEPS)
        steps = tail.steps
        topic.next_read_at = now + READ_PAUSE_FACTOR * (time.monotonic() - now)
        if steps == topic.steps:
            return
        changed = _first_change(topic.steps, steps, start)
        topic.steps = steps
        event_id = self._next_id()
        topic.publish(
            event_id,
            self._steps_event(tail, changed, event_id),
            self._steps_event(tail, start, event_id),
        )

    def _steps_event(self, tail: Slice, start: int, event_id: str) -> bytes:
        shown = [step for step in tail.steps if step.number >= start]
        html = self._render_steps(shown, tail.started_ms)
        payload = msgspec.json.encode({"from": start, "html": html})
        return _encode_event("steps", payload, event_id)

    # -- streams -----------------------------------------------------------------------------------

    def subscribe(self, name: str, last_id: str | None) -> "EventStream":
        """A stream of a topic; it starts with a snapshot unless the browser has the last event."""
        topic = self._topics.setdefault(name, Topic())
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_EVENTS)
        topic.listeners.add(queue)
        if topic.snapshot and last_id != topic.event_id:
            queue.put_nowait(topic.snapshot)
        if topic.requests_event is not None:
            queue.put_nowait(topic.requests_event)
        if self._is_closed:
            queue.put_nowait(None)
        self._wake.set()
        return EventStream(queue, lambda: topic.listeners.discard(queue))


def _first_change(before: list[Step], after: list[Step], start: int) -> int:
    """The number of the first step that is new or has changed."""
    known = {step.number: step for step in before}
    for step in after:
        if known.get(step.number) != step:
            return step.number
    return start


def _encode_event(name: str, data: bytes, event_id: str) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), event_id.encode(), data)


class EventStream:
    """The response: events from a queue, and a comment now and then to notice a lost browser."""

    def __init__(self, queue: "asyncio.Queue[bytes | None]", on_close: Callable[[], None]) -> None:
        self._queue = queue
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await self._write(send, b"retry: 2000\n\n")
            while not gone.done():
                event = await self._next_event(gone)
                if event is None:
                    break
                await self._write(send, event)
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return  # does not read: the server closes the connection
        finally:
            gone.cancel()
            self._on_close()

    async def _next_event(self, gone: "asyncio.Task[None]") -> bytes | None:
        get = asyncio.create_task(self._queue.get())
        done, _ = await asyncio.wait(
            {get, gone}, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if get in done:
            return get.result()
        get.cancel()
        return None if gone in done else b": keep-alive\n\n"

    async def _write(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
