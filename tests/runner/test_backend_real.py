"""The real agents on a local model server, with `steno run --backend`. Needs `make cli`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import claude, completions, openai, program
from tests.support.modelserver import Answer, Call, Text, Usage, say
from tests.support.ollama import MODEL, OllamaServer, Seen, shown
from tests.support.program import Ended

FIRST, SECOND = Usage(1_001, 0, 2_000, 61), Usage(1_002, 0, 3_000, 62)
SHELL = {
    "claude": Call("Bash", {"command": "echo hi > made.txt", "description": "make"}),
    "opencode": Call("bash", {"command": "echo hi > made.txt", "description": "make"}),
    "qwen": Call(
        "run_shell_command",
        {"command": "echo hi > made.txt", "description": "make", "is_background": False},
    ),
}
YOLO = {"claude": "bypassPermissions", "opencode": "yolo", "qwen": "yolo"}
# The protocol that each agent uses with each kind of server.
PROTOCOLS = {
    ("claude", "ollama"): "/v1/messages",
    ("claude", "anthropic"): "/v1/messages",
    ("codex", "ollama"): "/v1/responses",
    ("codex", "openai"): "/v1/responses",
    ("copilot", "ollama"): "/v1/chat/completions",
    ("copilot", "anthropic"): "/v1/messages",
    ("opencode", "openai"): "/v1/chat/completions",
    ("opencode", "anthropic"): "/v1/messages",
    ("qwen", "ollama"): "/v1/chat/completions",
}
# Keys for the vendors, which must not be sent to another server.
KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-of-the-maker",
    "OPENAI_API_KEY": "sk-of-the-maker",
    "GH_TOKEN": "ghp_of_the_maker",
    "CLAUDE_CODE_OAUTH_TOKEN": "oauth-of-the-maker",
}
MODEL_INFO = {
    **shown(num_ctx=32_768),
    "/v1/models": {"data": [{"id": MODEL, "max_model_len": 32_768}]},
}


def installed(agent: str) -> str:
    if agent == "claude":
        return claude.installed(claude.VERSIONS[-1])
    return openai.installed(agent) if agent in openai.VERSIONS else completions.installed(agent)


class Place:
    """A home, a working directory and a data directory, all empty, and a server."""

    def __init__(self, folder: Path, server: OllamaServer) -> None:
        self.data = folder / "data"
        self.work = folder / "work"
        self.server = server
        (self.data / "home").mkdir(parents=True)
        self.work.mkdir()

    def steno(self, *args: str, **more: str) -> Ended:
        return program.steno(
            self.data, *args, cwd=self.work, timeout=300, **{"IS_SANDBOX": "1", **KEYS, **more}
        )

    def run(self, agent: str, kind: str, *args: str, **more: str) -> dict[str, Any]:
        path = "/v1" if kind == "openai" else ""
        backend = (
            "--backend",
            f"{kind}:{self.server.url}{path}",
            "--model",
            MODEL,
            "--timeout",
            "200",
        )
        result = self.steno(
            "run",
            "--json",
            "--agent",
            agent,
            "--program",
            installed(agent),
            *backend,
            *args,
            "Do it.",
            **more,
        )
        assert result.code == 0, result.err
        report: dict[str, Any] = json.loads(result.out)
        return report


def model_requests(server: OllamaServer) -> list[Seen]:
    """The requests to the model, without those about it."""
    return [
        seen
        for seen in server.seen
        if not seen.path.startswith("/api/") and not seen.path.endswith("/models")
    ]


@pytest.mark.parametrize(("agent", "kind"), PROTOCOLS, ids="-".join)
def test_it_runs_there_and_nowhere_else(agent: str, kind: str, tmp_path: Path) -> None:
    """A1: free of cost, with the server's window; no key of a vendor is sent."""
    with OllamaServer(say("All is well.", usage=FIRST), told=MODEL_INFO) as server:
        place = Place(tmp_path, server)
        report = place.run(agent, kind)
    assert (report["verdict"], report["result"]) == ("success", "All is well.")
    assert report["cost"] == {"usd": 0.0, "source": "local", "session_usd": None}
    context = report["context"]
    assert (context["used"], context["limit"], context["limit_source"]) == (
        3_001,
        32_768,
        "reported",
    )
    assert {seen.path.partition("?")[0] for seen in model_requests(server)} == {
        PROTOCOLS[agent, kind]
    }
    assert server.keys() == {"none"}
    report_ = json.loads(place.steno("show", "--json", report["source"]).out)
    assert {name: report_[name] for name in ("cost", "context", "models", "tokens")} == (
        {name: report[name] for name in ("cost", "context", "models", "tokens")}
    )
    # One row, also with the agent's own session file.
    (row,) = json.loads(place.steno("runs", "--json").out)["rows"]
    assert row["cost"] == {"usd": 0.0, "source": "local"}
    cost = json.loads(place.steno("usage", "--json").out)["total"]["cost"]
    assert (cost["usd"], cost["unpriced_requests"]) == (0.0, 0)


@pytest.mark.parametrize("agent", SHELL)
def test_it_works_with_tools_and_a_key(agent: str, tmp_path: Path) -> None:
    """The server's own key is sent to it, and stored nowhere."""
    steps = (Answer((Text("Let me."), SHELL[agent]), FIRST), say("All done.", usage=SECOND))
    with OllamaServer(*steps, told=MODEL_INFO) as server:
        place = Place(tmp_path, server)
        report = place.run(
            agent, "ollama", "--permission-mode", YOLO[agent], STENO_BACKEND_KEY="sk-of-this-server"
        )
    assert (report["verdict"], report["result"]) == ("success", "All done.")
    assert (place.work / "made.txt").read_text() == "hi\n"
    assert (report["context"]["used"], report["cost"]["source"]) == (4_002, "local")
    assert server.keys() == {"sk-of-this-server"}
    assert b"sk-of-this-server" not in Path(report["source"]).read_bytes()


def test_a_resumed_session(tmp_path: Path) -> None:
    """R5: a resumed session uses the same server, free of cost."""
    with OllamaServer(
        say("One.", usage=FIRST), say("Two.", usage=SECOND), told=MODEL_INFO
    ) as server:
        place = Place(tmp_path, server)
        first = place.run("claude", "ollama")
        second = place.run("claude", "ollama", "--resume", first["run_id"])
    assert (second["session_id"], second["result"]) == (first["session_id"], "Two.")
    assert second["cost"] == {"usd": 0.0, "source": "local", "session_usd": None}
