"""Batches in SQLite and PostgreSQL: run once, continued, limited, with dependencies."""

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from steno.fleet.spec import TaskResult
from steno.fleet.template import pipe_prompt
from tests.support.fleet import FleetPlace, wait_until

HOSTILE = "$(touch owned) `touch owned` \"'; touch owned #\n\n-x --help\n%s {0} {{x}} \\ é ✓ \u2028"


def test_each_task_runs_once(any_fleet: FleetPlace) -> None:
    place = any_fleet
    file = place.tasks(*({"name": f"t{n}", "prompt": f"number {n}"} for n in range(6)))
    done = place.fleet("batch", file, "--jobs", "3", "--tag", "kind=test", "--json")
    board = json.loads(done.stdout)
    assert (board["total"], board["states"], board["not_done"]) == (6, {"done": 6}, [])
    assert board["cost_usd"] == pytest.approx(0.06)
    place.fleet("batch", file, "--jobs", "3")  # starting it twice does not double it
    assert len(place.starts) == 6
    assert place.verdicts() == {"success": 6}
    assert place.successes() == {1: 6}
    # The runs are ordinary ones, with labels.
    rows = json.loads(place.steno("runs", "--no-import", "--tag", "kind=test", "--json").stdout)
    assert rows["total"]["runs"] == 6
    result = place.rows("tasks")["t3"]
    assert result["text"] == f"sha {hashlib.sha256(b'number 3').hexdigest()[:12]}"
    assert result["run_id"] in {row["run_id"] for row in rows["rows"]}
    assert place.fleet("output", "t3").stdout.decode() == f"{result['text']}\n"
    assert place.fleet("wait", "--tag", "kind=test").returncode == 0


def test_hostile_prompts_pass_unchanged(fleet: FleetPlace) -> None:
    large = "x" * 200_000 + HOSTILE
    (fleet.work / "prompt.md").write_text(large, "utf-8")
    file = fleet.tasks({"prompt": HOSTILE}, {"prompt_file": "prompt.md"})
    fleet.fleet("batch", file, "--jobs", "1")
    fleet.fleet("spawn", "--wait", "--", HOSTILE)
    expected = [hashlib.sha256(text.encode()).hexdigest() for text in (HOSTILE, large, HOSTILE)]
    assert [start["sha"] for start in fleet.starts] == expected
    assert not list(fleet.folder.rglob("owned"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("batch", "--retry", "nonsense"), "--retry: expected one or more of "),
        (("batch", "--rate", "5/0s"), "--rate: expected a rate such as 30/min or 5/s"),
        (("batch", "--name", "a/b c"), "--name: expected a name without /, found 'a/b c'"),
        (("batch", "--name", "a\tb"), "--name: expected one line of text"),
        (("batch", "--name", ""), "--name: expected one line of text"),
        (("worker", "--lease", "off"), "--lease: expected a duration such as 30 or 2m"),
    ],
)
def test_mistakes_in_options(words: tuple[str, ...], message: str, fleet: FleetPlace) -> None:
    file = [fleet.tasks({"prompt": "good"})] if words[0] == "batch" else ["--until-empty"]
    done = fleet.fleet(*words, *file, code=2)
    assert done.stderr.decode().startswith(f"steno: {message}")
    assert not list(fleet.data.glob("*fleet*"))


def test_batch_names_and_retries(fleet: FleetPlace) -> None:
    file = fleet.tasks({"prompt": "@fail", "retry": "invalid_request", "attempts": 2})
    fleet.fleet("batch", file, "--name", "my batch")
    assert fleet.fleet("wait", "my batch").returncode == 0
    assert len(fleet.starts) == 2  # the second attempt succeeds
    fleet.fleet("spawn", "--wait", "--retry", "invalid_request", "@fail")
    assert len(fleet.starts) == 4


def test_a_mistake_queues_nothing(fleet: FleetPlace) -> None:
    file = fleet.tasks({"prompt": "good"}, {"prompt": "x", "agnet": "codex"})
    done = fleet.fleet("batch", file, code=2)
    assert done.stderr.decode() == (
        f"steno: {file}:2: unknown field 'agnet'; did you mean agent?\n"
    )
    assert not list(fleet.data.glob("*fleet*"))


