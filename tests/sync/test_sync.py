"""Sync: each kind of destination, paths that lead outside, and failures."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from steno import event as ev
from steno.errors import StenoError, SyncError
from steno.installation import extra_command
from steno.sync import FolderSync, SyncOptions, SyncSummary
from steno.sync.destination_queue import pending_syncs
from steno.sync.files import read_content
from steno.sync.folder import FolderDestination
from steno.workspace.safe_path import RootFolder
from tests.support.filestore import File, FileStore
from tests.support.program import argv, environment, steno
from tests.support.sftpserver import SftpServer
from tests.support.syncs import begun, synced, told, tree, until, write

LONGEST = "ü" * 127 + "n"  # 255 bytes
NAMES = (
    "plain.txt",
    "two words.txt",
    "ünï/日本.txt",
    "new\nline.txt",
    "-rf",
    "sub/%2e%2e",
    "a;b|c&$(d)",
    f"deep/{LONGEST}",
)


def arrived(there: Path, files: dict[str, bytes]) -> bool:
    """Whether a destination has these files and no others."""
    return there.exists() and tree(there) == files


def measured(text: str) -> None:
    """Print a measurement (`pytest -rP` shows it)."""
    sys.stdout.write(text + "\n")


def half_written(there: Path, child: "subprocess.Popen[bytes]") -> bool:
    """Whether a copy has started, or steno has ended."""
    return (
        any(path.stat().st_size > 0 for path in there.glob(".steno-put-*"))
        or child.poll() is not None
    )


def counted(summary: SyncSummary) -> tuple[int, int, int, int]:
    """Numbers of files put, deleted, unchanged and failed."""
    return summary.put, summary.deleted, summary.same, len(summary.failed)


# -- a folder ------------------------------------------------------------------------------------


def test_a_change_is_there_at_once(project: Path, there: Path) -> None:
    """A reported change is copied within 200 ms, with its mode; unchanged content is skipped."""
    syncing = begun(project, f"dir:{there}")
    slowest = 0.0
    for text in ("first", "second", "third"):
        write(project / "src" / "a.py", text).chmod(0o755)
        syncing.add_event(told(project / "src" / "a.py"))
        expected = {"src/a.py": text.encode()}
        slowest = max(slowest, until(partial(arrived, there, expected)))
    syncing.add_event(told(project / "src" / "a.py"))
    summary = syncing.finish()
    assert counted(summary) == (3, 0, 1, 0)
    assert (there / "src" / "a.py").stat().st_mode & 0o777 == 0o755
    assert syncing.take_messages() == ["[steno] ✓ src/a.py"] * 3
    measured(f"slowest of three: {slowest * 1000:.1f} ms after it was told")
    assert slowest < 0.2


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_the_folder_is_the_agents_or_the_given_one(
    project: Path, there: Path, tmp_path: Path, named: bool
) -> None:
    """The first event that can name a folder decides; without one it is the given folder."""
    write(project / "a.txt")
    given = tmp_path / "elsewhere" if named else project
    given.mkdir(exist_ok=True)
    options = SyncOptions(destinations=(f"dir:{there}",), watch_files=False)
    syncing = FolderSync(str(given), options, prefer_agent_folder=True)
    syncing.add_event(ev.Started(1, "s", None, None, cwd=str(project) if named else None))
    syncing.add_event(told(project / "a.txt"))
    assert syncing.finish().put == 1
    assert tree(there) == {"a.txt": b"x"}


@pytest.mark.parametrize("with_events", [True, False])
def test_without_a_start_the_folder_is_the_given_one(
    project: Path, there: Path, with_events: bool
) -> None:
    """Also for what only the file system tells."""
    options = SyncOptions(destinations=(f"dir:{there}",))
    syncing = FolderSync(str(project), options, prefer_agent_folder=True)
    write(project / "a.txt")
    if with_events:
        syncing.add_event(told(project / "a.txt"))
    assert syncing.finish().problems == []
    assert tree(there) == {"a.txt": b"x"}


def test_ignored_files_are_counted_and_named(project: Path, there: Path) -> None:
    """A folder that is ignored counts once; version control and patterns don't count."""
    write(project / ".gitignore", "*.log\n/dist/\n")
    for name in ("a.py", "b.log", "dist/x/y", "node_modules/z", ".git/HEAD", "c.txt", "d/e.log"):
        write(project / name)
    summary = synced(project, f"dir:{there}", exclude=("d", "c.txt"))
    assert summary.ignored == ["b.log", "dist/", "node_modules/"]
    assert sorted(tree(there)) == [".gitignore", "a.py"]
    assert "2 copied, 0 unchanged, 3 ignored: b.log, dist/, node_modules/ (" in summary.line()
    assert synced(project, f"dir:{there}", ignore=False, prefix="dist").ignored == []


