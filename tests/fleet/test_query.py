"""What the fleet's commands select, show and write."""

import json
import os
import platform
import pty
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from steno.fleet.board import active_workers, read_board
from steno.fleet.rows import PARKED_REASON, BatchRow, WorkerRow
from steno.fleet.spec import TaskSpec
from steno.fleet.store import FleetStore, open_fleet
from steno.installation import extra_command
from steno.views.fleet import outcome, render_tasks
from steno.views.table import PageStyle
from tests.support.fleet import FleetPlace, wait_until


def names(output: bytes) -> list[str]:
    return [row["name"] for row in json.loads(output)["rows"]]


def queue_batches(fleet: FleetPlace, *batches: str) -> None:
    """Batches of two tasks each, a and b, that no worker runs."""
    for batch in batches:
        path = fleet.work / f"{batch}.jsonl"
        path.parent.mkdir(exist_ok=True)
        tasks = [
            {"name": name, "prompt": f"{name} of {batch}", "tags": {"grp": name}} for name in "ab"
        ]
        fleet.fleet("batch", fleet.tasks(*tasks, name=f"{batch}.jsonl"), "--detach")


# -- selection -----------------------------------------------------------------------------------


def test_tags_filter_the_named_tasks(fleet: FleetPlace) -> None:
    queue_batches(fleet, "one", "two")
    cancelled = fleet.fleet("cancel", "one", "--tag", "grp=a", "--json").stdout
    assert names(cancelled) == ["a"]
    states = [fleet.board(batch)["states"] for batch in ("one", "two")]
    assert states == [{"waiting": 1, "cancelled": 1}, {"waiting": 2}]
    fleet.fleet("cancel", "--tag", "grp")  # tags alone: all tasks with them
    assert fleet.board("two")["states"] == {"cancelled": 2}
    pruned = fleet.fleet("prune", "two", "--tag", "grp=b", "--json").stdout
    assert names(pruned) == ["b"]
    done = fleet.fleet("cancel", "one", "--tag", "grp=c", code=2)
    assert done.stderr == b"steno: none of these tasks has the label grp=c\n"


@pytest.mark.parametrize("command", ["cancel", "retry", "prune"])
def test_a_name_in_two_batches_is_refused(fleet: FleetPlace, command: str) -> None:
    queue_batches(fleet, "one", "two")
    done = fleet.fleet(command, "a", code=2)
    message = done.stderr.decode()
    assert message.startswith("steno: a: 2 tasks (")
    assert {"one/a", "two/a"} == set(re.findall(r"\w+/a", message))
    assert message.endswith("; use BATCH/NAME\n")
    assert fleet.board("one")["states"] == fleet.board("two")["states"] == {"waiting": 2}
    fleet.fleet(command, "a", "b", "--tag", "grp=none", code=2)
    fleet.fleet("cancel", "one/a")
    assert fleet.board("one")["states"] == {"waiting": 1, "cancelled": 1}
    assert fleet.board("two")["states"] == {"waiting": 2}


def test_batches_of_one_name(fleet: FleetPlace) -> None:
    queue_batches(fleet, "x/tasks", "y/tasks")
    boards = json.loads(fleet.fleet("status", "tasks", "--json").stdout)["batches"]
    files = [board["file"] for board in boards]
    assert sorted(files) == [str(fleet.work / name / "tasks.jsonl") for name in "xy"]
    text = fleet.steno("fleet", "status", COLUMNS="300").stdout.decode()
    for board in boards:
        assert f"id {board['id'][:8]} · {board['file']}" in text
    message = fleet.fleet("cancel", "tasks", code=2).stderr.decode()
    assert message.startswith("steno: tasks: 2 batches (")
    assert all(board["id"][:8] in message for board in boards)
    assert b"use the batch's id" in fleet.fleet("cancel", "tasks/a", code=2).stderr
    first, second = (board["id"] for board in boards)
    fleet.fleet("cancel", first[:8])
    assert fleet.board(first)["states"] == {"cancelled": 2}
    assert fleet.board(second[:6])["states"] == {"waiting": 2}
    assert fleet.fleet("wait", first, code=1).returncode == 1


