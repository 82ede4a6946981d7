"""A ledger of an earlier version is migrated with progress; an interrupted one is undone."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from benchmarks.growth import Rows, insert

from steno.ledger import store as stores
from steno.ledger.postgres import PostgresStore
from steno.ledger.protocol import LockPolicy, Store, query_value
from steno.ledger.schema import MIGRATIONS
from steno.ledger.sqlite import SQLiteStore
from steno.ledger.store import migrate, open_ledger, schema_version

PREVIOUS = 6  # before the sums
RUNS = 4_000
COMMAND = (sys.executable, "-m", "steno", "runs", "--no-import", "--ledger")


def connect(url: str, policy: LockPolicy | None = None) -> Store:
    """The ledger as it is, without a migration."""
    if "://" in url:
        return PostgresStore(url, url, locks=policy)
    return SQLiteStore(url, locks=policy)


def fill(url: str) -> None:
    """A ledger of an earlier version, with runs."""
    with closing(connect(url)) as store:
        migrate(store, migrations=MIGRATIONS[:PREVIOUS])
        for batch in Rows(RUNS).batches():
            with store.transaction():
                for name, rows in batch.items():
                    insert(store, name, rows)


def details(store: Store) -> list[Any]:
    """What must not be lost."""
    return [
        store.query("SELECT count(*), sum(cost_nano), sum(output), max(id) FROM runs"),
        store.query("SELECT count(*), sum(cost_nano), max(id) FROM requests"),
        store.query("SELECT count(*), max(id), sum(length(text)) FROM texts"),
        store.query("SELECT sum(requests), sum(computed_nano) FROM spend"),
    ]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_migration_loses_nothing(
    ledger_url: str, sent: signal.Signals, tmp_path: Path
) -> None:
    fill(ledger_url)
    with closing(connect(ledger_url)) as store:
        before = details(store)
    chance = random.Random(5)
    for _ in range(3):
        process = subprocess.Popen(
            [*COMMAND, ledger_url],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        time.sleep(chance.uniform(0.15, 0.6))  # in the copy, in a step, or before the start
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
        assert b"Traceback" not in errors
        with closing(connect(ledger_url)) as store:
            assert PREVIOUS <= schema_version(store) <= len(MIGRATIONS)
            assert details(store) == before
    with closing(open_ledger(ledger_url)) as store:
        assert schema_version(store) == len(MIGRATIONS)
        assert details(store) == before
        sums = "SELECT sum(runs), sum(cost_nano) FROM daily_runs"
        assert store.query(sums) == store.query("SELECT count(*), sum(cost_nano) FROM runs")
        for table in ("hourly_spend", "daily_spend", "session_spend"):
            sums = "SELECT sum(requests), sum(computed_nano) FROM {}"
            assert store.query(sums.format(table)) == store.query(sums.format("spend"))
        assert query_value(store, "SELECT sum(calls) FROM tool_totals") == 2 * RUNS
        assert query_value(store, "SELECT total FROM row_counts") == RUNS


def test_a_long_migration_reports_its_steps(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ledger_url)
    monkeypatch.setattr(stores, "NOTICE_SECONDS", 0.001)
    monkeypatch.setattr(stores, "PROGRESS_SECONDS", 0.001)
    lines: list[str] = []
    open_ledger(ledger_url, locks=LockPolicy(on_wait=lines.append)).close()
    assert any("migrating the ledger: version 7 (sums), step " in line for line in lines)
    assert any(line.endswith("; interrupting it loses nothing") for line in lines)
    lines.clear()
    open_ledger(ledger_url, locks=LockPolicy(on_wait=lines.append)).close()
    assert lines == []