def test_interrupted_batch_continues(any_fleet: FleetPlace) -> None:
    place = any_fleet
    tasks = [{"name": f"t{n}", "prompt": f"{n}\n@sleep 1"} for n in range(6)]
    file = place.tasks(*tasks)
    process = place.start("fleet", "batch", file, "--jobs", "2")
    wait_until(lambda: len(place.starts) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"stopped; to continue: steno fleet batch " in err
    assert place.board()["states"].get("running") is None
    place.fleet("batch", file, "--jobs", "6")
    assert place.verdicts() == {"success": 6}
    assert place.successes() == {1: 6}
    # Sessions that were cut off were resumed, not begun again.
    starts = place.starts
    assert len(starts) > 6
    assert sum(start["resumed"] for start in starts) == len(starts) - 6


def graph(count: int) -> list[dict[str, object]]:
    """A tree: each task depends on the one at half its number; task 3 fails at first."""
    tasks: list[dict[str, object]] = []
    for number in range(1, count + 1):
        task: dict[str, object] = {"name": f"n{number}", "prompt": f"node {number}"}
        if number > 1:
            task["depends_on"] = [f"n{number // 2}"]
            task["prompt"] = f"node {number} after {{{{tasks.n{number // 2}.text}}}}"
        if number == 3:
            task["prompt"] = f"{task['prompt']}\n@fail-unless fixed"
        tasks.append(task)
    return tasks


def below(number: int, root: int) -> bool:
    while number > root:
        number //= 2
    return number == root


def test_graph_with_a_failure(fleet: FleetPlace) -> None:
    file = fleet.tasks(*graph(50))
    done = fleet.fleet("batch", file, "--jobs", "8", "--attempts", "1", code=1)
    blocked = {f"n{n}" for n in range(4, 51) if below(n, 3)}
    board = fleet.board()
    assert board["states"] == {"done": 49 - len(blocked), "failed": 1, "blocked": len(blocked)}
    assert board["failures"] == {"invalid_request": 1}
    assert b": n3\n" in done.stderr
    rows = fleet.rows("tasks", "--failed")
    assert rows.keys() == blocked | {"n3"}
    assert len(fleet.starts) == 50 - len(blocked)
    assert fleet.fleet("wait", "tasks", code=1).returncode == 1
    (fleet.work / "fixed").touch()
    fleet.fleet("retry", "tasks", "--failed")
    fleet.fleet("worker", "--until-empty", "--jobs", "8")
    assert fleet.board()["states"] == {"done": 50}
    assert fleet.verdicts() == {"success": 50}
    assert len(fleet.starts) == 51


def test_dependants_get_framed_results(fleet: FleetPlace) -> None:
    file = fleet.tasks(
        {"name": "a", "prompt": "first\n@say one </result> two"},
        {"name": "b", "prompt": "use {{tasks.a.text}}", "depends_on": ["a"]},
    )
    fleet.fleet("batch", file)
    prompt = 'use <result task="a" verdict="success">\none &lt;/result> two\n</result>'
    assert fleet.starts[1]["sha"] == hashlib.sha256(prompt.encode()).hexdigest()


def test_variables_are_not_looked_at_again(fleet: FleetPlace) -> None:
    variables = {"x": "{{tasks.a.verdict}} {{vars.y}}", "y": "why"}
    tasks = [
        {"name": "a", "prompt": "{{vars.x}}", "vars": variables},
        {"name": "b", "prompt": "{{vars.y}} {{tasks.a.verdict}} {{vars.x}}", "vars": variables},
    ]
    fleet.fleet("batch", fleet.tasks(tasks[0], {**tasks[1], "depends_on": ["a"]}))
    expected = [variables["x"], f"why success {variables['x']}"]
    assert [start["sha"] for start in fleet.starts] == [
        hashlib.sha256(prompt.encode()).hexdigest() for prompt in expected
    ]


def test_pipe_puts_results_before_the_prompt(fleet: FleetPlace) -> None:
    fleet.fleet("batch", fleet.tasks({"name": "a", "prompt": "1"}, {"name": "b", "prompt": "2"}))
    answer = fleet.fleet("pipe", "tasks", "--wait", "--", "summarise $(them)").stdout.decode()
    assert answer.startswith("sha ")
    assert fleet.starts[2]["sha"].startswith(answer.split()[1])
    none = fleet.fleet("pipe", "nothing", "--", "x", code=2)
    assert b"no task or batch 'nothing'" in none.stderr


def test_placeholders_in_results_and_spawned_prompts_stay(fleet: FleetPlace) -> None:
    text = "{{vars.v}} {{tasks.a.text}}"
    fleet.fleet("spawn", "--wait", f"use {text}")
    fleet.fleet("spawn", "--wait", "--name", "says", f"@say {text}")
    fleet.fleet("pipe", "says", "--wait", "--", f"sum up {text}")
    piped = pipe_prompt([TaskResult("says", "success", text)], f"sum up {text}")
    expected = [f"use {text}", f"@say {text}", piped]
    assert [start["sha"] for start in fleet.starts] == [
        hashlib.sha256(prompt.encode()).hexdigest() for prompt in expected
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("",), "prompt: empty; give a task to work on"),
        (("--name", "a/b", "x"), "--name: expected letters, digits, dots, dashes and underscores"),
        (("--agent", "codx", "x"), "--agent: unknown agent 'codx'; did you mean codex?"),
    ],
)
def test_mistakes_in_spawn(words: tuple[str, ...], message: str, fleet: FleetPlace) -> None:
    done = fleet.fleet("spawn", *words, code=2)
    assert done.stderr.decode().startswith(f"steno: {message}")
    assert not list(fleet.data.glob("*fleet*"))


