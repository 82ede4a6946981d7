"""A server on loopback in a thread of its own, and one exchange with it: what the scripted servers share."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self


class Exchange(BaseHTTPRequestHandler):
    """One request and its answer."""

    server: "_Http"
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is given
        """Nothing is printed."""

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}"
        )
        return found

    def tell(
        self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data if self.command != "HEAD" else b"")

    def stream(self) -> None:
        """The head of an answer that comes event by event."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()

    def stall(self) -> None:
        """Say no more, and keep the connection open as long as the server lives."""
        self.close_connection = True
        self.server.model.closing.wait()


class Loopback:
    """Used with `with`; `url` is where it listens. Each request is an `exchange`."""

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
        self.model: Any = model  # each exchange knows which one is its own

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that was ended leaves a broken connection: no news."""
