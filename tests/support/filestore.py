"""A file server on loopback with PUT and DELETE, versions, conflicts, and failures on demand.

Every PUT increments a file's version, sent as `X-Version` (with `etags`, as `ETag`). A PUT with
another version than the current one gets 409 (412 with `etags`). The hash of a PUT is checked.
"""

import hashlib
import threading
import time
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from .loopback import Exchange, Loopback


class File(Struct):
    data: bytes
    version: int


class Seen(Struct, frozen=True):
    """A request and its status."""

    verb: str
    name: str
    headers: dict[str, str]
    status: int
    data: bytes


class _Exchange(Exchange):
    def do_PUT(self) -> None:  # noqa: N802  # defined by http.server
        store = self.server.model
        name = self._name()
        data = self._body()
        with store.lock:
            status = self._rejection(store, name, data)
            if status is None:
                known = store.files.get(name)
                store.files[name] = File(data, known.version + 1 if known is not None else 1)
                status = 200 if known is not None else 201
            self._record(store, name, status, data)
        self._answer(status, name)

    def do_DELETE(self) -> None:  # noqa: N802  # defined by http.server
        store = self.server.model
        name = self._name()
        with store.lock:
            status = store.fail or (204 if name in store.files else 404)
            if status == 204:
                del store.files[name]
            self._record(store, name, status, b"")
        self._answer(status, name)

    def do_HEAD(self) -> None:  # noqa: N802  # defined by http.server
        store = self.server.model
        name = self._name()
        with store.lock:
            status = 200 if name in store.files else 404
            self._record(store, name, status, b"")
        self._answer(status, name)

    def _rejection(self, store: "FileStore", name: str, data: bytes) -> int | None:
        if store.fail is not None:
            return store.fail
        if self.headers["X-Content-SHA256"] != hashlib.sha256(data).hexdigest():
            return 422
        known = store.files.get(name)
        conflict = 412 if store.etags else 409
        if store.conflicts > 0:  # as if another client had been quicker
            store.conflicts -= 1
            store.files[name] = File(
                b"somebody else's", known.version + 1 if known is not None else 1
            )
            return conflict
        expected: str | None = self.headers["If-Match" if store.etags else "X-Version"]
        current = None
        if known is not None:
            current = f'"{known.version}"' if store.etags else str(known.version)
        return conflict if expected is not None and expected != current else None

    def _name(self) -> str:
        return unquote_to_bytes(self.path.removeprefix("/files/")).decode(
            "utf-8", "surrogateescape"
        )

    def _body(self) -> bytes:
        store = self.server.model
        size = int(self.headers.get("content-length", 0))
        data = self.rfile.read(min(size, 1))
        if not store.gate.is_set():
            store.held += 1
            store.gate.wait()
        if not store.pause:
            return data + self.rfile.read(size - len(data))
        while len(data) < size:
            time.sleep(store.pause)
            data += self.rfile.read(1)
        return data

    def _record(self, store: "FileStore", name: str, status: int, data: bytes) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        store.seen.append(Seen(self.command, name, headers, status, data))

    def _answer(self, status: int, name: str) -> None:
        store = self.server.model
        file = store.files.get(name)
        self.send_response(status)
        self.send_header("content-length", "0")
        if file is not None and status != 404:
            if store.etags:
                self.send_header("etag", f'"{file.version}"')
            else:
                self.send_header("x-version", str(file.version))
            self.send_header("x-content-sha256", hashlib.sha256(file.data).hexdigest())
        self.end_headers()


class FileStore(Loopback):
    """The server, in its own thread.

    `fail`: the status of every PUT and DELETE, unless None. `conflicts`: the number of PUTs that
    get a conflict. `pause`: seconds per byte of a body. While `gate` is closed, only one byte of
    each body is read.
    """

    exchange = _Exchange

    def __init__(self, port: int = 0, etags: bool = False) -> None:
        self.files: dict[str, File] = {}
        self.seen: list[Seen] = []
        self.etags = etags
        self.conflicts = 0
        self.pause = 0.0
        self.fail: int | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.held = 0  # number of bodies that waited at the gate
        super().__init__(port)
        self.url += "/files"

    def contents(self) -> dict[str, bytes]:
        with self.lock:
            return {name: file.data for name, file in self.files.items()}

    def statuses(self, verb: str) -> list[int]:
        """The statuses of the requests with a verb."""
        with self.lock:
            return [seen.status for seen in self.seen if seen.verb == verb]
