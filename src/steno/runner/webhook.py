"""Events to a web address, one POST each, in order, by a thread of its own (W7). Whoever hands over an event never waits.

    poster = Poster("http://127.0.0.1:8080/hook")
    poster.put(event)
    posted = poster.finish()

An event gets ten seconds, all its tries together. One that fails for longer is given up and counted, and so is one that
finds no room: what waits is bounded. It never follows a redirect, and never prints.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from threading import Event, Thread
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from .. import event as ev
from ..errors import StenoError
from .background_queue import BackgroundQueue

EVENT_TIMEOUT_SECONDS = 10.0  # for one event
MAX_QUEUED_BYTES = 16 << 20  # bytes of events that may wait: a long outage costs events, not memory
DRAIN_TIMEOUT_SECONDS = 30.0  # seconds for all that still waits at the end; there, the first event that is given up ends it
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = (
    0.1,
    2.0,
)  # seconds before the second try, and the longest between two
DEADLINE_POLL_SECONDS = 0.25  # seconds between two looks at the clock
RETRY_STATUSES = (408, 425, 429)  # answers that another try can change, besides those from 500 on
MAX_RESPONSE_BYTES = (
    1 << 16
)  # bytes of an answer that are read, so that the connection can be used again

encode_event = msgspec.json.Encoder().encode


class QueuedEvent(Struct, frozen=True, gc=False):
    """An event on its way: its place among all of them, what it is, and its JSON."""

    number: int
    kind: str
    body: bytes


class WebhookSummary(Struct, frozen=True):
    """What came of it: how many were taken, how many were not, and why the last of those was not."""

    sent: int
    dropped: int
    reason: str | None = None

    def line(self) -> str:
        """All of it in one line."""
        lost = f", {self.dropped} lost ({self.reason})" if self.dropped else ""
        return f"post: {self.sent} sent{lost}"


class _PermanentFailure(Exception):  # noqa: N818  # an answer, not an error of ours
    """An answer that another try does not change."""


class WebhookSender:
    """Posts to one address. StenoError: it is none."""

    def __init__(
        self,
        url: str,
        timeout: float = EVENT_TIMEOUT_SECONDS,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        parts = _parse_url(url)
        self._is_https, self._host, self._port = (
            parts.scheme == "https",
            parts.hostname or "",
            parts.port,
        )
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout, self._count = timeout, 0
        self._sent = self._failed = 0
        self._last_error: str | None = None
        self._is_closing = self._is_abandoned = (
            False  # the stream is over; and nobody takes what is left
        )
        self._connection: HTTPConnection | None = None
        self._deadline: float | None = None  # of the exchange that goes on
        self._stop_event = Event()
        Thread(target=self._enforce_deadline, name="steno post, its clock", daemon=True).start()
        self._queue: BackgroundQueue[QueuedEvent] = BackgroundQueue(
            self._deliver, max_queued_bytes, "steno post"
        )

    def put(self, events: Iterable[ev.Event]) -> None:
        """Post these after all that came before."""
        for event in events:
            self._count += 1
            parcel = QueuedEvent(
                self._count, str(type(event).__struct_config__.tag), encode_event(event)
            )
            self._queue.put(parcel, len(parcel.body))

    def finish(self, timeout: float = DRAIN_TIMEOUT_SECONDS) -> WebhookSummary:
        """Wait until all are posted, but not for long, and say what came of it."""
        self._is_closing = True
        done = self._queue.finish(timeout)
        self._stop_event.set()
        if done:
            self._disconnect()
        lost = self._count - self._sent
        reason = self._last_error or (
            "too many were waiting" if self._queue.dropped_count else None
        )
        return WebhookSummary(
            self._sent, lost, reason or ("there was no more time" if not done else None)
        )

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _deliver(self, parcel: QueuedEvent) -> None:
        if self._is_abandoned:
            return
        deadline, pause = time.monotonic() + self._timeout, FIRST_BACKOFF_SECONDS
        while (problem := self._try_post(parcel, deadline)) is not None:
            if isinstance(problem, _PermanentFailure) or time.monotonic() + pause >= deadline:
                self._last_error = _error_text(problem)
                self._is_abandoned = self._is_closing
                return
            time.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)
        self._sent += 1

    def _try_post(self, parcel: QueuedEvent, deadline: float) -> Exception | None:
        """None if it was taken. A connection that was used before may have been closed meanwhile: that is no try."""
        used = self._connection is not None
        try:
            self._post(parcel, deadline)
        except _PermanentFailure as problem:
            return problem
        except (OSError, HTTPException, ValueError) as problem:
            self._disconnect()
            if (
                used
                and isinstance(problem, ConnectionError | HTTPException)
                and time.monotonic() < deadline
            ):
                return self._try_post(parcel, deadline)
            return problem
        return None

    def _post(self, parcel: QueuedEvent, deadline: float) -> None:
        left = max(0.001, deadline - time.monotonic())
        connection = self._connection = self._connection or self._connect()
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)
        headers = {
            "Content-Type": "application/json",
            "Steno-Event": parcel.kind,
            "Steno-Sequence": str(parcel.number),
        }
        self._deadline = deadline
        try:
            connection.request("POST", self._target, parcel.body, headers)
            answer = connection.getresponse()
            answer.read(MAX_RESPONSE_BYTES)
        finally:
            self._deadline = None
        if time.monotonic() > deadline:  # it was cut, and what came of it looks like an answer
            raise TimeoutError
        if not answer.isclosed():  # a long one: the rest of it would stand before the next answer
            self._disconnect()
        _check_status(answer.status)

    def _enforce_deadline(self) -> None:
        """Cuts an exchange whose time is up: the timeout of a socket is that of each piece, and they may come for ever."""
        while not self._stop_event.wait(DEADLINE_POLL_SECONDS):
            connection, deadline = self._connection, self._deadline
            sock = connection.sock if connection is not None else None
            if sock is not None and deadline is not None and time.monotonic() > deadline:
                with suppress(OSError):
                    sock.shutdown(SHUT_RDWR)

    def _connect(self) -> HTTPConnection:
        return (HTTPSConnection if self._is_https else HTTPConnection)(self._host, self._port)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _check_status(status: int) -> None:
    if 200 <= status < 300:
        return
    if status >= 500 or status in RETRY_STATUSES:
        raise HTTPException(f"answered {status}")
    raise _PermanentFailure(f"answered {status}")


def _error_text(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def _parse_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as problem:
        raise StenoError(f"--post-events {url}: {problem}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StenoError(f"--post-events {url}: expected http://... or https://...")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise StenoError(
            f"--post-events {url}: blanks and letters beyond ASCII must be written as %XX"
        )
    return parts