def test_pipe_takes_runs_of_the_ledger(fleet: FleetPlace) -> None:
    assert fleet.steno("run", "--name", "single", "@say forty-two").returncode == 0
    ((run,),) = fleet.query("SELECT id FROM runs")
    fleet.fleet("pipe", run[:10], "--wait", "--", "double it")
    result = TaskResult("single", "success", "forty-two")
    prompt = pipe_prompt([result], "double it")
    assert fleet.starts[1]["sha"] == hashlib.sha256(prompt.encode()).hexdigest()
    none = fleet.fleet("pipe", "feedfeed", "--", "x", code=2)
    assert b"no task or batch 'feedfeed'" in none.stderr


def test_prune_deletes_finished_tasks(any_fleet: FleetPlace) -> None:
    fleet = any_fleet
    graph: list[dict[str, object]] = [
        {"name": "first", "prompt": "1"},
        {"name": "bad", "prompt": "@fail"},
        {"name": "later", "prompt": "2", "depends_on": ["first"]},
    ]
    fleet.fleet("batch", fleet.tasks(*graph), "--detach", "--rate", "2/999h")
    worker = fleet.worker("--jobs", "2")
    wait_until(lambda: fleet.board()["states"] == {"done": 1, "failed": 1, "waiting": 1})
    worker.terminate()
    worker.wait(60)
    # "later" needs the result of "first", which therefore stays.
    shown = fleet.fleet("prune", "tasks").stdout
    assert shown == b"Dry run: would delete 1 finished task; run again with --yes.\n"
    assert fleet.fleet("prune", "--older-than", "1d", "--yes").stdout == b"0 tasks deleted\n"
    assert fleet.fleet("prune", "tasks", "--yes").stdout == b"1 task deleted\n"
    assert fleet.board()["states"] == {"done": 1, "waiting": 1}
    fleet.fleet("cancel", "tasks")
    rows = json.loads(fleet.fleet("prune", "tasks", "--yes", "--json").stdout)
    assert (rows["total"], rows["dry_run"]) == (2, False)
    assert fleet.fleet("status", "tasks", code=2).stderr
    assert len(fleet.query("SELECT id FROM runs")) == 2  # the ledger keeps them
    assert not fleet.fleet("prune", code=2).stdout
    # The same file is a new batch.
    fleet.fleet("batch", "tasks.jsonl", "--jobs", "2", "--json", code=1)
    assert fleet.board()["states"] == {"done": 2, "failed": 1}


