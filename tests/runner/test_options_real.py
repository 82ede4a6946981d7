"""Options that must reach the model itself, with the real programs: in a new session, and where one goes on. Needs `make cli`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import claude, completions, openai, program
from tests.support.completions import CompletionsServer
from tests.support.modelserver import ModelServer, say
from tests.support.openai import ResponsesServer

PROGRAMS = [
    *(f"claude {version}" for version in claude.VERSIONS),
    "codex",
    "copilot",
    "gemini",
    "opencode",
    "qwen",
]
SPEAKS = {
    "codex": "gpt-5",
    "copilot": "gpt-5",
    "gemini": "gemini-2.5-pro",
    "opencode": "scripted/coder",
    "qwen": "coder-plus",
}
MARK = "Answer as the marked one would."


class Place:
    """One agent with its model, and steno's own data, all empty."""

    def __init__(self, which: str, folder: Path) -> None:
        self.agent, _, self.version = which.partition(" ")
        self.data, self.work, self.more = folder / "data", folder / "work", folder / "more"
        self.home = self.data / "home"
        for path in (self.home, self.work, self.more):
            path.mkdir(parents=True)

    @contextmanager
    def server(self) -> Iterator[Any]:
        """The scripted model; its requests are what the model was told."""
        kind: Any = (
            ModelServer
            if self.agent == "claude"
            else ResponsesServer
            if self.agent in openai.VERSIONS
            else CompletionsServer
        )
        with kind(say("Yes.")) as server:
            yield server

    def run(self, server: Any, *words: str) -> tuple[dict[str, Any], str]:
        """The report of a run, and all that its requests said."""
        before, extra = len(server.requests), tuple[str, ...]()
        if self.agent == "claude":
            path, env = claude.installed(self.version), claude.clean_env(self.home, server.url)
        elif self.agent in openai.VERSIONS:
            path, env = (
                openai.installed(self.agent),
                openai.clean_env(self.agent, self.home, server.url),
            )
            extra = openai.settings(self.agent, server.url)[:-2]  # without a model
        else:
            path, env = (
                completions.installed(self.agent),
                completions.clean_env(self.agent, self.home, server.url),
            )
            extra = ("--auth-type", "openai") if self.agent == "qwen" else ()
        own = {name: value for name, value in env.items() if name not in ("HOME", "PATH", "LANG")}
        asked = (
            "run",
            "--json",
            "--agent",
            self.agent,
            "--program",
            path,
            *words,
            "Are you there?",
            "--",
            *extra,
        )
        done = program.steno(self.data, *asked, cwd=self.work, timeout=300, **own)
        assert done.code == 0, done.err
        said = [
            request if isinstance(request, dict) else request.body
            for request in server.requests[before:]
        ]
        return json.loads(done.out), json.dumps(said)


@pytest.fixture(params=PROGRAMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def test_a_model(place: Place) -> None:
    """It is the one that is asked, also where the session goes on with another."""
    model = SPEAKS.get(place.agent, "claude-sonnet-4-6")
    with place.server() as server:
        first, _ = place.run(server, *(("--model", model) if place.agent == "opencode" else ()))
        second, said = place.run(server, "--resume", first["session_id"], "--model", model)
    if place.agent == "gemini":  # it names the model in the path of a request, and in its stream
        assert (first["model"] != model, second["model"]) == (True, model)
    else:
        assert f'"model": "{model.removeprefix("scripted/")}"' in said


@pytest.mark.parametrize(
    "place",
    [which for which in PROGRAMS if which.split()[0] in ("claude", "codex", "qwen")],
    indirect=True,
)
def test_a_system_prompt(place: Place) -> None:
    """Claude Code keeps the one that a session began with unless it is told otherwise. Codex always does: it is refused there."""
    model = () if place.agent != "codex" else ("--model", "gpt-5")
    with place.server() as server:
        _, said = place.run(server, *model, "--system-prompt", MARK)
        assert MARK in said
        plain, said = place.run(server, *model)
        assert MARK not in said
        if place.agent != "codex":
            _, said = place.run(server, "--resume", plain["session_id"], "--system-prompt", MARK)
            assert MARK in said
