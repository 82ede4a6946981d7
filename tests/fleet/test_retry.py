"""Tasks that failed: everything that counts them agrees, and what a retry tells the agent."""

import json
from typing import Any

import pytest

from steno import Ledger
from tests.support.fleet import FleetPlace, wait_until
from tests.support.program import ROOT

RECORDINGS = ROOT / "tests" / "recordings" / "claude" / "2.1.325"
CHECK = "Check what is done already, then finish it."
Json = dict[str, Any]


def replay(name: str, case: str) -> Json:
    recording = str(RECORDINGS / case)
    return {"name": name, "prompt": name, "agent": "replay", "recording": recording, "speed": 0}


FAILING = (  # task, verdict, reason
    (replay("denied", "permission_denied"), "permission", "2 calls denied (Write, Bash)"),
    (
        {"name": "asks", "prompt": "@ask Which colour?"},
        "interactive",
        "asks: Which colour?",
    ),
    (
        {"name": "broken", "prompt": "@fail"},
        "invalid_request",
        "API Error: 400 broken on purpose",
    ),
    (
        {"name": "slow", "prompt": "@sleep 60", "timeout": 1, "attempts": 1},
        "timeout",
        "stopped by steno: timed out after 1 s (--timeout)",
    ),
    (
        {**replay("cut", ""), "recording": "cut.jsonl", "attempts": 1},
        "no_result",
        "the stream ended without a result (exit code 0, but the end of its output is missing)",
    ),
)


def test_all_counts_of_failed_tasks_agree(any_fleet: FleetPlace) -> None:
    fleet = any_fleet
    good = [
        replay(f"t{n}", "multi_tool_edit") if n % 3 else {"name": f"t{n}", "prompt": f"number {n}"}
        for n in range(15)
    ]
    failing = [task for task, _, _ in FAILING]
    tasks = [*good[:8], *failing[:3], *good[8:], *failing[3:]]
    file = fleet.tasks(*tasks)
    lines = (RECORDINGS / "multi_tool_edit" / "stdout").read_bytes().splitlines(keepends=True)
    (fleet.work / "cut.jsonl").write_bytes(b"".join(lines[:4]))
    done = fleet.fleet("batch", file, "--jobs", "4", "--tag", "kind=test", code=1)
    expected = {task["name"]: (verdict, reason) for task, verdict, reason in FAILING}
    text = done.stderr.decode()
    for name, (verdict, reason) in expected.items():
        assert f"steno: 1 failed task, {verdict}: {reason}: {name}\n" in text
    assert "again: steno fleet retry tasks --failed\n" in text

    board = fleet.board()
    assert (board["failed"], board["total"]) == (5, 20)
    assert board["failures"] == {verdict: 1 for verdict, _ in expected.values()}
    assert "done 15 · failed 5 (" in fleet.fleet("status", "tasks").stdout.decode()
    rows = [json.loads(line) for line in fleet.fleet("collect", "tasks").stdout.splitlines()]
    assert [row["name"] for row in rows] == [task["name"] for task in tasks]
    assert [row["prompt"] for row in rows] == [task["prompt"] for task in tasks]
    assert all(row["tags"] == {"kind": "test"} for row in rows)
    collected = fleet.rows("tasks", "--failed")
    assert {name: (row["verdict"], row["reason"]) for name, row in collected.items()} == expected
    listed = json.loads(fleet.steno("runs", "--failed", "--no-import", "--json").stdout)["rows"]
    assert {row["name"]: (row["verdict"], row["reason"]) for row in listed} == expected
    with Ledger(fleet.ledger) as ledger:
        runs = ledger.runs(failed=True)
    assert {run.name: (run.verdict, run.reason) for run in runs} == expected


def last_prompt(fleet: FleetPlace) -> str:
    return str(fleet.starts[-1]["prompt"])


