"""Run one command: background processes don't block it, and a timeout kills its group."""

import os
import time
from pathlib import Path
from threading import Thread

from steno.process.child import EXIT_TIMEOUT, RunOnce


def test_what_it_prints_and_how_it_ends(tmp_path: Path) -> None:
    code, out, err = RunOnce(
        ("sh", "-c", "head -c 300000 /dev/zero; echo no >&2; exit 3"), str(tmp_path)
    ).run()
    assert (code, out, err) == (3, bytes(300_000), "no\n")
    assert RunOnce(("/no/such/program",), str(tmp_path)).run() == (
        127,
        b"",
        "/no/such/program: No such file or directory",
    )


def test_what_it_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """As in a shell: the command returns while its background process keeps running."""
    began = time.monotonic()
    code, out, _ = RunOnce(("sh", "-c", "sleep 61 & echo $!"), str(tmp_path)).run()
    try:
        assert (code, time.monotonic() - began < 30) == (0, True)
    finally:
        os.kill(int(out), 9)


def test_what_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code, _, err = RunOnce(("sh", "-c", "sleep 62 & sleep 63"), str(tmp_path), timeout=0.2).run()
    assert (code, err) == (EXIT_TIMEOUT, "sh timed out after 0.2 s")


def test_it_is_cut_off_while_it_is_started(tmp_path: Path) -> None:
    once = RunOnce(("sleep", "68"), str(tmp_path))
    once.kill()
    assert once.run()[0] == -9


def test_it_is_cut_off_by_another_thread(tmp_path: Path) -> None:
    once = RunOnce(("sleep", "64"), str(tmp_path))
    result: list[int] = []
    thread = Thread(target=lambda: result.append(once.run()[0]))
    thread.start()
    while not result and thread.is_alive():
        once.kill()
        time.sleep(0.01)
    thread.join()
    assert result == [-9]
