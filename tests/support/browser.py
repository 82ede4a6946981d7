"""Debian's Chromium, driven by playwright. Installed by .ci/run and requirements/test.txt."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
)


def chromium() -> str:
    """Its path. If missing, skip the test; fail if STENO_REQUIRE contains browser."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        reason = f"none of {', '.join(PROGRAMS)} in PATH"
        if "browser" in os.environ.get("STENO_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


class OpenedPage:
    """A page with everything it printed to the console and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def launch() -> Iterator[Any]:
    """A new browser. While it is open, this thread has a running event loop."""
    program = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_file(path: Path, *, width: int = 1100, dark: bool = False) -> Iterator[OpenedPage]:
    """Open a local file in a new browser."""
    with launch() as browser:
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        opened = OpenedPage(page)
        page.goto(path.as_uri())
        yield opened
