"""The page in a real browser: by mouse, by keyboard, on a phone, in the dark, live.

Every test fails on an error in the console and on a request to another host.
"""

import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from steno.web.live import MAX_CLIENT_STREAMS
from steno.web.security import refresh_page, write_private_file
from tests.support.claude_lines import answer, assistant, call, init, result, stream, text
from tests.support.scripted_place import Place
from tests.web.conftest import HOSTILE_RUN, LONG, LONG_RUN, Page, Tab, serving


def test_overview_filter_search_and_run(tab: Tab) -> None:
    """What failed and why, then the list of it, one run, and back by search."""
    page = tab.open("/?last=all")
    tiles = page.locator(".tile dt").all_inner_texts()
    assert tiles[:4] == ["Failed", "Running now", "Spent today", "Spent in total"]
    assert page.locator("table.brief tr").count() >= 4
    reasons = page.locator("table.brief .why").all_inner_texts()
    assert "2 calls denied (Write, Bash)" in reasons
    assert page.locator(".chart.bars svg rect.s0").count() >= 1
    assert page.locator(".meter .fill").count() >= 3
    page.get_by_role("link", name="Runs", exact=True).click()
    page.goto(f"{tab.server.url}/runs?last=all")
    before = page.locator("tbody tr").count()
    page.locator("select[name=verdict]").select_option("permission")
    page.wait_for_url("**/runs?last=all&verdict=permission")
    assert page.locator("tbody tr").count() == 1 < before
    assert page.locator("tbody .verdict").all_inner_texts() == ["permission"]
    page.locator("tbody .main a").click()
    page.wait_for_url(f"**/runs/{tab.server.run_id('permission_denied')}")
    assert page.locator(".verdict-card .verdict").inner_text() == "permission"
    assert "--allow" in page.locator(".verdict-card .next").inner_text()
    page.locator(".search input").fill("owned")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=owned")
    assert page.locator("mark").first.inner_text() == "owned"


def test_unknown_figures_are_dashes(tab: Tab) -> None:
    for target in ("/?last=all", "/runs?last=all", "/sessions?last=all", "/tools?last=all"):
        page = tab.open(target)
        assert "None" not in page.locator("main").inner_text().split()
    assert tab.open("/runs?last=all").locator("td .none").count() >= 1


def test_evidence_jumps_to_its_step(tab: Tab) -> None:
    page = tab.open(f"/runs/{tab.server.run_id('max_turns')}")
    page.keyboard.press("e")
    page.wait_for_url("**#step-*")
    target = page.locator(".step:target")
    assert target.is_visible()
    assert target.evaluate("step => step.classList.contains('chosen')")
    page.get_by_role("link", name="Raw lines").click()
    assert page.locator(".raw li").first.inner_text().startswith("{")


def test_files_and_subagents(tab: Tab) -> None:
    run = tab.server.run_id("multi_tool_edit")
    page = tab.open(f"/runs/{run}/files")
    assert page.locator(".patch .add").count() >= 1
    assert page.locator(".file .change").count() == int(
        tab.open(f"/runs/{run}").locator(".tile:has(dt:text('files changed')) dd").inner_text()
    )
    page = tab.open(f"/runs/{tab.server.run_id('subagent_parallel')}")
    assert page.locator(".step.depth-1").count() >= 2
    assert page.locator(".timeline .name").first.inner_text() == "model and waiting"
    page.locator(".timeline a").first.click()
    page.wait_for_url("**#step-*")
    assert page.locator(".step.tool:target").is_visible()


def test_the_diff_of_a_file_is_what_its_calls_reported(tab: Tab) -> None:
    """The hostile run has no patch of the whole file: the content before is not known."""
    page = tab.open(f"/runs/{HOSTILE_RUN}/files")
    assert page.locator(".file .patch .add").count() >= 1


def test_compare_by_keyboard_only(tab: Tab) -> None:
    page = tab.open("/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    for key in ("j", "x", "j", "x", "c"):
        page.keyboard.press(key)
    page.wait_for_url("**/compare?id=*&id=*")
    assert page.locator("tbody td:first-child").first.inner_text() == "verdict"
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/sessions")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/*")
    page.keyboard.press("?")
    assert page.locator("#shortcuts").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"


def test_dark_follows_the_system_and_the_button(chromium: Any, page: Page) -> None:
    opened = Tab(chromium, page, color_scheme="dark")
    tab = opened.open("/")
    dark = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.keyboard.press("d")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    tab.reload()
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"
    opened.context.close()
    assert opened.errors == []


def test_no_page_is_wider_than_a_phone(chromium: Any, page: Page) -> None:
    opened = Tab(chromium, page, viewport={"width": 390, "height": 844}, is_mobile=True)
    run = f"/runs/{HOSTILE_RUN}"
    for target in (
        *(
            "/?last=all",
            "/runs?last=all",
            "/sessions?last=all",
            "/tools?last=all",
            "/search?q=owned",
        ),
        *(run, f"{run}/files", f"{run}/raw", f"/compare?id={HOSTILE_RUN}&id={HOSTILE_RUN}"),
    ):
        tab = opened.open(target)
        assert tab.evaluate("document.documentElement.scrollWidth") == 390, target
    opened.context.close()
    assert opened.errors == []


