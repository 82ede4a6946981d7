"""Who may talk to the page, and what a browser may do with it.

Checked before any route: the Host header (a foreign name that resolves to this machine is DNS
rebinding), the Origin of requests that other sites cause, the token if the page is reachable from
other machines, and the CSRF token of actions. Every response forbids scripts and styles that are
not ours, framing, and requests to other hosts.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from platform import node
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
TOKEN_PARAMETER = "token"  # noqa: S105  # the name, not a token
RESPONSE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class AccessPolicy(Struct):
    """Names under which the page is reached, its token (None: loopback only), allowed actions."""

    host: str
    token: str | None = None
    csrf_token: str = ""
    allow_actions: bool = False

    @property
    def cookie(self) -> str:
        return "steno_token"

    def is_own_name(self, netloc: str) -> bool:
        """Whether a Host header names this machine; the port may be that of a tunnel."""
        name = _host_name(netloc)
        if name in LOOPBACK_NAMES or name == self.host.lower():
            return True
        return self.token is not None and (name == node().lower() or _is_address(name))

    def is_token(self, text: str | None) -> bool:
        expected = self.token or ""
        return hmac.compare_digest((text or "").encode(), expected.encode())

    def is_csrf_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.csrf_token.encode())


def access_policy(host: str, allow_actions: bool = False) -> AccessPolicy:
    """The policy for an address to listen on; any but loopback gets a token."""
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    return AccessPolicy(host, token, secrets.token_urlsafe(24), allow_actions)


def is_loopback(host: str) -> bool:
    return host in LOOPBACK_NAMES or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _host_name(netloc: str) -> str:
    """The name in HOST, HOST:PORT, [IPV6] or [IPV6]:PORT; empty if it is none of them."""
    if netloc.startswith("["):
        name, bracket, port = netloc[1:].partition("]")
        port = port.removeprefix(":")
        netloc = name if bracket else ""
    else:
        netloc, _, port = netloc.partition(":")
    return netloc.lower() if not port or port.isdigit() else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Gatekeeper:
    """ASGI middleware that refuses requests against the policy and adds the headers."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(RESPONSE_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._policy.is_own_name(hosts[0]):
            return _refuse(421, "unknown Host; open the address that steno serve printed")
        if scope["method"] not in self._allowed_methods():
            hint = "" if self._policy.allow_actions else "; start steno serve with --allow-actions"
            return _refuse(405, f"the page is read-only{hint}")
        if not _is_same_origin(headers, hosts[0]):
            return _refuse(403, "request of another site refused")
        return self._token_response(scope, headers) if self._policy.token is not None else None

    def _allowed_methods(self) -> Iterable[str]:
        return ("GET", "HEAD", "POST") if self._policy.allow_actions else ("GET", "HEAD")

    def _token_response(self, scope: Scope, headers: Headers) -> Response | None:
        """None with a valid cookie or bearer token; a redirect that sets the cookie for ?token=."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._policy.is_token(bearer.strip()):
            return None
        cookies = cookie_parser(headers.get("cookie", ""))
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == TOKEN_PARAMETER]
        if given and self._policy.is_token(given[0]):
            rest = urlencode([pair for pair in query if pair[0] != TOKEN_PARAMETER])
            path = "/" + scope["path"].lstrip("/")  # never //host
            response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            response.set_cookie(
                self._policy.cookie, given[0], httponly=True, samesite="strict", path="/"
            )
            return response
        if not given and self._policy.is_token(cookies.get(self._policy.cookie)):
            return None
        return _refuse(401, "token missing or wrong; open the address that steno serve printed")


def _is_same_origin(headers: Headers, host: str) -> bool:
    """Whether the request was caused by our own page, or by a person who follows a link.

    With `Referrer-Policy: no-referrer`, browsers send `Origin: null` with our own forms; they
    then say in Sec-Fetch-Site, which scripts can't set, that the form is ours.
    """
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site")
    if origin == "null":
        return site == "same-origin"
    if origin is not None:
        return origin.partition("://")[2].lower() == host.lower()
    return site != "cross-site" or headers.get("sec-fetch-mode") == "navigate"


def _refuse(status: int, text: str) -> Response:
    return PlainTextResponse(f"steno: {text}\n", status)