def test_retry_by_verdict(fleet: FleetPlace) -> None:
    file = fleet.tasks(
        {"name": "bad", "prompt": "@fail-unless fixed", "attempts": 1},
        {"name": "next", "prompt": "1", "depends_on": ["bad"]},
        {"name": "last", "prompt": "2", "depends_on": ["next"]},
        {"name": "dropped", "prompt": "3"},
        {"name": "after", "prompt": "4", "depends_on": ["dropped"]},
    )
    fleet.fleet("batch", file, "--detach")
    fleet.fleet("cancel", "dropped")
    fleet.fleet("worker", "--until-empty", "--jobs", "1")
    assert fleet.board()["states"] == {"failed": 1, "blocked": 3, "cancelled": 1}
    assert fleet.fleet("retry", "tasks", "--verdict", "api").stdout == b"0 tasks queued again\n"
    retried = fleet.fleet("retry", "tasks", "--verdict", "invalid_request", "--json").stdout
    assert sorted(names(retried)) == ["bad", "last", "next"]
    (fleet.work / "fixed").touch()
    fleet.fleet("worker", "--until-empty", "--jobs", "1")
    assert fleet.board()["states"] == {"done": 3, "blocked": 1, "cancelled": 1}


def test_cancel_without_dbos_changes_nothing(fleet: FleetPlace) -> None:
    queue_batches(fleet, "one")
    folder = fleet.folder / "missing"
    folder.mkdir()
    (folder / "dbos.py").write_text("raise ModuleNotFoundError('dbos')\n")
    done = fleet.steno("fleet", "cancel", "one", PYTHONPATH=str(folder))
    assert (done.returncode, done.stdout) == (2, b"")
    assert extra_command("fleet") in done.stderr.decode()
    assert fleet.board("one")["states"] == {"waiting": 2}


# -- workers and time left -----------------------------------------------------------------------


def test_lost_and_draining_workers(any_fleet: FleetPlace) -> None:
    fleet = any_fleet

    def workers() -> list[str]:
        status = json.loads(fleet.fleet("status", "--json").stdout)
        return [worker["state"] for worker in status["workers"]]

    def text() -> str:
        return fleet.fleet("status").stdout.decode()

    file = fleet.tasks({"name": "a", "prompt": "@await end"}, {"name": "b", "prompt": "1"})
    fleet.fleet("batch", file, "--detach", "--jobs", "1")
    worker = fleet.worker("--jobs", "1")
    wait_until(lambda: fleet.starts)
    assert "workers    1 on 1 machine, 1 task at once\n" in text()
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: workers() == ["draining"])
    assert "1 on 1 machine · 1 draining" in text()
    worker.kill()
    wait_until(lambda: workers() == ["lost"])
    assert "1 not responding · none is active; start one: steno fleet worker" in text()
    assert "worker not responding)" in text()
    assert fleet.board()["running"][0]["worker_state"] == "lost"
    with open_fleet(fleet.ledger) as store:
        assert store.workers()
        assert not active_workers(store)
    done = fleet.fleet("wait", "tasks", "--timeout", "0.5", code=124)
    assert b"no worker is active" in done.stderr


def timed_batch(store: FleetStore, *, jobs: int | None = None, **limits: float) -> BatchRow:
    """Six tasks, of which two took 10 s each, an hour ago."""
    specs = [
        (f"{number:019x}", TaskSpec(name=f"t{number}", prompt="x", cwd="/")) for number in range(6)
    ]
    batch = BatchRow(id="b", name="b", jobs=jobs, **limits)  # type: ignore[arg-type]
    store.add_batch(batch, specs, {})
    store.execute(
        "UPDATE fleet_tasks SET state = 'done', started_at = 1000, admitted_at = 5000, "
        "ended_at = 15000 WHERE number <= 2"
    )
    return batch


def add_worker(store: FleetStore, jobs: int, state: str = "active") -> None:
    worker = WorkerRow(f"w{jobs}", "host", 1, jobs, 0, 0, 60_000, state)
    store.register_worker(worker)