@pytest.mark.parametrize("watch_files", [True, False], ids=["file system", "tool"])
def test_a_change_that_is_ignored_is_named(project: Path, there: Path, watch_files: bool) -> None:
    """Reported by a tool, or seen in the file system; what did not change is not named."""
    write(project / ".gitignore", "*.log\n/dist/\n")
    write(project / "old.log")
    for name in (".gitignore", "old.log"):
        os.utime(project / name, (1e9, 1e9))
    syncing = begun(project, f"dir:{there}", watch_files=watch_files)
    for name in ("new.log", "dist/a", "dist/b"):
        path = write(project / name)
        if not watch_files:
            syncing.add_event(told(path))
    assert syncing.finish().ignored == ["dist/", "new.log"]


def test_the_file_system_shows_unreported_changes(project: Path, there: Path) -> None:
    """Files and folders created, deleted, renamed; each change has the running call."""
    write(project / "old.txt", "old")
    write(project / "dir" / "in.txt", "in")
    syncing = begun(project, f"dir:{there}", watch_files=True, delete=True, final_pass=True)
    time.sleep(0.3)  # until the folder is watched
    syncing.add_event(ev.ToolCall(1, "s", None, None, "bash", "Bash", "shell"))
    write(project / "made" / "deep" / "new.txt", "new")
    (project / "old.txt").rename(project / "renamed.txt")
    (project / "dir").rename(project / "moved")
    write(project / "node_modules" / "x.js")
    until(
        lambda: (
            there.exists()
            and sorted(tree(there)) == ["made/deep/new.txt", "moved/in.txt", "renamed.txt"]
        )
    )
    summary = syncing.finish()
    assert tree(there) == {
        "made/deep/new.txt": b"new",
        "moved/in.txt": b"in",
        "renamed.txt": b"old",
    }
    assert summary.ok
    seen = {
        (change.path, change.change, change.source, change.call) for change in syncing.changes()
    }
    assert seen >= {
        ("made/deep/new.txt", "created", "filesystem", "bash"),
        ("old.txt", "deleted", "filesystem", "bash"),
        ("renamed.txt", "created", "filesystem", "bash"),
        ("dir/in.txt", "deleted", "filesystem", "bash"),
        ("moved/in.txt", "created", "filesystem", "bash"),
    }


def test_deletes_only_if_asked(project: Path, there: Path) -> None:
    """Nothing is deleted without --delete, and ignored files never are."""
    for name in ("a", "b/c", "x.log"):
        write(there / name)
    write(project / "a")
    write(project / ".gitignore", "*.log\n")
    assert counted(synced(project, f"dir:{there}")) == (1, 0, 1, 0)
    assert sorted(tree(there)) == [".gitignore", "a", "b/c", "x.log"]
    assert counted(synced(project, f"dir:{there}", delete=True)) == (0, 1, 2, 0)
    assert sorted(tree(there)) == [".gitignore", "a", "x.log"]
    assert not (there / "b").exists()


def test_a_dry_run_does_nothing(project: Path, there: Path) -> None:
    """It only reports what would be done."""
    write(project / "new")
    write(project / "same")
    write(there / "same")
    write(there / "gone")
    syncing = begun(project, f"dir:{there}", final_pass=True, dry_run=True, delete=True)
    assert counted(syncing.finish()) == (0, 0, 1, 0)
    assert sorted(syncing.take_messages()) == [
        "[steno] · gone: would be deleted",
        "[steno] · new: would be copied",
    ]
    assert sorted(tree(there)) == ["gone", "same"]


def test_prefix_include_and_exclude(project: Path, there: Path) -> None:
    """Only files below the prefix, without it in their names."""
    for name in ("public/a.html", "public/b.map", "public/c.txt", "src/a.html", "publicity/a.html"):
        write(project / name)
    synced(
        project,
        f"dir:{there}",
        prefix="public",
        include=("*.html", "*.map"),
        exclude=("*.map",),
        delete=True,
    )
    assert sorted(tree(there)) == ["a.html"]
    with pytest.raises(StenoError, match="--prefix"):
        begun(project, f"dir:{there}", prefix="../x")


