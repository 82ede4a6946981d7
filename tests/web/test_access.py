"""Who may use the page: hosts, origins, tokens, actions; and what no URL can do."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steno.ledger.store import open_ledger
from steno.team import approvals
from steno.team.roster import Member
from steno.web.live import MAX_CLIENT_STREAMS, MAX_STREAMS
from tests.support.scripted_place import Place
from tests.web.conftest import HOSTILE, HOSTILE_RUN, LONG, Page, fill, serving
from tests.web.test_live import wait_for

TEMPLATES = (
    "/runs/{}",
    *(f"/runs/{{}}/{part}" for part in ("steps", "files", "raw")),
    "/sessions/{}",
    *(f"/sessions/{{}}/{part}" for part in ("steps", "files", "raw")),
    "/live/{}",
)
LISTS = ("/", "/runs", "/sessions", "/search", "/tools", "/compare")


def test_every_page_forbids_scripts_and_frames_of_others(page: Page) -> None:
    status, headers, _ = page.get("/")
    assert status == 200
    expected = {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
    assert {name: headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),  # a tunnel
        ({"Host": "evil.example"}, 421),  # DNS rebinding
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost:x"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),  # a link
    ],
)
def test_host_and_origin_are_checked(page: Page, headers: dict[str, str], status: int) -> None:
    assert page.get("/", **headers)[0] == status


def test_the_page_is_read_only(page: Page) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        status, _, data = page.get(f"/runs/{HOSTILE_RUN}/note", method, b"text=x")
        assert (status, b"read-only" in data) == (405, True)


@pytest.mark.parametrize("template", TEMPLATES)
def test_no_path_in_a_url_reaches_the_disk(page: Page, template: str) -> None:
    for id_ in ("..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "..", "a%00b", "%252e%252e%252fx"):
        status, _, data = page.get(template.format(id_))
        assert status in (400, 404), id_
        assert b"root:" not in data


def test_static_files_are_a_fixed_list(page: Page) -> None:
    assert page.get("/static/page.css")[0] == 200
    for name in ("..%2fapp.py", "%2e%2e/app.py", "../app.py", "base.html"):
        assert page.get(f"/static/{name}")[0] == 404


def test_a_header_of_10_megabytes_is_refused(page: Page) -> None:
    data = b""
    with socket.create_connection((page.host, page.port), timeout=LONG) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 10_000_000)
            data = connection.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            data = b"HTTP/1.1 400"  # closed before everything was sent
    assert data.startswith(b"HTTP/1.1 400")
    assert page.get("/")[0] == 200


def test_the_port_is_in_use(page: Page) -> None:
    done = page.place.steno("serve", "--port", str(page.port))
    message = "the port is in use; choose another with --port, or any with --port 0"
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"steno: 127.0.0.1:{page.port}: {message}\n",
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_every_address_needs_the_token(tmp_path: Path, host: str) -> None:
    place = Place(tmp_path)
    with serving(place, "--host", host, "--allow-actions") as page:
        name = f"steno_token_{page.port}"
        forged = f"{'0' * 32}.{'0' * 64}"
        for value in ("", "wrong", forged, page.token):
            own = {"Cookie": f"{name}={value}"}
            for target in ("/", "/live", "/metrics", "/static/page.js", "/runs/x/raw"):
                assert page.get(target, **own)[0] == 401
            assert page.get("/runs/x/stop", "POST", b"", **own)[0] == 401
        assert page.get("/?token=wrong", Authorization="")[0] == 401
        assert page.get("/", Authorization="Bearer ")[0] == 401
        status, headers, _ = page.get(f"/runs?token={page.token}&last=7d", Authorization="")
        assert (status, headers["location"]) == (303, "/runs?last=7d")
        cookie, rest = headers["set-cookie"].split("; ", 1)
        assert rest == "HttpOnly; Max-Age=31536000; Path=/; SameSite=strict"
        assert page.token is not None
        assert page.token not in cookie
        assert page.get("/", Cookie=cookie)[0] == 200
        assert page.get("/", Host="evil.example", Cookie=cookie)[0] == 421
        assert page.get("/", Origin="https://evil.example", Cookie=cookie)[0] == 403
        other = f"localhost:{page.port + 1}"  # of a server that is reached by another port
        assert page.get("/", Host=other, Cookie=cookie)[0] == 401


def test_the_token_stays_until_a_new_one_is_asked_for(tmp_path: Path) -> None:
    """Bookmarks, cookies and programs that read the file go on working after a restart."""
    place = Place(tmp_path)
    path = place.data / "serve-token"
    with serving(place) as page:
        token = page.token
        assert path.read_text() == f"{token}\n"
        assert (path.stat().st_mode & 0o777, place.data.stat().st_mode & 0o777) == (0o600, 0o700)
        cookie = page.get(f"/?token={token}")[1]["set-cookie"].split(";")[0]
        own_name = cookie.replace(f"_{page.port}=", "_{}=")
    with serving(place) as page:
        assert page.token == token
        assert page.get("/", Cookie=own_name.format(page.port))[0] == 200
    with serving(place, "--new-token") as page:
        assert page.token != token
        assert path.read_text() == f"{page.token}\n"
        assert page.get("/", Cookie=own_name.format(page.port))[0] == 401
        token = page.token
    path.chmod(0o644)  # others may have read it
    with serving(place) as page:
        assert page.token != token
        assert path.stat().st_mode & 0o777 == 0o600
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x" * 43)
    elsewhere.chmod(0o600)
    path.unlink()
    path.symlink_to(elsewhere)
    with serving(place) as page:
        assert page.token != "x" * 43
        assert not path.is_symlink()


def test_without_a_token_on_request_only(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with serving(place, "--no-token", "--allow-actions") as page:
        assert page.process.stdout is not None
        line = page.process.stdout.readline().decode()
        can = "read all runs, stop and resume them"
        assert line == f"no token: every user and program of this machine can {can}\n"
        assert (page.token, page.get("/")[0]) == (None, 200)
        assert page.get("/", Host="evil.example")[0] == 421
    done = place.steno("serve", "--no-token", "--host", "0.0.0.0")
    assert (done.returncode, b"0.0.0.0 needs a token" in done.stderr) == (2, True)


def test_nobody_sees_the_token_that_a_browser_is_opened_with(tmp_path: Path) -> None:
    """Not in its command line, and not in a file of others."""
    place = Place(tmp_path)
    browser = place.folder / "bin" / "browser"
    log = place.folder / "opened"
    script = 'stat -c %a "$(dirname "${1#file://}")" "${1#file://}"; echo "$1"; cat "${1#file://}"'
    browser.write_text(f"#!/bin/sh\n({script}) >{log}.new; mv {log}.new {log}\n")
    browser.chmod(0o755)
    place.environ["BROWSER"] = str(browser)
    with serving(place, "--open") as page:
        wait_for(log.exists)
        folder_mode, mode, url, content = log.read_text().split("\n", 3)
        assert (folder_mode, mode) == ("700", "600")
        assert str(page.token) not in url
        assert f'content="0;url={page.url}/?token={page.token}"' in content
    assert not Path(url.removeprefix("file://")).exists()


def test_streams_are_limited(tmp_path: Path) -> None:
    """For each browser, and in all. The page says so; a closed one makes room."""
    place = Place(tmp_path)
    with serving(place) as page, ExitStack() as opened:

        def cookie() -> str:
            return page.get(f"/?token={page.token}")[1]["set-cookie"].split(";")[0]

        def connect(header: str) -> tuple[socket.socket, bytes]:
            connection = socket.create_connection((page.host, page.port), timeout=LONG)
            head = f"GET /live HTTP/1.1\r\nHost: {page.host}:{page.port}\r\n{header}\r\n\r\n"
            connection.sendall(head.encode())
            return connection, connection.recv(1000)

        for _ in range(MAX_STREAMS // MAX_CLIENT_STREAMS):
            own = f"Cookie: {cookie()}"
            streams = [opened.enter_context(connect(own)[0]) for _ in range(MAX_CLIENT_STREAMS)]
        status, _, data = page.get("/live", Cookie=own.removeprefix("Cookie: "))
        text = f"not live: {MAX_CLIENT_STREAMS} live pages are open in this browser"
        assert (status, text in data.decode()) == (429, True)
        status, _, data = page.get("/live")
        text = f"not live: {MAX_STREAMS} live pages are open in all browsers"
        assert (status, text in data.decode()) == (429, True)
        assert page.get("/")[0] == 200
        streams[0].close()

        def has_room() -> bool:
            connection, data = connect(own)
            opened.enter_context(connection)
            return data.startswith(b"HTTP/1.1 200")

        wait_for(has_room)


def test_actions_need_their_option_and_the_token_of_the_form(tmp_path: Path) -> None:
    place = Place(tmp_path)
    fill(place)
    with serving(place, "--allow-actions") as page:
        target = f"/runs/{HOSTILE_RUN}"
        match = re.search(r'name="csrf" value="([\w-]+)"', page.text(target))
        assert match is not None
        form = f"csrf={match[1]}&text=look+again".encode()
        own = {"Origin": page.url, "Content_Type": "application/x-www-form-urlencoded"}
        assert page.get(f"{target}/note", "POST", b"csrf=x&text=no", **own)[0] == 400
        evil = {**own, "Origin": "http://evil.example"}
        assert page.get(f"{target}/note", "POST", form, **evil)[0] == 403
        status, headers, _ = page.get(f"{target}/note", "POST", form, **own)
        assert (status, headers["location"]) == (303, target)
        status, _, data = page.get(f"{target}/stop", "POST", form, **own)
        assert (status, b"not active on this machine" in data) == (409, True)
        assert page.get(f"{target}/note", "POST", b"x" * 100_000, **own)[0] == 400
        assert page.get(f"{target}/drop", "POST", form, **own)[0] == 404
        store = open_ledger(str(place.folder / "ledger.db"), read_only=True)
        assert store.query("SELECT run, text FROM notes") == [(HOSTILE_RUN, "look again")]
        store.close()


def test_permissions_are_decided_by_own_forms_only(tmp_path: Path) -> None:
    """Without the option, the page shows the request and the command for it."""
    place = Place(tmp_path)
    ledger = str(place.folder / "ledger.db")
    with closing(open_ledger(ledger)) as store:
        asking = Member(id="@ada", name=HOSTILE)
        first, second = (
            approvals.ask(store, asking, HOSTILE, {"command": HOSTILE}, 600).id for _ in range(2)
        )
    own = {"Content_Type": "application/x-www-form-urlencoded"}
    with serving(place) as page:
        text = page.text("/")
        assert f"<code>steno team approve {first} [--deny]</code>" in text
        assert not any(
            sign in text for sign in ("<script>d", "<img", "\x1b", "\u202e", 'method="post"')
        )
        assert page.get(f"/requests/{first}/allow", "POST", b"csrf=x", **own)[0] == 405
    with serving(place, "--allow-actions") as page:
        match = re.search(r'name="csrf" value="([\w-]+)"', page.text("/"))
        assert match is not None
        form = f"csrf={match[1]}&text=not+this".encode()
        own |= {"Origin": page.url}
        evil = {**own, "Origin": "http://evil.example"}
        assert page.get(f"/requests/{first}/allow", "POST", form, **evil)[0] == 403
        assert page.get(f"/requests/{first}/allow", "POST", b"csrf=x", **own)[0] == 400
        assert page.get(f"/requests/{first}/allow", "GET", **own)[0] == 405
        status, headers, _ = page.get(f"/requests/{first}/allow", "POST", form, **own)
        assert (status, headers["location"]) == (303, "/")
        status, _, data = page.get(f"/requests/{first}/deny", "POST", form, **own)
        assert (status, b"permission granted" in data) == (409, True)
        assert page.get(f"/requests/{second}/deny", "POST", form, **own)[0] == 303
    with closing(open_ledger(ledger)) as store:
        found = store.query("SELECT decision, reason, decided_by FROM permission_requests")
    assert sorted(found, key=str) == [("allow", None, "page"), ("deny", "not this", "page")]


# -- any URL ---------------------------------------------------------------------------------------

NAMES = (
    *("agent", "model", "project", "host", "branch", "tag", "verdict", "session", "last", "since"),
    *("until", "q", "by", "show", "sort", "page", "from", "line", "id", "token"),
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ("", "0", "1", "2", "-1", "9" * 30, "7d", "all", "failed", "success", "cost", "tokens")
    ),
    st.sampled_from(("2026-11-01", "../../x", HOSTILE_RUN, "'; DROP TABLE x", '"', "%", "*")),
)
PATHS = st.one_of(
    st.sampled_from(LISTS),
    st.builds(str.format, st.sampled_from(TEMPLATES[:-1]), st.sampled_from((HOSTILE_RUN, "d00d"))),
    st.builds(lambda text: f"/{text}", st.text(max_size=30)),
)


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A server that allows actions, and the token of its forms."""
    place = Place(tmp_path_factory.mktemp("actions"))
    fill(place)
    with serving(place, "--allow-actions") as server:
        match = re.search(r'name="csrf" value="([\w-]+)"', server.text(f"/runs/{HOSTILE_RUN}"))
        assert match is not None
        yield server, match[1]


