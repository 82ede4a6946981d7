"""News for open pages by server-sent events: active runs, and the steps of one run.

One task asks all active runs for their state while a page is open, renders each piece of news
once, and puts the same bytes into the queue of every listener. A listener that does not read is
closed when its queue is full or a write takes too long; the others never wait for it. Each event
has an ID: a browser that reconnects, such as after sleep, gets a snapshot unless it has the last.

What fails is reported once and tried again with growing pauses: the pages stay live.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from ..errors import StenoError
from ..export.conversation import Step
from ..ledger.queries.team import PermissionRequest
from ..runner.run_status import active_run_states
from .conversations import ConversationCache, Slice

POLL_SECONDS = 1.0
MAX_PAUSE_SECONDS = 5.0  # after several failures
MAX_STREAMS = 512  # each has a queue, and each event is written to it
MAX_CLIENT_STREAMS = 64  # of one browser, or of all programs with the token
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
ReportError = Callable[[Exception], None]


class StreamLimitError(StenoError):
    """Too many streams are open."""


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
        on_error: ReportError,
    ) -> None:
        self._active = active
        self._conversations = conversations
        self._render_rows = render_rows
        self._render_steps = render_steps
        self._open_requests = open_requests
        self._render_requests = render_requests
        self._on_error = on_error
        self._failure = ""  # the last one; it is reported when it changes
        self._streams: Counter[str] = Counter()  # by client
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
        pause = POLL_SECONDS
        while not self._is_closed:
            if not any(topic.listeners for topic in self._topics.values()):
                self._wake.clear()
                await self._wake.wait()
                continue
            failure = await self._poll()
            if failure and failure != self._failure:
                pause = POLL_SECONDS
            pause = min(2 * pause, MAX_PAUSE_SECONDS) if failure else POLL_SECONDS
            self._failure = failure
            await asyncio.sleep(pause)

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._boot}-{self._count}"

    async def _poll(self) -> str:
        """Send what is new to all listeners; one that fails stops no other. The failures, as text.

        A failure is reported unless the last poll had the same.
        """
        errors: list[Exception] = []

        async def attempt(work: Awaitable[None]) -> None:
            try:
                await work
            except Exception as error:  # whatever it is, the next poll may succeed
                errors.append(error)

        await attempt(self._poll_requests())
        await attempt(self._poll_runs(attempt))
        failure = "\n".join(f"{type(error).__name__}: {error}" for error in errors)
        if failure != self._failure:
            for error in errors:
                self._on_error(error)
        return failure

    async def _poll_requests(self) -> None:
        requests = await asyncio.to_thread(self._open_requests)
        for name, topic in self._topics.items():
            self._publish_requests(name, topic, requests)

    async def _poll_runs(self, attempt: Callable[[Awaitable[None]], Awaitable[None]]) -> None:
        rows = await asyncio.to_thread(self._active.rows)
        for name, topic in list(self._topics.items()):
            if not topic.listeners:
                del self._topics[name]
            elif name == OVERVIEW:
                await attempt(self._publish_rows(topic, rows))
            else:
                row = next((row for row in rows if row["run_id"] == name), None)
                await attempt(self._publish_run(topic, row))

    async def _publish_rows(self, topic: Topic, rows: ActiveRows) -> None:
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

    def subscribe(self, name: str, last_id: str | None, client: str = "") -> "EventStream":
        """A stream of a topic; it starts with a snapshot unless the browser has the last event.

        StreamLimitError if this client, or all of them, have too many.
        """
        self._count_stream(client)
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

        def close() -> None:
            topic.listeners.discard(queue)
            self._streams[client] -= 1

        return EventStream(queue, close)

    def _count_stream(self, client: str) -> None:
        self._streams = +self._streams  # without those that have closed all
        for count, limit, place in (
            (self._streams[client], MAX_CLIENT_STREAMS, "in this browser"),
            (self._streams.total(), MAX_STREAMS, "in all browsers"),
        ):
            # Without tokens there is one client for all.
            if count >= limit and (client or limit == MAX_STREAMS):
                raise StreamLimitError(
                    f"not live: {limit} live pages are open {place}; close some, then reload"
                )
        self._streams[client] += 1


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