def test_a_final_pass_restores_files_changed_at_the_destination(project: Path, there: Path) -> None:
    """Content changed at the destination, of the same size, is detected by its hash."""
    write(project / "a", "right")
    syncing = begun(project, f"dir:{there}", final_pass=True)
    syncing.add_event(told(project / "a"))
    until(lambda: (there / "a").exists())
    write(there / "a", "wrong")
    assert syncing.finish().put == 2
    assert tree(there) == {"a": b"right"}


def test_an_empty_file_and_a_large_one(project: Path, there: Path) -> None:
    """Larger than the limit for memory."""
    large = os.urandom(6_000_000)
    write(project / "empty", "")
    write(project / "large", large)
    assert synced(project, f"dir:{there}").bytes == 6_000_000
    assert tree(there) == {"empty": b"", "large": large}


# -- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_any_name(project: Path, there: Path, name: str) -> None:
    """Any name can be copied and deleted."""
    write(project / name, name)
    syncing = begun(project, f"dir:{there}", delete=True)
    syncing.add_event(told(project / name))
    until(lambda: there.exists() and tree(there) == {name: name.encode()})
    (project / name).unlink()
    syncing.add_event(told(project / name, "deleted"))
    assert syncing.finish().deleted == 1
    assert tree(there) == {}
    assert not any("\n" in line for line in syncing.take_messages())


def test_files_outside_the_folder_are_reported_and_never_copied(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """`/proj2` next to `/proj`, `..`, an absolute path, links to a file and a folder outside."""
    secret = write(tmp_path / "secret" / "key", "secret")
    beside = write(tmp_path / "proj2" / "a", "beside")
    (project / "out").symlink_to(secret)
    (project / "outer").symlink_to(secret.parent)
    outside = [
        str(beside),
        f"{project}/../proj2/a",
        "/etc/hostname",
        f"{project}/outer/key",
        f"{project}/outer/../secret/key",
    ]
    syncing = begun(project, f"dir:{there}", final_pass=True)
    for path in [*outside, f"{project}/out"]:
        syncing.add_event(ev.FileChanged(1, "s", None, None, path, "modified", "c"))
    summary = syncing.finish()
    assert summary.outside == [*outside, "out", "outer"]
    assert summary.ok
    assert not there.exists() or tree(there) == {}
    assert len([line for line in syncing.take_messages() if "outside" in line]) == 7


def test_a_link_inside_is_copied_as_what_it_leads_to(project: Path, there: Path) -> None:
    """A link to a file is copied as a file; a link to a folder is not followed."""
    write(project / "real" / "a", "a")
    (project / "link").symlink_to("real/a")
    (project / "folder").symlink_to("real")
    synced(project, f"dir:{there}")
    assert tree(there) == {"real/a": b"a", "link": b"a"}
    assert not (there / "link").is_symlink()


def test_a_root_that_is_a_link(project: Path, there: Path, tmp_path: Path) -> None:
    """The agent may name files by the link or by its target."""
    (tmp_path / "short").symlink_to(project)
    for name in ("a", "b"):
        write(project / name)
    syncing = begun(tmp_path / "short", f"dir:{there}")
    syncing.add_event(told(tmp_path / "short" / "a"))
    syncing.add_event(told(project / "b"))
    assert syncing.finish().put == 2
    assert sorted(tree(there)) == ["a", "b"]


def test_links_at_the_destination_are_not_followed(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """A link in place of a file is replaced, one in place of a folder is an error."""
    victim = write(tmp_path / "victim" / "a", "untouched")
    there.mkdir()
    (there / "a").symlink_to(victim)
    (there / "sub").symlink_to(victim.parent)
    write(project / "a", "new")
    write(project / "sub" / "a", "new")
    summary = synced(project, f"dir:{there}", delete=True)
    assert counted(summary) == (1, 0, 0, 1)
    assert "links are not followed" in summary.failed[0].reason
    assert victim.read_text() == "untouched"
    assert list(victim.parent.iterdir()) == [victim]
    assert not (there / "a").is_symlink()
    assert (there / "a").read_text() == "new"


def test_a_link_that_is_put_in_the_way_meanwhile(
    project: Path, there: Path, tmp_path: Path
) -> None:
    """Folders on both sides become links during the copy: nothing is read or written outside."""
    secret, victim = write(tmp_path / "secret" / "a", "secret"), tmp_path / "victim"
    victim.mkdir()
    write(project / "sub" / "a", "mine")
    over = threading.Event()

    def swap(folder: Path, target: Path) -> None:
        aside = folder.with_name("aside")
        while not over.is_set():
            try:
                folder.rename(aside)
                folder.symlink_to(target)
                folder.unlink()
                aside.rename(folder)
            except OSError:  # the destination created the folder meanwhile
                folder.unlink(missing_ok=True) if folder.is_symlink() else shutil.rmtree(
                    aside, ignore_errors=True
                )

    (there / "sub").mkdir(parents=True)
    threads = [
        threading.Thread(target=swap, args=pair)
        for pair in ((project / "sub", secret.parent), (there / "sub", victim))
    ]
    for thread in threads:
        thread.start()
    root, folder = RootFolder(str(project)), FolderDestination(str(there), False)
    for _ in range(2_000):
        try:
            with closing(read_content(root, "sub/a")) as found:
                assert found.read_all() == b"mine"
                folder.put("sub/a", found)
        except (OSError, SyncError):
            continue
    over.set()
    for thread in threads:
        thread.join()
    assert list(victim.iterdir()) == []
    assert all(data in (b"mine", b"") for data in tree(there).values())


def test_a_folder_replaced_by_a_file_and_back(project: Path, there: Path) -> None:
    """Replaced with --delete; an error without it."""
    write(project / "d" / "x")
    synced(project, f"dir:{there}")
    (project / "d" / "x").unlink()
    (project / "d").rmdir()
    write(project / "d", "file")
    refused = synced(project, f"dir:{there}", delete=False)
    assert [failed.reason for failed in refused.failed] == [
        "there is a folder of this name in the destination; use --delete to replace it"
    ]
    assert tree(there) == {"d/x": b"x"}
    assert synced(project, f"dir:{there}", delete=True).ok
    assert tree(there) == {"d": b"file"}
    (project / "d").unlink()
    write(project / "d" / "y")
    refused = synced(project, f"dir:{there}", delete=False)
    assert "use --delete to replace it" in refused.failed[0].reason
    assert synced(project, f"dir:{there}", delete=True).ok
    assert tree(there) == {"d/y": b"x"}


def test_a_destination_inside_the_folder_is_refused(project: Path, tmp_path: Path) -> None:
    """Also the folder inside the destination."""
    (tmp_path / "alias").symlink_to(project)
    for path in (project / "backup", project, tmp_path, tmp_path / "alias" / "x"):
        with pytest.raises(StenoError, match="source and destination overlap"):
            begun(project, f"dir:{path}")


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "dir:",
        "cmd:",
        "cmd:'open",
        "https://u:pw@host/x",
        "https://host/?q",
        "nosuch://host/x",
        "sftp://u:p@h/x",
    ],
)
def test_wrong_destinations(project: Path, text: str) -> None:
    """Errors before anything is done; no message repeats a password."""
    with pytest.raises(StenoError) as found:
        begun(project, text)
    assert "pw" not in str(found.value)


