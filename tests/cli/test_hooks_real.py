"""The real Claude Code with steno's hooks, started without steno. Needs `make cli`."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.agent_programs import search_path
from tests.support.claude import clean_env, installed
from tests.support.modelserver import ModelServer, Step, call, say
from tests.support.scripted_place import Place

VERSION = "2.1.325"
POLICY = 'forbid_commands = ["git push"]\nallow_files = ["src/"]\n'


def run_claude(place: Place, *steps: Step, stderr: bytes = b"") -> tuple[str, ModelServer]:
    """The answer of `claude -p`, and the model's server; `stderr` is how its stderr begins."""
    program = installed(VERSION)
    with ModelServer(*steps) as model:
        environ = clean_env(place.home, model.url) | {
            "PATH": search_path(program),
            "XDG_DATA_HOME": place.environ["XDG_DATA_HOME"],
        }
        done = subprocess.run(
            [program, "-p", "do it", "--permission-mode", "bypassPermissions"],
            cwd=place.work,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr[: len(stderr) or None]) == (0, stderr)
    return done.stdout.decode(), model


def tool_results(model: ModelServer) -> list[tuple[bool, str]]:
    """What the model was told about its calls: is_error and text."""
    return [
        (bool(block.get("is_error")), str(block["content"]))
        for message in model.asked[-1].body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def rows(place: Place, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place.steno(*words, "--json", "--no-import").stdout)[
        "rows"
    ]
    return found


def test_a_session_is_recorded_and_subagents_count(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.steno("hooks", "install", "--yes").returncode == 0
    explore = {"description": "look", "prompt": "look around", "subagent_type": "general-purpose"}
    answer, model = run_claude(
        place,
        call("Bash", command="echo one", description="a step"),
        call("Agent", **explore),
        say("Seen."),
        say("Done."),
    )
    assert "Done." in answer
    (session,) = rows(place, "sessions")
    assert session["project"] == str(place.work)
    (usage,) = rows(place, "usage", "session")
    assert usage["requests"] == len(model.asked)


def test_the_ledger_follows_while_the_session_continues(tmp_path: Path) -> None:
    """Two turns of one session: what the first one left is not counted again."""
    place = Place(tmp_path)
    assert place.steno("hooks", "install", "--yes").returncode == 0
    program = installed(VERSION)
    requests = []
    with ModelServer(say("First."), say("Second.")) as model:
        environ = clean_env(place.home, model.url) | {
            "PATH": search_path(program),
            "XDG_DATA_HOME": place.environ["XDG_DATA_HOME"],
        }
        for more in ([], ["--continue"]):
            subprocess.run(
                [program, "-p", "next", *more],
                cwd=place.work,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=120,
                check=True,
            )
            (usage,) = rows(place, "usage", "session")
            requests.append(usage["requests"])
    assert requests == [1, 2]


def test_a_forbidden_call_is_refused_with_the_rule(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "policy.toml").write_text(POLICY)
    install = ("hooks", "install", "--policy", tmp_path / "policy.toml", "--yes")
    assert place.steno(*install).returncode == 0
    answer, model = run_claude(
        place,
        call("Bash", command="git push origin main", description="a step"),
        call("Write", file_path=str(place.work / "notes.md"), content="x"),
        call("Write", file_path=str(place.work / "src" / "a.py"), content="x"),
        say("Done."),
    )
    refused_command, refused_file, written = tool_results(model)
    assert refused_command[0]
    assert (
        "refused by the rule forbid_commands (git push): git push origin main"
        in (refused_command[1])
    )
    assert refused_file[0]
    assert "refused by the rule allow_files (src/): notes.md" in refused_file[1]
    assert not written[0]
    assert answer == "Done.\n"
    assert sorted(path.name for path in place.work.rglob("*") if path.is_file()) == ["a.py"]
    sql = "SELECT name, ok, denied FROM calls ORDER BY seq"
    calls = json.loads(place.steno("ledger", "sql", sql, "--json").stdout)["rows"]
    assert [(call["name"], call["ok"], call["denied"]) for call in calls] == [
        ("Bash", 0, 1),
        ("Write", 0, 1),
        ("Write", 1, 0),
    ]


def test_a_run_of_steno_with_hooks_is_counted_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.steno("hooks", "install", "--yes").returncode == 0
    program = installed(VERSION)
    steps = (call("Bash", command="echo one", description="a step"), say("Done."))
    with ModelServer(*steps) as model:
        place.environ |= clean_env(place.home, model.url) | {"PATH": search_path(program)}
        done = place.steno("run", "--json", "--allow", "Bash", "do it")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["requests"]) == (0, "success", 2)
    (usage,) = rows(place, "usage", "session")
    assert (usage["requests"], usage["tokens"]["total"]) == (2, report["tokens"]["total"])
    (run,) = rows(place, "runs")
    assert run["run_id"] == report["run_id"]


def test_broken_hooks_do_not_stop_claude(tmp_path: Path) -> None:
    """The policy was deleted and the ledger is damaged: Claude Code works as without hooks."""
    place = Place(tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    assert place.steno("hooks", "install", "--policy", policy, "--yes").returncode == 0
    policy.unlink()
    place.data.mkdir(parents=True, exist_ok=True)
    (place.data / "ledger.db").write_bytes(b"not a database" * 1000)
    answer, model = run_claude(
        place,
        call("Bash", command="echo git push", description="a step"),
        say("Done."),
        stderr=b"SessionEnd hook [",
    )
    assert (answer, tool_results(model)) == ("Done.\n", [(False, "git push")])


def test_a_missing_policy_refuses_if_asked_to(tmp_path: Path) -> None:
    place = Place(tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    install = ("hooks", "install", "--policy", policy, "--fail-closed", "--yes")
    assert place.steno(*install).returncode == 0
    policy.unlink()
    _, model = run_claude(
        place, call("Bash", command="touch x", description="a step"), say("Done.")
    )
    ((is_error, text),) = tool_results(model)
    assert is_error
    assert "refused: the policy could not be checked" in text
    assert not (place.work / "x").exists()
