"""An HTTP server on loopback that keeps what is posted to it; it can be slow or fail."""

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Inbox:
    """How requests are answered. A subclass takes what is accepted."""

    def __init__(self) -> None:
        self.port = 0
        self.status = 200
        self.delay = 0.0
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)


@contextmanager
def serving(inbox: Inbox) -> Iterator[None]:
    """Run the server in its own thread."""

    class PostHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            time.sleep(inbox.delay)
            inbox.paths.append(self.path)
            inbox.headers.append({name.lower(): text for name, text in self.headers.items()})
            if inbox.status == 200:
                inbox.take(self.path, body)
            self.send_response(inbox.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        # `format` is the name in http.server.
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), PostHandler)
    server.daemon_threads = True
    inbox.port = server.server_port
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