# -- order and load ------------------------------------------------------------------------------


def test_a_thousand_files_in_a_second(project: Path, there: Path) -> None:
    """All arrive, and `add_event` never blocks."""
    syncing = begun(project, f"dir:{there}", watch_files=True)
    worst = 0.0
    start = time.monotonic()
    for number in range(1_000):
        path = write(project / f"d{number % 10}" / f"{number}.txt", str(number))
        before = time.perf_counter()
        syncing.add_event(told(path, "created"))
        worst = max(worst, time.perf_counter() - before)
    wrote = time.monotonic() - start
    summary = syncing.finish()
    took = time.monotonic() - start
    assert tree(there) == {
        f"d{number % 10}/{number}.txt": str(number).encode() for number in range(1_000)
    }
    assert (summary.put, summary.failed) == (1_000, [])
    measured(
        f"1,000 files written in {wrote:.2f} s, all copied after {took:.2f} s; "
        f"longest add_event() {worst * 1e3:.2f} ms"
    )
    assert worst < 0.1


def test_a_file_that_changes_five_hundred_times(project: Path) -> None:
    """Versions arrive in order, and the last one wins."""
    with FileStore() as store:
        syncing = begun(project, store.url)
        worst = 0.0
        for number in range(500):
            write(project / "a", f"{number:04d}")
            before = time.perf_counter()
            syncing.add_event(told(project / "a"))
            worst = max(worst, time.perf_counter() - before)
            time.sleep(0.001)
        summary = syncing.finish()
        sent = [int(seen.data) for seen in store.seen if seen.verb == "PUT" and seen.data]
        assert store.contents() == {"a": b"0499"}
    assert sent == sorted(sent)
    assert summary.failed == []
    measured(f"500 changes: {len(sent)} were sent; longest add_event() {worst * 1e3:.2f} ms")
    assert worst < 0.1


