"""A run in the ledger after a kill, with a damaged or missing ledger, from a cut recording (L1)."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.claude_lines import SESSION, hello, stream
from tests.support.scripted_place import Json, Place

HELLO = stream(*hello())
RESTORE_AT = "restore it from recordings and transcripts: "


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def runs(place: Place, *words: str) -> list[Json]:
    done = place.steno("runs", "--no-import", "--json", *words)
    assert done.returncode == 0, done.stderr
    rows: list[Json] = json.loads(done.stdout)["rows"]
    return rows


def wait_for_recording(place: Place) -> None:
    deadline = time.monotonic() + 30
    while not any(b'"out"' in tape.read_bytes() for tape in place.tapes):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("command", ["runs", "ps", "ledger import"])
def test_l1_a_watch_that_was_killed_is_in_the_ledger(command: str, place: Place) -> None:
    process = place.start("watch", "-q", "--record", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(HELLO)
    process.stdin.flush()
    wait_for_recording(place)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    done = place.steno(*command.split())
    assert done.returncode == 0
    if command != "ledger import":
        assert b"was lost: its steno process was killed; recovered from its" in done.stderr
    (row,) = runs(place)
    assert (row["run_id"], row["session_id"]) == (place.tapes[0].stem, SESSION)
    assert row["verdict"] in ("no_result", "success")
    place.steno("runs")
    assert list((place.data / "live").iterdir()) == []


def test_l1_a_watch_that_could_not_write_to_the_ledger_is_added_later(place: Place) -> None:
    ledger = place.data / "ledger.db"
    place.steno("ledger", "import")
    good = ledger.read_bytes()
    ledger.write_bytes(b"no database" * 1000)
    done = place.steno("watch", "--record", stdin=HELLO)
    assert b"not in the ledger" in done.stderr
    ledger.write_bytes(good)
    assert b"could not be written to the ledger; recovered" in place.steno("runs").stderr
    assert [row["run_id"] for row in runs(place)] == [place.tapes[0].stem]


def test_l2_a_ledger_that_was_moved_away_comes_back_by_an_import(place: Place) -> None:
    """Recordings too: an active run is left alone, and a known one is not read again."""
    place.steno("run", "Go.")
    before = runs(place)
    (place.data / "ledger.db").unlink()
    done = json.loads(place.steno("ledger", "import", "--json").stdout)
    assert (done["runs"], done["troubles"]) == (1, [])
    assert runs(place) == before
    assert json.loads(place.steno("ledger", "import", "--json").stdout)["runs"] == 0
    active = place.start("watch", "-q", "--record", stdin=subprocess.PIPE)
    assert active.stdin is not None
    active.stdin.write(HELLO)
    active.stdin.flush()
    while len(place.tapes) < 2 or b'"out"' not in place.tapes[1].read_bytes():
        time.sleep(0.02)
    assert json.loads(place.steno("ledger", "import", "--json").stdout)["runs"] == 0
    active.communicate(timeout=30)
    assert len(runs(place)) == 2


@pytest.mark.parametrize("start", [0, 8192], ids=["header", "pages"])
def test_a_damaged_ledger_names_the_command_that_restores_it(start: int, place: Place) -> None:
    place.steno("run", "Go.")
    before = runs(place)
    ledger = place.data / "ledger.db"
    size = ledger.stat().st_size
    with ledger.open("r+b") as file:
        file.seek(start)
        file.write(b"\xee" * (size - start))
    done = place.steno("runs", "--no-import")
    assert done.returncode == 2
    _, _, command = done.stderr.decode().strip().partition(RESTORE_AT)
    assert command == f"mv {ledger} {ledger}.damaged && steno ledger import --ledger {ledger}"
    command = command.replace("steno ledger", f"{sys.executable} -m steno ledger")
    subprocess.run(command, shell=True, check=True, env=place.environ, cwd=place.work)
    assert runs(place) == before


def test_l1_a_cut_recording_never_replaces_a_fuller_row(place: Place) -> None:
    place.steno("run", "Go.")
    (tape,) = place.tapes
    before = runs(place)
    lines = tape.read_bytes().splitlines(keepends=True)
    for count in (2, 3, len(lines) - 1):
        cut = place.folder / f"{count}.steno"
        cut.write_bytes(b"".join(lines[:count]) + lines[count][:10])
        assert place.steno("ledger", "import", cut).returncode == 0
        assert runs(place) == before


def test_l1_a_fuller_recording_replaces_a_cut_one(place: Place) -> None:
    place.steno("run", "Go.")
    (tape,) = place.tapes
    before = runs(place)
    data = tape.read_bytes()
    (place.data / "ledger.db").unlink()
    tape.write_bytes(data[: len(data) // 2])
    place.steno("ledger", "import")
    (row,) = runs(place)
    assert row["verdict"] == "no_result"
    tape.write_bytes(data)
    place.steno("ledger", "import", tape)
    assert runs(place) == before