def run_again(fleet: FleetPlace, *words: str) -> Json:
    """Retry the task and run it; its row."""
    fleet.fleet("retry", "tasks", *words)
    fleet.fleet("worker", "--until-empty", "--jobs", "1")
    (row,) = fleet.rows("tasks").values()
    return row


def test_a_retry_says_what_was_denied(any_fleet: FleetPlace) -> None:
    fleet = any_fleet
    fleet.fleet("batch", fleet.tasks({"name": "a", "prompt": "Do it.\n@needs Write"}), code=1)
    denied = "The last run of this task was not finished: 1 call denied (Write)."
    row = run_again(fleet)
    assert (row["state"], row["reason"]) == ("failed", "1 call denied (Write)")
    assert last_prompt(fleet) == (
        f"{denied} Still not permitted: find another way, or say what you need.\n{CHECK}\n\n"
        "Do it.\n@needs Write"
    )
    row = run_again(fleet, "--allow", "Write", "--allow", "Bash(make test)")
    assert (row["state"], row["reason"]) == ("done", None)
    permitted = "Permitted now: Write, Bash(make test)."
    assert last_prompt(fleet).startswith(f"{denied} {permitted}\n{CHECK}\n\n")
    assert [start["resumed"] for start in fleet.starts] == [False, True, True]
    assert json.loads(fleet.steno("runs", "--failed", "--no-import", "--json").stdout)["rows"] == []


def test_no_success_after_a_denial_without_a_call(fleet: FleetPlace) -> None:
    fleet.fleet("batch", fleet.tasks({"name": "a", "prompt": "@needs Write\n@idle"}), code=1)
    reason = "1 call denied (Write); no call and no change since"
    for words in ([], ["--allow", "Write"]):  # however often
        row = run_again(fleet, *words)
        assert (row["verdict"], row["reason"], row["text"]) == ("permission", reason, "I did it.")
    listed = json.loads(fleet.steno("runs", "--failed", "--no-import", "--json").stdout)["rows"]
    assert [row["reason"] for row in listed] == [reason, reason, "1 call denied (Write)"]
    shown = fleet.steno("show", "--json", listed[0]["source"])  # the recording says it, too
    assert json.loads(shown.stdout)["verdict"] == "permission"


def test_a_retry_within_a_task_is_no_success_either(fleet: FleetPlace) -> None:
    task = {"name": "a", "prompt": "@needs Write", "retry": "permission", "attempts": 2}
    fleet.fleet("batch", fleet.tasks(task), code=1)
    (row,) = fleet.rows("tasks").values()
    assert len(fleet.starts) == 2
    assert row["reason"] == "1 call denied (Write); no call and no change since"


def test_a_retry_answers_a_question(any_fleet: FleetPlace) -> None:
    fleet = any_fleet
    prompt = "Paint it.\n@ask Which colour?"
    fleet.fleet("batch", fleet.tasks({"name": "a", "prompt": prompt}), code=1)
    asked = "The last run of this task ended with a question: Which colour?"
    row = run_again(fleet)
    assert (row["verdict"], row["reason"]) == ("interactive", "asks: Which colour?")
    assert (
        last_prompt(fleet) == f"{asked}\nNobody answers it: decide yourself.\n{CHECK}\n\n{prompt}"
    )
    row = run_again(fleet, "--answer", "Blue, and matt.")
    assert (row["state"], row["text"]) == ("done", "Blue, and matt.")
    assert last_prompt(fleet) == f"{asked}\nThe answer: Blue, and matt.\n{CHECK}\n\n{prompt}"


def test_a_retry_says_what_failed(fleet: FleetPlace) -> None:
    prompt = "@fail-unless fixed"
    task = {"name": "a", "prompt": prompt}
    fleet.fleet("batch", fleet.tasks(task), code=1)
    (fleet.work / "fixed").touch()
    assert run_again(fleet)["state"] == "done"
    failed = "The last run of this task failed: API Error: 400 broken on purpose."
    assert last_prompt(fleet) == f"{failed}\n{CHECK}\n\n{prompt}"


