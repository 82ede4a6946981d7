"""Tasks with the real Codex and the real Copilot against a scripted model: what `test_matrix` does not ask of every agent.

Each run is replayed from its tape and must tell the same, and nothing of it may be left. Needs `make cli`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import LaunchOptions
from steno.report import Tokens
from steno.runner.retry_policy import RetryPolicy
from steno.runner.setup import TaskSetup
from tests.support import openai
from tests.support.modelserver import Answer, Call, Fault, Step, Text, Usage, say
from tests.support.tasks import carry_out

ONE, TWO, THREE = Usage(1001, 0, 7000, 51), Usage(1002, 10, 7100, 52), Usage(1003, 20, 7200, 53)
SHELL = {"codex": "exec_command", "copilot": "bash"}
UNASKED = "bypassPermissions"
LATER = "sleep 60"

Make = Callable[..., TaskSetup]
Serve = Callable[..., openai.ResponsesServer]
pytestmark = pytest.mark.parametrize("agent", sorted(openai.VERSIONS))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str) -> Make:
    """Makes a set-up for a task in a clean place; nothing of it touches the user's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("STENO_LEDGER", raising=False)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def made(server: openai.ResponsesServer, more: Any = None, **asked: Any) -> TaskSetup:
        ask = LaunchOptions(
            **{"prompt": "Do the work.", "extra": openai.settings(agent, server.url), **asked}
        )
        environ = openai.clean_env(agent, home, server.url)
        given = {"policy": RetryPolicy(attempts=1, on_limit="fail"), **(more or {})}
        return TaskSetup(
            launch_options=ask,
            agent=agent,
            program=openai.installed(agent),
            cwd=str(work),
            inherited_env=environ,
            **given,
        )

    return made


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts scripted models, and ends them."""
    begun: list[openai.ResponsesServer] = []

    def started(*steps: Step) -> openai.ResponsesServer:
        begun.append(openai.ResponsesServer(*steps).__enter__())
        return begun[-1]

    yield started
    for server in begun:
        server.__exit__()


def run(agent: str, command: str, usage: Usage = ONE) -> Answer:
    """The model wants a command to be run."""
    given = {"cmd": command} if agent == "codex" else {"command": command, "description": "run"}
    return Answer((Text("I will run it."), Call(SHELL[agent], given)), usage)


def summed(*usages: Usage) -> Tokens:
    """What the server gave out."""
    parts = [
        sum(getattr(usage, name) for usage in usages)
        for name in ("input", "cache_write", "cache_read", "output")
    ]
    return Tokens(parts[0], parts[1], parts[2], parts[3], 0, sum(parts))


def context(usage: Usage) -> int:
    return usage.input + usage.cache_write + usage.cache_read


def test_success(make: Make, serve: Serve, agent: str) -> None:
    """The figures are the model's, the window the agent's own."""
    done = carry_out(make(serve(say("All is well.", usage=ONE))))
    report = done.report
    assert (done.verdicts, report.ok, report.text, report.exit_code) == (
        ["success"],
        True,
        "All is well.",
        0,
    )
    assert (report.agent, report.agent_version, report.model) == (
        agent,
        openai.VERSIONS[agent],
        openai.MODELS[agent],
    )
    assert (report.tokens, report.context.used) == (summed(ONE), context(ONE))
    assert (report.context.source, report.context.limit_source) == ("measured", "reported")


def test_a_refusal_is_no_success(make: Make, serve: Serve, agent: str, tmp_path: Path) -> None:
    """Both exit with 0 and say that all is well."""
    done = carry_out(
        make(
            serve(run(agent, "touch no.txt"), say("Done.", usage=TWO)),
            permission_mode=None if agent == "copilot" else "plan",
        )
    )
    assert not (tmp_path / "work" / "no.txt").exists()
    report = done.report
    assert (report.verdict, report.ok, report.exit_code) == ("permission", False, 0)
    assert [(denial.tool, denial.allow_rule) for denial in report.denials] == [
        (SHELL[agent], {"codex": "sandbox_mode=workspace-write", "copilot": "shell(touch)"}[agent])
    ]


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (Fault(401, "invalid_request_error", "Incorrect API key provided"), "auth"),
        (Fault(400, "invalid_request_error", "bad request"), "invalid_request"),
    ],
)
def test_an_error_of_the_service(
    make: Make, serve: Serve, agent: str, fault: Fault, verdict: str
) -> None:
    """R7: a key that was rejected twice is not tried again, so the agent is ended where it would go on trying."""
    done = carry_out(make(serve(fault)))
    assert (done.verdicts, done.report.ok) == ([verdict], False)


def test_the_tape_holds_what_the_agent_kept(make: Make, serve: Serve, agent: str) -> None:
    """Live is replay, also of what only the agent's own file knows."""
    done = carry_out(make(serve(say("All is well.", usage=ONE))))
    tape = done.runs[0].recording_path
    assert tape is not None
    assert b'"kept"' in tape.read_bytes()
    assert steno.read(tape).tokens == summed(ONE)