def test_time_left_does_not_count_idle_time(tmp_path: Path) -> None:
    with open_fleet(str(tmp_path / "ledger.db")) as store:
        batch = timed_batch(store, jobs=2)
        assert read_board(store, batch).eta_s is None  # no worker
        add_worker(store, 16, "draining")
        assert read_board(store, batch).eta_s is None
        add_worker(store, 4)
        assert read_board(store, batch).eta_s == pytest.approx(20)  # 4 tasks, 2 at once
        store.execute("UPDATE fleet_tasks SET state = 'waiting', ended_at = NULL")
        assert read_board(store, batch).eta_s is None  # nothing has ended
        store.execute("UPDATE fleet_tasks SET state = 'cancelled'")
        assert read_board(store, batch).eta_s == 0


def test_time_left_by_workers_and_rate(tmp_path: Path) -> None:
    with open_fleet(str(tmp_path / "ledger.db")) as store:
        batch = timed_batch(store)
        add_worker(store, 3)
        assert read_board(store, batch).eta_s == pytest.approx(40 / 3)
        add_worker(store, 8)
        assert read_board(store, batch).eta_s == pytest.approx(10)  # not less than one task
    with open_fleet(str(tmp_path / "other.db")) as store:
        batch = timed_batch(store, rate_count=1, rate_seconds=60.0)
        add_worker(store, 3)
        assert read_board(store, batch).eta_s == pytest.approx(240)


# -- wait ----------------------------------------------------------------------------------------


def test_wait_says_what_it_waits_for(fleet: FleetPlace) -> None:
    queue_batches(fleet, "one")
    done = fleet.fleet("wait", "one", "--timeout", "1", code=124)
    assert done.stderr.decode().splitlines() == [
        "steno: 0 of 2 tasks ended: waiting 2",
        "steno: no worker is active; start one: steno fleet worker",
        "steno: 2 of 2 tasks have not ended",
    ]
    quiet = fleet.fleet("wait", "one", "--timeout", "0.5", "--json", code=124)
    assert quiet.stderr == b"steno: 2 of 2 tasks have not ended\n"
    fleet.fleet("cancel", "one/b")
    ended = fleet.fleet("wait", "one", "--any", code=1)
    id_ = json.loads(fleet.fleet("output", "one/b", "--json").stdout)["id"]
    assert ended.stdout.decode() == f"one/b ({id_[:12]}): cancelled\n"
    assert ended.stderr == b""


def test_wait_on_a_terminal(fleet: FleetPlace) -> None:
    queue_batches(fleet, "one")
    outer, inner = pty.openpty()
    process = fleet.start("fleet", "wait", "one", "--timeout", "3", stdout=None, stderr=inner)
    os.close(inner)
    output = b""
    with os.fdopen(outer, "rb", 0) as file:
        while data := _read(file.fileno()):
            output += data
    assert process.wait(30) == 124
    assert b"\r\x1b[Ksteno: 0 of 2 tasks ended: waiting 2" in output
    assert output.count(b"no worker is active") == 1
    assert output.endswith(b"\r\x1b[Ksteno: 2 of 2 tasks have not ended\r\n")


def _read(file: int) -> bytes:
    try:
        return os.read(file, 4096)
    except OSError:  # the other end was closed
        return b""


# -- results -------------------------------------------------------------------------------------


def test_collect_writes_answers(fleet: FleetPlace) -> None:
    fleet.tasks(
        {"name": "a", "prompt": "@say one"}, {"name": "bad", "prompt": "@fail"}, name="one.jsonl"
    )
    fleet.tasks({"name": "a", "prompt": "@say two"}, name="two.jsonl")
    fleet.fleet("batch", "one.jsonl", "--attempts", "1", code=1)
    fleet.fleet("batch", "two.jsonl")
    fleet.fleet("batch", fleet.tasks({"name": "c", "prompt": "1"}, name="3.jsonl"), "--detach")
    done = fleet.fleet("collect", "one", "two", "3", "--output", "out")
    assert done.stderr == b"steno: 2 answers written to out/; 1 task not finished, 1 failed\n"
    assert _files(fleet.work / "out") == {"one/a.txt": "one", "two/a.txt": "two"}
    done = fleet.fleet("collect", "one", "--output", "single")
    assert done.stderr == b"steno: 1 answer written to single/; 1 failed\n"
    assert _files(fleet.work / "single") == {"a.txt": "one"}
    lines = fleet.fleet("collect", "one", "3")
    assert len(lines.stdout.splitlines()) == 2
    assert lines.stderr == b"steno: 1 task not finished\n"
    assert fleet.rows("one")["a"]["host"] == platform.node()
    for other in ("--json", "--failed"):
        assert fleet.fleet("collect", "one", "--output", "no", other, code=2).stderr
    assert not (fleet.work / "no").exists()


