"""`steno team` and `steno mcp` beside a run whose agent uses them, too."""

import asyncio
import getpass
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.runner.test_live_control import wait_for
from tests.support.claude_lines import answer, assistant, call, init, result, stream, text
from tests.support.scripted_place import Place

LONG = 60.0
TOOLS = {"status", "roster", "say", "inbox", "claim", "release", "claims", "search"}


class Beside:
    """An active run. Its agent has sent a message, claimed a file, and tried to approve a call."""

    def __init__(self, place: Place) -> None:
        self.place = place
        folder = place.folder
        first = stream(init(), assistant(text("Looking."), call("c1", "Bash", command="make")))
        rest = stream(answer("c1", "ok"), assistant(text("Done."), message="m2"), result("Done."))
        (folder / "first").write_bytes(first)
        (folder / "rest").write_bytes(rest)
        steno = f'"{sys.executable}" -m steno'
        place.program.write_text(
            f"""#!/bin/sh
[ "$1" = --help ] && exit 2
cd "{place.work}"
cat "{folder}/first"
env -u STENO_RUN {steno} team say --json "from the agent" > "{folder}/said" 2>&1
{steno} team claim --json a.py > "{folder}/claimed" 2>&1
{steno} team approve abcd > "{folder}/approved" 2>&1
touch "{folder}/ready"
while [ ! -e "{folder}/go" ]; do sleep 0.05; done
cat "{folder}/rest"
"""
        )
        self.process = place.start("run", "--name", "worker", "--max-cost", "5", "make it green")
        wait_for((folder / "ready").exists)
        (self.run,) = self.rows("ps")
        self.id = self.run["run_id"]

    def rows(self, *words: str) -> list[Any]:
        done = self.place.steno(*words, "--json")
        assert done.stderr == b""
        rows: list[Any] = json.loads(done.stdout)["rows"]
        return rows

    def finish(self) -> str:
        (self.place.folder / "go").touch()
        _, err = self.process.communicate(timeout=LONG)
        return err.decode()


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    found = Beside(Place(tmp_path_factory.mktemp("beside")))
    try:
        yield found
    finally:
        found.finish()


def said(beside: Beside, name: str) -> Any:
    return json.loads((beside.place.folder / name).read_text())["rows"][0]


def test_commands_of_an_agent_act_for_its_run(beside: Beside) -> None:
    """Known by the environment, or without it by the process tree; and it cannot approve."""
    message = said(beside, "said")
    assert (message["run_id"], message["from"]) == (beside.id, beside.run["task_id"])
    claim = said(beside, "claimed")
    assert (claim["owner"], claim["path"], claim["held"]) == (beside.run["task_id"], "a.py", True)
    refusal = (beside.place.folder / "approved").read_text()
    text = f"steno: abcd: only a person can decide; this is a command of run {beside.id}\n"
    assert refusal == text


def test_roster_and_messages(beside: Beside) -> None:
    (entry,) = beside.rows("team", "roster")
    assert (entry["run_id"], entry["name"], entry["agent"]) == (beside.id, "worker", "claude")
    assert (entry["health"], entry["state"], entry["tool"]) == ("active", "running", "Bash")
    place = beside.place
    table = place.steno("team", "roster").stdout.decode()
    assert table.split()[:5] == ["id", "name", "agent", "health", "context"]
    assert "worker" in table
    (message,) = beside.rows("team", "inbox")
    assert message["text"] == "from the agent"
    assert place.steno("team", "inbox").stdout == b"No new messages.\n"
    assert place.steno("team", "say", "--to", "worker", "hello").stdout == b"sent to worker\n"
    assert place.steno("team", "say", "--to", "nobody", "hello").stderr == (
        b"steno: nobody: no active run with this name or ID; see: steno team roster\n"
    )
    (read,) = beside.rows("team", "inbox", "--run", beside.id)
    assert (read["text"], read["to"]) == ("hello", "worker")


