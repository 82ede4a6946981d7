"""The base of the scripted servers: an HTTP server on loopback in its own thread."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

MAX_HOLD = 60.0  # seconds that an answer waits for its condition


class Exchange(BaseHTTPRequestHandler):
    """The handler of one request."""

    server: "_Http"
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # defined by http.server
        """Print nothing."""

    def body(self) -> dict[str, Any]:
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        body: dict[str, Any] = json.loads(data or b"{}")
        return body

    def respond(
        self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data if self.command != "HEAD" else b"")

    def stream(self, headers: dict[str, str] | None = None) -> None:
        """Send the headers of a response with server-sent events."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()

    def stall(self) -> None:
        """Send nothing more, and keep the connection open until the server closes."""
        self.close_connection = True
        self.server.model.closing.wait()

    def hold(self, condition: Callable[[], bool] | None) -> None:
        """Wait for a condition, at most MAX_HOLD seconds, or until the server closes."""
        end = time.monotonic() + MAX_HOLD
        while condition is not None and not condition() and time.monotonic() < end:
            if self.server.model.closing.wait(0.005):
                break


class Loopback:
    """A context manager. `exchange` is the handler class of its requests."""

    exchange: ClassVar[type[Exchange]]

    def __init__(self, port: int = 0) -> None:
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._http = _Http(self, port)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, model: Loopback, port: int) -> None:
        super().__init__(("127.0.0.1", port), model.exchange)
        self.model: Any = model  # for the handlers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that a stopped agent left broken."""
