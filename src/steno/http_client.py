"""HTTP requests with a hard deadline: the one client of webhooks, sync and the backend probe.

Built on httpx2, which is imported when a client is opened, not with this module. Redirects are
never followed: a token for one server is not sent to another.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from ipaddress import ip_address
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ssl import SSLContext

    import httpx2

# Client errors worth a retry: timeout, locked, too early, rate limited. 5xx always are.
RETRY_STATUSES = frozenset({408, 423, 425, 429})
MAX_RETRY_AFTER_SECONDS = 60.0
NO_RESPONSE = "no response in time"
# Compressed responses would need a second size limit.
DEFAULT_HEADERS = {"User-Agent": "steno", "Accept": "*/*", "Accept-Encoding": "identity"}

# Bytes, or a function that starts the body again for a retry.
Body = bytes | Callable[[], Iterable[bytes]] | None


class HttpResponse(NamedTuple):
    """A response; header names are lower case. `is_complete`: the body fits the size limit."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool = True


class HttpClient:
    """One keep-alive connection to the server of `url`.

    One request at a time; `abort` may be called from any thread. Proxies come from the
    environment, except for loopback addresses and where `use_proxy` is False.
    """

    def __init__(self, url: str, read_timeout: float | None = None, use_proxy: bool = True) -> None:
        self._is_https = url.startswith("https:")
        self._use_proxy = use_proxy and not is_loopback(urlsplit(url).hostname or "")
        self._read_timeout = read_timeout
        self._client: httpx2.Client | None = None
        self._stream: Any = None  # the network stream opened last, an httpcore2 NetworkStream
        self._has_connected = False  # during the current request
        self._is_aborted = False

    def open(self) -> "httpx2.Client":
        """Import httpx2 (60 ms) and load certificates (80 ms) before a deadline starts.

        ConnectionError: the proxy in the environment cannot be used.
        """
        if self._client is None:
            import httpx2

            needs_tls = self._is_https or self._use_proxy
            context = _ssl_context() if needs_tls else _empty_ssl_context()
            try:
                self._client = httpx2.Client(
                    headers=DEFAULT_HEADERS, verify=context, trust_env=self._use_proxy
                )
            except (ValueError, ImportError, httpx2.InvalidURL) as error:
                raise ConnectionError(f"unusable proxy in the environment: {error}") from None
        return self._client

    def request(
        self,
        method: str,
        url: str,
        *,
        deadline: float,
        max_bytes: int,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
    ) -> HttpResponse:
        """Send a request and read the response, until `deadline` (time.monotonic).

        TimeoutError or ConnectionError where there is no response. A kept connection that the
        server has closed meanwhile is replaced without counting as a failure.
        """
        import httpx2

        client = self.open()
        expired = threading.Event()
        while True:
            self._has_connected = False
            try:
                content = body() if callable(body) else body
                request = client.build_request(
                    method,
                    url,
                    headers=headers,
                    content=content,
                    timeout=self._timeout(deadline),
                    extensions={"trace": self._trace},
                )
                return self._exchange(client, request, deadline, max_bytes, expired)
            except httpx2.TimeoutException:
                raise TimeoutError(self._timeout_text(deadline, expired)) from None
            except (httpx2.HTTPError, httpx2.InvalidURL, RuntimeError) as error:
                if expired.is_set():
                    raise TimeoutError(NO_RESPONSE) from None
                if not self._can_reconnect(error) or time.monotonic() >= deadline:
                    raise ConnectionError(error_text(error)) from None

    def _can_reconnect(self, error: Exception) -> bool:
        """Whether a kept connection failed that the server may have closed before."""
        import httpx2

        closed = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
        return isinstance(error, closed) and not self._has_connected and not self._is_aborted

    def _exchange(
        self,
        client: "httpx2.Client",
        request: "httpx2.Request",
        deadline: float,
        max_bytes: int,
        expired: threading.Event,
    ) -> HttpResponse:
        # The timeouts of httpx2 apply to each read; a server may send a byte at a time.
        timer = threading.Timer(
            max(0.0, deadline - time.monotonic()), self._expire, args=(expired,)
        )
        timer.daemon = True
        timer.start()
        try:
            response = client.send(request, stream=True)
            try:
                data, is_complete = _read_limited(response, max_bytes)
            finally:
                response.close()
        finally:
            timer.cancel()
        if expired.is_set():  # a cut connection can look like the end of the body
            raise TimeoutError(NO_RESPONSE)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status_code, headers, data, is_complete)

    def abort(self) -> None:
        """End the current request from another thread; no new one is retried."""
        self._is_aborted = True
        self._shut_down()

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _expire(self, expired: threading.Event) -> None:
        expired.set()
        self._shut_down()

    def _shut_down(self) -> None:
        stream = self._stream
        if stream is not None:
            with suppress(OSError, ValueError):  # closed meanwhile
                stream.get_extra_info("socket").shutdown(SHUT_RDWR)

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Remember the socket: httpx2 offers it only with a response."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
            self._has_connected = True

    def _timeout(self, deadline: float) -> float:
        remaining = max(0.001, deadline - time.monotonic())
        return remaining if self._read_timeout is None else min(self._read_timeout, remaining)

    def _timeout_text(self, deadline: float, expired: threading.Event) -> str:
        if self._read_timeout is None or expired.is_set() or time.monotonic() >= deadline:
            return NO_RESPONSE
        return f"no data for {self._read_timeout:.0f} s"


def is_success(status: int) -> bool:
    """Whether a status means that the request was accepted."""
    return 200 <= status < 300


def is_retryable(status: int) -> bool:
    """Whether the same request can succeed later."""
    return status >= 500 or status in RETRY_STATUSES


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to `Retry-After`, limited; None for a date or no header."""
    value = headers.get("retry-after", "")
    return min(float(value), MAX_RETRY_AFTER_SECONDS) if value.isdecimal() else None


def status_text(status: int, headers: Mapping[str, str] | None = None) -> str:
    """A status for an error message: "HTTP 302 Found, redirect to https://..."."""
    phrase = ""
    with suppress(ValueError):
        phrase = f" {HTTPStatus(status).phrase}"
    location = (headers or {}).get("location") if 300 <= status < 400 else None
    return f"HTTP {status}{phrase}" + (f", redirect to {location}" if location else "")


def error_text(error: BaseException) -> str:
    """The system's own words where it caused the error, such as "Connection refused"."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine: never reached through a proxy."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _ssl_context() -> "SSLContext":
    import httpx2

    return httpx2.create_ssl_context()


@cache
def _empty_ssl_context() -> "SSLContext":
    """No certificates: for plain http, where loading them would take 80 ms for nothing."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _read_limited(response: "httpx2.Response", max_bytes: int) -> tuple[bytes, bool]:
    """The body up to the limit, and whether that is all of it."""
    data = bytearray()
    for chunk in response.iter_raw():
        data += chunk
        if len(data) > max_bytes:
            return bytes(data[:max_bytes]), False
    return bytes(data), True
