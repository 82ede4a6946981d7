"""The real Claude Code asks for permission through `steno mcp`, and a person decides.

Needs `make cli`. The model is scripted, on loopback.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steno.ledger.store import open_ledger
from tests.runner.test_live_control import wait_for
from tests.support import claude
from tests.support.modelserver import ModelServer, Step, call, say
from tests.support.scripted_place import Place
from tests.web.conftest import LONG, Tab, serving

HOSTILE = "touch second; echo '<script>document.title=1</script>\u202e'"


class Claude:
    """A place with the real program."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.place = Place(folder)
        self.server = server
        self.place.environ |= claude.clean_env(self.place.home, server.url)
        self.place.environ["STENO_LEDGER"] = str(folder / "ledger.db")
        open_ledger(str(folder / "ledger.db")).close()  # requests may be asked for before the run

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        program = claude.installed("2.1.325")
        return self.place.start("run", "--program", program, *options, "do it")

    def requests(self) -> list[dict[str, Any]]:
        done = self.place.steno("team", "requests", "--json")
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        return rows

    def results(self) -> list[str]:
        """What the agent told the model about its calls."""
        blocks = [
            block
            for message in self.server.asked[-1].body["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block.get("type") == "tool_result"
        ]
        return [json.dumps(block["content"]) for block in blocks]


@contextmanager
def scripted(folder: Path, *steps: Step) -> Iterator[Claude]:
    with ModelServer(*steps) as server:
        yield Claude(folder, server)


def test_one_call_is_permitted_on_the_page_and_one_denied_by_command(
    chromium: Any, tmp_path: Path
) -> None:
    """The run waits longer than it may be silent. What is shown is escaped."""
    steps = (call("Bash", command="touch first"), call("Bash", command=HOSTILE), say("Done."))
    with scripted(tmp_path, *steps) as agent, serving(agent.place, "--allow-actions") as server:
        opened = Tab(chromium, server)
        page = opened.open("/")
        run = agent.start(
            "--permission-relay", "--tool-silence", "3s", "--silence", "20s", "--name", "worker"
        )
        page.locator(".request b", has_text="Bash").wait_for()
        assert page.locator(".request pre").inner_text() == '{"command":"touch first"}'
        page.reload()  # from here on without news, as without JavaScript
        assert page.locator(".request pre").inner_text() == '{"command":"touch first"}'
        page.wait_for_timeout(5000)  # longer than --tool-silence
        assert run.poll() is None
        assert not (agent.place.work / "first").exists()
        page.get_by_role("button", name="Permit").click()
        wait_for((agent.place.work / "first").exists)
        second = page.locator(".request pre", has_text="touch second")
        second.wait_for()
        assert "\\u202e" in second.inner_text()
        assert page.locator(".request :is(script, img)").count() == 0
        page.locator(".request a", has_text="worker").click()
        page.locator(".verdict-card .verdict", has_text="running").wait_for()
        page.locator("#requests .request").wait_for()
        (request,) = agent.requests()
        words = ("team", "approve", request["id"], "--deny", "--reason", "no second one")
        assert agent.place.steno(*words).stdout.startswith(b"denied: Bash (waited ")
        page.locator("#requests .request").wait_for(state="detached")
        _, err = run.communicate(timeout=LONG)
        opened.context.close()
        assert opened.errors == []
        log = err.decode()
        assert "steno: permission needed: Bash touch first; answer with:" in log
        assert ", page)\n" in log
        assert not (agent.place.work / "second").exists()
        assert "Permission denied by the user: no second one" in agent.results()[1]
        assert run.returncode == 3  # the verdict `permission`
        assert log.count("permission  ") == 1


def test_without_an_answer_the_call_is_denied(tmp_path: Path) -> None:
    steps = (call("Bash", command="touch made"), say("Done."))
    with scripted(tmp_path, *steps) as agent:
        run = agent.start("--permission-relay", "--permission-timeout", "2s")
        _, err = run.communicate(timeout=LONG)
        assert ", timeout): no answer within 2 s\n" in err.decode()
        assert "Permission denied: no answer within 2 s" in agent.results()[0]
        assert run.returncode == 3
        assert not (agent.place.work / "made").exists()
        assert agent.requests() == []


def test_an_interrupt_ends_a_run_that_waits(tmp_path: Path) -> None:
    with scripted(tmp_path, call("Bash", command="touch made"), say("Done.")) as agent:
        run = agent.start("--permission-relay")
        wait_for(agent.requests)
        servers = _children_named(run.pid, "mcp")
        assert servers
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=LONG)
        assert run.returncode == 130
        assert agent.requests() == []  # its run has ended
        assert not any(map(_exists, servers))


def test_it_asks_steno_for_its_own_context(tmp_path: Path) -> None:
    """Through its own MCP configuration; the run is known by the environment."""
    config = {"mcpServers": {"steno": {"command": "steno", "args": ["mcp"]}}}
    with scripted(tmp_path, call("mcp__steno__status"), say("Done.")) as agent:
        _link_steno(agent.place)
        words = ("--mcp-config", json.dumps(config), "--allow", "mcp__steno", "--max-cost", "2")
        run = agent.start("--json", *words)
        out, err = run.communicate(timeout=LONG)
        assert run.returncode == 0, err
        report = json.loads(out)
        (result,) = agent.results()
        status = json.loads(json.loads(result)[0]["text"])
        assert (status["run_id"], status["session_id"]) == (
            report["attempts"][0]["run_id"],
            report["session_id"],
        )
        assert status["context"]["used"] == 9_704  # of the first request
        assert (status["task"]["max_cost_usd"], status["task"]["turns"]) == (2.0, 1)
        assert report["tool_counts"] == {"mcp__steno__status": {"calls": 1, "errors": 0}}


def _link_steno(place: Place) -> None:
    """`steno` in the PATH of the agent."""
    import sys

    program = place.folder / "bin" / "steno"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m steno "$@"\n')
    program.chmod(0o755)
    place.environ["PATH"] = f"{place.folder / 'bin'}{os.pathsep}{os.defpath}"


def _children_named(pid: int, word: str) -> list[int]:
    """The processes below one with a word in their command."""
    import psutil

    children = psutil.Process(pid).children(recursive=True)
    return [child.pid for child in children if word in child.cmdline()]


def _exists(pid: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(pid)) and psutil.Process(pid).status() != "zombie"
