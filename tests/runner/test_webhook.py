"""Webhooks (W7): events in order, with retries and a deadline, without blocking."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import msgspec
import pytest

from steno.errors import StenoError
from steno.event import Event
from steno.recording.parse import RunParser
from steno.runner.webhook import WebhookSender, WebhookSummary
from tests.support.claude_lines import stream, worked
from tests.webhook_server import Web, serving

EVENTS: list[Event] = [
    event for line in stream(*worked()).splitlines(True) for event in RunParser().parse_line(line)
]


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as found:
        yield found


def bodies(events: list[Event]) -> list[dict[str, object]]:
    """The JSON that a server must have received."""
    told = [json.loads(msgspec.json.encode(event)) for event in events]
    return [{"kind": one["event"], **one} for one in told]


def test_each_event_is_posted_in_order(web: Web) -> None:
    """One request each, on one connection."""
    poster = WebhookSender(web.url)
    poster.put(EVENTS)
    assert poster.finish() == WebhookSummary(len(EVENTS), 0)
    assert web.taken == bodies(EVENTS)
    assert web.asked == [("/hook", number) for number in range(1, len(EVENTS) + 1)]
    assert web.connections == 1


def test_what_fails_is_tried_again_and_the_order_stays(web: Web) -> None:
    """Server errors and rate limits."""
    web.statuses = [500, 503, 200, 429]
    poster = WebhookSender(web.url)
    poster.put(EVENTS[:3])
    assert poster.finish() == WebhookSummary(3, 0)
    assert [number for _, number in web.asked] == [1, 1, 1, 2, 2, 3]
    assert web.taken == bodies(EVENTS[:3])


def test_a_connection_that_was_closed_meanwhile_is_no_failure(web: Web) -> None:
    """The server closes the connection after each response."""
    web.closes = True
    poster = WebhookSender(web.url, timeout=5)
    began = time.monotonic()
    for event in EVENTS:
        poster.put([event])
    assert poster.finish() == WebhookSummary(len(EVENTS), 0)
    assert time.monotonic() - began < 30
    assert web.taken == bodies(EVENTS)


def test_what_is_refused_for_good_is_not_tried_again(web: Web) -> None:
    """A permanent error drops one event; the next one is tried."""
    web.statuses = [404, 200, 301]
    poster = WebhookSender(web.url)
    for event in EVENTS[:3]:
        poster.put([event])
    while len(web.asked) < 3:
        time.sleep(0.01)
    assert poster.finish() == WebhookSummary(1, 2, "HTTP 301 Moved Permanently")
    assert [number for _, number in web.asked] == [1, 2, 3]


def test_an_event_gets_its_time_and_no_more(web: Web) -> None:
    """For all attempts together."""
    web.always = 500
    poster = WebhookSender(web.url, timeout=0.5)
    poster.put(EVENTS[:2])
    began = time.monotonic()
    while [number for _, number in web.asked][-1:] != [2]:
        time.sleep(0.01)
        assert time.monotonic() - began < 30
    assert time.monotonic() - began > 0.2
    assert poster.finish() == WebhookSummary(0, 2, "HTTP 500 Internal Server Error")


def test_a_silent_server_delays_nothing() -> None:
    """It accepts connections and never answers: `put` doesn't block, and `finish` is bounded."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        poster = WebhookSender(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.3)
        began = time.monotonic()
        for _ in range(200):
            poster.put(EVENTS)
        assert time.monotonic() - began < 20
        posted = poster.finish()
        assert posted == WebhookSummary(0, 200 * len(EVENTS), "no response in time")
        assert time.monotonic() - began < 30


def test_w7_an_answer_that_comes_byte_by_byte_gets_no_more_time() -> None:
    """Each byte is in time, but the response never ends."""

    def dribble(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection = server.accept()[0]
                with connection, suppress(OSError):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    while True:
                        connection.sendall(b"x")
                        time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=dribble, args=(server,), daemon=True).start()
        poster = WebhookSender(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=0.5)
        poster.put(EVENTS[:2])
        began = time.monotonic()
        posted = poster.finish()
        assert (posted.sent, posted.dropped) == (0, 2)
        assert time.monotonic() - began < 20


def test_a_port_without_a_listener() -> None:
    """While closing, the first dropped event ends it."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    poster = WebhookSender(f"http://127.0.0.1:{port}/", timeout=0.3)
    poster.put(EVENTS)
    began = time.monotonic()
    assert poster.finish() == WebhookSummary(0, len(EVENTS), "Connection refused")
    assert time.monotonic() - began < 30


def test_what_waits_is_bounded(web: Web) -> None:
    """Events above the limit are dropped and counted; the others keep their numbers."""
    web.delay = 0.2
    poster = WebhookSender(web.url, max_queued_bytes=2000)
    poster.put(EVENTS * 10)
    posted = poster.finish()
    assert posted.sent == len(web.taken) < len(EVENTS)
    assert (posted.sent + posted.dropped, posted.reason) == (
        10 * len(EVENTS),
        "queue full",
    )
    assert posted.line() == f"webhook: {posted.sent} sent, {posted.dropped} dropped (queue full)"


@pytest.mark.parametrize(
    "url",
    ["localhost", "ftp://x/", "http://", "http://x:99999/", "http://x/a b", "http://x/\u00e4"],
)
def test_an_address_that_is_none(url: str) -> None:
    """An error before anything is done."""
    with pytest.raises(StenoError, match="--post-events"):
        WebhookSender(url)