def test_hostile_text_is_only_text(tab: Tab) -> None:
    """As prompt, file name, tool name, model name, output and error."""
    run = f"/runs/{HOSTILE_RUN}"
    for target in ("/", "/runs", "/sessions", "/tools", "/search?q=owned", run, f"{run}/files"):
        page = tab.open(target)
        page.wait_for_timeout(50)
        assert page.title() != "owned"
        assert page.locator("main :is(script, img, svg[onload], a[href^=javascript])").count() == 0
        content = page.content()
        assert not any(sign in content for sign in "\x1b\x00\u202e"), target
        assert "&lt;script&gt;" in content


def test_without_javascript_everything_is_readable(chromium: Any, page: Page) -> None:
    opened = Tab(chromium, page, java_script_enabled=False)
    tab = opened.open("/runs?last=all")
    tab.locator("select[name=verdict]").select_option("success")
    with tab.expect_navigation():
        tab.get_by_role("button", name="Apply").click()
    assert set(tab.locator("tbody .verdict").all_inner_texts()) == {"success"}
    with tab.expect_navigation():
        tab.locator("tbody .main a").last.click()
    assert tab.locator(".step").count() >= 3
    tab = opened.open(f"/runs/{LONG_RUN}")
    assert tab.locator(".step").count() == 0  # long: read after the page is shown
    tab.get_by_role("link", name="Show the conversation").click()
    assert tab.locator("header.top").is_visible()
    assert tab.locator(".step").count() >= 3
    opened.context.close()


# -- live ------------------------------------------------------------------------------------------


@pytest.fixture
def live_place(tmp_path: Path) -> Place:
    """A place whose agent prints a part, waits for the file `go`, and prints the rest."""
    place = Place(tmp_path)
    first = stream(init(), assistant(text("Looking."), call("c1", "Bash", command="make test")))
    rest = stream(
        answer("c1", "2 passed"), assistant(text("All green."), message="m2"), result("All green.")
    )
    (tmp_path / "first").write_bytes(first)
    (tmp_path / "rest").write_bytes(rest)
    place.program.write_text(
        f'#!/bin/sh\ncat "{tmp_path}/first"\n'
        f'while [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done\ncat "{tmp_path}/rest"\n'
    )
    return place


def test_a_run_in_progress_is_updated_live(chromium: Any, live_place: Place) -> None:
    with serving(live_place) as server:
        opened = Tab(chromium, server)
        overview = opened.open("/")
        assert overview.locator("#active").inner_text().startswith("No active runs.")
        ledger = str(live_place.folder / "ledger.db")
        run = live_place.start(
            "run", "--ledger", ledger, "make it green", stderr=subprocess.DEVNULL
        )
        link = overview.locator(".active a")
        link.wait_for()
        assert link.inner_text() == "make it green"
        overview.locator(".active .doing", has_text="Bash make test").wait_for()
        link.click()
        overview.locator(".step", has_text="Looking.").wait_for()
        assert overview.locator(".verdict-card .verdict").inner_text() == "running"
        (live_place.folder / "go").touch()
        overview.locator(".step", has_text="All green.").first.wait_for()
        overview.locator(".verdict-card.ok").wait_for()
        run.communicate(timeout=LONG)
        opened.context.close()
        assert opened.errors == []


def test_a_page_that_may_not_be_live_says_so(chromium: Any, live_place: Place) -> None:
    with serving(live_place) as server, ExitStack() as opened_streams:
        opened = Tab(chromium, server)
        opened.open("/runs")
        (cookie,) = opened.context.cookies()
        head = f"GET /live HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
        head += f"Cookie: {cookie['name']}={cookie['value']}\r\n\r\n"
        opened.tab.goto("about:blank")  # until then, the page itself has a stream
        answers = set()
        for _ in range(MAX_CLIENT_STREAMS + 1):
            connection = socket.create_connection((server.host, server.port), timeout=LONG)
            opened_streams.enter_context(connection)
            connection.sendall(head.encode())
            answers.add(connection.recv(12))
        assert answers == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        notice = opened.open("/").locator("#notice")
        notice.wait_for()
        text = f"not live: {MAX_CLIENT_STREAMS} live pages are open in this browser"
        assert notice.inner_text().startswith(text)
        opened.context.close()
        assert {error.partition(":")[0] for error in opened.errors} == {"Failed to load resource"}


def test_a_file_leads_to_the_page(chromium: Any, live_place: Place, tmp_path: Path) -> None:
    """As `--open` does it: the browser gets its cookie, though the file is another site."""
    with serving(live_place) as server:
        path = tmp_path / "open.html"
        write_private_file(path, refresh_page(f"{server.url}/?token={server.token}&last=7d"))
        context = chromium.new_context()
        tab = context.new_page()
        tab.goto(path.as_uri())
        tab.locator("#active").wait_for()
        assert tab.url == f"{server.url}/?last=7d"
        tab.reload()
        tab.locator("#active").wait_for()
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        context.close()
