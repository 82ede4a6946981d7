"""An HTTP server as a destination: PUT and DELETE for each file, below one URL.

Each PUT carries the hash of its content (`Content-Digest`, `X-Content-SHA256`). If the server gave
a version (`ETag` or `X-Version`), the next PUT names it (`If-Match` or `X-Version`). 409 and 412
mean that the file changed on the server: the version is fetched and the PUT repeated, since the
agent's folder takes precedence.
"""

import base64
import netrc
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult, quote, urlsplit

from ..errors import StenoError, SyncError
from ..http_client import (
    Body,
    HttpClient,
    HttpResponse,
    is_retryable,
    is_success,
    retry_after,
    status_text,
)
from .files import CHUNK_BYTES, Content

READ_TIMEOUT_SECONDS = 10.0  # without a byte from the server
REQUEST_TIMEOUT_SECONDS = 60.0  # plus the time for the body:
MIN_BYTES_PER_SECOND = 50_000
MAX_CONFLICTS = 5  # in a row, for one file
CONFLICT_STATUSES = (409, 412)
MISSING_STATUSES = (404, 410)
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")  # a literal percent sign
_PATH_CHARACTERS = "/%!$&'()*+,;=:@~"  # not quoted in the path of the URL


class HttpDestination:
    """A destination. Each thread that calls it has its own connection."""

    is_cheap_to_compare = False  # a HEAD costs as much as a small PUT
    can_compare = True
    can_delete = True
    commits_on_close = False

    def __init__(self, url: str) -> None:
        parts = parse_url(url)
        self.name = url
        path = _STRAY_PERCENT.sub("%25", parts.path.rstrip("/"))
        host = parts.netloc.rpartition("@")[2]
        self._base_url = f"{parts.scheme}://{host}{quote(os.fsencode(path), _PATH_CHARACTERS)}/"
        self._headers = auth_headers(parts.hostname or "")
        self._versions: dict[str, tuple[str, str]] = {}  # by file: header name and value
        self._local = threading.local()
        self._clients: list[HttpClient] = []
        self._is_closed = False

    def open(self) -> None:
        """Nothing: the first request connects."""

    def has_same(self, name: str, content: Content) -> bool:
        """Whether the server reports the hash of these bytes."""
        response = self._request("HEAD", name, {})
        server_hash = self._store_version(name, response.headers)
        return response.status == 200 and server_hash == content.sha256

    def put(self, name: str, content: Content) -> None:
        """Upload a file."""
        for _ in range(MAX_CONFLICTS):
            response = self._request("PUT", name, self._put_headers(name, content), content)
            if response.status not in CONFLICT_STATUSES:
                break
            if self.has_same(name, content):
                return
        if not is_success(response.status):
            raise _status_error(response)
        self._store_version(name, response.headers)

    def delete(self, name: str) -> bool:
        """Delete a file; False if it didn't exist."""
        for _ in range(MAX_CONFLICTS):
            response = self._request("DELETE", name, self._version_header(name))
            if response.status not in CONFLICT_STATUSES:
                break
            self._store_version(name, self._request("HEAD", name, {}).headers)
        is_missing = response.status in MISSING_STATUSES
        if not is_success(response.status) and not is_missing:
            raise _status_error(response)
        self._versions.pop(name, None)
        return not is_missing

    def list_names(self) -> None:
        """Unknown: HTTP has no listing."""

    def close(self) -> None:
        """Abort active requests and close the connections."""
        self._is_closed = True
        for client in self._clients:
            client.abort()
            client.close()

    # -- one request -------------------------------------------------------------------------------

    def _put_headers(self, name: str, content: Content) -> dict[str, str]:
        digest = base64.b64encode(content.digest).decode("ascii")
        return {
            "Content-Digest": f"sha-256=:{digest}:",
            "X-Content-SHA256": content.sha256,
            "Content-Length": str(content.size),
            "Content-Type": "application/octet-stream",
            **self._version_header(name),
        }

    def _version_header(self, name: str) -> dict[str, str]:
        version = self._versions.get(name)
        return {} if version is None else {version[0]: version[1]}

    def _store_version(self, name: str, headers: Mapping[str, str]) -> str | None:
        """Remember the version of a file; the hash that the server reports for it."""
        if headers.get("etag"):
            self._versions[name] = ("If-Match", headers["etag"])
        elif headers.get("x-version"):
            self._versions[name] = ("X-Version", headers["x-version"])
        else:
            self._versions.pop(name, None)
        return headers.get("x-content-sha256", "").lower() or None

    def _request(
        self, method: str, name: str, headers: Mapping[str, str], content: Content | None = None
    ) -> HttpResponse:
        size = 0 if content is None else content.size
        try:
            client = self._client()
            deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS + size / MIN_BYTES_PER_SECOND
            return client.request(
                method,
                self._base_url + quote(os.fsencode(name)),
                deadline=deadline,
                max_bytes=CHUNK_BYTES,
                headers={**self._headers, **headers},
                body=_body(content),
            )
        except (TimeoutError, ConnectionError) as error:
            raise SyncError(str(error)) from None

    def _client(self) -> HttpClient:
        client: HttpClient | None = getattr(self._local, "client", None)
        if client is None:
            client = HttpClient(self._base_url, READ_TIMEOUT_SECONDS)
            client.open()
            self._local.client = client
            self._clients.append(client)
            if self._is_closed:
                client.abort()
                client.close()
        return client


def _body(content: Content | None) -> Body:
    if content is None:
        return None

    def chunks() -> Iterator[bytes]:
        file = content.rewind()
        while data := file.read(CHUNK_BYTES):
            yield data

    return chunks


def check_url(url: str) -> None:
    """StenoError if a URL, a token or a proxy is unusable.

    Loads httpx2, which would delay lines of the stream later.
    """
    auth_headers(parse_url(url).hostname or "")
    try:
        HttpClient(url).open()
    except ConnectionError as error:
        raise StenoError(f"{url}: {error}") from None


def parse_url(url: str) -> SplitResult:
    """The parts of a URL. StenoError where it cannot be a destination."""
    try:
        parts = urlsplit(url)
        is_valid = (
            bool((parts.hostname or "").encode("idna"))
            and parts.port != 0
            and not re.search(r"[\s\x00-\x20]", parts.netloc)
        )
    except ValueError:  # a bad port, an unclosed bracket, an impossible host name
        is_valid = False
    if not is_valid or parts.query or parts.fragment:
        raise StenoError(f"{url}: expected a URL such as https://host/folder, without ? and #")
    return parts


def auth_headers(host: str) -> dict[str, str]:
    """Credentials: STENO_SYNC_TOKEN, else the entry for this host in ~/.netrc."""
    token = os.environ.get("STENO_SYNC_TOKEN", "").strip()
    if token and not (token.isascii() and token.isprintable()):
        raise StenoError("STENO_SYNC_TOKEN: contains characters that a header cannot carry")
    if token:
        return {"Authorization": f"Bearer {token}"}
    try:
        entry = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return {}
    if entry is None:
        return {}
    login, _, password = entry
    pair = base64.b64encode(f"{login}:{password}".encode()).decode("ascii")
    return {"Authorization": f"Basic {pair}"}


def _status_error(response: HttpResponse) -> SyncError:
    status = response.status
    return SyncError(
        status_text(status, response.headers),
        is_permanent=not is_retryable(status) and status not in CONFLICT_STATUSES,
        after=retry_after(response.headers),
    )
