"""Posts events to a web address, in order, from a background thread; `put` never blocks.

    sender = WebhookSender("http://127.0.0.1:8080/hook")
    sender.put(events)
    summary = sender.finish()

Each event has ten seconds including retries. An event that fails for longer is dropped and counted,
as is one that exceeds the size limit of the queue.
"""

import time
from collections.abc import Iterable
from threading import Event
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from .. import event as ev
from ..errors import StenoError
from ..http_client import HttpClient, is_retryable, is_success, status_text
from .hooks import BackgroundQueue

EVENT_TIMEOUT_SECONDS = 10.0
MAX_QUEUED_BYTES = 16 << 20  # a long outage costs events, not memory
DRAIN_TIMEOUT_SECONDS = 30.0  # for the events still queued at the end
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0
MAX_RESPONSE_BYTES = 1 << 16  # read so that the connection can be reused

encode_event = msgspec.json.Encoder().encode


class QueuedEvent(Struct, frozen=True, gc=False):
    """An event to post: its sequence number, kind and JSON."""

    number: int
    kind: str
    body: bytes


class WebhookSummary(Struct, frozen=True):
    """Counts of events sent and dropped, and the reason for the last drop."""

    sent: int
    dropped: int
    reason: str | None = None

    def line(self) -> str:
        """One line for people."""
        dropped = f", {self.dropped} dropped ({self.reason})" if self.dropped else ""
        return f"webhook: {self.sent} sent{dropped}"


class WebhookSender:
    """Posts to one URL. StenoError: the URL is invalid."""

    def __init__(
        self,
        url: str,
        timeout: float = EVENT_TIMEOUT_SECONDS,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        _check_url(url)
        self._url = url
        self._timeout = timeout
        self._put_count = 0
        self._sent_count = 0
        self._last_error: str | None = None
        self._is_closing = False
        self._is_abandoned = False  # an event failed while closing: skip the rest
        self._stop_event = Event()
        self._client = HttpClient(url)
        try:
            self._client.open()  # now: an import in the thread would delay the first lines
        except ConnectionError as error:
            raise StenoError(f"--post-events {url}: {error}") from None
        self._queue: BackgroundQueue[QueuedEvent] = BackgroundQueue(
            self._deliver, max_queued_bytes, "steno webhook"
        )

    def put(self, events: Iterable[ev.Event]) -> None:
        """Queue events."""
        for event in events:
            self._put_count += 1
            kind = str(type(event).__struct_config__.tag)
            queued = QueuedEvent(self._put_count, kind, encode_event(event))
            self._queue.put(queued, len(queued.body))

    def finish(self, timeout: float = DRAIN_TIMEOUT_SECONDS) -> WebhookSummary:
        """Wait until the queue is empty, at most `timeout` seconds."""
        self._is_closing = True
        is_drained = self._queue.finish(timeout)
        self._stop_event.set()
        if is_drained:
            self._client.close()
        else:
            self._client.abort()
        reason = self._last_error
        if reason is None and self._queue.dropped_count:
            reason = "queue full"
        if reason is None and not is_drained:
            reason = "out of time"
        return WebhookSummary(self._sent_count, self._put_count - self._sent_count, reason)

    # -- in the background thread ------------------------------------------------------------------

    def _deliver(self, event: QueuedEvent) -> None:
        if self._is_abandoned:
            return
        deadline = time.monotonic() + self._timeout
        pause = FIRST_BACKOFF_SECONDS
        while True:
            error, can_retry = self._post(event, deadline)
            if error is None:
                self._sent_count += 1
                return
            if not can_retry or time.monotonic() + pause >= deadline:
                self._last_error = error
                self._is_abandoned = self._is_closing
                return
            self._stop_event.wait(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    def _post(self, event: QueuedEvent, deadline: float) -> tuple[str | None, bool]:
        """One attempt: what went wrong, and whether a retry can help."""
        headers = {
            "Content-Type": "application/json",
            "Steno-Event": event.kind,
            "Steno-Sequence": str(event.number),
        }
        try:
            response = self._client.request(
                "POST",
                self._url,
                deadline=deadline,
                max_bytes=MAX_RESPONSE_BYTES,
                headers=headers,
                body=event.body,
            )
        except (TimeoutError, ConnectionError) as error:
            return str(error), True
        if is_success(response.status):
            return None, False
        return status_text(response.status, response.headers), is_retryable(response.status)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number up to 65535
    except ValueError as error:
        raise StenoError(f"--post-events {url}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StenoError(f"--post-events {url}: expected http://... or https://...")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise StenoError(
            f"--post-events {url}: percent-encode spaces and non-ASCII characters (%20)"
        )