def test_waiting_for_a_claim_ends_at_its_time_and_at_an_interrupt(beside: Beside) -> None:
    place = beside.place
    task = beside.run["task_id"]
    done = place.steno("team", "claim", "--wait", "0.5s", "a.py")
    assert (done.returncode, done.stderr.decode()) == (1, f"steno: a.py: held by {task}; waiting\n")
    assert b"waiting (1 before)" in done.stdout
    waiting = place.start("team", "claim", "--wait", "1h", "b/../a.py")
    assert waiting.stderr is not None
    assert b"waiting" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=LONG)
    assert waiting.returncode == 130
    rows = beside.rows("team", "claims")
    assert [(row["path"], row["held"]) for row in rows] == [("a.py", True), ("a.py", False)]
    assert place.steno("team", "release", "a.py").stdout == b"released a.py\n"
    assert place.steno("team", "release").stdout == b"Nothing to release.\n"
    assert place.steno("team", "claim", "").stderr == b"steno: '': not a file name\n"


def test_help_and_wrong_use(beside: Beside) -> None:
    place = beside.place
    assert b"approve     permit or deny" in place.steno("team").stdout
    assert place.steno("team", "sya").stderr == (
        b"steno: unknown command 'sya'; did you mean say?\n"
    )
    assert place.steno("roster").stderr == (
        b"steno: unknown command 'roster'; did you mean team roster?\n"
    )
    assert place.steno("team", "approve", "ab", "--reason", "x").stderr == (
        b"steno: --reason needs --deny\n"
    )
    assert place.steno("team", "requests").stdout == b"No permission requests.\n"
    done = place.steno("run", "--agent", "codex", "--permission-relay", "x")
    assert done.stderr == b"steno: --permission-relay: not supported by codex\n"


# -- steno mcp -------------------------------------------------------------------------------------


def with_client(
    place: Place, use: Callable[[Any], Awaitable[None]], *options: str, **environ: str
) -> None:
    """Drive `steno mcp` with the client of the package mcp."""

    async def connect() -> None:
        async with asyncio.timeout(LONG), client_of(place, *options, **environ) as client:
            await use(client)

    with ThreadPoolExecutor(1) as pool:  # the browser of other tests has a loop in this thread
        pool.submit(lambda: asyncio.run(connect())).result()


def client_of(place: Place, *options: str, **environ: str) -> Any:
    from mcp import Client, StdioServerParameters

    env = {**place.environ, **environ}
    return Client(
        StdioServerParameters(
            command=sys.executable, args=["-m", "steno", "mcp", *options], env=env, cwd=place.work
        )
    )


async def ask(client: Any, tool: str, **arguments: Any) -> Any:
    reply = await client.call_tool(tool, arguments)
    assert not reply.is_error, reply.content
    return json.loads(reply.content[0].text)


def test_an_agent_asks_steno_about_itself_and_the_others(beside: Beside) -> None:
    place = beside.place

    async def use(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.description for tool in tools)
        status = await ask(client, "status")
        assert (status["run_id"], status["name"]) == (beside.id, "worker")
        assert (status["state"], status["agent"]) == ("running", "claude")
        assert status["context"]["used"] == beside.run["context"]["used"] is not None
        assert status["task"]["max_cost_usd"] == 5.0
        assert status["tokens"] == beside.run["tokens"]
        (entry,) = await ask(client, "roster")
        assert entry["run_id"] == beside.id
        assert (await ask(client, "say", text="through mcp"))["to"] == "all"
        place.steno("team", "say", "--to", beside.id, "to the agent")
        assert [one["text"] for one in await ask(client, "inbox")] == ["to the agent"]
        assert await ask(client, "inbox") == []
        claim = await ask(client, "claim", path="a.py")
        assert (claim["held"], claim["owner"]) == (True, beside.run["task_id"])
        assert (await ask(client, "claims"))[0]["path"] == "a.py"
        assert await ask(client, "search", words="green") == {"total": 0, "hits": []}
        outside = await client.call_tool("claim", {"path": "/etc/passwd"})
        assert outside.is_error
        assert "outside of" in outside.content[0].text

    with_client(place, use, STENO_RUN=f"{beside.id}:1:1:1")
    inbox = beside.rows("team", "inbox")
    assert [row["text"] for row in inbox] == ["through mcp"]


