"""Another process has locked the ledger: no run waits for it, and every wait can be interrupted.

No test measures time: what ends while the lock is held did not wait for it.
"""

import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from steno.errors import LedgerLockedError
from steno.ledger.postgres import ADVISORY_LOCK_ID
from steno.ledger.protocol import LOCK_TIMEOUT_SECONDS
from steno.ledger.store import LockPolicy, open_ledger
from tests.support.scripted_place import Place, done_well
from tests.support.transcript_writer import Transcript

PATIENCE = LOCK_TIMEOUT_SECONDS / 2  # a wait for the lock takes longer


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Hold the lock of a ledger that exists."""
    open_ledger(url).close()
    connection: Any
    if "://" in url:
        import psycopg

        connection = psycopg.connect(url)
        connection.execute(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_ID})")
    else:
        connection = sqlite3.connect(url, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
    with closing(connection):
        yield


def runs(place: Place, url: str) -> list[tuple[str, str]]:
    done = place.steno("runs", "--json", "--ledger", url)
    assert done.returncode == 0, done.stderr
    return [(row["verdict"], row["prompt"]) for row in json.loads(done.stdout)["rows"]]


def wait_for(process: "subprocess.Popen[bytes]", words: bytes) -> bytes:
    """Read stderr until a line contains these words."""
    assert process.stderr is not None
    said = b""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def test_the_agent_starts_and_its_run_is_written_when_the_lock_is_released(
    place: Place, ledger_url: str
) -> None:
    """At the end steno waits, and says for what."""
    with locked(ledger_url):
        process = place.start("run", "--ledger", ledger_url, "Do it.")
        said = wait_for(process, b"waiting for the ledger")
        assert b"Ctrl-C stops waiting" in said
        assert [call["prompt"] for call in place.calls] == ["Do it."]
    _, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, b"not in the ledger" in error) == (0, False), error
    assert runs(place, ledger_url) == [("success", "Do it.")]
    with closing(open_ledger(ledger_url)) as store:
        assert store.query("SELECT verdict, attempts FROM tasks") == [("success", 1)]
    assert list((place.data / "live").glob("*.json")) == []


def test_ctrl_c_ends_the_wait_and_the_next_command_adds_the_run(
    place: Place, ledger_url: str
) -> None:
    """The run had succeeded; nothing is lost."""
    with locked(ledger_url):
        process = place.start("run", "--ledger", ledger_url, "Do it.")
        wait_for(process, b"waiting for the ledger")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
        assert (process.returncode, b"the next steno command adds it" in error) == (0, True), error
    assert runs(place, ledger_url) == [("success", "Do it.")]
    assert list((place.data / "live").glob("*.json")) == []


def test_ctrl_c_ends_an_active_run_of_a_locked_ledger(place: Place, ledger_url: str) -> None:
    """The agent is stopped, and steno does not wait for the ledger after that."""
    place.plan({"out": done_well().splitlines()[0] + "\n", "sleep": 600})
    with locked(ledger_url):
        process = place.start("run", "--ledger", ledger_url, "Do it.")
        end = time.monotonic() + PATIENCE
        while not place.calls and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, error
    assert runs(place, ledger_url) == [("interrupted", "Do it.")]


def test_a_run_whose_ledger_has_a_budget_starts_too(place: Place, ledger_url: str) -> None:
    """The budget is read; only new transcripts are not imported."""
    place.steno("budget", "set", "day", "20", "--ledger", ledger_url)
    one = Transcript("s1")
    one.answer("m1")
    folder = place.home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    one.write(folder)
    with locked(ledger_url):
        process = place.start("run", "--ledger", ledger_url, "Do it.")
        said = wait_for(process, b"waiting for the ledger")
        assert b"budgets checked without new runs" in said
        assert b"$20.00 left in the budget per day" in said
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["import", "rebuild"])
def test_ctrl_c_ends_a_command_that_waits(
    place: Place, ledger_url: str, tmp_path: Path, command: str
) -> None:
    """It says what it waits for."""
    one = Transcript("s1")
    one.answer("m1")
    paths = [one.write(tmp_path)] if command == "import" else []
    with locked(ledger_url):
        process = place.start("ledger", command, *paths, "--ledger", ledger_url)
        wait_for(process, b"waiting for the ledger, which another program has locked")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == (b"", b"")
        assert process.returncode == 130


def test_a_wait_has_a_limit(ledger_url: str) -> None:
    """Queries do not wait."""
    with locked(ledger_url), closing(open_ledger(ledger_url, locks=LockPolicy(0.2))) as store:
        with (
            pytest.raises(LedgerLockedError, match="locked by another program"),
            store.transaction(),
        ):
            raise AssertionError("it is locked")
        assert store.query("SELECT count(*) FROM runs") == [(0,)]


def test_a_locked_table_of_a_server_does_not_stop_a_run(place: Place, postgres_place: str) -> None:
    """As by an administrator's command."""
    import psycopg

    from tests import postgres

    url = postgres.fresh(postgres_place, "locked_table")
    open_ledger(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE tasks, runs IN ACCESS EXCLUSIVE MODE")
        process = place.start("run", "--ledger", url, "Do it.")
        wait_for(process, b"waiting for the ledger")
        assert len(place.calls) == 1
        connection.rollback()
        process.communicate(timeout=PATIENCE)
    assert (process.returncode, runs(place, url)) == (0, [("success", "Do it.")])


def test_a_run_needs_no_connection_while_its_agent_works(place: Place, postgres_place: str) -> None:
    """The connections of a server are few: 100 by default, for all programs."""
    import psycopg

    from tests import postgres

    url = postgres.fresh(postgres_place, "few_connections")
    place.plan({"sleep": 60})
    process = place.start("run", "--ledger", url, "Do it.")
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'few_connections'"
    with psycopg.connect(postgres.url(postgres_place), autocommit=True) as other:
        while not place.calls or other.execute(count).fetchall() != [(0,)]:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert runs(place, url) == [("interrupted", "Do it.")]


def test_a_server_without_a_free_connection_is_waited_for(postgres_place: str) -> None:
    from tests import postgres

    url = postgres.fresh(postgres_place, "one_connection")
    with closing(open_ledger(url)) as store:
        store.execute("CREATE ROLE single LOGIN CONNECTION LIMIT 1")
        store.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO single")
        store.execute("GRANT CREATE ON DATABASE one_connection TO single")
    single = url.replace("steno@", "single@")
    with closing(open_ledger(single)), pytest.raises(LedgerLockedError):
        open_ledger(single, locks=LockPolicy(0.2))
    open_ledger(single).close()