def test_collect_stays_below_its_folder(fleet: FleetPlace) -> None:
    first = fleet.tasks({"name": "a", "prompt": "@say one"}, name="one.jsonl")
    fleet.fleet("batch", first, "--name", "..", "--tag", "k=v")
    # A line that was edited is another task, of the same name.
    fleet.tasks({"name": "a", "prompt": "@say two"}, name="one.jsonl")
    fleet.fleet("batch", first, "--name", "..", "--tag", "k=v")
    second = fleet.tasks({"name": "b", "prompt": "@say three"}, name="two.jsonl")
    fleet.fleet("batch", second, "--tag", "k=v")
    before = set(fleet.folder.rglob("*.txt"))
    fleet.fleet("collect", "--tag", "k=v", "--output", "out")
    written = set(fleet.folder.rglob("*.txt")) - before
    assert all(path.is_relative_to(fleet.work / "out") for path in written)
    files = _files(fleet.work / "out")
    assert sorted(files.values()) == ["one", "three", "two"]
    assert files["two/b.txt"] == "three"
    assert next(text for name, text in files.items() if name.endswith("/a.txt")) == "two"


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


# -- status --------------------------------------------------------------------------------------


def test_status_of_a_new_machine(fleet: FleetPlace) -> None:
    del fleet.environ["STENO_LEDGER"]  # one that is named must exist
    text = fleet.fleet("status").stdout
    assert text == b"No batches yet; start one: steno fleet batch TASKS.jsonl\n"
    status = json.loads(fleet.fleet("status", "--all", "--json").stdout)
    assert status == {"batches": [], "workers": [], "pauses": []}
    assert b"no tasks yet" in fleet.fleet("status", "tasks", code=2).stderr
    assert not list(fleet.data.glob("*fleet*"))


def test_narrow_status(fleet: FleetPlace) -> None:
    name = "a-name-that-is-longer-than-the-terminal-on-which-it-is-shown"
    queue_batches(fleet, name)
    fleet.fleet("cancel", f"{name}/a")
    lines = fleet.steno("fleet", "status", COLUMNS="60").stdout.decode().splitlines()
    assert lines[0].startswith(f"1 of 2  {'█' * 15}{'░' * 15}  a-name")
    assert all(len(line) < 60 for line in lines)
    colours = fleet.steno("fleet", "status", COLUMNS="60", FORCE_COLOR="1").stdout.decode()
    assert colours.startswith("\x1b[1m1 of 2  ")
    assert "\u00a0" not in colours


def test_states_are_not_repeated(fleet: FleetPlace) -> None:
    queue_batches(fleet, "one")
    fleet.fleet("cancel", "one/a")
    with open_fleet(fleet.ledger) as store:
        sql = "UPDATE fleet_tasks SET state = 'parked', error = ? WHERE name = 'b'"
        store.execute(sql, (PARKED_REASON,))
        tasks = store.tasks("true")
    reason = PARKED_REASON.removeprefix("parked: ")
    assert [outcome(task) for task in tasks] == ["cancelled", f"parked: {reason}"]
    cancelled, parked = render_tasks(PageStyle(), tasks)[1:]
    assert cancelled.split()[1:] == ["a", "cancelled"]
    assert parked.endswith(f"  parked     {reason}")
    err = fleet.fleet("wait", "one", code=1).stderr.decode()
    assert err.startswith(
        f"steno: 1 failed task, parked: {reason}: b\nsteno: 1 task, cancelled: a\n"
    )


@pytest.mark.parametrize("content", [b"x" * 5000, None])
def test_damaged_queue(fleet: FleetPlace, content: bytes | None) -> None:
    path = Path(fleet.ledger).with_suffix(".fleet.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE other (x)")
        connection.close()
    else:
        path.write_bytes(content)
    message = fleet.fleet("status", code=2).stderr.decode()
    assert f"mv {path} {path}.damaged" in message
    assert "queued tasks are lost, the runs are in the ledger" in message
    assert "import" not in message
    assert len(message.splitlines()) == 1
