"""Tasks with the real Codex and Copilot on a scripted model. Needs `make cli`.

Each recording must give the same report, and no process may be left over.
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

ONE = Usage(1001, 0, 7000, 51)
TWO = Usage(1002, 10, 7100, 52)
SHELL = {"codex": "exec_command", "copilot": "bash"}

Make = Callable[..., TaskSetup]
Serve = Callable[..., openai.ResponsesServer]
pytestmark = pytest.mark.parametrize("agent", sorted(openai.VERSIONS))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str) -> Make:
    """Build the set-up of a task in empty folders, isolated from the user's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("STENO_LEDGER", raising=False)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def make_setup(server: openai.ResponsesServer, more: Any = None, **options: Any) -> TaskSetup:
        launch_options = LaunchOptions(
            **{"prompt": "Do the work.", "extra": openai.settings(agent, server.url), **options}
        )
        environ = openai.clean_env(agent, home, server.url)
        settings = {"policy": RetryPolicy(attempts=1, on_limit="fail"), **(more or {})}
        return TaskSetup(
            launch_options=launch_options,
            agent=agent,
            program=openai.installed(agent),
            cwd=str(work),
            inherited_env=environ,
            **settings,
        )

    return make_setup


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start scripted models, and stop them at the end."""
    servers: list[openai.ResponsesServer] = []

    def start(*steps: Step) -> openai.ResponsesServer:
        servers.append(openai.ResponsesServer(*steps).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__()


def run(agent: str, command: str, usage: Usage = ONE) -> Answer:
    """The model calls a command."""
    settings = {"cmd": command} if agent == "codex" else {"command": command, "description": "run"}
    return Answer((Text("I will run it."), Call(SHELL[agent], settings)), usage)


def total(*usages: Usage) -> Tokens:
    """The sum of what the server sent."""
    parts = [
        sum(getattr(usage, name) for usage in usages)
        for name in ("input", "cache_write", "cache_read", "output")
    ]
    return Tokens(parts[0], parts[1], parts[2], parts[3], 0, sum(parts))


def context(usage: Usage) -> int:
    return usage.input + usage.cache_write + usage.cache_read


def test_success(make: Make, serve: Serve, agent: str) -> None:
    """Tokens as sent by the server, the window as reported by the agent."""
    task = carry_out(make(serve(say("All is well.", usage=ONE))))
    report = task.report
    assert (task.verdicts, report.ok, report.text, report.exit_code) == (
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
    assert (report.tokens, report.context.used) == (total(ONE), context(ONE))
    assert (report.context.source, report.context.limit_source) == ("measured", "reported")


def test_a_refusal_is_no_success(make: Make, serve: Serve, agent: str, tmp_path: Path) -> None:
    """Both exit with 0 and report success."""
    task = carry_out(
        make(
            serve(run(agent, "touch no.txt"), say("Done.", usage=TWO)),
            permission_mode=None if agent == "copilot" else "plan",
        )
    )
    assert not (tmp_path / "work" / "no.txt").exists()
    report = task.report
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
    """R7: a rejected key is not retried: the agent is stopped if it would."""
    task = carry_out(make(serve(fault)))
    assert (task.verdicts, task.report.ok) == ([verdict], False)


def test_the_recording_contains_the_session_file(make: Make, serve: Serve, agent: str) -> None:
    """The figures that only the session file has are replayed."""
    task = carry_out(make(serve(say("All is well.", usage=ONE))))
    recording = task.runs[0].recording_path
    assert recording is not None
    assert b'"kept"' in recording.read_bytes()
    assert steno.read(recording).tokens == total(ONE)
