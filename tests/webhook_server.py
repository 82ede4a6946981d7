"""A webhook receiver on loopback that can be slow or fail."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Web:
    """What was posted, in order, and how the next posts are answered."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []  # answered with success
        self.asked: list[tuple[str, int]] = []  # every attempt: the path and the sequence number
        self.statuses: list[int] = []  # of the next answers; then `always`
        self.always = 200
        self.delay = 0.0
        self.closes = False  # close the connection silently after each answer
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def serving() -> Iterator[Web]:
    """Run a server in its own thread."""
    web = Web()

    class PostHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            web.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            web.asked.append((self.path, int(self.headers["Steno-Sequence"])))
            time.sleep(web.delay)
            status = web.statuses.pop(0) if web.statuses else web.always
            if status == 200:
                web.taken.append({"kind": self.headers["Steno-Event"], **json.loads(body)})
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
            self.close_connection = web.closes

        # `format` is the name in http.server.
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), PostHandler)
    server.daemon_threads = True
    web.port = server.server_port
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