def test_wait_ends_with_124(fleet: FleetPlace) -> None:
    file = fleet.tasks({"name": "a", "prompt": "1"})
    assert b"no worker is active" in fleet.fleet("batch", file, "--detach").stderr
    began = time.monotonic()
    done = fleet.fleet("wait", "a", "--timeout", "1", code=124)
    assert time.monotonic() - began < 20
    assert done.stderr.endswith(b"steno: 1 of 1 tasks have not ended\n")


def test_cancelled_tasks_do_not_run(fleet: FleetPlace) -> None:
    file = fleet.tasks(
        {"name": "a", "prompt": "@sleep 60", "tags": {"kind": "x"}},
        {"name": "b", "prompt": "b", "tags": {"kind": "x"}},
        {"name": "c", "prompt": "c", "depends_on": ["b"]},
    )
    fleet.fleet("batch", file, "--detach", "--jobs", "1")
    worker = fleet.worker("--jobs", "1")
    wait_until(lambda: fleet.starts)
    fleet.fleet("cancel", "--tag", "kind=x")
    assert fleet.board()["states"] == {"cancelled": 2, "blocked": 1}
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert len(fleet.starts) == 1
    assert fleet.fleet("wait", "tasks", code=1).returncode == 1


def test_worker_drains(fleet: FleetPlace) -> None:
    tasks = [{"name": f"t{n}", "prompt": f"{n}\n@sleep 3"} for n in range(4)]
    fleet.fleet("batch", fleet.tasks(*tasks), "--detach", "--jobs", "2")
    worker = fleet.worker("--jobs", "2")
    wait_until(lambda: len(fleet.starts) == 2)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert fleet.board()["states"] == {"done": 2, "waiting": 2}
    assert len(fleet.starts) == 2


def test_policy_and_limits_of_a_task(fleet: FleetPlace) -> None:
    (fleet.work / "policy.toml").write_text("max_cost = 0.001\n")
    file = fleet.tasks(
        {"name": "strict", "prompt": "1", "policy": "policy.toml"},
        {"name": "slow", "prompt": "@sleep 60", "timeout": "1s", "attempts": 1},
    )
    fleet.fleet("batch", file, code=1)
    rows = fleet.rows("tasks")
    assert (rows["strict"]["state"], rows["strict"]["verdict"]) == ("failed", "policy")
    assert rows["slow"]["verdict"] == "timeout"


def test_worktrees_and_commits(fleet: FleetPlace) -> None:
    repository = fleet.work / "repo"
    git = "git -c user.name=x -c user.email=x@y -C repo"
    for command in (
        f"git init -q repo && echo one > repo/f && {git} add f && {git} commit -qm one",
        f"echo two > repo/f && {git} commit -qam two",
    ):
        assert os.system(f"cd {fleet.work} && {command}") == 0
    file = fleet.tasks(
        {"name": "w", "prompt": "1\n@write new w", "cwd": "repo", "worktree": True},
        {"name": "c", "prompt": "2", "repository": "repo", "commit": "HEAD~1"},
        {"name": "u", "prompt": "3", "repository": f"file://{repository}", "commit": "HEAD~1"},
        {"name": "bad", "prompt": "4", "repository": "repo", "commit": "nothing"},
    )
    fleet.fleet("batch", file, code=1)
    rows = fleet.rows("tasks")
    assert {name: row["state"] for name, row in rows.items()} == {
        "w": "done",
        "c": "done",
        "u": "done",
        "bad": "failed",
    }
    assert rows["bad"]["error"] == f"commit nothing: not found in {repository}"
    folders = {name: Path(row["cwd"]) for name, row in rows.items() if row["cwd"]}
    assert (folders["w"] / "f").read_text() == "two\n"
    assert (folders["w"] / "new").read_text() == "w\n"
    assert not (repository / "new").exists()
    assert (folders["c"] / "f").read_text() == (folders["u"] / "f").read_text() == "one\n"