# -- HTTP ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("etags", [False, True])
def test_versions_and_two_conflicts(project: Path, etags: bool) -> None:
    """Each PUT names the version it replaces; after a conflict it is repeated with the new one."""
    with FileStore(etags=etags) as store:
        syncing = begun(project, store.url)
        write(project / "a", "first")
        syncing.add_event(told(project / "a"))
        until(lambda: store.contents() == {"a": b"first"})
        store.conflicts = 2
        write(project / "a", "second")
        syncing.add_event(told(project / "a"))
        summary = syncing.finish()
        assert store.contents() == {"a": b"second"}
        clash = 412 if etags else 409
        assert store.statuses("PUT") == [201, clash, clash, 200]
        named = [
            seen.headers.get("if-match" if etags else "x-version")
            for seen in store.seen
            if seen.verb == "PUT"
        ]
        assert named == ([None, '"1"', '"2"', '"3"'] if etags else [None, "1", "2", "3"])
    assert counted(summary) == (2, 0, 0, 0)


def test_names_deletes_and_hashes_by_http(project: Path) -> None:
    """Any name is quoted; unchanged files are not sent again; deleted ones are deleted."""
    with FileStore() as store:
        for name in NAMES:
            write(project / name, name)
        assert synced(project, store.url).put == len(NAMES)
        assert store.contents() == {name: name.encode() for name in NAMES}
        assert counted(synced(project, store.url)) == (0, 0, len(NAMES), 0)
        syncing = begun(project, store.url, delete=True)
        (project / NAMES[0]).unlink()
        syncing.add_event(told(project / NAMES[0], "deleted"))
        assert syncing.finish().deleted == 1
        assert store.contents() == {name: name.encode() for name in NAMES[1:]}


def test_the_token_is_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment."""
    monkeypatch.setenv("STENO_SYNC_TOKEN", "not-a-secret")
    with FileStore() as store:
        write(project / "a")
        synced(project, store.url)
        assert [seen.headers["authorization"] for seen in store.seen] == [
            "Bearer not-a-secret"
        ] * len(store.seen)


# -- faults --------------------------------------------------------------------------------------


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_destination_that_is_down_for_ten_seconds(project: Path, tmp_path: Path) -> None:
    """It is retried until it is up; the other destination doesn't wait for it."""
    port, near = free_port(), tmp_path / "near"
    write(project / "a", "one")
    syncing = begun(project, f"http://127.0.0.1:{port}/files", f"dir:{near}")
    start = time.monotonic()
    syncing.add_event(told(project / "a"))
    until(lambda: near.exists() and tree(near) == {"a": b"one"}, 1.0)
    time.sleep(10)
    with FileStore(port) as store:
        summary = syncing.finish()
        assert store.contents() == {"a": b"one"}
    measured(f"down for 10 s: there after {time.monotonic() - start:.1f} s")
    assert summary.ok
    assert [line for line in syncing.take_messages() if "✗" in line] == [
        f"[steno] ✗ a → http://127.0.0.1:{port}/files: Connection refused; retrying"
    ]


def test_a_destination_that_takes_a_byte_a_second(project: Path, tmp_path: Path) -> None:
    """`finish` ends at its limit; the rest is in the journal."""
    with FileStore() as store:
        store.pause = 1.0
        write(project / "a", "slow")
        write(project / "b", "far too long for this" * 10)
        journal = tmp_path / "j" / "x.journal"
        syncing = begun(project, store.url, limit=8.0, journal=str(journal))
        before = time.perf_counter()
        for name in ("a", "b"):
            syncing.add_event(told(project / name))
        assert time.perf_counter() - before < 2
        start = time.monotonic()
        summary = syncing.finish()
        assert 7.5 < time.monotonic() - start < 60  # the whole file would take minutes
        assert store.contents() == {"a": b"slow"}
        assert [(failed.path, failed.reason) for failed in summary.failed] == [("b", "out of time")]
    (left,) = pending_syncs(tmp_path / "j")
    assert left.names_by_destination == {0: ["b"]}
    assert (summary.journal, left.root) == (str(journal), str(project))


def test_answers_of_500_for_ever(project: Path) -> None:
    """Retried with increasing delays, reported once, and given up at the limit."""
    with FileStore() as store:
        store.fail = 500
        write(project / "a")
        syncing = begun(project, store.url, limit=3.0)
        syncing.add_event(told(project / "a"))
        summary = syncing.finish()
        assert 3 <= len(store.statuses("PUT")) <= 7
    assert [failed.reason for failed in summary.failed] == ["HTTP 500 Internal Server Error"]
    assert len(syncing.take_messages()) == 1
    assert (summary.exit_code(True), summary.exit_code(False)) == (1, 0)


