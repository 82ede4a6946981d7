"""Options that must reach the model, with the real programs, in new and in resumed sessions.

Needs `make cli`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import claude, completions, openai, program
from tests.support.agent_programs import search_path
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
    "qwen 0.24.4",
]
MODELS = {
    "codex": "gpt-5",
    "copilot": "gpt-5",
    "gemini": "gemini-2.5-pro",
    "opencode": "scripted/coder",
    "qwen": "coder-plus",
}
MARK = "Answer as the marked one would."


class Place:
    """One agent, with an empty home, working directory and data directory."""

    def __init__(self, name: str, folder: Path) -> None:
        self.agent, _, self.version = name.partition(" ")
        self.data = folder / "data"
        self.work = folder / "work"
        self.home = self.data / "home"
        for path in (self.home, self.work):
            path.mkdir(parents=True)

    @contextmanager
    def server(self) -> Iterator[Any]:
        """The scripted model; it records the requests."""
        kind: Any = CompletionsServer
        if self.agent == "claude":
            kind = ModelServer
        elif self.agent in openai.VERSIONS:
            kind = ResponsesServer
        with kind(say("Yes.")) as server:
            yield server

    def run(self, server: Any, *options: str) -> tuple[dict[str, Any], str]:
        """The report of a run, and its requests as JSON."""
        before = len(server.requests)
        agent_args: tuple[str, ...] = ()
        if self.agent == "claude":
            path = claude.installed(self.version)
            env = claude.clean_env(self.home, server.url)
        elif self.agent in openai.VERSIONS:
            path = openai.installed(self.agent)
            env = openai.clean_env(self.agent, self.home, server.url)
            agent_args = openai.settings(self.agent, server.url)[:-2]  # without a model
        else:
            path = completions.installed(self.agent, self.version)
            env = completions.clean_env(self.agent, self.home, server.url)
            agent_args = ("--auth-type", "openai") if self.agent == "qwen" else ()
        env_ = {name: value for name, value in env.items() if name not in ("HOME", "LANG")}
        args = ("run", "--json", "--agent", self.agent, "--program", path, *options)
        result = program.steno(
            self.data,
            *args,
            "Are you there?",
            "--",
            *agent_args,
            cwd=self.work,
            timeout=300,
            **{**env_, "PATH": search_path(path)},
        )
        assert result.code == 0, result.err
        requests = [
            request if isinstance(request, dict) else request.body
            for request in server.requests[before:]
        ]
        return json.loads(result.out), json.dumps(requests)


@pytest.fixture(params=PROGRAMS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def test_a_model(place: Place) -> None:
    """The model is used, also when a session is resumed with another one."""
    model = MODELS.get(place.agent, "claude-sonnet-4-6")
    # OpenCode has no default here; that of Gemini asks another model which one to use, for minutes.
    first_model = {"opencode": model, "gemini": "gemini-2.5-flash"}.get(place.agent)
    with place.server() as server:
        first, _ = place.run(server, *(("--model", first_model) if first_model else ()))
        second, requests = place.run(server, "--resume", first["session_id"], "--model", model)
    if place.agent == "gemini":  # the model is in the path of its requests, not in the body
        assert (first["model"] != model, second["model"]) == (True, model)
    else:
        assert f'"model": "{model.removeprefix("scripted/")}"' in requests


@pytest.mark.parametrize(
    "place",
    [name for name in PROGRAMS if name.split()[0] in ("claude", "codex", "qwen")],
    indirect=True,
)
def test_a_system_prompt(place: Place) -> None:
    """Codex keeps the system prompt of a session: the option is refused there."""
    model = () if place.agent != "codex" else ("--model", "gpt-5")
    with place.server() as server:
        _, requests = place.run(server, *model, "--system-prompt", MARK)
        assert MARK in requests
        plain, requests = place.run(server, *model)
        assert MARK not in requests
        if place.agent != "codex":
            _, requests = place.run(
                server, "--resume", plain["session_id"], "--system-prompt", MARK
            )
            assert MARK in requests
