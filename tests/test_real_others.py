"""The real Gemini CLI, OpenCode and Qwen Code, run by `steno run` against a scripted model. Needs `make cli`; skipped without."""

import json
from pathlib import Path
from typing import Any

import pytest

from .support import completions, program
from .support.completions import MODELS, CompletionsServer
from .support.modelserver import Answer, Call, Fault, Step, Text, Usage, say

pytestmark = pytest.mark.parametrize("agent", completions.VERSIONS)
SHELL = {
    "gemini": Call("run_shell_command", {"command": "echo hi > made.txt", "description": "make"}),
    "opencode": Call("bash", {"command": "echo hi > made.txt", "description": "make"}),
    "qwen": Call("run_shell_command", {"command": "echo hi > made.txt", "description": "make", "is_background": False}),
}
FIRST, SECOND = Usage(1_001, 0, 8_000, 61), Usage(1_002, 0, 8_000, 62)


class Place:
    """A home, a folder to work in, and steno's own data, all empty."""

    def __init__(self, agent: str, folder: Path) -> None:
        self.agent, self.data, self.work = agent, folder / "data", folder / "work"
        self.home = self.data / "home"
        self.home.mkdir(parents=True)
        self.work.mkdir()

    def run(self, *steps: Step, words: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
        """The exit code and the report of one task."""
        path = completions.installed(self.agent)
        model = () if self.agent == "qwen" else ("--model", MODELS[self.agent])
        extra = ("--", "--auth-type", "openai") if self.agent == "qwen" else ()
        with CompletionsServer(*steps) as server:
            env = completions.clean_env(self.agent, self.home, server.url)
            asked = ("run", "--json", "--agent", self.agent, "--program", path, *model, *words, "Do it.", *extra)
            done = program.steno(self.data, *asked, cwd=self.work, timeout=300, **env)
        return done.code, json.loads(done.out)


@pytest.fixture
def place(agent: str, tmp_path: Path) -> Place:
    return Place(agent, tmp_path)


def test_it_works_and_is_counted(place: Place) -> None:
    """R1, A1: prompt by stdin, its own words for permissions, four counters, the file it made."""
    steps = (Answer((Text("Let me."), SHELL[place.agent]), FIRST), say("All done.", usage=SECOND))
    code, report = place.run(*steps, words=("--permission-mode", "yolo"))
    assert (code, report["verdict"], report["result"]) == (0, "success", "All done.")
    assert (place.work / "made.txt").read_text() == "hi\n"
    tokens = report["tokens"]
    aside = 11 if tokens["input"] == 2_014 else 0  # a helper's request is in the account of those that count it
    assert (tokens["input"] - aside, tokens["cache_read"], tokens["cache_write"]) == (2_003, 16_000, 0)
    assert (report["requests"], report["context"]["used"]) == (2, 9_002)
    assert [(tool["kind"], tool["ok"]) for tool in report["tools"]] == [("shell", True)]


def test_it_goes_on_with_its_session(place: Place) -> None:
    """R5: the id that it returned is the one to resume."""
    _, first = place.run(say("One."))
    code, second = place.run(say("Two."), words=("--resume", first["session_id"]))
    assert (code, second["result"], second["session_id"]) == (0, "Two.", first["session_id"])


def test_a_rejected_key_is_no_success(place: Place) -> None:
    """V4: whatever it exits with, and whatever it calls it."""
    code, report = place.run(Fault(401, "UNAUTHENTICATED", "Incorrect API key provided"))
    assert (code, report["verdict"], report["ok"], report["succeeded"]) == (77, "auth", False, False)


def test_a_session_that_is_not_there_is_begun_anew(place: Place) -> None:
    """R5: once, and it says so."""
    gone = "ses_000000000000gone" if place.agent == "opencode" else "11111111-2222-4333-8444-000000000000"
    code, report = place.run(say("Anew."), words=("--resume", gone))
    assert (code, report["verdict"], report["result"]) == (0, "success", "Anew.")
    assert [attempt["verdict"] for attempt in report["attempts"]] == ["subprocess", "success"]
