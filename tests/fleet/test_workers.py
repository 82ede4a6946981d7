"""Workers that die, are cut off, lose their database, or meet a limit."""

import itertools
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import postgres
from tests.support.fleet import FleetPlace, fleet_place, is_running, require_dbos, wait_until
from tests.support.proxy import proxied

_numbers = itertools.count()


@pytest.fixture
def server_fleet(tmp_path: Path, postgres_place: str) -> Iterator[FleetPlace]:
    """A fleet in PostgreSQL."""
    require_dbos()
    url = postgres.fresh(postgres_place, f"fleet_{next(_numbers)}")
    with fleet_place(tmp_path / "place", url) as place:
        yield place


def children(process: "subprocess.Popen[bytes]") -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


def sleepers(count: int, seconds: float) -> list[dict[str, object]]:
    return [{"name": f"t{n}", "prompt": f"{n}\n@sleep {seconds}"} for n in range(count)]


def finish(place: FleetPlace, count: int, batch: str = "tasks") -> None:
    """Wait for the batch, then check that each task has ended once."""
    place.fleet("wait", batch, "--timeout", "120")
    assert place.board(batch)["states"] == {"done": count}
    wait_until(lambda: None not in place.verdicts(), 30)  # runs that ended without the ledger
    assert place.verdicts() == {"success": count}
    assert place.successes() == {1: count}


def test_killed_worker_and_restarted_server(server_fleet: FleetPlace, postgres_place: str) -> None:
    place = server_fleet
    place.fleet("batch", place.tasks(*sleepers(18, 1.5)), "--detach", "--jobs", "9")
    workers = [place.worker("--jobs", "3") for _ in range(3)]
    wait_until(lambda: len(place.starts) >= 6 and len(children(workers[0])) >= 3)
    agents = children(workers[0])
    workers[0].kill()
    workers[0].wait()
    wait_until(lambda: not any(map(is_running, agents)), 20)  # they die with their worker
    postgres.restart(postgres_place)
    finish(place, 18)
    starts = place.starts
    assert len(starts) > 18
    assert any(start["resumed"] for start in starts)
    assert "is dead: taking over its tasks" in place.logs()
    for worker in workers[1:]:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert "Traceback" not in place.logs()


def test_cut_off_worker(server_fleet: FleetPlace, postgres_place: str) -> None:
    place = server_fleet
    place.fleet("batch", place.tasks(*sleepers(4, 8)), "--detach", "--jobs", "4")
    with proxied(postgres_place) as proxy:
        database = place.ledger.partition("?")[0].rpartition("/")[2]
        url = f"postgresql://steno@127.0.0.1:{proxy.port}/{database}"
        cut_off = place.worker("--jobs", "4", STENO_LEDGER=url)
        wait_until(lambda: len(place.starts) == 4)
        agents = children(cut_off)
        other = place.worker("--jobs", "4")
        proxy.cut()
        cut_at = time.time()
        # Its agents are killed before anybody else starts on their tasks.
        wait_until(lambda: len(place.starts) > 4)
        assert place.starts[4]["time"] - cut_at > 1.5
        assert not any(is_running(pid) for pid in agents)
        proxy.heal()
        finish(place, 4)
        assert [start["resumed"] for start in place.starts] == [False] * 4 + [True] * 4
        # It is back, and works on.
        place.fleet("batch", place.tasks({"prompt": "more"}, name="more.jsonl"), "--detach")
        other.send_signal(signal.SIGTERM)
        assert other.wait(60) == 0
        place.fleet("wait", "more", "--timeout", "60")
    assert "so that others can take over" in place.logs()


@pytest.mark.parametrize("dies", [False, True], ids=["returns", "dies"])
def test_results_of_a_cut_off_worker_do_not_count(
    server_fleet: FleetPlace, postgres_place: str, dies: bool
) -> None:
    """Its agents end while it has no contact; another worker has to run their tasks again."""
    place = server_fleet
    gate = place.folder / "gate"
    tasks = [{"name": f"t{n}", "prompt": f"{n}\n@await {gate}"} for n in range(3)]
    place.fleet("batch", place.tasks(*tasks), "--detach", "--jobs", "3")
    with proxied(postgres_place) as proxy:
        database = place.ledger.partition("?")[0].rpartition("/")[2]
        url = f"postgresql://steno@127.0.0.1:{proxy.port}/{database}"
        # As if on another machine: nobody here finds its recordings.
        machine = {"STENO_LEDGER": url, "XDG_DATA_HOME": str(place.folder / "elsewhere")}
        cut_off = place.worker("--jobs", "3", **machine)
        wait_until(lambda: len(place.starts) == 3)
        wait_until(lambda: len(place.query("SELECT id FROM runs")) == 3)
        other = place.worker("--jobs", "3")
        proxy.cut()
        gate.touch()
        wait_until(lambda: sum(line["what"] == "end" for line in place.log) == 3, 10)
        if dies:
            wait_until(lambda: "so that others can take over" in place.logs())
            cut_off.kill()
            cut_off.wait()
        place.fleet("wait", "tasks", "--timeout", "60")
        proxy.heal()
        if dies:
            place.worker("--jobs", "3", **machine)
        wait_until(lambda: len(place.query("SELECT id FROM runs WHERE verdict IS NULL")) == 0)
        finish(place, 3)
        rows = place.query("SELECT error, succeeded FROM runs WHERE verdict = 'interrupted'")
        assert len(rows) == 3
        assert all("result not used: " in error for error, _ in rows)
        # What they spent counts, once.
        assert place.board()["cost_usd"] == pytest.approx(0.03 if dies else 0.06)
        other.send_signal(signal.SIGTERM)
        assert other.wait(60) == 0
    assert "Traceback" not in place.logs()


