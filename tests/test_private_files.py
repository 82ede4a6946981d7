"""Folders of steno are private, and temporary ones don't stay after a kill."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from steno.private_files import create_private_folder, temporary_folder
from tests.support.scripted_place import Place

KILLED = """
import sys, time
from steno.private_files import temporary_folder
with temporary_folder(sys.argv[1]) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277, 0o777])
def test_new_folders_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Also the parents; a folder that exists stays as it is."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    before = os.umask(umask)
    try:
        create_private_folder(shared / "a" / "b" / "c")
        create_private_folder(shared / "a")
    finally:
        os.umask(before)
    folders = [shared, *sorted(shared.rglob("*"))]
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o755"] + ["0o700"] * 3


def test_a_run_with_an_open_umask_leaves_private_folders(tmp_path: Path) -> None:
    """Recordings, active runs, ledger and caches."""
    place = Place(tmp_path)
    ledger = tmp_path / "deep" / "er" / "ledger.db"
    existing = {path for path in tmp_path.rglob("*") if path.is_dir()}
    environ = {**place.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        place.command("run", "--ledger", ledger, "Do it."),
        cwd=place.work,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    new = {path for path in tmp_path.rglob("*") if path.is_dir()} - existing
    assert {place.data, place.data / "tapes", place.data / "live", ledger.parent} <= new
    open_to_others = {str(path) for path in new if path.stat().st_mode & 0o077}
    assert open_to_others == set()
    files = [*place.data.rglob("*"), *ledger.parent.iterdir()]
    assert {path for path in files if path.stat().st_mode & 0o077} == set()


def test_a_temporary_folder_of_a_killed_process_is_deleted(tmp_path: Path) -> None:
    """By the next process that needs one; those in use stay."""
    with temporary_folder(str(tmp_path)) as own:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        assert other.is_dir()
        with temporary_folder(str(tmp_path)) as third:
            assert {own, third, str(other)} == set(map(str, tmp_path.iterdir()))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with temporary_folder(str(tmp_path)) as third:
            assert {own, third} == set(map(str, tmp_path.iterdir()))
    assert list(tmp_path.iterdir()) == []


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """One that was just created, and links."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / ".lock").touch()
    (tmp_path / "steno-tmp-link").symlink_to("target")
    (tmp_path / "steno-tmp-new").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with temporary_folder(str(tmp_path)):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_temporary_folders_of_several_threads_stay(tmp_path: Path) -> None:
    """Each one deletes unused folders first; one that was just created is not among them."""
    lost: list[object] = []

    def use() -> None:
        for _ in range(150):
            try:
                with temporary_folder(str(tmp_path)) as folder:
                    Path(folder, "file").write_text("1")
            except OSError as error:
                lost.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert list(tmp_path.iterdir()) == []