FORM_NAMES = st.sampled_from(("csrf", "text", "prompt", "x"))
ACTION_PATHS = st.builds(
    "/{}/{}/{}".format,
    st.sampled_from(("runs", "sessions", "live")),
    st.one_of(st.sampled_from((HOSTILE_RUN, "d00d", "zzzz")), st.text(min_size=1, max_size=20)),
    st.sampled_from(("stop", "send", "note", "resume", "steps")),
)


@settings(max_examples=80)
@given(
    path=ACTION_PATHS,
    method=st.sampled_from(("POST", "PUT", "HEAD", "GET")),
    form=st.lists(st.tuples(FORM_NAMES, VALUES), max_size=4),
    has_token=st.booleans(),
)
def test_no_action_is_an_internal_error(
    open_page: tuple[Page, str],
    path: str,
    method: str,
    form: list[tuple[str, str]],
    has_token: bool,
) -> None:
    """With the token of the form, a note is stored; no run is active, and no folder exists."""
    page, token = open_page
    if has_token:
        form = [*form, ("csrf", token)]
    body = urlencode(form, errors="replace").encode()
    own = {"Origin": page.url, "Content_Type": "application/x-www-form-urlencoded"}
    if path.startswith("/live/") and method in ("GET", "HEAD"):
        return  # a stream has no end
    status, _, data = page.get(quote(path, errors="replace"), method, body, **own)
    assert status in (200, 303, 400, 404, 405, 409), (path, method, form, data[:500])


@settings(max_examples=300)
@given(PATHS, st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=5))
def test_no_url_is_an_internal_error(page: Page, path: str, query: Any) -> None:
    parameters = urlencode(query, errors="replace")
    status, _, data = page.get(f"{quote(path, errors='replace')}?{parameters}")
    assert status in (200, 303, 400, 404, 405), (path, query, data[:500])
