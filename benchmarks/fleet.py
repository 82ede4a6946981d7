"""Measure a fleet with scripted agents: batches in SQLite and PostgreSQL, faults, limits, sizes.

Run as `python -m benchmarks.fleet`. The agents are real processes that sleep and answer. CPU is
that of the workers alone, memory the largest resident size of one worker.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from tests import postgres
from tests.support.fleet import FleetPlace, fleet_place, wait_until
from tests.support.proxy import Proxy

from benchmarks.command import Goal, finish, log, parser
from benchmarks.table import number, table

AGENT_SECONDS = 0.5
CUT_SECONDS = 60
FAULT_LEASE = "20"


class Meter:
    """CPU and memory of processes, sampled while they live."""

    def __init__(self, pids: list[int]) -> None:
        self._cpu = dict.fromkeys(pids, 0.0)
        self.rss = 0

    def sample(self) -> None:
        for pid in self._cpu:
            try:
                process = psutil.Process(pid)
                times = process.cpu_times()
                self._cpu[pid] = times.user + times.system
                self.rss = max(self.rss, process.memory_info().rss)
            except psutil.Error:
                pass

    @property
    def cpu(self) -> float:
        return sum(self._cpu.values())


def tasks(count: int, seconds: float = AGENT_SECONDS) -> list[dict[str, Any]]:
    return [{"name": f"t{n}", "prompt": f"task {n}\n@sleep {seconds}"} for n in range(count)]


def wait_for(place: FleetPlace, meter: Meter, batch: str = "tasks") -> float:
    """The seconds until a batch is done."""
    began = time.monotonic()
    waiting = place.start("fleet", "wait", batch)
    while waiting.poll() is None:
        meter.sample()
        time.sleep(0.2)
    waiting.communicate()
    return time.monotonic() - began


def faults_of(place: FleetPlace, count: int, label: str) -> list[str]:
    """What is wrong with the results, if anything."""
    found = {"states": place.board()["states"], "verdicts": dict(place.verdicts())}
    expected = {"states": {"done": count}, "verdicts": {"success": count}}
    once = dict(place.successes())
    problems = [] if found == expected else [f"WRONG: {label}: {found}"]
    return problems if once == {1: count} else [*problems, f"WRONG: {label}: runs {once}"]


def measure_embedded(place: FleetPlace, count: int, jobs: int) -> tuple[list[str], list[str]]:
    """One machine: the command itself is the worker."""
    log(f"{count} tasks, {jobs} at once, SQLite")
    place.tasks(*tasks(count))
    began = time.monotonic()
    process = place.start("fleet", "batch", "tasks.jsonl", "--jobs", str(jobs), "--json")
    meter = Meter([process.pid])
    while process.poll() is None:
        meter.sample()
        time.sleep(0.1)
    seconds = time.monotonic() - began
    process.communicate()
    row = _row(f"SQLite, {jobs} at once", count, seconds, meter, len(place.starts))
    return row, faults_of(place, count, "SQLite")


def measure_server(place: FleetPlace, count: int, jobs: int) -> tuple[list[str], list[str]]:
    """Three workers that live to the end."""
    log(f"{count} tasks, PostgreSQL, 3 workers")
    place.tasks(*tasks(count))
    place.fleet("batch", "tasks.jsonl", "--jobs", str(jobs), "--detach")
    workers = [place.worker("--jobs", str(-(-jobs // 3))) for _ in range(3)]
    meter = Meter([worker.pid for worker in workers])
    seconds = wait_for(place, meter)
    row = _row("PostgreSQL, 3 workers", count, seconds, meter, len(place.starts))
    return row, faults_of(place, count, "PostgreSQL")


def measure_faults(
    place: FleetPlace, count: int, jobs: int, server: str
) -> tuple[list[str], list[str], list[str]]:
    """Three workers: one is killed, one is cut off, the server is restarted."""
    log(f"{count} tasks, PostgreSQL, 3 workers, faults")
    place.tasks(*tasks(count))
    place.fleet("batch", "tasks.jsonl", "--jobs", str(jobs), "--detach")
    proxy = Proxy(server)
    database = place.ledger.partition("?")[0].rpartition("/")[2]
    url = f"postgresql://steno@127.0.0.1:{proxy.port}/{database}"
    each = str(-(-jobs // 3))
    words = ("--jobs", each, "--lease", FAULT_LEASE)
    workers = [place.worker(*words), place.worker(*words, STENO_LEDGER=url), place.worker(*words)]
    meter = Meter([worker.pid for worker in workers])
    began = time.monotonic()
    _wait_for_starts(place, count // 5)
    agents = _wait_for_agents(workers[0].pid)
    workers[0].kill()
    workers[0].wait()
    killed_at = time.monotonic()
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in agents), 30)
    gone = time.monotonic() - killed_at
    _wait_for_starts(place, count * 2 // 5)
    proxy.cut()
    cut_at = time.monotonic()
    _wait_for_starts(place, count * 3 // 5)
    postgres.restart(server)
    while time.monotonic() < cut_at + CUT_SECONDS:
        meter.sample()
        time.sleep(0.2)
    proxy.heal()
    wait_for(place, meter)
    seconds = time.monotonic() - began
    starts = place.starts
    row = _row("the same with faults", count, seconds, meter, len(starts))
    facts = [
        f"{len(agents)} agents of the killed worker were gone after {gone:.1f} s",
        f"{sum(start['resumed'] for start in starts)} sessions were resumed, "
        f"{len(starts) - count} tasks were started more than once",
    ]
    # Agents that ended while their worker was cut off: known when it is back.
    wait_until(lambda: not place.query("SELECT id FROM runs WHERE verdict IS NULL"), 60)
    sql = "SELECT count(*) FROM runs WHERE error LIKE 'result not used:%'"
    ((unused,),) = place.query(sql)
    facts.append(
        f"{unused} agents finished while their worker was cut off for longer than its lease; their "
        "results do not count, and other workers ran the tasks again"
    )
    problems = faults_of(place, count, "faults")
    for worker in workers[1:]:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    proxy.close()
    return row, facts, problems


def _wait_for_agents(worker: int) -> list[int]:
    """The processes of a worker, as soon as it has some."""
    process = psutil.Process(worker)
    wait_until(lambda: len(process.children(recursive=True)) > 2, 60)
    return [child.pid for child in process.children(recursive=True)]


def _wait_for_starts(place: FleetPlace, count: int) -> None:
    wait_until(lambda: len(place.starts) >= count, 600)


def _row(label: str, count: int, seconds: float, meter: Meter, starts: int) -> list[str]:
    cpu = meter.cpu / count * 1000
    return [
        label,
        f"{count:,}",
        number(seconds, 1),
        number(count / seconds, 1),
        number(cpu, 1),
        number(meter.rss / 2**20, 0),
        f"{starts:,}",
    ]


def measure_rate(place: FleetPlace, minutes: float) -> tuple[str, list[str]]:
    """Thirty a minute, three workers: the most starts in any minute."""
    count = int(30 * minutes) + 15
    log(f"{count} tasks at 30/min, 3 workers")
    place.tasks(*tasks(count, 0.1))
    rate = ("--rate", "30/min", "--jobs", "60")
    place.fleet("batch", "tasks.jsonl", "--detach", *rate)
    workers = [place.worker("--jobs", "20") for _ in range(3)]
    wait_for(place, Meter([worker.pid for worker in workers]))
    sql = "SELECT admitted_at, worker FROM steno_fleet.fleet_tasks ORDER BY admitted_at"
    rows = place.query(sql)
    starts = [row[0] for row in rows]
    most = max(sum(at <= other < at + 60_000 for other in starts) for at in starts)
    used = len({row[1] for row in rows})
    text = (
        f"{count} tasks with `--rate 30/min` on {used} workers: at most {most} starts in any "
        f"60 s, {count} in {(starts[-1] - starts[0]) / 1000:.0f} s"
    )
    return text, [] if most <= 30 else [f"WRONG: {text}"]


def measure_waiting(place: FleetPlace, count: int) -> list[str]:
    """Adding tasks, and looking at them: seconds of the whole command, and its CPU."""
    log(f"{count} waiting tasks")
    place.tasks(*tasks(count))
    added = _best(lambda: place.fleet("batch", "tasks.jsonl", "--detach"), 1)
    status = _best(lambda: place.fleet("status"), 7)
    again = _best(lambda: place.fleet("batch", "tasks.jsonl", "--detach"), 1)
    kind = "PostgreSQL" if "://" in place.ledger else "SQLite"
    return [kind, f"{count:,}", *map(_seconds, (added, again, status))]


def _seconds(found: tuple[float, float]) -> str:
    return f"{found[0]:.2f} ({found[1]:.2f})"


def _best(action: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The least wall time and the least CPU time of a command."""
    found = []
    for _ in range(rounds):
        before = os.times()
        began = time.monotonic()
        action()
        wall = time.monotonic() - began
        after = os.times()
        cpu = after.children_user + after.children_system
        found.append((wall, cpu - before.children_user - before.children_system))
    return min(wall for wall, _ in found), min(cpu for _, cpu in found)


