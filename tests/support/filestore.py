"""A server that keeps files by PUT and DELETE, with versions and conflicts, and that can be made to fail. On loopback only.

Every PUT raises a file's version, told as `X-Version` (or, with `etags`, as `ETag`). A PUT that names another version than
the present one gets 409 (412 with `etags`). It checks the hash that a PUT carries.
"""

import hashlib
import threading
import time
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from .loopback import Exchange, Loopback


class File(Struct):
    """What is kept under a name."""

    data: bytes
    version: int


class Seen(Struct, frozen=True):
    """A request, and what it got."""

    verb: str
    name: str
    headers: dict[str, str]
    status: int
    data: bytes


class _Exchange(Exchange):
    """One request and its answer."""

    def do_PUT(self) -> None:  # noqa: N802  # the name is given
        store, name, data = self.server.model, self._name(), self._body()
        with store.lock:
            status = self._judged(store, name, data)
            if status is None:
                known = store.files.get(name)
                store.files[name] = File(data, known.version + 1 if known is not None else 1)
                status = 200 if known is not None else 201
            self._seen(store, name, status, data)
        self._answer(status, name)

    def do_DELETE(self) -> None:  # noqa: N802  # the name is given
        store, name = self.server.model, self._name()
        with store.lock:
            status = store.fail or (204 if name in store.files else 404)
            if status == 204:
                del store.files[name]
            self._seen(store, name, status, b"")
        self._answer(status, name)

    def do_HEAD(self) -> None:  # noqa: N802  # the name is given
        store, name = self.server.model, self._name()
        with store.lock:
            status = 200 if name in store.files else 404
            self._seen(store, name, status, b"")
        self._answer(status, name)

    def _judged(self, store: "FileStore", name: str, data: bytes) -> int | None:
        if store.fail is not None:
            return store.fail
        if self.headers["X-Content-SHA256"] != hashlib.sha256(data).hexdigest():
            return 422
        known = store.files.get(name)
        if store.conflicts > 0:  # somebody else is quicker
            store.conflicts -= 1
            store.files[name] = File(
                b"somebody else's", known.version + 1 if known is not None else 1
            )
            return 412 if store.etags else 409
        named: str | None = self.headers["If-Match"] if store.etags else self.headers["X-Version"]
        now = None if known is None else f'"{known.version}"' if store.etags else str(known.version)
        clash = named is not None and named != now
        return (412 if store.etags else 409) if clash else None

    def _name(self) -> str:
        return unquote_to_bytes(self.path.removeprefix("/files/")).decode(
            "utf-8", "surrogateescape"
        )

    def _body(self) -> bytes:
        size, pause = int(self.headers.get("content-length", 0)), self.server.model.pause
        found = self.rfile.read(min(size, 1))
        if not self.server.model.gate.is_set():
            self.server.model.held += 1
            self.server.model.gate.wait()
        if not pause:
            return found + self.rfile.read(size - len(found))
        while len(found) < size:
            time.sleep(pause)
            found += self.rfile.read(1)
        return found

    def _seen(self, store: "FileStore", name: str, status: int, data: bytes) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        store.seen.append(Seen(self.command, name, headers, status, data))

    def _answer(self, status: int, name: str) -> None:
        store = self.server.model
        file = store.files.get(name)
        self.send_response(status)
        self.send_header("content-length", "0")
        if file is not None and status != 404:
            self.send_header(
                *(
                    ("etag", f'"{file.version}"')
                    if store.etags
                    else ("x-version", str(file.version))
                )
            )
            self.send_header("x-content-sha256", hashlib.sha256(file.data).hexdigest())
        self.end_headers()


class FileStore(Loopback):
    """The server, in a thread of its own. Used with `with`; `url` is where its files are.

    `fail` is answered to every PUT and DELETE while it is not None; `conflicts` is how many PUTs find that somebody else
    was there; `pause` is how long a byte of a body takes; while `gate` is closed, of each body one byte is taken and no more.
    """

    exchange = _Exchange

    def __init__(self, port: int = 0, etags: bool = False) -> None:
        self.files: dict[str, File] = {}
        self.seen: list[Seen] = []
        self.etags, self.conflicts, self.pause = etags, 0, 0.0
        self.fail: int | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.held = 0  # bodies that waited at the gate
        super().__init__(port)
        self.url += "/files"

    def contents(self) -> dict[str, bytes]:
        """What is kept."""
        with self.lock:
            return {name: file.data for name, file in self.files.items()}

    def statuses(self, verb: str) -> list[int]:
        """What the requests of a kind got."""
        with self.lock:
            return [seen.status for seen in self.seen if seen.verb == verb]
