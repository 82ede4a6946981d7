"""The HTML and Markdown of a run of the real Claude Code: a failing test, a subagent, a refused
call and an output of 2 MB. Needs `make cli`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from steno.export.conversation import read_conversation
from steno.export.html import html_page
from steno.export.markdown import markdown_page
from steno.export.text import transcript_lines
from steno.pricing import price
from steno.recording.format import Record, Recorder, RecordingFile
from steno.recording.open import open_recording
from steno.views.table import PageStyle
from tests.support import claude
from tests.support.browser import open_file
from tests.support.modelserver import Answer, Call, ModelServer, Text, say

VERSION = "2.1.325"
TESTS = "import unittest, calc\n\nclass Sums(unittest.TestCase):\n    def test_add(self):\n"
TESTS += "        self.assertEqual(calc.add(2, 3), 5)\n\nunittest.main()\n"
LARGE = "".join(f"line {number} of a long log <b>&amp;</b>\n" for number in range(60_000))
ALLOWED = "Edit Read Task Bash(python3:*) Bash(seq:*) Bash(grep:*)"


def shell(command: str, *said: Text) -> Answer:
    return Answer((*said, Call("Bash", {"command": command, "description": "Run it"})))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of the run. Claude Code itself cuts outputs, so one is made larger."""
    program = claude.installed(VERSION)
    folder = tmp_path_factory.mktemp("real")
    home = folder / "home"
    work = folder / "work"
    home.mkdir()
    work.mkdir()
    (work / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (work / "test_calc.py").write_text(TESTS)
    edit = {"old_string": "a - b", "new_string": "a + b", "file_path": str(work / "calc.py")}
    task = {"description": "Find callers", "prompt": "Who?", "subagent_type": "general-purpose"}
    steps = (
        shell("python3 test_calc.py", Text("I'll run the tests.")),
        Answer((Call("Task", task),)),
        shell("grep -n add test_calc.py"),  # of the subagent
        say("Only the test calls it."),  # of the subagent
        Answer((Call("Read", {"file_path": str(work / "calc.py")}),)),
        Answer((Call("Edit", edit),)),
        shell("rm -rf /etc/calc"),
        shell("seq 1 999"),
        say("## Fixed\n\nIt adds now."),
    )
    with ModelServer(*steps) as server:
        env = claude.clean_env(home, server.url) | {
            "XDG_DATA_HOME": str(folder / "data"),
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        }
        words = ["run", "--agent", "claude", "--program", program, "Fix the test.", "--"]
        done = subprocess.run(
            [sys.executable, "-m", "steno", *words, "--allowedTools", ALLOWED],
            cwd=work,
            env=env,
            capture_output=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    (path,) = (folder / "data").rglob("*.steno")
    return with_large_output(path, folder / "large.steno")


def with_large_output(path: Path, target: Path) -> Path:
    """A copy of the recording in which `seq` printed 2 MB."""
    original = RecordingFile(path)
    records = list(original.records())
    output = b"".join(record.data for record in records if record.code == "out")
    with Recorder(target, original.header) as recorder:
        for line in output.splitlines(keepends=True):
            value = json.loads(line)
            if enlarge(value):
                line = json.dumps(value).encode() + b"\n"
            recorder.write(Record(1.0, "out", line))
        for record in records:
            if record.code != "out":
                recorder.write(record)
    return target


def enlarge(value: dict[str, Any]) -> bool:
    """Replace the output of `seq` in a line; False if it is another line."""
    message = value.get("message")
    content = message["content"] if value["type"] == "user" and isinstance(message, dict) else ()
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "tool_result" and str(block.get("content")).startswith("1\n2\n"):
            block["content"] = LARGE
            value.pop("tool_use_result", None)
            return True
    return False


def test_the_page_of_a_real_run(recording: Path, tmp_path: Path) -> None:
    """Below 3 MB, without a message in the console; the failing test is visible at once."""
    assert len(LARGE) > 2_000_000
    path = tmp_path / "run.html"
    with read_conversation(open_recording(recording), price=price) as conversation:
        path.write_text("".join(html_page(conversation)), "utf-8")
    assert path.stat().st_size < 3_000_000
    with open_file(path) as opened:
        page = opened.page
        assert page.inner_text("#step-1 .prose") == "Fix the test."
        assert "AssertionError: -1 != 5" in page.inner_text(".step.tool.failed")
        inner = page.locator(".step.depth-1.tool .summary")
        assert inner.all_inner_texts() == ["grep -n add test_calc.py"]
        assert "rm -rf /etc/calc" in page.inner_text(".step.tool.denied")
        page.locator(".step.tool", has_text="seq 1 999").locator("summary").click()
        assert page.inner_text(".cut").endswith("characters left out")
        assert "line 59999 of a long log <b>&amp;</b>" in page.locator(".output").last.inner_text()
        assert page.locator(".patch .add").all_inner_texts() == ["+    return a + b\n"]
        assert page.inner_text(".step.text >> nth=-1 >> .prose h2") == "Fixed"
        assert opened.messages == []
        assert opened.requests == [path.as_uri()]


def test_the_text_and_the_markdown_of_a_real_run(recording: Path) -> None:
    """Every step is a heading for a CommonMark parser; the terminal shows the end of outputs."""
    with read_conversation(open_recording(recording), price=price) as conversation:
        page = "".join(markdown_page(conversation))
        shown = list(transcript_lines(conversation, PageStyle(100, 100)))
        count = len(conversation)
    blocks = MarkdownIt("commonmark").parse(page)
    assert sum(block.type == "heading_open" and block.level == 0 for block in blocks) == count + 1
    assert "    AssertionError: -1 != 5" in shown
    assert "    line 59999 of a long log <b>&amp;</b>" in shown
    assert "    … 59,980 more lines (use --full)" in shown
    assert any(line.startswith("│   ") and "grep -n add test_calc.py" in line for line in shown)
