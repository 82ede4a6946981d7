"""Conversations as text, Markdown, HTML and JSON: complete, harmless, the same for every agent."""

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from steno.export.conversation import Conversation
from steno.export.data import json_document, json_lines
from steno.export.html import html_page
from steno.export.markdown import code_block, code_span, markdown_page
from steno.export.tables import as_csv
from steno.export.text import transcript_lines
from steno.views.formatting import width
from steno.views.table import PageStyle
from tests.export.golden import CASES, rendered
from tests.export.test_conversation import CLAUDE, lines, read
from tests.support.browser import open_file

PAGE = PageStyle(80, 80)
MARKER = "HACKED"
# Text that does harm where it is not escaped: scripts, links, terminal control, direction marks.
HOSTILE = (
    f"<script>window.{MARKER}=1;console.log('{MARKER}')</script>"
    f"<img src=x onerror=window.{MARKER}=1>"
    f"[click](javascript:window.{MARKER}=1)![i](http://example.invalid/{MARKER}.png)"
    "\x1b[2J\x1b]0;title\x07\x00\u202edrow\u2066漢字漢字漢字漢字漢字漢字漢字漢字漢字`````\n````\n</pre></details>"
    "\n[step 1]: javascript:alert(1)\n=1+1"
)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_forms_are_those_that_were_checked(case: Path) -> None:
    """`python -m tests.export.golden` writes them anew."""
    kept = {name: (case / name).read_text("utf-8") for name in ("transcript.txt", "page.md")}
    assert rendered(case) == kept


def hostile(text: str = HOSTILE) -> Conversation:
    """A run with the text as prompt, model, tool name, input, file name, output and answer."""
    call = {"type": "tool_use", "id": "t1", "name": text, "input": {"command": text, text: text}}
    write = {
        "type": "tool_use",
        "id": "t2",
        "name": "Write",
        "input": {"file_path": f"/p/{text}", "content": text},
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    data = lines(
        {"type": "system", "subtype": "init", "cwd": "/p", "model": text, "session_id": "s"},
        {"type": "user", "session_id": "s", "message": {"role": "user", "content": text}},
        {
            "type": "assistant",
            "session_id": "s",
            "message": {
                "id": "m1",
                "role": "assistant",
                "model": text,
                "content": [
                    {"type": "thinking", "thinking": text},
                    {"type": "text", "text": text},
                    call,
                    write,
                ],
                "usage": usage,
            },
        },
        _result("t1", text, {"stdout": text}),
        _result("t2", text, {"type": "create", "filePath": f"/p/{text}", "content": text}),
        {
            "type": "result",
            "subtype": "error_during_execution",
            "is_error": True,
            "errors": [text],
            "session_id": "s",
        },
    )
    return read(data)


def _result(call: str, text: str, details: Any) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": call, "content": text}]
    return {
        "type": "user",
        "session_id": "s",
        "message": {"role": "user", "content": content},
        "tool_use_result": details,
    }


def test_hostile_text_is_harmless_on_a_terminal() -> None:
    text = "\n".join(transcript_lines(hostile(), PAGE, is_full=True))
    assert MARKER in text
    assert UNSAFE.findall(text) == []
    assert max(map(width, text.split("\n"))) <= PAGE.columns


UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Tags(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src")}


def test_hostile_text_is_harmless_in_html(tmp_path: Path) -> None:
    text = "".join(html_page(hostile()))
    tags = Tags(text)
    assert tags.tags & {"script", "img", "iframe", "object", "form", "base", "embed"} == set()
    assert [name for name in tags.names if name.startswith("on") or name == "style"] == []
    web = f"http://example.invalid/{MARKER}.png"  # of the image: a link, which nothing follows
    assert {link for link in tags.links if not link.startswith("#step-")} == {"data:,", web}
    assert UNSAFE.findall(text) == []
    path = tmp_path / "page.html"
    path.write_text(text, "utf-8")
    with open_file(path) as opened:
        for details in opened.page.query_selector_all("summary"):
            details.click()
        for link in opened.page.query_selector_all("article a.number"):
            link.click()
        assert opened.page.evaluate(f"typeof window.{MARKER}") == "undefined"
        assert opened.messages == []
        assert opened.requests == [path.as_uri()]


def test_hostile_text_is_harmless_in_markdown() -> None:
    text = "".join(markdown_page(hostile()))
    environment: dict[str, Any] = {}
    blocks = MarkdownIt("commonmark").parse(text, environment)
    tokens = [inner for block in blocks for inner in (block, *(block.children or ()))]
    html = {token.content.strip() for token in tokens if token.type.startswith("html")}
    assert {re.sub(r"\d+", "N", part) for part in html} == {'<a id="step-N">', "</a>"}
    assert [token for token in tokens if token.type == "image"] == []
    links = {str(token.attrGet("href")) for token in tokens if token.type == "link_open"}
    assert [link for link in links if not link.startswith("#step-")] == []
    assert "references" not in environment or environment["references"] == {}
    headings = [
        block.children
        for block, before in zip(blocks[1:], blocks, strict=False)
        if before.type == "heading_open"
    ]
    assert len(headings) == 1 + len(hostile())  # none of the text became a heading, none was lost
    assert UNSAFE.findall(text) == []


@pytest.mark.parametrize("text", ["a", "`", "``", "a ``` b", "\n````\n", " `x` ", ""])
def test_code_survives_any_backticks(text: str) -> None:
    (inline,) = MarkdownIt("commonmark").parseInline(f"x {code_span(text)} y")
    assert inline.children is not None
    _, span, _ = inline.children
    assert (span.type, span.content.strip()) == ("code_inline", text.strip())
    blocks = MarkdownIt("commonmark").parse(code_block(text))
    assert [block.type for block in blocks] == ["fence"]
    assert blocks[0].content.rstrip("\n") == text.rstrip("\n")


def test_a_formula_is_text_in_csv() -> None:
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", HOSTILE]
    rows = list(csv.reader(io.StringIO(as_csv([{"name": name} for name in names]).decode())))
    assert [row[0][:1] for row in rows[1:]] == ["'", "'", "'", "'", "'", "<"]
    assert "\x1b" not in str(rows[-1][0])
    assert "\u202e" not in str(rows[-1][0])


def test_a_line_of_a_megabyte_is_cut() -> None:
    conversation = hostile("x" * 1_000_000)
    assert len("\n".join(transcript_lines(conversation, PAGE))) < 100_000
    assert len("".join(html_page(conversation))) < 3_000_000


def test_a_long_line_is_whole_in_full() -> None:
    conversation = hostile("x" * 100_000)
    assert len("".join(markdown_page(conversation))) < 300_000
    shown = list(transcript_lines(conversation, PAGE, is_full=True))
    assert sum(line.count("x") for line in shown) > 500_000
    assert max(map(len, shown)) <= PAGE.columns
    for page in (html_page, markdown_page):
        assert "".join(page(conversation, is_full=True)).count("x" * 100_000) >= 5


def test_the_end_of_a_long_output_stays_visible() -> None:
    output = "\n".join([*(f"test {number} ok" for number in range(500)), "FAILED test_sum"])
    data = lines(
        {
            "type": "assistant",
            "session_id": "s",
            "uuid": "u",
            "message": {
                "id": "m",
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "pytest"}}
                ],
            },
        },
        _result("t", output, None),
    )
    shown = list(transcript_lines(read(data), PAGE))
    assert "    … 481 more lines (use --full)" in shown
    assert "    FAILED test_sum" in shown
    assert "    test 0 ok" in shown
    full = list(transcript_lines(read(data), PAGE, is_full=True))
    assert [f"    {line}" for line in output.split("\n")] == full[3 : 3 + 501]


