"""An HTTP server as a destination: PUT and DELETE for each file, below one address. It speaks HTTP/1.1 and nothing else.

Each PUT carries the hash of its content (`Content-Digest`, `X-Content-SHA256`). Where the server gave a version (`ETag` or
`X-Version`), the next PUT names it (`If-Match` or `X-Version`). 409 and 412 say that somebody else was there: the version
is asked for, and the PUT goes again, since the agent's folder is the truth. Redirects are not followed.
"""

import base64
import http.client
import netrc
import os
import queue
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult, quote, urlsplit

from ..errors import StenoError, SyncError
from .content import CHUNK_BYTES, Content

READ_TIMEOUT_SECONDS = 10.0  # seconds without a byte after which a server counts as gone
REQUEST_TIMEOUT_SECONDS, MIN_BYTES_PER_SECOND = (
    60.0,
    50_000,
)  # seconds for one exchange, and one more for each so many bytes of it
MAX_CONFLICTS = 5  # in a row, of one file
RETRY_STATUSES = (408, 423, 425, 429)  # of the answers that blame us, those that time mends
MAX_RETRY_AFTER_SECONDS = 60.0  # seconds of a Retry-After that are believed
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")  # one that stands for itself


class HttpDestination:
    """A destination."""

    is_cheap_to_compare = False  # asking costs as much as sending
    can_compare = can_delete = True
    commits_on_close = False

    def __init__(self, url: str) -> None:
        parts = parse_url(url)
        self.name = url
        self._host, self._port, self._is_https = (
            parts.hostname or "",
            parts.port,
            parts.scheme == "https",
        )
        self._base_path = (
            quote(
                os.fsencode(_STRAY_PERCENT.sub("%25", parts.path.rstrip("/"))), "/%!$&'()*+,;=:@~"
            )
            + "/"
        )
        self._headers = auth_headers(self._host)
        self._versions: dict[
            str, tuple[str, str]
        ] = {}  # the header that names a file's version, and its value
        self._idle_connections: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self._active_connections: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    def open(self) -> None:
        """The first file finds out whether it is there."""

    def has_same(self, name: str, content: Content) -> bool:
        """Whether the server says that it has these bytes."""
        status, headers = self._request("HEAD", name, {})
        return status == 200 and self._store_version(name, headers) == content.sha256

    def put(self, name: str, content: Content) -> None:
        """Send a file."""
        for _ in range(MAX_CONFLICTS):
            status, headers = self._request("PUT", name, self._put_headers(name, content), content)
            if status not in (409, 412):
                break
            if self.has_same(name, content):
                return
        if not 200 <= status < 300:
            raise _status_error(status, headers)
        self._store_version(name, headers)

    def delete(self, name: str) -> bool:
        """Take a file away."""
        for _ in range(MAX_CONFLICTS):
            status, headers = self._request(
                "DELETE", name, dict([self._versions[name]] if name in self._versions else [])
            )
            if status not in (409, 412):
                break
            self._store_version(name, self._request("HEAD", name, {})[1])
        if not (200 <= status < 300 or status in (404, 410)):
            raise _status_error(status, headers)
        self._versions.pop(name, None)
        return status not in (404, 410)

    def list_names(self) -> None:
        """A plain server cannot be asked for a list."""

    def close(self) -> None:
        """Cut off what still goes on, and let go of the rest."""
        self._is_closed = True
        with suppress(queue.Empty):
            while True:
                self._idle_connections.get_nowait().close()
        for connection in list(self._active_connections):
            _abort(connection)

    # -- one exchange --------------------------------------------------------------------------------------------

    def _put_headers(self, name: str, content: Content) -> dict[str, str]:
        digest = base64.b64encode(content.digest).decode("ascii")
        about = {"Content-Digest": f"sha-256=:{digest}:", "X-Content-SHA256": content.sha256}
        about |= {"Content-Length": str(content.size), "Content-Type": "application/octet-stream"}
        return about | dict([self._versions[name]] if name in self._versions else [])

    def _store_version(self, name: str, headers: Mapping[str, str]) -> str | None:
        """Remember a file's version, and say which hash the server gives it."""
        if headers.get("etag"):
            self._versions[name] = ("If-Match", headers["etag"])
        elif headers.get("x-version"):
            self._versions[name] = ("X-Version", headers["x-version"])
        else:
            self._versions.pop(name, None)
        return headers.get("x-content-sha256", "").lower() or None

    def _request(
        self, verb: str, name: str, headers: Mapping[str, str], content: Content | None = None
    ) -> "HttpResponse":
        """A request and its answer. A connection that was kept may have been closed meanwhile: then a new one is tried."""
        while True:
            try:
                connection, kept = self._idle_connections.get_nowait(), True
            except queue.Empty:
                connection, kept = self._connect(), False
            try:
                return self._send_request(connection, verb, name, headers, content)
            except (http.client.HTTPException, OSError) as problem:
                connection.close()
                if not kept:
                    raise SyncError(_error_text(problem)) from None
            finally:
                self._active_connections.discard(connection)

    def _send_request(
        self,
        connection: http.client.HTTPConnection,
        verb: str,
        name: str,
        headers: Mapping[str, str],
        content: Content | None,
    ) -> "HttpResponse":
        self._active_connections.add(connection)
        size = content.size if content is not None else 0
        clock = threading.Timer(
            REQUEST_TIMEOUT_SECONDS + size / MIN_BYTES_PER_SECOND, _abort, (connection,)
        )
        clock.daemon = True
        clock.start()
        try:
            body = (
                iter(lambda: file.read(CHUNK_BYTES), b"")
                if content is not None and (file := content.rewind())
                else None
            )
            connection.request(
                verb, self._base_path + quote(os.fsencode(name)), body, {**self._headers, **headers}
            )
            answer = connection.getresponse()
            answer.read(CHUNK_BYTES)
            found = {key.lower(): value for key, value in answer.getheaders()}
            if answer.isclosed() and not answer.will_close and not self._is_closed:
                self._idle_connections.put(connection)
            else:
                connection.close()
            return answer.status, found
        finally:
            clock.cancel()

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_https:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=READ_TIMEOUT_SECONDS, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=READ_TIMEOUT_SECONDS)


