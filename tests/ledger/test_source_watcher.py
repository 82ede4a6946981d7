"""`steno ledger import --watch`: only changed files are looked at, and they are found at once."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno.ledger.source_watcher import changed_sources
from steno.ledger.store import open_ledger
from tests.support import program
from tests.support.claude_lines import hello, stream

LONG = 30.0  # seconds until a test gives up
LINE = stream(*hello())


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[list[str] | None]:
    """Changes below a folder, after the two scans of all files at the start."""
    (tmp_path / "old.jsonl").write_bytes(LINE)
    found = changed_sources([str(tmp_path)], None)
    assert [next(found), next(found)] == [None, None]
    return found


def test_only_recordings_that_changed(changes: Iterator[list[str] | None], tmp_path: Path) -> None:
    """A folder with `stdout` counts as one; other files are left out."""
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "notes.txt").write_text("not a recording")
    (run / "stdout").write_bytes(LINE)
    (tmp_path / "new.jsonl").write_bytes(LINE)
    seen: set[str] = set()
    end = time.monotonic() + LONG
    while len(seen) < 2 and time.monotonic() < end:
        found = next(changes)
        seen.update(found or [])
    assert seen == {str(run), str(tmp_path / "new.jsonl")}


def test_polling(tmp_path: Path) -> None:
    """With an interval, all files are looked at each time."""
    found = changed_sources([str(tmp_path)], 0.05)
    assert [next(found) for _ in range(3)] == [None, None, None]


def test_a_new_recording_is_imported_while_it_watches(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "runs"
    folder.mkdir()
    ledger = tmp_path / "ledger.db"
    words = ("ledger", "import", "--watch", "--ledger", str(ledger), str(folder))
    (folder / "first.jsonl").write_bytes(LINE)
    watching = subprocess.Popen(
        [sys.executable, "-m", "steno", *words],
        env=program.environment(data),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for_runs(ledger, 1)
        (folder / "second.jsonl").write_bytes(LINE)
        wait_for_runs(ledger, 2)
        watching.send_signal(2)
        assert watching.wait(LONG) == 130
    finally:
        watching.kill()
        watching.communicate()


def wait_for_runs(ledger: Path, count: int) -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if ledger.exists():
            store = open_ledger(str(ledger))
            runs = store.query("SELECT count(*) FROM sources")[0][0]
            store.close()
            if runs == count:
                return
        time.sleep(0.1)
    raise AssertionError(f"not {count} files in the ledger after {LONG:g} s")