def test_a_forbidden_destination(project: Path) -> None:
    """Not retried, and `finish` doesn't wait."""
    with FileStore() as store:
        store.fail = 403
        write(project / "a")
        syncing = begun(project, store.url)
        syncing.add_event(told(project / "a"))
        start = time.monotonic()
        summary = syncing.finish()
        assert time.monotonic() - start < 20
        assert store.statuses("PUT") == [403]
    assert [failed.reason for failed in summary.failed] == ["HTTP 403 Forbidden"]


def test_a_folder_that_may_not_be_written(project: Path, tmp_path: Path) -> None:
    """Root drops the capability to write everywhere first."""
    shut = tmp_path / "shut"
    shut.mkdir()
    shut.chmod(0o555)
    write(project / "a")
    code = (
        "import sys; from steno.sync import FolderSync, SyncOptions;"
        "options = SyncOptions(destinations=(sys.argv[2],), final_pass=True, watch_files=False);"
        "summary = FolderSync(sys.argv[1], options).finish();"
        "print([file.reason for file in summary.failed])"
    )
    plain = (
        ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
        if os.getuid() == 0
        else []
    )
    words = [*plain, sys.executable, "-c", code, str(project), f"dir:{shut}"]
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment(tmp_path), check=False
    )
    assert (done.stdout, done.stderr) == ("['Permission denied']\n", "")


def test_a_full_destination(project: Path, tmp_path: Path) -> None:
    """What fits is copied, the rest is reported, and no partial file is left."""
    write(project / "small", "small")
    write(project / "large", os.urandom(400_000))
    (tmp_path / "full").mkdir()
    words = [
        str(tmp_path / "full"),
        *argv("sync", project, f"dir:{tmp_path / 'full'}", "--tries", "2"),
    ]
    own, reason = (
        'mount -t tmpfs -o size=64k none "$1" && shift && "$@"; ls -A full',
        "No space left on device",
    )
    script = ["unshare", "-rm", "sh", "-c", own, "sh"]
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        # No mount namespaces here: limit the file size instead, with the same effect.
        script, reason = (
            ["sh", "-c", 'ulimit -f 128 && shift && "$@"; ls -A full', "sh"],
            "File too large",
        )
    done = subprocess.run(
        [*script, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path / "data"),
        check=False,
    )
    assert f"✗ large: {reason}" in done.stderr
    assert done.stdout == "small\n"
    (left,) = pending_syncs(tmp_path / "data" / "steno" / "sync")
    assert left.names_by_destination == {0: ["large"]}


def test_a_sync_that_outlives_the_input(project: Path) -> None:
    """The stream ends at once; all files arrive within the limit."""
    with FileStore() as store:
        store.pause = 0.01
        for number in range(20):
            write(project / str(number), "ten bytes.")
        syncing = begun(project, store.url)
        for number in range(20):
            syncing.add_event(told(project / str(number)))
        summary = syncing.finish()
        assert len(store.contents()) == 20
    assert counted(summary) == (20, 0, 0, 0)


def test_a_kill_in_the_middle_of_a_copy(project: Path, there: Path, tmp_path: Path) -> None:
    """The destination has the old or the new file, never a part; `--pending` finishes it."""
    old, new = b"old" * 1_000, os.urandom(200_000_000)
    write(project / "large", new)
    write(there / "large", old)
    halves = 0
    for _ in range(3):
        child = subprocess.Popen(
            argv("sync", project, f"dir:{there}"),
            env=environment(tmp_path),
            stderr=subprocess.DEVNULL,
        )
        until(partial(half_written, there, child))
        child.send_signal(signal.SIGKILL)
        child.wait()
        halves += len(list(there.glob(".steno-put-*")))
        assert (there / "large").read_bytes() in (old, new)
    measured(f"{halves} half files were left under names of ours")
    assert pending_syncs(tmp_path / "steno" / "sync") != []
    done = steno(tmp_path, "sync", "--pending")
    assert done.code == 0
    assert tree(there) == {"large": new}
    assert pending_syncs(tmp_path / "steno" / "sync") == []


def test_a_disk_that_is_taken_out_and_put_back(project: Path, there: Path, tmp_path: Path) -> None:
    """A destination folder that disappears is not created again; its return resumes the sync."""
    write(project / "a", "one")
    syncing = begun(project, f"dir:{there}")
    syncing.add_event(told(project / "a"))
    until(lambda: there.exists() and tree(there) == {"a": b"one"})
    there.rename(tmp_path / "out")
    write(project / "a", "two")
    syncing.add_event(told(project / "a"))
    time.sleep(0.5)
    assert not there.exists()
    (tmp_path / "out").rename(there)
    assert syncing.finish().ok
    assert tree(there) == {"a": b"two"}


