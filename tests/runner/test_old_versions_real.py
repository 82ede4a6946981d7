"""Older versions of the real programs, which lack options of the newest.

Skipped unless installed below STENO_TEST_CLI, as AGENT-VERSION; `make cli` does not install them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import claude, completions, program
from tests.support.agent_programs import program as program_path
from tests.support.all_agents import shell
from tests.support.completions import CompletionsServer
from tests.support.modelserver import Answer, ModelServer, call, say

MARK = "Answer as the marked one would."


class Place:
    """One version of an agent, with an empty home, working directory and data directory."""

    def __init__(self, name: str, folder: Path) -> None:
        self.agent, _, self.version = name.partition(" ")
        self.path = program_path(self.agent, self.version)
        if not self.path.exists():
            pytest.skip(f"{name} not installed")
        self.data = folder / "data"
        self.work = folder / "work"
        self.home = self.data / "home"
        for path in (self.home, self.work):
            path.mkdir(parents=True)

    def server(self, *steps: Any) -> Any:
        return ModelServer(*steps) if self.agent == "claude" else CompletionsServer(*steps)

    def run(self, server: Any, *options: str) -> tuple[dict[str, Any], str]:
        """The report of a run, and its requests as JSON."""
        before = len(server.requests)
        if self.agent == "claude":
            env = claude.clean_env(self.home, server.url)
        else:
            env = completions.clean_env(self.agent, self.home, server.url)
            options = ("--model", completions.MODELS[self.agent], *options)
        env_ = {name: value for name, value in env.items() if name not in ("HOME", "PATH", "LANG")}
        args = ("run", "--json", "--agent", self.agent, "--program", str(self.path), *options)
        done = program.steno(
            self.data, *args, "--attempts", "1", "Do it.", cwd=self.work, timeout=300, **env_
        )
        assert done.out, done.err
        requests = [
            request if isinstance(request, dict) else request.body
            for request in server.requests[before:]
        ]
        return json.loads(done.out), json.dumps(requests)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


@pytest.mark.parametrize("place", ["gemini 0.27.0", "gemini 0.39.0"], indirect=True)
def test_gemini_without_session_ids(place: Place) -> None:
    """The session is the one that the agent chooses, and can be resumed."""
    with place.server(say("Yes.")) as server:
        first, _ = place.run(server)
        assert (first["verdict"], first["text"]) == ("success", "Yes.")
        second, requests = place.run(server, "--resume", first["session_id"])
    assert (second["verdict"], second["session_id"]) == ("success", first["session_id"])
    assert requests.count("Do it.") > 1


@pytest.mark.parametrize("place", ["claude 1.0.60", "claude 2.0.10"], indirect=True)
def test_claude_without_budgets(place: Place) -> None:
    """steno stops the run itself: one request costs more than the budget."""
    steps = [call("Bash", command=f"echo {number}") for number in range(5)]
    mode = ("--permission-mode", "acceptEdits", "--allow", "Bash")
    with place.server(*steps, say("Yes.")) as server:
        report, _ = place.run(server, *mode, "--max-cost", "5")
        assert report["verdict"] == "success"
    with place.server(*steps, say("Yes.")) as server:
        report, _ = place.run(server, *mode, "--max-cost", "0.000001")
        assert report["verdict"] == "max_budget"


@pytest.mark.parametrize("place", ["claude 2.1.250", "claude 2.1.310"], indirect=True)
def test_claude_takes_a_system_prompt_when_resuming(place: Place) -> None:
    with place.server(say("Yes.")) as server:
        first, requests = place.run(server)
        assert MARK not in requests
        second, requests = place.run(
            server, "--resume", first["session_id"], "--system-prompt", MARK
        )
    assert (second["verdict"], MARK in requests) == ("success", True)


@pytest.mark.parametrize("place", ["opencode 1.2.27", "opencode 1.15.13"], indirect=True)
def test_opencode_without_auto(place: Place) -> None:
    """1.15.13 often exits before it has printed the end of its answer, also to a file."""
    with place.server(Answer((shell("opencode", "echo 1 > made"),)), say("Yes.")) as server:
        report, _ = place.run(server, "--permission-mode", "yolo")
    assert (report["exit_code"], report["verdict"] in ("success", "no_result")) == (0, True)
    assert (place.work / "made").read_text("utf-8") == "1\n"