def test_json_has_the_report_and_every_step() -> None:
    conversation = read(CLAUDE / "permission_denied")
    document = json.loads(b"".join(json_document(conversation)))
    assert document["schema"] == "steno.conversation/1"
    assert document["report"]["verdict"] == "permission"
    assert document["evidence"] == [{"line": 5, "step": 2}, {"line": 7, "step": 3}]
    head, *steps = map(json.loads, b"".join(json_lines(conversation)).splitlines())
    assert head == {name: document[name] for name in ("schema", "report", "evidence")}
    assert steps == document["steps"]
    assert [step["number"] for step in steps] == list(range(1, len(conversation) + 1))
    assert (steps[2]["tool"]["status"], steps[2]["tool"]["allow_rule"]) == (
        "denied",
        "Bash(rm -rf build)",
    )


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1100, False)])
def test_the_page_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    """No console message, nothing loaded, no sideways scrolling; evidence leads to its step."""
    path = tmp_path / "page.html"
    path.write_text("".join(html_page(read(CLAUDE / "permission_denied"))), "utf-8")
    with open_file(path, width=width, dark=dark) as opened:
        page = opened.page
        assert page.inner_text("#verdict h1 .badge") == "permission"
        page.click("#verdict .evidence a >> nth=1")
        assert page.url.endswith("#step-3")
        target = page.query_selector("article:target")
        assert "rm -rf build" in target.inner_text()
        assert "allow it with Bash(rm -rf build)" in target.inner_text()  # open: it was denied
        assert page.evaluate("document.documentElement.scrollWidth") == width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(20, 23, 27)" if dark else "rgb(247, 247, 245)")
        assert opened.messages == []
        assert opened.requests == [path.as_uri()]