# -- the journal ---------------------------------------------------------------------------------


def test_pending_finishes_what_failed(project: Path, tmp_path: Path) -> None:
    """With the current content; what fails again is journaled again."""
    with FileStore() as store:
        store.fail = 503
        write(project / "a", "then")
        write(project / "sub" / "b\n", "b")
        done = steno(tmp_path, "sync", project, store.url, "--tries", "2", "--prefix", "", "--json")
        assert (done.code, store.contents()) == (1, {})
        assert "some files were not copied; to retry: steno sync --pending" in done.err
        assert steno(tmp_path, "sync", "--pending", "--tries", "1").code == 1
        assert len(list((tmp_path / "steno" / "sync").glob("*.journal"))) == 1
        store.fail = None
        write(project / "a", "now")
        done = steno(tmp_path, "sync", "--pending")
        assert done.code == 0
        assert store.contents() == {"a": b"now", "sub/b\n": b"b"}
    assert list((tmp_path / "steno" / "sync").iterdir()) == []
    assert steno(tmp_path, "sync", "--pending").err == "No pending syncs.\n"


def test_a_journal_that_is_being_written_is_left_alone(project: Path, tmp_path: Path) -> None:
    """Files that are not journals, and truncated lines, are ignored."""
    with FileStore() as store:
        store.fail = 500
        write(project / "a")
        syncing = begun(project, store.url, journal=str(tmp_path / "j" / "1.journal"), limit=0.5)
        syncing.add_event(told(project / "a"))
        until(lambda: store.statuses("PUT"))
        assert pending_syncs(tmp_path / "j") == []
        syncing.finish()
    (left,) = pending_syncs(tmp_path / "j")
    with left.path.open("ab") as file:
        file.write(b'["-", 0, "a')
    write(tmp_path / "j" / "2.journal", "nonsense\n")
    write(tmp_path / "j" / "3.journal", "")
    assert [one.names_by_destination for one in pending_syncs(tmp_path / "j")] == [{0: ["a"]}]


# -- commands ------------------------------------------------------------------------------------


def test_a_command_for_each_file(project: Path, tmp_path: Path) -> None:
    """Without a shell: any name is one argument."""
    for name in NAMES:
        write(project / name, name)
    keep = write(
        tmp_path / "keep.py",
        "import sys, json\nopen(sys.argv[1], 'a').write(json.dumps(sys.argv[2:]) + '\\n')\n",
    )
    log = tmp_path / "log"
    syncing = begun(
        project,
        f"cmd:{sys.executable} {keep} {log} {{change}} {{path}} {{name}}",
        delete=True,
        concurrency=1,
    )
    for name in NAMES:
        syncing.add_event(told(project / name))
    until(lambda: log.exists() and len(log.read_text().splitlines()) == len(NAMES))
    (project / "plain.txt").unlink()
    syncing.add_event(told(project / "plain.txt", "deleted"))
    assert counted(syncing.finish()) == (len(NAMES), 1, 0, 0)
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    plain = [name if not name.startswith("-") else f"./{name}" for name in NAMES]
    assert calls[:-1] == [
        ["put", str(project / name), shown] for name, shown in zip(NAMES, plain, strict=True)
    ]
    assert calls[-1] == ["delete", str(project / "plain.txt"), "plain.txt"]


def test_a_command_that_fails_or_hangs(project: Path, tmp_path: Path) -> None:
    """The last line of stderr is the reason; a hanging command and its children are killed."""
    write(project / "a")
    fails = write(tmp_path / "fails.py", "import sys; sys.exit('disk on fire')")
    summary = synced(project, f"cmd:{sys.executable} {fails}", tries=2)
    assert [failed.reason for failed in summary.failed] == ["disk on fire"]
    assert [failed.reason for failed in synced(project, "cmd:/no/such/program {path}").failed] == [
        "/no/such/program: No such file or directory"
    ]
    hangs = write(tmp_path / "hangs.sh", f"sleep 987654 & echo $! > {tmp_path}/pid; wait\n")
    start = time.monotonic()
    assert len(synced(project, f"cmd:sh {hangs}", limit=1.0).failed) == 1
    assert time.monotonic() - start < 30
    pid = int((tmp_path / "pid").read_text())
    until(
        lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text()
    )


# -- fsspec --------------------------------------------------------------------------------------


