"""A running `steno serve` with a ledger of recordings, one of them hostile, and a real browser."""

import http.client
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from steno.ledger.queries.budget import set_budget
from steno.ledger.store import open_ledger
from steno.recording.format import Header
from steno.report import RunOrigin
from tests.support.browser import launch
from tests.support.claude_lines import (
    answer,
    assistant,
    call,
    ended,
    init,
    out,
    result,
    stream,
    tape,
    text,
)
from tests.support.scripted_place import NEWEST, Place

LONG = 60.0
CASES = (
    *("multi_tool_edit", "permission_denied", "tool_error", "max_turns", "api_429_exhausted"),
    *("simple_success", "subagent_parallel", "compact_auto", "invalid_flag"),
)
# As prompt, file name, tool name, model name and output.
HOSTILE = (
    "<script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\">"
    "[link](javascript:document.title='owned')"
    "'\"><svg onload=document.title='owned'>"
    "\x1b[31m\x1b]0;owned\x07\u202egnp.exe\x00"
)
HOSTILE_RUN = "d00dfeed00000001"
LONG_RUN = "d00dfeed00000002"  # too long to be read before its page is shown
LONG_LINE = "x" * 1_000_000


def hostile_lines() -> bytes:
    path = f"/srv/project/{HOSTILE}"
    edit = {"file_path": path, "old_string": "one", "new_string": HOSTILE}
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1}
    patch = {"filePath": path, "structuredPatch": [{**hunk, "lines": ["-one", f"+{HOSTILE}"]}]}
    return stream(
        init(model=HOSTILE),
        assistant(
            text(HOSTILE),
            call("c1", HOSTILE, file_path=path, content=HOSTILE),
            call("c2", "Bash", command=HOSTILE),
            call("c3", "Edit", **edit),
        ),
        answer("c1", HOSTILE),
        answer("c2", f"{HOSTILE}\n{LONG_LINE}", is_error=True),
        answer("c3", "updated", tool_use_result=patch),
        result(HOSTILE, is_error=True, subtype="error_during_execution", errors=[HOSTILE]),
    )


class Page:
    """A running server and its place."""

    def __init__(self, place: Place, process: "subprocess.Popen[bytes]") -> None:
        self.place = place
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        form = r"steno serves the ledger on (http://([\d.]+):(\d+)/)(?:\?token=([\w-]{43}))?\n"
        match = re.fullmatch(form, line)
        assert match is not None, line
        self.token: str | None = match[4]
        self.url = match[1].rstrip("/")
        self.host = match[2]
        self.port = int(match[3])

    def get(
        self, target: str, method: str = "GET", body: bytes | None = None, /, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; underscores in header names are hyphens.

        With the token, unless a header says otherwise.
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=LONG)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            given = {"Host": f"{self.host}:{self.port}", **headers}
            if self.token is not None and not {"Authorization", "Cookie"} & set(headers):
                given["Authorization"] = f"Bearer {self.token}"
            if body is not None:
                given["Content-Length"] = str(len(body))
            for name, value in given.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return response.status, names, response.read()
        finally:
            connection.close()

    def text(self, target: str) -> str:
        status, _, data = self.get(target)
        assert status == 200, (target, status, data[:300])
        return data.decode()

    def run_id(self, case: str) -> str:
        """The run of a recording."""
        store = open_ledger(str(self.place.folder / "ledger.db"), read_only=True)
        try:
            ((id_,),) = store.query("SELECT id FROM runs WHERE source LIKE ?", (f"%/{case}",))
        finally:
            store.close()
        return str(id_)


@contextmanager
def serving(place: Place, *options: str) -> Iterator[Page]:
    """A server until the end of the block; it ends within 2 s of Ctrl-C, with nothing to say."""
    ledger = str(place.folder / "ledger.db")
    open_ledger(ledger).close()  # one that is named has to exist
    process = place.start("serve", "--port", "0", "--no-import", "--ledger", ledger, *options)
    try:
        yield Page(place, process)
    finally:
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG)
        assert time.monotonic() - began < 20  # 2 s on an idle machine
        assert err == b""


def fill(place: Place) -> None:
    """Import recordings into the ledger of a place, and set a budget."""
    folder = place.folder / "recordings"
    for case in CASES:
        shutil.copytree(NEWEST / case, folder / case)
    now = time.time()
    header = Header(
        agent="claude",
        run_id=HOSTILE_RUN,
        prompt=HOSTILE,
        started_at=now,
        cwd=f"/srv/{HOSTILE}",
        tags={"team": HOSTILE},
        origin=RunOrigin(host=HOSTILE, user=HOSTILE, branch=HOSTILE),
    )
    tape(folder / "hostile.steno", out(hostile_lines()), ended(1), header=header)
    lines = [assistant(text(f"{number} " + "x" * 20_000)) for number in range(60)]
    header = Header(agent="claude", run_id=LONG_RUN, prompt="a long task", started_at=now)
    data = stream(init(), *lines, result("Done."))
    tape(folder / "long.steno", out(data), ended(0), header=header)
    ledger = place.folder / "ledger.db"
    done = place.steno("ledger", "import", folder, "--ledger", ledger)
    assert done.returncode == 0, done.stderr
    store = open_ledger(str(ledger))
    set_budget(store, "day", "", 20_000_000_000, int(now * 1000))
    store.close()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    place = Place(tmp_path_factory.mktemp("page"))
    fill(place)
    with serving(place) as server:
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of one file; other tests need their own event loop."""
    with launch() as browser:
        yield browser


class Tab:
    """A tab of the browser that fails on errors in its console and on requests to other hosts."""

    def __init__(self, browser: Any, server: Page, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(LONG * 1000)
        self.tab = self.context.new_page()
        self.server = server
        self.errors: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", self._on_console)
        self.tab.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(f"{self.server.url}/"):
            self.errors.append(f"request to {request.url}")

    def open(self, target: str) -> Any:
        url = self.server.url + target
        if not self.context.cookies() and self.server.token is not None:
            url += f"{'&' if '?' in target else '?'}token={self.server.token}"
        self.tab.goto(url)
        return self.tab


@pytest.fixture
def tab(chromium: Any, page: Page) -> Iterator[Tab]:
    opened = Tab(chromium, page, viewport={"width": 1280, "height": 860}, color_scheme="light")
    yield opened
    opened.context.close()
    assert opened.errors == []