MISTAKES = {
    "--answer= ": "--answer: empty; give the text that the agent gets",
    "--answer=x": "--answer: denied is a replay, which repeats its recording",
    "--allow=Write": "--allow: denied is a replay, which repeats its recording",
}


@pytest.mark.parametrize("option", MISTAKES)
def test_mistakes_in_a_retry(fleet: FleetPlace, option: str) -> None:
    fleet.fleet("batch", fleet.tasks(replay("denied", "permission_denied")), code=1)
    done = fleet.fleet("retry", "tasks", option, code=2)
    assert done.stderr.decode() == f"steno: {MISTAKES[option]}\n"
    assert fleet.board()["states"] == {"failed": 1}  # nothing was queued


def test_what_a_person_stopped_has_not_failed(fleet: FleetPlace) -> None:
    file = fleet.tasks(
        {"name": "stopped", "prompt": "@await never"},
        {"name": "dropped", "prompt": "1"},
        {"name": "bad", "prompt": "@fail", "attempts": 1},
        {"name": "next", "prompt": "2", "depends_on": ["bad"]},
    )
    fleet.fleet("batch", file, "--detach")
    fleet.fleet("cancel", "dropped")
    worker = fleet.worker("--until-empty", "--jobs", "2")
    wait_until(lambda: len(fleet.starts) == 2 and fleet.board()["failed"])
    (active,) = json.loads(fleet.steno("ps", "--json").stdout)["rows"]
    fleet.steno("stop", active["run_id"])
    assert worker.wait(60) == 0
    board = fleet.board()
    assert board["states"] == {"blocked": 1, "cancelled": 2, "failed": 1}
    assert (board["failed"], board["failures"]) == (2, {"invalid_request": 1})
    assert b"failed 2 (invalid_request 1, blocked 1)" in fleet.fleet("status").stdout
    assert sorted(fleet.rows("tasks", "--failed")) == ["bad", "next"]
    lines = fleet.fleet("wait", "tasks", code=1).stderr.decode().splitlines()
    assert lines == [
        "steno: 1 failed task, invalid_request: API Error: 400 broken on purpose: bad",
        "steno: 1 failed task, blocked: a task it depends on did not succeed: next",
        "steno: 1 task, cancelled: interrupted (Ctrl-C or steno stop): stopped",
        "steno: 1 task, cancelled: dropped",
        "steno: see: steno fleet collect tasks --failed; again: steno fleet retry tasks --failed",
    ]


def test_equal_reasons_are_one_line(fleet: FleetPlace) -> None:
    (fleet.work / "more").mkdir()
    for name in ("tasks.jsonl", "more/tasks.jsonl"):
        file = fleet.tasks(
            *({"name": f"t{n}", "prompt": "@fail", "attempts": 1} for n in range(10)), name=name
        )
        text = fleet.fleet("batch", file, code=1).stderr.decode()
    line = "10 failed tasks, invalid_request: API Error: 400 broken on purpose: t0, t1, t2, t3, "
    assert f"steno: {line}" in text
    board_id = json.loads(fleet.fleet("status", "--json").stdout)["batches"][0]["id"]
    assert f"again: steno fleet retry {board_id[:8]} --failed\n" in text  # two have this name


def test_collect_has_the_order_of_the_file(fleet: FleetPlace) -> None:
    tasks = [{"name": f"t{n}", "prompt": f"{n}"} for n in range(3)]
    fleet.fleet("batch", fleet.tasks(*tasks))
    tasks[1]["prompt"] = "another"  # a corrected line is a new task
    fleet.fleet("batch", fleet.tasks({"name": "first", "prompt": "0"}, *tasks))
    lines = fleet.fleet("collect", "tasks").stdout.splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    assert prompts[-4:] == ["0", "0", "another", "2"]