def measure_idle(place: FleetPlace, server: str, count: int, seconds: float) -> list[list[str]]:
    """What workers cost that have nothing to do, with some open batches."""
    rows = []
    for batches in (1, 5):
        log(f"{count} idle workers, {batches} batches")
        for number_ in range(batches):
            name = f"idle{number_}.jsonl"
            place.tasks({"name": "a", "prompt": "1"}, {"name": "b", "prompt": "2"}, name=name)
            # A rate that lets nothing start for long: the queue stays open.
            place.fleet("batch", name, "--detach", "--rate", "1/999h", "--name", name)
        workers = [place.worker("--jobs", "4", "--lease", "30") for _ in range(count)]
        time.sleep(15)
        own = Meter([worker.pid for worker in workers])
        database = Meter(_server_pids(server))
        own.sample()
        database.sample()
        before = own.cpu, database.cpu
        time.sleep(seconds)
        own.sample()
        database.sample()
        rows.append(
            [
                f"{count} idle workers, {batches} open batches",
                number((own.cpu - before[0]) / seconds / count * 1000, 1),
                number((database.cpu - before[1]) / seconds / count * 1000, 1),
                number(own.rss / 2**20, 0),
            ]
        )
        for worker in workers:
            worker.kill()
            worker.wait()
    return rows


