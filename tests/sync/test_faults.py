"""Failures of the folder, the journal or a destination: no wrong deletions, no silent losses."""

import json
import os
import secrets
import shutil
import socketserver
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steno import event as ev
from steno.errors import SyncError
from steno.sync import FolderSync, SyncOptions
from steno.sync.destination_queue import Journal, pending_syncs
from steno.sync.files import read_content, remove_stale_temp_files
from steno.sync.folder import FolderDestination
from steno.workspace.safe_path import RootFolder
from tests.support.claude_lines import answer, assistant, call, init, result, stream
from tests.support.disks import fill, small_disk
from tests.support.filestore import FileStore
from tests.support.program import Ended, argv, environment, steno
from tests.support.syncs import LONG, begun, synced, told, tree, until, write

AS_OTHERS = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
]


def journals(data: Path) -> list[Path]:
    """The journals of unfinished syncs."""
    return sorted((data / "steno" / "sync").glob("*"))


# -- files that change while they are read --------------------------------------------------------


STAMP = 8  # bytes at both ends of a version of a file


class Rewriting(threading.Thread):
    """Writes version after version of a large file in place, until it is stopped."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._file = os.open(write(path), os.O_RDWR)
        self._is_stopped = threading.Event()
        os.truncate(self._file, 30_000_000)

    def run(self) -> None:
        version = 0
        while not self._is_stopped.wait(0.002):
            version += 1
            for position in (0, 30_000_000 - STAMP):
                os.pwrite(self._file, version.to_bytes(STAMP), position)

    def __enter__(self) -> "Rewriting":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self.join()
        os.close(self._file)


def test_a_file_is_never_read_half_old_half_new(project: Path) -> None:
    """One that changes all the time is not copied, and said to be so."""
    outcomes: set[object] = set()
    root = RootFolder(str(project))
    with Rewriting(project / "a"):
        for _ in range(4):
            try:
                with closing(read_content(root, "a")) as found:
                    data = found.read_all()
                    outcomes.add(data[:STAMP] == data[-STAMP:])
            except SyncError as error:
                outcomes.add((str(error), error.is_permanent))
    assert outcomes <= {True, ("changes while it is read", False)}


def test_a_file_that_is_rewritten_is_copied_in_the_end(project: Path, there: Path) -> None:
    with Rewriting(project / "a"):
        syncing = begun(project, f"dir:{there}")
        syncing.add_event(told(project / "a"))
        time.sleep(0.5)
    summary = syncing.finish()
    assert (summary.ok, tree(there)) == (True, tree(project))


def test_a_file_that_only_grows_is_read_as_far_as_it_goes(project: Path) -> None:
    path = write(project / "log", b"0" * 10)
    stop = threading.Event()

    def grow() -> None:
        with path.open("ab", buffering=0) as file:
            while not stop.wait(0.0005):
                file.write(b"0123456789" * 10)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        time.sleep(0.05)
        with closing(read_content(RootFolder(str(project)), "log")) as found:
            data = found.read_all()
    finally:
        stop.set()
        thread.join()
    assert path.read_bytes().startswith(data)


# -- names and answers ---------------------------------------------------------------------------


def test_a_name_that_is_no_utf8_costs_only_itself_in_an_archive(
    project: Path, tmp_path: Path
) -> None:
    write(project / "a", "a")
    write(project / os.fsdecode(b"caf\xe9"), "x")
    write(project / "z", "z")
    archive = tmp_path / "x.zip"
    summary = synced(project, f"zip://::file://{archive}")
    assert (summary.put, summary.ok) == (2, False)
    assert [(file.path, file.reason) for file in summary.failed] == [
        (os.fsdecode(b"caf\xe9"), "the name is not UTF-8, as archives need it")
    ]
    with zipfile.ZipFile(archive) as found:
        assert {name: found.read(name) for name in found.namelist()} == {"a": b"a", "z": b"z"}


@pytest.mark.parametrize("length", [0, 5, 12, 17, 30, 44])
def test_an_answer_that_is_cut_in_its_head_is_asked_for_again(project: Path, length: int) -> None:
    """On a new connection and on a kept one."""
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: "1"\r\n\r\n'
    requests: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                size = 0
                while header := self.rfile.readline().strip():
                    if header.lower().startswith(b"content-length:"):
                        size = int(header.partition(b":")[2])
                self.rfile.read(size)
                requests.append(line)
                if len(requests) in (1, 3):
                    self.wfile.write(answer[:length])
                    return
                self.wfile.write(answer)

    for name in "abc":
        write(project / name, name)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        summary = synced(project, f"http://127.0.0.1:{server.server_address[1]}/x", concurrency=1)
        server.shutdown()
    assert (summary.put, summary.ok) == (3, True)
    assert len(requests) >= 5


# -- the folder ----------------------------------------------------------------------------------


def left_over(data: Path, project: Path, there: Path, *more: str) -> None:
    """An unfinished sync with --delete of `a`, which was copied before."""
    write(there / "a", "the only copy")
    write(project / "a", "new")
    there.rename(there.with_name("aside"))
    write(there, "in the way")
    assert steno(data, "sync", project, f"dir:{there}", "--delete", "--tries", "1", *more).code == 1
    there.unlink()
    there.with_name("aside").rename(there)


def test_pending_deletes_nothing_when_the_folder_is_gone(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """Moved, or an empty mount point: an error, and the journal stays until the folder is back."""
    left_over(tmp_path, project, there)
    kept = journals(tmp_path)
    project.rename(tmp_path / "moved")
    done = steno(tmp_path, "sync", "--pending")
    assert (done.code, done.err) == (
        2,
        f"steno: {project}: folder not found; still pending in {kept[0]}\n",
    )
    project.mkdir()
    done = steno(tmp_path, "sync", "--pending")
    assert (done.code, "folder is empty (disk not mounted?); nothing deleted" in done.err) == (
        2,
        True,
    )
    assert (tree(there), journals(tmp_path)) == ({"a": b"the only copy"}, kept)
    project.rmdir()
    (tmp_path / "moved").rename(project)
    assert steno(tmp_path, "sync", "--pending").code == 0
    assert (tree(there), journals(tmp_path)) == ({"a": b"new"}, [])


def test_one_folder_that_is_gone_does_not_stop_the_others(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """The others are finished, and the exit code reports the failure."""
    left_over(tmp_path, project, there)
    write(tmp_path / "proj2" / "b")
    left_over(tmp_path, tmp_path / "proj2", tmp_path / "there2")
    shutil.rmtree(project)
    assert steno(tmp_path, "sync", "--pending").code == 1
    assert (tree(there), tree(tmp_path / "there2")) == (
        {"a": b"the only copy"},
        {"a": b"new", "b": b"x"},
    )
    assert len(journals(tmp_path)) == 1


@pytest.mark.parametrize("fate", ["moved", "replaced", "linked"])
@pytest.mark.parametrize("watch_files", [False, True])
def test_a_folder_that_vanishes_while_it_is_synced(
    project: Path, there: Path, tmp_path: Path, fate: str, watch_files: bool
) -> None:
    """Nothing is deleted, and it is reported."""
    for name in ("a", "b/c"):
        write(project / name)
    assert synced(project, f"dir:{there}").ok
    syncing = begun(project, f"dir:{there}", delete=True, watch_files=watch_files, final_pass=True)
    time.sleep(0.3 * watch_files)
    project.rename(tmp_path / "moved")
    if fate == "replaced":
        project.mkdir()
    elif fate == "linked":
        project.symlink_to(tmp_path / "moved")
    for name in ("a", "b/c"):
        syncing.add_event(told(project / name, "deleted"))
    summary = syncing.finish()
    assert tree(there) == {"a": b"x", "b/c": b"x"}
    assert (summary.deleted, summary.ok, len(summary.problems) <= 2) == (0, False, True)


def test_a_prefix_that_is_not_there(project: Path, there: Path, tmp_path: Path) -> None:
    """Mistyped, a file, or a link: nothing is done."""
    write(project / "public" / "a")
    write(project / "file")
    (project / "link").symlink_to("public")
    assert synced(project, f"dir:{there}", prefix="public").ok
    for prefix, why in (
        ("pubic", "folder not found"),
        ("file", "folder not found"),
        ("link", "is a symbolic link"),
    ):
        for more in ((), ("--delete",)):
            done = steno(tmp_path, "sync", project, f"dir:{there}", "--prefix", prefix, *more)
            assert (done.code, why in done.err, done.err.count("\n")) == (2, True, 1)
    assert (tree(there), journals(tmp_path)) == ({"a": b"x"}, [])


def test_a_folder_that_vanishes_is_reported_once(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """Not once per file."""
    for number in range(50):
        write(project / str(number))
    assert synced(project, f"dir:{there}").ok
    syncing = begun(project, f"dir:{there}", delete=True, watch_files=True)
    time.sleep(0.3)
    project.rename(tmp_path / "moved")
    summary = syncing.finish()
    assert (summary.failed, len(tree(there)), len(syncing.take_messages())) == ([], 50, 1)
    assert summary.problems == [f"{project}: folder not found; deletions are not synced"]


def test_a_prefix_behind_a_link(project: Path, there: Path) -> None:
    """It counts as missing, and nothing is deleted."""
    write(project / "real" / "sub" / "a")
    write(there / "old")
    (project / "link").symlink_to("real")
    summary = synced(project, f"dir:{there}", prefix="link/sub", delete=True)
    assert (tree(there), summary.problems) == (
        {"old": b"x"},
        [f"--prefix=link/sub: folder not found in {project}"],
    )


def test_a_prefix_that_comes_later(project: Path, there: Path) -> None:
    """The agent may create it; until then nothing is deleted."""
    write(there / "old")
    syncing = begun(project, f"dir:{there}", prefix="public", delete=True, final_pass=True)
    summary = syncing.finish()
    assert (tree(there), summary.problems) == (
        {"old": b"x"},
        [f"--prefix=public: folder not found in {project}"],
    )
    syncing = begun(project, f"dir:{there}", prefix="public", delete=True, final_pass=True)
    syncing.add_event(told(write(project / "public" / "new")))
    assert syncing.finish().ok
    assert tree(there) == {"new": b"x"}
    syncing = begun(project, f"dir:{there}", prefix="public", delete=True, final_pass=True)
    shutil.rmtree(project / "public")
    assert syncing.finish().ok
    assert tree(there) == {}


# -- the journal ---------------------------------------------------------------------------------


def test_two_who_tidy_up_take_nothing_from_each_other(project: Path, there: Path) -> None:
    """A new file that is not locked yet looks stale; removing it does no harm."""
    root, folder, over = (
        RootFolder(str(project)),
        FolderDestination(str(there), False),
        threading.Event(),
    )
    write(project / "a", "text")
    folder.open()

    def tidy() -> None:
        at = os.open(there, os.O_RDONLY)
        while not over.is_set():
            remove_stale_temp_files(at)
        os.close(at)

    others = [threading.Thread(target=tidy) for _ in range(3)]
    for other in others:
        other.start()
    try:
        for number in range(300):
            with closing(read_content(root, "a")) as found:
                folder.put(f"{number}", found)
    finally:
        over.set()
        for other in others:
            other.join()
    assert tree(there) == {str(number): b"text" for number in range(300)}


def test_a_full_disk_below_the_journal(project: Path, there: Path, tmp_path: Path) -> None:
    """At the start or later: the files are copied, and it is reported once."""
    for number in range(3_000):
        write(project / f"{number:0100d}", str(number))
    with small_disk(tmp_path / "data") as data:
        done = steno(data, "sync", project, f"dir:{there}")
        lines = [line for line in done.err.splitlines() if "✗" in line]
        assert (done.code, len(lines), len(tree(there))) == (1, 1, 3_000)
        assert ".journal: No space left on device: unfinished files cannot be recorded" in lines[0]
        assert "3000 copied" in done.err
        assert journals(data) == []
        shutil.rmtree(there)
        (data / "steno" / "sync").mkdir(parents=True, exist_ok=True)
        fill(data)
        done = steno(data, "sync", project, f"dir:{there}")
        assert (done.code, done.err.count("✗"), len(tree(there)), journals(data)) == (
            1,
            1,
            3_000,
            [],
        )


def test_a_full_disk_below_the_journal_of_a_stream(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """A watch copies changes with or without a journal."""
    path = write(project / "a", "text")
    known = {"type": "create", "filePath": str(path), "content": "text", "structuredPatch": []}
    steps = [
        init(cwd=str(project)),
        assistant(call("t1", "Write", file_path=str(path), content="text")),
    ]
    data = stream(*steps, answer("t1", tool_use_result=known), result())
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "steno", "a file in the way of a folder")
    words = argv("watch", "-q", "--strict", "--sync", f"dir:{there}")
    done = subprocess.run(
        words, input=data, capture_output=True, env=environment(tmp_path / "data"), check=False
    )
    assert (done.returncode, done.stdout, tree(there)) == (1, data, {"a": b"text"})
    assert b".journal: Not a directory: unfinished files cannot be recorded" in done.stderr


def test_pending_forgets_nothing_on_a_full_disk(project: Path, there: Path, tmp_path: Path) -> None:
    """The old journal stays if no new one can be written."""
    with small_disk(tmp_path / "data") as data, FileStore() as store:
        write(project / "a")
        store.fail = 503
        assert steno(data, "sync", project, store.url, "--tries", "1").code == 1
        kept = journals(data)
        fill(data)
        assert steno(data, "sync", "--pending", "--tries", "1").code == 1
        assert journals(data) == kept
        store.fail = None
        assert (
            steno(data, "sync", "--pending").code == 1
        )  # all is copied; the missing journal is reported
        assert (store.contents(), journals(data)) == ({"a": b"x"}, [])


def bad_journal(data: Path, name: str, destination: str, root: Path, *lines: list[Any]) -> Path:
    """Write a journal."""
    head = {"schema": "steno.sync/1", "root": str(root), "options": {"destinations": [destination]}}
    return write(
        data / "steno" / "sync" / name, "".join(json.dumps(line) + "\n" for line in (head, *lines))
    )


def test_journals_are_independent(project: Path, there: Path, tmp_path: Path) -> None:
    """An unknown destination, a folder named like a journal, invalid names: the good one works."""
    bad = bad_journal(tmp_path, "aa.journal", "nosuch://x", project, ["+", 0, "a"])
    bad_journal(
        tmp_path,
        "bb.journal",
        f"dir:{there}2",
        project,
        ["+", 0, ""],
        ["+", 0, "../up"],
        ["+", 0, "/etc/hostname"],
    )
    (tmp_path / "steno" / "sync" / "aaa.journal").mkdir()
    left_over(tmp_path, project, there)
    done = steno(tmp_path, "sync", "--pending", timeout=LONG)
    assert (done.code, tree(there)) == (1, {"a": b"new"})
    assert f"still pending in {bad}" in done.err
    assert done.err.count("steno: ") == 1
    bad.unlink()
    assert steno(tmp_path, "sync", "--pending", timeout=LONG).code == 0


def test_pending_takes_no_other_wishes(tmp_path: Path) -> None:
    """Options that are in the journal are refused."""
    for words in (
        ("--prefix", "x"),
        ("--include", "x"),
        ("--exclude", "x"),
        ("--delete",),
        ("--no-ignore",),
    ):
        done: Ended = steno(tmp_path, "sync", "--pending", *words)
        assert (done.code, words[0] in done.err) == (2, True)


def test_a_limit_that_leaves_no_time_at_all(project: Path, there: Path, tmp_path: Path) -> None:
    """The files left are unknown, so all are compared later."""
    for number in range(500):
        write(project / str(number))
    done = steno(tmp_path, "sync", project, f"dir:{there}", "--limit", "0")
    assert (done.code, "steno sync --pending" in done.err) == (1, True)
    assert steno(tmp_path, "sync", "--pending").code == 0
    assert (len(tree(there)), journals(tmp_path), pending_syncs(tmp_path / "steno" / "sync")) == (
        500,
        [],
        [],
    )


# -- an archive ----------------------------------------------------------------------------------


def zipped(path: Path) -> dict[str, bytes]:
    """Every file of an archive, in its last version."""
    with zipfile.ZipFile(path) as found:
        assert found.testzip() is None
        return {name: found.read(name) for name in found.namelist()}


def test_an_archive_on_a_full_disk(project: Path, tmp_path: Path) -> None:
    """The archive is unchanged, nothing counts as copied, and all files are in the journal."""
    write(project / "a", "first")
    with small_disk(tmp_path / "disk") as disk:
        archive = disk / "x.zip"
        url = f"zip://::file://{archive}"
        assert steno(tmp_path, "sync", project, url).code == 0
        for number in range(3):
            write(project / str(number), secrets.token_bytes(100_000))
        done = steno(tmp_path, "sync", project, url, "--tries", "1")
        assert (done.code, zipped(archive), [path.name for path in disk.iterdir()]) == (
            1,
            {"a": b"first"},
            ["x.zip"],
        )
        assert ("No space left on device; nothing was written" in done.err, "✓" in done.err) == (
            True,
            False,
        )
        assert "0 copied" in done.err
        (left,) = pending_syncs(tmp_path / "steno" / "sync")
        assert sorted(left.names_by_destination[0]) == ["0", "1", "2"]
        (project / "2").write_bytes(b"small")
        assert steno(tmp_path, "sync", "--pending").code == 0
        assert zipped(archive) == tree(project)


@pytest.mark.parametrize(
    "looked", [False, True], ids=["before it had seen every file", "when it had seen them"]
)
def test_what_a_sync_leaves_that_is_killed(
    looked: bool, project: Path, there: Path, tmp_path: Path
) -> None:
    """Until the scan is done, all files are compared."""
    for name in ("a", "b", "sub/c"):
        write(project / name, name)
    options = SyncOptions(destinations=(f"dir:{there}",), final_pass=True)
    journal = Journal(
        str(tmp_path / "steno" / "sync" / "1.journal"), str(project), options, pytest.fail
    )
    journal.mark_scan_started()
    journal.mark_wanted(0, "a")
    if looked:
        journal.mark_scan_done()
    journal.close(keep_file=True)
    assert steno(tmp_path, "sync", "--pending").code == 0
    assert tree(there) == ({"a": b"a"} if looked else tree(project))
    assert steno(tmp_path, "sync", "--pending").err == "No pending syncs.\n"


def test_an_archive_whose_sync_is_killed(project: Path, tmp_path: Path) -> None:
    """The archive is unchanged; `--pending` finishes it and removes the partial copy."""
    archive = tmp_path / "out" / "x.zip"
    write(project / "a", "first")
    assert steno(tmp_path, "sync", project, f"zip://::{archive}").code == 0
    for number in range(200):
        write(project / f"{number}", secrets.token_bytes(500_000))
    child = subprocess.Popen(
        argv("sync", project, f"zip://in::{archive}"),
        env=environment(tmp_path),
        stderr=subprocess.DEVNULL,
    )
    until(
        lambda: sum(path.stat().st_size for path in archive.parent.glob(".steno-put-*")) > 1_000_000
    )
    child.kill()
    child.wait()
    assert zipped(archive) == {"a": b"first"}
    assert steno(tmp_path, "sync", "--pending").code == 0
    assert zipped(archive) == {"a": b"first"} | {
        f"in/{name}": data for name, data in tree(project).items()
    }
    assert ([path.name for path in archive.parent.iterdir()], journals(tmp_path)) == (["x.zip"], [])


def test_an_archive_that_two_syncs_write(project: Path, tmp_path: Path) -> None:
    """The second waits for the first, and no file is lost."""
    archive = tmp_path / "x.zip"
    other = write(tmp_path / "other" / "b").parent
    first, second = begun(project, f"zip://::{archive}"), begun(other, f"zip://::{archive}")
    first.add_event(told(write(project / "a")))
    until(lambda: list(tmp_path.glob(".steno-put-*")))
    second.add_event(told(other / "b"))
    while not (said := second.take_messages()):
        time.sleep(0.01)
    assert said == ["[steno] ✗ b: another sync is writing this archive; retrying"]
    assert (first.finish().ok, second.finish().ok, zipped(archive)) == (
        True,
        True,
        {"a": b"x", "b": b"x"},
    )


def test_an_archive_is_asked_and_left_alone(project: Path, tmp_path: Path) -> None:
    """A dry run creates none; unchanged files are not added; other files are not touched."""
    write(project / "a").chmod(0o755)
    archive = tmp_path / "x.zip"
    done = steno(tmp_path, "sync", project, f"zip://::{archive}", "--dry-run", "--delete")
    assert (done.code, archive.exists()) == (0, False)
    assert "would be copied" in done.err
    assert synced(project, f"zip://::{archive}").put == 1
    before = archive.stat().st_mtime_ns, archive.stat().st_ino
    assert synced(project, f"zip://::{archive}", delete=True).same == 1
    assert before == (archive.stat().st_mtime_ns, archive.stat().st_ino)
    other = write(tmp_path / "other.zip", "plain text")
    summary = synced(project, f"zip://::{other}")
    assert [failed.reason for failed in summary.failed] == [f"{other} is not a zip archive"]
    assert other.read_text() == "plain text"


# -- unsupported operations ----------------------------------------------------------------------


def test_delete_where_files_cannot_be_listed(project: Path, tmp_path: Path) -> None:
    """A server and a command cannot list their files: an error with --delete only."""
    write(project / "a")
    with FileStore() as store:
        assert steno(tmp_path, "sync", project, store.url).code == 0
        for place in (store.url, "cmd:true {change} {path}"):
            done = steno(tmp_path, "sync", project, place, "--delete")
            assert (done.code, done.err.count("cannot list files; --delete has no effect")) == (
                1,
                1,
            )
    assert journals(tmp_path) == []


def test_a_command_without_change_gets_no_deletes(project: Path, tmp_path: Path) -> None:
    """Without {change} it is not run for deletions, which is reported."""
    syncing = begun(project, f"cmd:sh -c 'echo $0 >>{tmp_path}/log' {{name}}", delete=True)
    syncing.add_event(told(project / "gone", "deleted"))
    summary = syncing.finish()
    assert (summary.deleted, summary.failed, (tmp_path / "log").exists()) == (0, [], False)
    assert "deletion not supported: gone" in summary.problems[0]


def test_a_final_pass_calls_no_command_twice(project: Path, tmp_path: Path) -> None:
    """Files it was run for are not sent again unless they changed."""
    for name in ("a", "b"):
        write(project / name)
    log = tmp_path / "log"
    syncing = begun(project, f"cmd:sh -c 'echo $0 >>{log}' {{name}}", final_pass=True)
    syncing.add_event(told(project / "a"))
    until(lambda: log.exists() and log.read_text() == "a\n")
    assert (syncing.finish().same, sorted(log.read_text().split())) == (1, ["a", "b"])


def test_one_place_given_twice_is_one(project: Path, there: Path, tmp_path: Path) -> None:
    """Under any name."""
    write(project / "a")
    there.mkdir()
    (tmp_path / "alias").symlink_to(there)
    summary = synced(
        project,
        f"dir:{there}",
        f"dir:{there}",
        f"file://{there}/",
        f"dir:{tmp_path}/alias",
        "cmd:true",
        "cmd:true",
    )
    assert (summary.put, summary.same) == (2, 0)


@pytest.mark.skipif(
    shutil.which("setpriv") is None,
    reason="root may read everything, and nothing takes that away here",
)
def test_folders_that_may_not_be_read(project: Path, there: Path, tmp_path: Path) -> None:
    """On both sides: one line each, no deletions, and an exit code."""
    for name in ("open/a", "shut/b", "blind/c"):
        write(project / name)
        write(there / name)
    (project / "shut").chmod(0)
    (project / "blind").chmod(0o444)

    def again(*more: str) -> "subprocess.CompletedProcess[str]":
        words = [*AS_OTHERS, *argv("sync", project, f"dir:{there}", "--tries", "1", *more)]
        return subprocess.run(
            words, capture_output=True, text=True, env=environment(tmp_path), check=False
        )

    try:
        done = again()
        assert (done.returncode, [line for line in done.stderr.splitlines() if "✗" in line]) == (
            1,
            [
                f"[steno] ✗ {name}: cannot read folder: Permission denied"
                for name in ("shut", "blind")
            ][::-1],
        )
        done = again("--delete")
        assert (done.returncode, sorted(tree(there))) == (1, ["blind/c", "open/a", "shut/b"])
        (project / "shut").chmod(0o755)
        (project / "blind").chmod(0o755)
        (there / "shut").chmod(0)
        (project / "open" / "a").unlink()
        done = again("--delete")
        assert (done.returncode, (there / "open" / "a").exists()) == (1, True)
        assert "shut: Permission denied; nothing is deleted there" in done.stderr
    finally:
        for folder in (project / "shut", project / "blind", there / "shut"):
            folder.chmod(0o755)


# -- invalid arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *(
            "http://h:99999/x",
            "http://h:abc/",
            "http://[::1",
            "http://ho st/",
            "http:///x",
            "http://a..b/",
            "http://h:0/",
        ),
        *(
            "data://x",
            "reference://x",
            "tar://x::file:///x.tar",
            "sftp://h:99999/x",
            "sftp:///x",
            "nosuch://x",
            "ftp://u:pw@h/x",
        ),
        *(
            "zip://x.zip",
            "zip://::sftp://h/x.zip",
            "zip://../up::/x.zip",
            "zip://::sftp://u:pw@h/x.zip",
            "http://u:pw@[::1",
            "sftp://u:pw/1@h/x",
            "sftp://u:1@pw@h/x",
            "ftp://u:pw%40/%zz@h/x",
            "simplecache::sftp://u:pw/1@2@h/x",
            "cmd:curl -T {path} https://u:pw/1@h/",
            "cmd:curl -u u:pw1 -T {path} https://h/",
        ),
        *("dir: ", "dir:", "dir:~nouser/x", "file://host/x", "file://x", "dir: /x", "local://"),
    ],
)
def test_wrong_addresses(project: Path, tmp_path: Path, text: str) -> None:
    """One line without the password, before anything is done, in a sync and in a watch."""
    for words in (("sync", project, text), ("watch", "--sync", text)):
        done = subprocess.run(
            argv(*words),
            input=b"",
            capture_output=True,
            cwd=project,
            env=environment(tmp_path),
            check=False,
        )
        told = done.stderr.decode()
        assert (done.returncode, told.count("\n"), done.stdout) == (2, 1, b"")
        assert ("pw" in told, "Traceback" in told) == (False, False)
    assert (list(project.iterdir()), journals(tmp_path)) == ([], [])


def test_addresses_with_unusual_letters(project: Path, tmp_path: Path) -> None:
    """They are quoted; what is quoted already stays."""
    write(project / "c d")
    with FileStore() as store:
        for path in ("a b", "ü", "100%", "a%20b"):
            assert synced(project, f"{store.url}/{path}").ok
        assert sorted(store.contents()) == ["100%/c d", "a b/c d", "ü/c d"]
    assert synced(project, f"file://localhost{tmp_path}/x%20y").ok
    assert synced(project, f"file://{tmp_path}/%C3%BC").ok
    assert (tree(tmp_path / "x y"), tree(tmp_path / "ü")) == ({"c d": b"x"}, {"c d": b"x"})


@pytest.mark.parametrize(
    "form", ["dir:{}", "file://{}", "local://{}", "simplecache::file://{}", "zip://::{}/x.zip"]
)
def test_no_local_address_leads_into_the_folder(project: Path, tmp_path: Path, form: str) -> None:
    """In any form."""
    write(project / "a")
    done = steno(tmp_path, "sync", project, form.format(project / "in"))
    assert (done.code, "source and destination overlap" in done.err) == (2, True)
    assert sorted(tree(project)) == ["a"]


@pytest.mark.parametrize(("token", "code"), [("tok123\n", 0), ("tok123\nxyz789", 2), ("naïve", 2)])
def test_a_token_is_never_shown(project: Path, tmp_path: Path, token: str, code: int) -> None:
    """Surrounding blanks are removed; an invalid token is reported without its value."""
    write(project / "a")
    with FileStore() as store:
        done = steno(tmp_path, "sync", project, store.url, STENO_SYNC_TOKEN=token)
        assert (done.code, any(part in done.err for part in token.split())) == (code, False)
        assert {seen.headers["authorization"] for seen in store.seen} == (
            {"Bearer tok123"} if code == 0 else set()
        )


def test_messages_of_a_destination_are_shown_without_secrets(project: Path, tmp_path: Path) -> None:
    """Its messages are redacted."""
    write(project / "a")
    says = write(
        tmp_path / "says.py", "import sys; sys.exit('refused: Authorization: Bearer abcdefghijkl')"
    )
    summary = synced(project, f"cmd:{sys.executable} {says}", tries=1)
    assert [failed.reason for failed in summary.failed] == [
        "refused: Authorization: Bearer [redacted]"
    ]


@pytest.mark.parametrize("pattern", ["!", "[z-a]"])
def test_a_pattern_that_is_none(project: Path, there: Path, tmp_path: Path, pattern: str) -> None:
    """An error before the first byte; ignored in a .gitignore, as by git."""
    for words in (("sync", project, f"dir:{there}"), ("watch", "--sync", f"dir:{there}")):
        whole = [*argv(*words), "--include", pattern]
        done = subprocess.run(
            whole, input=b"{}\n", capture_output=True, env=environment(tmp_path), check=False
        )
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    write(project / ".gitignore", f"{pattern}\n*.log\n")
    write(project / "a.log")
    assert synced(project, f"dir:{there}").ok
    assert sorted(tree(there)) == [".gitignore"]


def test_destinations_are_independent(project: Path, there: Path) -> None:
    """An invalid one is reported once the folder is known; the others get their files."""
    options = SyncOptions(destinations=(f"dir:{project}/in", f"dir:{there}"), watch_files=False)
    syncing = FolderSync(str(there.parent), options, prefer_agent_folder=True)
    syncing.add_event(ev.Started(1, "s", None, None, cwd=str(project)))
    syncing.add_event(told(write(project / "a")))
    summary = syncing.finish()
    assert (summary.put, tree(there), len(summary.problems)) == (1, {"a": b"x"}, 1)
    assert "source and destination overlap" in summary.problems[0]


def test_json_with_a_name_that_is_no_utf8(project: Path, there: Path, tmp_path: Path) -> None:
    """Its bytes are escaped."""
    (project / os.fsdecode(b"caf\xe9")).symlink_to("/etc/hostname")
    done = steno(tmp_path, "sync", project, f"dir:{there}", "--json")
    assert (done.code, json.loads(done.out)["outside"]) == (0, ["caf\\xe9"])


def test_a_link_to_a_folder_elsewhere_is_reported(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """Links to a folder inside, or to the folder itself, are not reported."""
    write(tmp_path / "else" / "secret")
    write(project / "in" / "a")
    (project / "out").symlink_to(tmp_path / "else")
    (project / "alias").symlink_to("in")
    (project / "self").symlink_to(".")
    done = steno(tmp_path, "sync", project, f"dir:{there}")
    assert (
        done.code,
        [line for line in done.err.splitlines() if "outside the folder" in line],
    ) == (
        0,
        [f"[steno] · out: link to {tmp_path / 'else'}, outside the folder; not copied"],
    )
    assert tree(there) == {"in/a": b"x"}
    write(there / "out")  # as if it was a file before
    for deleted, more in ((0, {"dry_run": True}), (1, {}), (0, {})):
        assert synced(project, f"dir:{there}", delete=True, **more).deleted == deleted
    assert tree(there) == {"in/a": b"x"}
    assert synced(project, f"zip://::{tmp_path}/x.zip", delete=True).ok


def test_a_stream_that_is_over_at_once_costs_no_wait(project: Path, there: Path) -> None:
    """A watcher that is stopped before its first change causes no wait."""
    start = time.monotonic()
    for _ in range(3):
        assert begun(project, f"dir:{there}", watch_files=True).finish().ok
    assert time.monotonic() - start < 4  # each took 5 s when it waited
