"""Each call, change and text counts once, under its own project, in whatever order it is read."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from steno.ledger.importer import import_sources
from steno.ledger.store import Store, open_ledger
from tests.support.transcript_writer import Transcript

RECORDINGS = Path(__file__).parents[1] / "recordings"
TOOL_USE = "SELECT project, name, calls, timed, total_ms, slowest_ms FROM tool_use ORDER BY 1, 2"


@pytest.fixture
def store(ledger_url: str) -> Any:
    found = open_ledger(ledger_url)
    yield found
    found.close()


def count(store: Store, table: str) -> int:
    return int(store.query(f"SELECT count(*) FROM {table}")[0][0])


# -- projects ------------------------------------------------------------------------------------


def test_a_call_that_a_fork_completes_stays_in_the_project_of_its_session(
    store: Store, tmp_path: Path
) -> None:
    """The fork has the result; the call is of a session that this import doesn't read."""
    one = Transcript("s1")
    one.call("m1", "c1", "Bash", {"command": "ls"})
    fork = one.fork("s2")
    fork.result("c1")
    import_sources(store, [one.write(tmp_path)])
    import_sources(store, [fork.write(tmp_path)])
    assert store.query(TOOL_USE) == [("/home/ada/engine", "Bash", 1, 1, 1000, 1000)]


def test_calls_move_to_the_project_of_their_session_when_it_becomes_known(
    store: Store, tmp_path: Path
) -> None:
    one = Transcript("s1")
    one.call("m1", "c1", "Bash", {"command": "ls"})
    one.result("c1")
    two = Transcript("s2")
    two.call("m2", "c2", "Bash", {"command": "ls"})
    for line in (*one.lines, *two.lines):
        del line["cwd"]
    import_sources(store, [one.write(tmp_path), two.write(tmp_path)])
    assert store.query(TOOL_USE) == [("", "Bash", 2, 1, 1000, 1000)]
    for line in one.lines:
        line["cwd"] = "/home/ada/engine"
    import_sources(store, [one.write(tmp_path)])
    assert [row[:4] for row in store.query(TOOL_USE)] == [
        ("", "Bash", 1, 0),
        ("/home/ada/engine", "Bash", 1, 1),
    ]


# -- counts of an import -------------------------------------------------------------------------


def test_copies_of_a_run_are_one_new_run(store: Store, tmp_path: Path) -> None:
    for number in range(7):
        shutil.copytree(RECORDINGS / "copilot/1.0.102/denied", tmp_path / f"copy{number}")
    assert import_sources(store, [str(tmp_path)]).runs == count(store, "runs") == 1
    assert import_sources(store, [str(RECORDINGS / "copilot/1.0.102/denied")]).runs == 0