def test_corrected_file_completes_the_batch(any_fleet: FleetPlace) -> None:
    """The old line is replaced, what depends on it starts, and a deleted line does not run."""
    fleet = any_fleet
    lines: list[dict[str, object]] = [
        {"name": "a", "prompt": "@fail"},
        {"name": "b", "prompt": "{{tasks.a.text}}", "depends_on": ["a"]},
        {"name": "c", "prompt": "3"},
    ]
    fleet.fleet("batch", fleet.tasks(*lines), code=1)
    assert fleet.board()["states"] == {"failed": 1, "blocked": 1, "done": 1}
    lines[0]["prompt"] = "@say right"
    said = fleet.fleet("batch", fleet.tasks(*lines[:2]))
    assert b"tasks: 1 new, 1 known before, 1 no longer in the file" in said.stderr
    assert fleet.board()["states"] == {"done": 3}  # what has succeeded stays
    assert fleet.fleet("output", "tasks/a").stdout == b"right\n"
    assert len(fleet.starts) == 4


def test_batch_keeps_its_limits(fleet: FleetPlace) -> None:
    tasks = fleet.tasks(*({"prompt": f"{n}\n@cost 0.4"} for n in range(5)))
    fleet.fleet("batch", tasks, "--budget", "1", "--jobs", "1", code=1)
    states = fleet.board()["states"]
    assert states["blocked"] >= 1
    again = fleet.fleet("batch", tasks, "--jobs", "1", code=1)
    assert b"--budget 1 as before; --budget off removes it" in again.stderr
    assert fleet.board()["states"] == states
    fleet.fleet("batch", tasks, "--jobs", "1", "--budget", "off")
    assert fleet.board()["states"] == {"done": 5}


def test_more_budget_continues_what_it_stopped(fleet: FleetPlace) -> None:
    file = fleet.tasks({"prompt": "@spend 0.05"})
    fleet.fleet("batch", file, "--budget", "0.2", code=1)
    assert fleet.board()["failures"] == {"max_budget": 1}
    fleet.fleet("batch", file, "--budget", "0.2", code=1)
    assert len(fleet.starts) == 1  # nothing is left of it
    fleet.fleet("batch", file, "--budget", "0.4", code=1)
    assert len(fleet.starts) == 2


def test_stopped_runs_count_for_the_budget(fleet: FleetPlace) -> None:
    file = fleet.tasks({"name": "a", "prompt": "@spend 0.05"})
    process = fleet.start("fleet", "batch", file.name, "--budget", "9", stderr=subprocess.PIPE)
    wait_until(lambda: fleet.starts)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert b"stopped; to continue: steno fleet batch tasks.jsonl --budget 9" in errors
    assert fleet.board()["states"] == {"waiting": 1}
    assert fleet.board()["cost_usd"] > 0.1
    fleet.fleet("cancel", "a")


def test_worker_prints_finished_tasks_as_json(fleet: FleetPlace) -> None:
    tasks = fleet.tasks({"name": "a", "prompt": "@say one"}, {"name": "b", "prompt": "@fail"})
    fleet.fleet("batch", tasks, "--detach")
    lines = fleet.fleet("worker", "--until-empty", "--json").stdout.splitlines()
    rows = {row["name"]: row["state"] for row in map(json.loads, lines)}
    assert rows == {"a": "done", "b": "failed"}


def test_spawn_that_waits_runs_only_its_own_task(fleet: FleetPlace) -> None:
    for number in range(3):
        fleet.fleet("spawn", f"{number}\n@sleep 30")
    assert fleet.fleet("spawn", "--wait", "@say mine").stdout == b"mine\n"
    assert len(fleet.starts) == 1
    assert fleet.board("spawn")["states"] == {"waiting": 3}
