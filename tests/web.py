"""A web server on loopback that does as it is told: takes what is posted, answers slowly, fails, or says nothing at all."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Web:
    """What was posted, in the order in which it came in, and how the next ones are answered."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []  # of those that were answered with success
        self.asked: list[tuple[str, int]] = []  # every try: the path, and the event's place
        self.statuses: list[int] = []  # of the next answers; then 200
        self.always = 200
        self.delay = 0.0
        self.closes = False  # the connection, after each answer, without saying so
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def serving() -> Iterator[Web]:
    """A server in a thread of its own."""
    web = Web()

    class Answering(BaseHTTPRequestHandler):
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

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """It says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
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
