"""A place for scripted fleets: tasks, workers, and what the agents and the ledger say of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.ledger.store import open_ledger
from tests.support.scripted_place import Done, Json, Place

AGENT = Path(__file__).parents[1] / "scripted_agents" / "fleet_agent.py"
LEASE = "3"


class FleetPlace(Place):
    """Scripted agents that follow their prompts, and a ledger of its own."""

    def __init__(self, folder: Path, ledger: str | None = None) -> None:
        super().__init__(folder)
        self.program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -I -S "{AGENT}" "{folder}" "$@"\n'
        )
        self.ledger = ledger or str(self.data / "ledger.db")
        self.environ["STENO_LEDGER"] = self.ledger
        self.environ["STENO_CHANGES"] = "none"
        self.workers: list[subprocess.Popen[bytes]] = []

    def tasks(self, *tasks: Json, name: str = "tasks.jsonl") -> Path:
        path = self.work / name
        path.write_text("".join(json.dumps(task) + "\n" for task in tasks), "utf-8")
        return path

    def fleet(self, *words: str | Path, code: int | None = 0) -> Done:
        done = self.steno("fleet", *words)
        assert code is None or done.returncode == code, (words, done)
        return done

    def rows(self, *words: str) -> dict[str, Json]:
        """The collected results, by name."""
        lines = self.fleet("collect", *words).stdout.splitlines()
        return {row["name"]: row for row in map(json.loads, lines)}

    def board(self, batch: str = "tasks") -> Json:
        (board,) = json.loads(self.fleet("status", batch, "--json").stdout)["batches"]
        return dict(board)

    def worker(self, *words: str, **environ: str) -> "subprocess.Popen[bytes]":
        """Start a worker; it is killed at the end of the test."""
        log = (self.folder / f"worker-{len(self.workers)}.log").open("wb")
        process = self.start(
            *("fleet", "worker", "--lease", LEASE, *words),
            env=self.environ | environ,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.workers.append(process)
        return process

    def logs(self) -> str:
        paths = sorted(self.folder.glob("worker-*.log"))
        return "\n".join(path.read_text("utf-8", "replace") for path in paths)

    def close(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    @property
    def log(self) -> list[Json]:
        """What the agents noted: starts and ends."""
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def starts(self) -> list[Json]:
        return [line for line in self.log if line["what"] == "start"]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        store = open_ledger(self.ledger)
        try:
            return store.query(sql)
        finally:
            store.close()

    def verdicts(self) -> Counter[str]:
        """The tasks of the ledger by verdict."""
        return Counter(dict(self.query("SELECT verdict, count(*) FROM tasks GROUP BY verdict")))

    def successes(self) -> Counter[int]:
        """How many successful runs tasks have in the ledger: {1: all tasks} if each ended once."""
        sql = "SELECT task, count(*) FROM runs WHERE verdict = 'success' GROUP BY task"
        return Counter(count for _, count in self.query(sql))


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextlib.contextmanager
def fleet_place(folder: Path, ledger: str | None = None) -> Iterator[FleetPlace]:
    place = FleetPlace(folder, ledger)
    try:
        yield place
    finally:
        place.close()


def require_dbos() -> None:
    """Skip without DBOS; fail if STENO_REQUIRE asks for it."""
    if "fleet" in os.environ.get("STENO_REQUIRE", ""):
        import dbos  # noqa: F401
    pytest.importorskip("dbos")