def test_memory(project: Path) -> None:
    """fsspec's in-memory store."""
    import fsspec  # type: ignore[import-untyped]

    store = fsspec.filesystem("memory")
    for name in NAMES:
        write(project / name, name)
    assert synced(project, "memory://here/deep").put == len(NAMES)
    assert store.cat_file("/here/deep/new\nline.txt") == b"new\nline.txt"
    assert counted(synced(project, "memory://here/deep")) == (0, 0, len(NAMES), 0)
    (project / "plain.txt").unlink()
    write(project / "two words.txt", "other")
    assert counted(synced(project, "memory://here/deep", delete=True)) == (1, 1, len(NAMES) - 2, 0)
    assert not store.exists("/here/deep/plain.txt")


def test_a_zip_archive(project: Path, tmp_path: Path) -> None:
    """Complete when the sync has ended; deletions are reported as not supported."""
    import zipfile

    write(project / "a", "a")
    write(project / "sub" / "b", "b")
    archive = tmp_path / "x.zip"
    assert synced(project, f"zip://::file://{archive}").put == 2
    with zipfile.ZipFile(archive) as found:
        assert {name: found.read(name) for name in found.namelist()} == {"a": b"a", "sub/b": b"b"}
    (project / "a").unlink()
    write(project / "sub" / "b", "second")
    summary = synced(project, f"zip://::file://{archive}", delete=True)
    assert (summary.put, summary.failed, summary.ok) == (1, [], False)
    assert summary.problems == [f"zip://::{archive}: deletion not supported: a"]
    with zipfile.ZipFile(archive) as found:
        assert found.read("sub/b") == b"second"


def test_a_real_sftp_server(project: Path, tmp_path: Path) -> None:
    """Put, replace, delete and compare over the real protocol."""
    from fsspec.config import conf  # type: ignore[import-untyped]

    with SftpServer(tmp_path / "served", tmp_path / "keys") as server:
        for protocol in ("ssh", "sftp"):
            conf[protocol] = {"client_keys": [str(server.key)], "username": "tester"}
        url = f"sftp://127.0.0.1:{server.port}/inner"
        for name in NAMES:
            write(project / name, name)
        syncing = begun(project, url, delete=True)
        for name in NAMES:
            syncing.add_event(told(project / name))
        until(
            lambda: (
                (tmp_path / "served" / "inner").exists()
                and len(tree(tmp_path / "served" / "inner")) == len(NAMES)
            )
        )
        write(project / "plain.txt", "second")
        (project / "two words.txt").unlink()
        for name in ("plain.txt", "two words.txt"):
            syncing.add_event(told(project / name))
        summary = syncing.finish()
        expected = {name: name.encode() for name in NAMES if name != "two words.txt"} | {
            "plain.txt": b"second"
        }
        assert tree(tmp_path / "served" / "inner") == expected
        assert counted(summary) == (len(NAMES) + 1, 1, 0, 0)
        write(tmp_path / "served" / "inner" / "left", "over")
        assert counted(synced(project, url, delete=True)) == (0, 1, len(NAMES) - 1, 0)
        assert tree(tmp_path / "served" / "inner") == expected
        for protocol in ("ssh", "sftp"):
            del conf[protocol]


def test_a_conflict_by_hand(project: Path) -> None:
    """A file changed on the server is replaced: the agent's folder takes precedence."""
    with FileStore() as store:
        write(project / "a", "mine")
        store.files["a"] = File(b"theirs", 7)
        assert synced(project, store.url).put == 1
        assert store.files["a"] == File(b"mine", 8)


def test_without_the_extras(project: Path, there: Path, tmp_path: Path) -> None:
    """Unreported changes are detected at the end; patterns and other stores name the package."""
    code = f"""
import sys
sys.modules.update(watchfiles=None, pathspec=None, fsspec=None)
from steno.sync import FolderSync, SyncOptions
syncing = FolderSync({str(project)!r}, SyncOptions(destinations=("dir:{there}",)))
open({str(project / "late.txt")!r}, "w").close()
print(syncing.finish().put, *syncing.take_messages(), sep="\\n")
for more in ({{"destinations": ("s3://b",)}}, {{"destinations": (), "include": ("*",)}}):
    try:
        FolderSync({str(project)!r}, SyncOptions(**more))
    except Exception as problem:
        print(problem)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            "1",
            "[steno] · changes made by shell commands are detected only at the end; "
            f"file-system watching and .gitignore support: {extra_command('watch')}",
            "[steno] ✓ late.txt",
            f"s3://b: fsspec is required: {extra_command('sync')}",
            f"file-system watching and .gitignore support: {extra_command('watch')}",
        ],
        "",
    )