def test_task_that_kills_its_workers_is_parked(fleet: FleetPlace) -> None:
    file = fleet.tasks({"name": "bad", "prompt": "@die nowhere"}, {"name": "good", "prompt": "1"})
    fleet.fleet("batch", file, "--detach", "--jobs", "1")
    for _ in range(4):  # the first one, and three that take over
        worker = fleet.worker("--jobs", "1", "--lease", "1", "--until-empty")
        assert worker.wait(60) == -signal.SIGKILL
    worker = fleet.worker("--jobs", "1", "--lease", "1", "--until-empty")
    assert worker.wait(60) == 0
    rows = fleet.rows("tasks")
    assert (rows["bad"]["state"], rows["good"]["state"]) == ("parked", "done")
    assert len(fleet.starts) == 5
    assert fleet.fleet("wait", "tasks", code=1).returncode == 1


def test_stopped_worker_is_not_taken_over(fleet: FleetPlace) -> None:
    """A worker that is suspended holds its lock: its agents may still run."""
    fleet.fleet("batch", fleet.tasks(*sleepers(1, 6)), "--detach")
    first = fleet.worker("--jobs", "1", "--lease", "1")
    wait_until(lambda: fleet.starts)
    first.send_signal(signal.SIGSTOP)
    fleet.worker("--jobs", "1", "--lease", "1")
    time.sleep(4)
    assert len(fleet.starts) == 1
    first.send_signal(signal.SIGCONT)
    finish(fleet, 1)


def test_rate_holds_over_all_workers(server_fleet: FleetPlace) -> None:
    place = server_fleet
    tasks = [{"name": f"t{n}", "prompt": str(n)} for n in range(12)]
    place.fleet("batch", place.tasks(*tasks), "--detach", "--jobs", "12", "--rate", "4/4s")
    for _ in range(3):
        place.worker("--jobs", "4")
    finish(place, 12)
    sql = "SELECT started_at FROM steno_fleet.fleet_tasks ORDER BY started_at"
    starts = [row[0] for row in place.query(sql)]
    # Five in a row take at least the period, less what passes between claim and start.
    assert min(late - early for early, late in zip(starts, starts[4:], strict=False)) > 2500
    assert starts[-1] - starts[0] > 7000


def test_rate_limit_of_one_pauses_all(any_fleet: FleetPlace) -> None:
    place = any_fleet
    first = {"name": "first", "prompt": f"@limit {place.folder}/met 8"}
    file = place.tasks(first, *({"name": f"t{n}", "prompt": str(n)} for n in range(3)))
    place.fleet("batch", file, "--detach", "--jobs", "1")
    place.worker("--jobs", "1")
    wait_until(lambda: (place.folder / "met").exists())
    met_at = time.time()
    wait_until(lambda: b"paused     claude" in place.fleet("status").stdout, 7)
    place.fleet("batch", place.tasks({"prompt": "other"}, name="more.jsonl"), "--detach")
    place.worker("--jobs", "4")
    place.fleet("wait", "tasks", "more", "--timeout", "100")
    later = [start["time"] - met_at for start in place.starts[1:]]
    assert len(later) == 5
    assert min(later) > 5


def test_budget_stops_at_the_figure(any_fleet: FleetPlace) -> None:
    place = any_fleet
    tasks = [{"name": f"t{n}", "prompt": f"{n}\n@cost 0.10\n@sleep 0.3"} for n in range(10)]
    file = place.tasks(*tasks)
    place.fleet("batch", file, "--jobs", "3", "--budget", "0.45", code=1)
    board = place.board()
    spent = board["cost_usd"]
    assert 0.4 <= spent <= 0.55 + 1e-9  # at most one task over it
    assert board["states"]["blocked"] >= 4
    place.fleet("batch", file, "--jobs", "3", "--budget", "5")  # with more, the rest follows
    assert place.board()["states"] == {"done": 10}
    assert len(place.starts) == 10


def test_running_task_is_stopped_at_its_share(fleet: FleetPlace) -> None:
    file = fleet.tasks({"name": "greedy", "prompt": "@spend 0.05"}, {"name": "b", "prompt": "1"})
    fleet.fleet("batch", file, "--jobs", "2", "--budget", "0.40", "--attempts", "1", code=1)
    rows = fleet.rows("tasks")
    assert (rows["greedy"]["verdict"], rows["b"]["verdict"]) == ("max_budget", "success")
    assert 0.25 < fleet.board()["cost_usd"] < 0.55


def test_limits_per_agent_and_model(fleet: FleetPlace) -> None:
    tasks = [
        {"name": f"{model}{n}", "prompt": f"{n}\n@sleep 0.7", "model": model}
        for model in ("opus", "haiku")
        for n in range(4)
    ]
    limits = ("--agent-limit", "claude=3", "--model-limit", "opus=1")
    fleet.fleet("batch", fleet.tasks(*tasks), "--jobs", "8", *limits)
    sql = "SELECT model, started_at, ended_at FROM fleet_tasks"
    import sqlite3

    with sqlite3.connect(fleet.data / "ledger.fleet.db") as connection:
        rows = connection.execute(sql).fetchall()
    assert overlap([row for row in rows if row[0] == "opus"]) == 1
    assert overlap(rows) <= 3


def overlap(rows: list[tuple[str, int, int]]) -> int:
    """The largest number of tasks at one time."""
    return max(sum(start <= moment < end for _, start, end in rows) for _, moment, _ in rows)
