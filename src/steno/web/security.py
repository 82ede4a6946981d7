"""Who may talk to the page, and what a browser may do with it.

Checked before any route: the Host header (a foreign name that resolves to this machine is DNS
rebinding), the Origin of requests that other sites cause, the token, and the CSRF token of actions.
Every response forbids scripts and styles that are not ours, framing, and requests to other hosts.

The token keeps other users and programs of this machine out. It is in a file that only its user can
read, for programs that send it as a bearer token, and in the URL that is printed. A browser that
opens the URL gets a cookie that is signed with it: each browser its own, so that it can be counted.
"""

import hmac
import ipaddress
import os
import re
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from pathlib import Path
from platform import node
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
TOKEN_PARAMETER = "token"  # noqa: S105  # the name, not a token
TOKEN_FILE_NAME = "serve-token"  # noqa: S105  # the name of the file
TOKEN_PATTERN = re.compile(r"[\w-]{32,100}", re.ASCII)
COOKIE_PATTERN = re.compile(r"([0-9a-f]{32})\.[0-9a-f]{64}")
COOKIE_SECONDS = 365 * 86_400
PRIVATE_FILE_MODE = 0o600
CLIENT = "steno.client"  # key of a request's scope: which browser or program it comes from
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
    """Names under which the page is reached, its token (None: everyone), allowed actions."""

    host: str
    token: str | None = None
    csrf_token: str = ""
    allow_actions: bool = False

    def is_own_name(self, netloc: str) -> bool:
        """Whether a Host header names this machine; the port may be that of a tunnel."""
        name = _host_name(netloc)
        if name in LOOPBACK_NAMES or name == self.host.lower():
            return True
        return not is_loopback(self.host) and (name == node().lower() or _is_address(name))

    def is_token(self, text: str) -> bool:
        return bool(self.token) and _is_equal(text, self.token or "")

    def new_cookie(self) -> str:
        """A value for the cookie of a browser."""
        return self._signed(secrets.token_hex(16))

    def is_cookie(self, text: str) -> bool:
        match = COOKIE_PATTERN.fullmatch(text)
        return match is not None and bool(self.token) and _is_equal(text, self._signed(match[1]))

    def _signed(self, browser: str) -> str:
        key = (self.token or "").encode()
        return f"{browser}.{hmac.new(key, browser.encode(), 'sha256').hexdigest()}"

    def is_csrf_token(self, text: str) -> bool:
        return _is_equal(text, self.csrf_token)


def access_policy(host: str, token: str | None, allow_actions: bool = False) -> AccessPolicy:
    """The policy for an address to listen on."""
    return AccessPolicy(host, token, secrets.token_urlsafe(24), allow_actions)


def _is_equal(text: str, expected: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), expected.encode())


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
        """None with a valid cookie or bearer token; with ?token=, a response with a cookie."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == TOKEN_PARAMETER]
        if given and self._policy.is_token(given[0]):
            rest = urlencode([pair for pair in query if pair[0] != TOKEN_PARAMETER])
            path = "/" + scope["path"].lstrip("/")  # never //host
            return self._sign_in(f"{path}?{rest}" if rest else path, headers)
        cookie = cookie_parser(headers.get("cookie", "")).get(cookie_name(headers["host"]), "")
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._policy.is_token(bearer.strip()):
            scope[CLIENT] = "bearer"
        elif not given and self._policy.is_cookie(cookie):
            scope[CLIENT] = cookie
        else:
            return _refuse(401, "token missing or wrong; open the address that steno serve printed")
        return None

    def _sign_in(self, target: str, headers: Headers) -> Response:
        """Redirect to the address without the token, with a cookie.

        After a link of another site or a file, browsers would not send a strict cookie with a
        redirect. A page of our own that leads on is the same site.
        """
        response: Response = RedirectResponse(target, 303)
        if headers.get("sec-fetch-site") == "cross-site":
            response = HTMLResponse(refresh_page(target))
        response.set_cookie(
            cookie_name(headers["host"]),
            self._policy.new_cookie(),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            path="/",
        )
        return response


def cookie_name(netloc: str) -> str:
    """A name for each port: browsers send a cookie to all ports of a host."""
    port = netloc.rpartition(":")[2]
    return f"steno_token_{port}" if port.isdigit() else "steno_token"


def refresh_page(target: str) -> str:
    """A page that leads to an address at once."""
    return (
        '<!doctype html><meta charset="utf-8"><title>steno</title>'
        f'<meta http-equiv="refresh" content="0;url={escape(target)}">'
    )


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


# -- the file with the token -----------------------------------------------------------------------


def load_token(folder: Path, is_new: bool = False) -> str:
    """The token in a private folder; a new one if it is missing, or others may have read it.

    OSError if it can't be written.
    """
    path = folder / TOKEN_FILE_NAME
    token = None if is_new else _read_token(path)
    if token is None:
        token = secrets.token_urlsafe(32)
        draft = folder / f".{TOKEN_FILE_NAME}.{secrets.token_hex(4)}"
        try:
            write_private_file(draft, f"{token}\n")
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    return token


def _read_token(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            is_private = stat.S_IMODE(status.st_mode) == PRIVATE_FILE_MODE
            text = file.read(1000).decode().strip()
        if is_private and status.st_uid == os.geteuid() and TOKEN_PATTERN.fullmatch(text):
            return text
    return None


def write_private_file(path: Path, text: str) -> None:
    """Create a file with mode 0600, whatever the umask. OSError if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), PRIVATE_FILE_MODE)
        file.write(text)
