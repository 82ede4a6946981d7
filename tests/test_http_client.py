"""The shared HTTP client: deadline, size limit, proxies, redirects and error messages."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from steno.http_client import (
    HttpClient,
    HttpResponse,
    is_loopback,
    is_retryable,
    retry_after,
    status_text,
)


@contextmanager
def answering(*responses: bytes, pause: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives each connection the next response, byte by byte if there is a pause."""
    requests: list[bytes] = []

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            for response in responses:
                connection = server.accept()[0]
                with connection, suppress(OSError):
                    requests.append(connection.recv(1 << 16))
                    size = 1 if pause else len(response)
                    for start in range(0, len(response), size):
                        connection.sendall(response[start : start + size])
                        time.sleep(pause)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests


def get(url: str, seconds: float = 30.0, max_bytes: int = 100) -> HttpResponse:
    client = HttpClient(url)
    client.open()
    try:
        return client.request("GET", url, deadline=time.monotonic() + seconds, max_bytes=max_bytes)
    finally:
        client.close()


def test_a_response() -> None:
    data = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno"
    with answering(data) as (url, _):
        response = get(url)
    assert (response.status, response.body, response.is_complete) == (503, b"no", True)
    assert retry_after(response.headers) == 7.0


def test_a_redirect_is_not_followed() -> None:
    data = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    with answering(data) as (url, _):
        response = get(url)
    text = status_text(response.status, response.headers)
    assert text == "HTTP 302 Found, redirect to http://127.0.0.1:9/"


def test_a_large_response_is_cut() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + bytes(500)) as (url, _):
        assert get(url) == HttpResponse(200, {"content-length": "500"}, bytes(100), False)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["headers", "body"])
def test_the_deadline_holds_while_bytes_come(head: bytes) -> None:
    with answering(head + b"x" * 5000, pause=0.02) as (url, _):
        start = time.monotonic()
        with pytest.raises(TimeoutError, match="no response in time"):
            get(url, seconds=0.5, max_bytes=10_000)
        assert time.monotonic() - start < 20


def test_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError, match=r"^Connection refused$"):
        get(f"http://127.0.0.1:{port}")


def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a loopback address is never reached through one."""
    data = b"HTTP/1.1 204 No Content\r\n\r\n"
    with answering(data) as (proxy, requests):
        monkeypatch.setenv("http_proxy", proxy)
        with answering(data) as (url, direct):
            assert get(url).status == 204
            assert (len(direct), requests) == (1, [])
        assert get("http://host.example/a").status == 204
        assert requests[0].startswith(b"GET http://host.example/a HTTP/1.1\r\n")


def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "nosuch://proxy")
    with pytest.raises(ConnectionError, match=r"^unusable proxy in the environment: "):
        get("http://host.example/")


def test_small_things() -> None:
    assert [is_retryable(status) for status in (400, 404, 408, 423, 429, 500, 503)] == (
        [False, False, True, True, True, True, True]
    )
    assert [retry_after({"retry-after": value}) for value in ("", "3", "999", "Fri, 1 Jan")] == (
        [None, 3.0, 60.0, None]
    )
    hosts = ("localhost", "127.0.0.1", "127.9.9.9", "::1", "gpu", "10.0.0.1")
    assert [is_loopback(host) for host in hosts] == [True, True, True, True, False, False]


def test_importing_it_does_not_load_httpx2() -> None:
    code = "import sys, steno.http_client; print('httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