def _server_pids(server: str) -> list[int]:
    main = int(Path(server, "data", "postmaster.pid").read_text().split()[0])
    return [main, *(child.pid for child in psutil.Process(main).children(recursive=True))]


def main() -> int:
    options = _options()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    rows: list[list[str]] = []
    problems: list[str] = []
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fleet") as folder, postgres.server() as server:
        top = Path(folder)

        def at(name: str, on_server: bool) -> Any:
            url = postgres.fresh(server, name) if on_server else None
            return fleet_place(top / name, url)

        with at("embedded", False) as place:
            row, found = measure_embedded(place, options.tasks, options.jobs)
            rows.append(row)
            problems += found
        with at("server", True) as place:
            row, found = measure_server(place, options.tasks, options.jobs)
            rows.append(row)
            problems += found
        with at("faults", True) as place:
            row, facts, found = measure_faults(place, options.tasks, options.jobs, server)
            rows.append(row)
            lines += facts
            problems += found
        if options.minutes:
            with at("rate", True) as place:
                text, found = measure_rate(place, options.minutes)
                lines.append(text)
                problems += found
        with at("wait_file", False) as one, at("wait_server", True) as other:
            waiting = [measure_waiting(place, options.waiting) for place in (one, other)]
        with at("idle", True) as place:
            idle = measure_idle(place, server, options.idle, 20)
    head = ["fleet", "tasks", "s", "tasks/s", "CPU ms/task", "RSS MB", "starts"]
    parts = [
        f"Measured with `python -m benchmarks.fleet` on {machine}; agents that sleep "
        f"{AGENT_SECONDS} s, {options.jobs} at once.",
        table(head, rows),
        "\n".join(f"- {line}" for line in lines),
        "Seconds of the whole command, in brackets its CPU:",
        table(["tasks that wait", "number", "add", "add again", "status"], waiting),
        "CPU in ms per worker and second:",
        table(["workers", "worker", "PostgreSQL", "RSS MB"], idle),
    ]
    return finish(options, "\n\n".join(parts), "fleet", goals(waiting), problems)


def goals(waiting: list[list[str]]) -> list[Goal]:
    def figure(text: str) -> float:
        return float(text.partition("(")[2].rstrip(")"))

    return [
        *(Goal(f"add, {row[0]}", figure(row[2]), 10, " s") for row in waiting),
        *(Goal(f"status, {row[0]}", figure(row[4]), 0.15, " s") for row in waiting),
    ]


def _options() -> argparse.Namespace:
    options = parser(__doc__ or "", 1)
    options.add_argument("--tasks", type=int, default=1000)
    options.add_argument("--jobs", type=int, default=50)
    options.add_argument("--minutes", type=float, default=2, help="of the rate limit; 0: none")
    options.add_argument("--waiting", type=int, default=10_000)
    options.add_argument("--idle", type=int, default=6)
    return options.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