HttpResponse = tuple[int, dict[str, str]]


def parse_url(url: str) -> SplitResult:
    """An address in its parts. StenoError where it cannot be one."""
    try:
        parts = urlsplit(url)
        good = (
            (parts.hostname or "").encode("idna")
            and parts.port != 0
            and not re.search(r"[\s\x00-\x20]", parts.netloc)
        )
    except (
        ValueError
    ):  # of a port that is none, brackets that do not close, a name that no host can have
        good = False
    if not good or parts.query or parts.fragment:
        raise StenoError(f"{url}: expected an address such as https://host/folder, without ? and #")
    return parts


def auth_headers(host: str) -> dict[str, str]:
    """How we make ourselves known: a token of the environment, else what ~/.netrc has for this host."""
    token = os.environ.get("STENO_SYNC_TOKEN", "").strip()
    if token and not (token.isascii() and token.isprintable()):
        raise StenoError(
            "STENO_SYNC_TOKEN: this can be no token, since it has letters that cannot be sent; it is not shown here"
        )
    if token:
        return {"Authorization": f"Bearer {token}"}
    try:
        found = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return {}
    if found is None:
        return {}
    pair = base64.b64encode(f"{found[0]}:{found[2]}".encode()).decode("ascii")
    return {"Authorization": f"Basic {pair}"}


def _abort(connection: http.client.HTTPConnection) -> None:
    """End an exchange from another thread."""
    sock = connection.sock  # it may be gone at any moment
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _error_text(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return f"the server said nothing for {READ_TIMEOUT_SECONDS:.0f} s"
    return str(getattr(problem, "strerror", None) or problem or type(problem).__name__)


def _status_error(status: int, headers: Mapping[str, str]) -> SyncError:
    after = headers.get("retry-after", "")
    wait = min(float(after), MAX_RETRY_AFTER_SECONDS) if after.isdecimal() else None
    where = f", to {headers['location']}" if 300 <= status < 400 and headers.get("location") else ""
    word = http.client.responses.get(status, "")
    return SyncError(
        f"the server answered {status} {word}{where}".rstrip(),
        status < 500 and status not in (*RETRY_STATUSES, 409, 412),
        wait,
    )