def test_the_run_can_be_named_and_its_permission_tool_asks(beside: Beside) -> None:
    """Two calls at once; the answers come in another order than the questions."""
    place = beside.place

    async def use(client: Any) -> None:
        first = asyncio.create_task(
            ask(client, "permission", tool_name="Bash", input={"command": "one"})
        )
        second = asyncio.create_task(
            ask(client, "permission", tool_name="Bash", input={"command": "two"})
        )
        while len(rows := await asyncio.to_thread(beside.rows, "team", "requests")) < 2:
            await asyncio.sleep(0.05)
        ids = {json.loads(row["input"])["command"]: row["id"] for row in rows}
        (asking,) = await asyncio.to_thread(beside.rows, "ps")
        assert asking["state"] == "asking"
        await asyncio.to_thread(place.steno, "team", "approve", ids["two"])
        assert await second == {"behavior": "allow", "updatedInput": {"command": "two"}}
        words = ("team", "approve", ids["one"], "--deny", "--reason", "not now")
        await asyncio.to_thread(place.steno, *words)
        message = "Permission denied by the user: not now"
        assert await first == {"behavior": "deny", "message": message}
        reply = await asyncio.to_thread(place.steno, *words)
        assert b"permission denied" in reply.stderr

    with_client(place, use, "--run", beside.id, "--permission-timeout", "1m")
    (state,) = beside.rows("ps")
    assert state["state"] == "running"


def test_without_a_run_it_acts_for_the_person(tmp_path: Path, ledger_url: str) -> None:
    """On both databases."""

    async def use(client: Any) -> None:
        status = await ask(client, "status")
        assert status["run_id"] is None
        assert status["task_id"].startswith("@")
        unknown = await client.call_tool("say", {"text": "x", "to": "none"})
        assert unknown.is_error
        assert (await ask(client, "claim", path="a.py", wait_seconds=5))["held"]
        answer = await ask(client, "permission", tool_name="Bash", input={"command": "ls"})
        assert answer == {
            "behavior": "deny",
            "message": "Permission denied: no answer within 0.5 s",
        }

    with_client(Place(tmp_path), use, "--ledger", ledger_url, "--permission-timeout", "0.5s")


def test_the_log_has_the_requests_and_claims_end_with_the_run(beside: Beside) -> None:
    """The last test of the module: it ends the run."""
    log = beside.finish()
    assert "steno: permission needed: Bash one; answer with: steno team approve " in log
    assert log.count("steno: permission granted (") == 1
    assert log.count("): not now\n") == 1
    assert beside.rows("team", "claims", "--all") == []
    assert beside.rows("team", "roster") == []
    replayed = subprocess.run(
        beside.place.command("logs", beside.id),
        env=beside.place.environ,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )
    assert "permission needed: Bash one" in replayed.stdout + replayed.stderr


def test_two_sessions_of_one_person_hold_a_file_one_after_the_other(beside: Beside) -> None:
    """Outside of a run. A message to the person reaches both; the end of a session releases."""
    place = beside.place
    person = f"@{getpass.getuser()}"

    async def use(first: Any) -> None:
        async with client_of(place) as second:
            claims = [await ask(one, "claim", path="shared.py") for one in (first, second)]
            assert [claim["held"] for claim in claims] == [True, False]
            owners = {claim["owner"] for claim in claims}
            assert len(owners) == 2
            assert {owner.partition(".")[0] for owner in owners} == {person}
            place.steno("team", "say", "--to", person, "to the person")
            for one in (first, second):
                assert "to the person" in [row["text"] for row in await ask(one, "inbox")]
        rows = [row for row in await ask(first, "claims") if row["path"] == "shared.py"]
        assert [row["position"] for row in rows] == [0]

    with_client(place, use)
    assert "shared.py" not in [row["path"] for row in beside.rows("team", "claims")]
