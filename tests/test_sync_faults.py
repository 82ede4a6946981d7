"""A sync whose folder, journal or destination fails it: nothing is deleted for that, and nothing is lost without a word."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from steno import event as ev
from steno.sync import Syncing, SyncOptions, SyncSummary
from steno.sync.journal import pending
from tests.script import answer, assistant, call, init, result, stream
from tests.support.filestore import FileStore
from tests.support.program import Ended, argv, environment, steno

LONG = 30.0
AS_OTHERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


def write(path: Path, data: str | bytes = "x") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder to work in."""
    (tmp_path / "proj").mkdir()
    return tmp_path / "proj"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where files go."""
    return tmp_path / "there"


def begun(project: Path | None, *destinations: str, **more: Any) -> Syncing:
    """A sync by what tools tell alone, unless it is asked for more."""
    given = str(project) if project is not None else None
    return Syncing(given, SyncOptions(destinations=destinations, **{"watch_files": False, "limit": LONG, **more}))


def synced(project: Path, *destinations: str, **more: Any) -> SyncSummary:
    """A whole folder, once."""
    return begun(project, *destinations, final_pass=True, **more).finish()


def told(path: Path, change: str = "modified") -> ev.FileChanged:
    """A tool says that a file changed."""
    return ev.FileChanged(1, "s", None, None, str(path), change, "c")


def journals(data: Path) -> list[Path]:
    """What steno keeps of syncs that were not finished."""
    return sorted((data / "steno" / "sync").glob("*"))


@contextmanager
def small_disk(path: Path, size: str = "256k") -> Iterator[Path]:
    """A disk that is soon full."""
    path.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with (disk / "full").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


# -- the folder ----------------------------------------------------------------------------------------------------------


def left_over(data: Path, project: Path, there: Path, *more: str) -> None:
    """A sync with --delete that left `a`, which was copied before."""
    write(there / "a", "the only copy")
    write(project / "a", "new")
    there.rename(there.with_name("aside"))
    write(there, "in the way")
    assert steno(data, "sync", project, f"dir:{there}", "--delete", "--tries", "1", *more).code == 1
    there.unlink()
    there.with_name("aside").rename(there)


def test_pending_deletes_nothing_when_the_folder_is_gone(project: Path, there: Path, tmp_path: Path) -> None:
    """Moved away, or an empty place where a disk should be: it is told, and kept until the folder is back."""
    left_over(tmp_path, project, there)
    kept = journals(tmp_path)
    project.rename(tmp_path / "moved")
    done = steno(tmp_path, "sync", "--pending")
    assert (done.code, done.err) == (2, f"steno: {project}: there is no such folder; it is still kept in {kept[0]}\n")
    project.mkdir()
    done = steno(tmp_path, "sync", "--pending")
    assert (done.code, "nothing lies in this folder" in done.err) == (2, True)
    assert (tree(there), journals(tmp_path)) == ({"a": b"the only copy"}, kept)
    project.rmdir()
    (tmp_path / "moved").rename(project)
    assert steno(tmp_path, "sync", "--pending").code == 0
    assert (tree(there), journals(tmp_path)) == ({"a": b"new"}, [])


def test_one_folder_that_is_gone_does_not_stop_the_others(project: Path, there: Path, tmp_path: Path) -> None:
    """What can be finished is, and the exit code tells of the rest."""
    left_over(tmp_path, project, there)
    write(tmp_path / "proj2" / "b")
    left_over(tmp_path, tmp_path / "proj2", tmp_path / "there2")
    shutil.rmtree(project)
    assert steno(tmp_path, "sync", "--pending").code == 1
    assert (tree(there), tree(tmp_path / "there2")) == ({"a": b"the only copy"}, {"a": b"new", "b": b"x"})
    assert len(journals(tmp_path)) == 1


@pytest.mark.parametrize("fate", ["moved", "replaced", "linked"])
@pytest.mark.parametrize("watch_files", [False, True])
def test_a_folder_that_vanishes_while_it_is_synced(
    project: Path, there: Path, tmp_path: Path, fate: str, watch_files: bool
) -> None:
    """Nothing is deleted for it, whoever tells of the files, and it is said."""
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
        syncing.event(told(project / name, "deleted"))
    summary = syncing.finish()
    assert tree(there) == {"a": b"x", "b/c": b"x"}
    assert (summary.deleted, summary.ok) == (0, False)


def test_a_prefix_that_is_not_there(project: Path, there: Path, tmp_path: Path) -> None:
    """Mistyped, a file, or a link: nothing is begun, and nothing deleted."""
    write(project / "public" / "a")
    write(project / "file")
    (project / "link").symlink_to("public")
    assert synced(project, f"dir:{there}", prefix="public").ok
    for prefix, why in (("pubic", "no such folder"), ("file", "no such folder"), ("link", "a link")):
        for more in ((), ("--delete",)):
            done = steno(tmp_path, "sync", project, f"dir:{there}", "--prefix", prefix, *more)
            assert (done.code, why in done.err, done.err.count("\n")) == (2, True, 1)
    assert (tree(there), journals(tmp_path)) == ({"a": b"x"}, [])


def test_a_prefix_that_comes_later(project: Path, there: Path) -> None:
    """While an agent works it may be made; as long as it was never seen, nothing is deleted for its absence."""
    write(there / "old")
    syncing = begun(project, f"dir:{there}", prefix="public", delete=True, final_pass=True)
    summary = syncing.finish()
    assert (tree(there), summary.problems) == ({"old": b"x"}, [f"--prefix=public/: there is no such folder in {project}"])
    syncing = begun(project, f"dir:{there}", prefix="public", delete=True, final_pass=True)
    syncing.event(told(write(project / "public" / "new")))
    assert syncing.finish().ok
    assert tree(there) == {"new": b"x"}
    syncing = begun(project, f"dir:{there}", prefix="public", delete=True, final_pass=True)
    shutil.rmtree(project / "public")
    assert syncing.finish().ok
    assert tree(there) == {}


# -- the journal -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_below_the_journal(project: Path, there: Path, tmp_path: Path) -> None:
    """Before it is begun, or in the middle: the files are copied all the same, and it is told once."""
    for number in range(3_000):
        write(project / f"{number:0100d}", str(number))
    with small_disk(tmp_path / "data") as data:
        done = steno(data, "sync", project, f"dir:{there}")
        lines = [line for line in done.err.splitlines() if "✗" in line]
        assert (done.code, len(lines), len(tree(there))) == (1, 1, 3_000)
        assert ".journal: No space left on device: what is left" in lines[0]
        assert "3000 copied" in done.err
        assert journals(data) == []
        shutil.rmtree(there)
        (data / "steno" / "sync").mkdir(parents=True, exist_ok=True)
        fill(data)
        done = steno(data, "sync", project, f"dir:{there}")
        assert (done.code, done.err.count("✗"), len(tree(there)), journals(data)) == (1, 1, 3_000, [])


def test_a_full_disk_below_the_journal_of_a_stream(project: Path, there: Path, tmp_path: Path) -> None:
    """A watch copies what changes, whether or not it can remember what is left."""
    path = write(project / "a", "text")
    known = {"type": "create", "filePath": str(path), "content": "text", "structuredPatch": []}
    steps = [init(cwd=str(project)), assistant(call("t1", "Write", file_path=str(path), content="text"))]
    data = stream(*steps, answer("t1", tool_use_result=known), result())
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "steno", "a file in the way of a folder")
    words = argv("watch", "-q", "--strict", "--sync", f"dir:{there}")
    done = subprocess.run(words, input=data, capture_output=True, env=environment(tmp_path / "data"), check=False)
    assert (done.returncode, done.stdout, tree(there)) == (1, data, {"a": b"text"})
    assert b".journal: Not a directory: what is left" in done.stderr


def test_pending_forgets_nothing_on_a_full_disk(project: Path, there: Path, tmp_path: Path) -> None:
    """Where the rest cannot be written down anew, the old journal stays."""
    with small_disk(tmp_path / "data") as data, FileStore() as store:
        write(project / "a")
        store.fail = 503
        assert steno(data, "sync", project, store.url, "--tries", "1").code == 1
        kept = journals(data)
        fill(data)
        assert steno(data, "sync", "--pending", "--tries", "1").code == 1
        assert journals(data) == kept
        store.fail = None
        assert steno(data, "sync", "--pending").code == 1  # all is there now; that no journal could be made is told
        assert (store.contents(), journals(data)) == ({"a": b"x"}, [])


def bad_journal(data: Path, name: str, destination: str, root: Path, *lines: list[Any]) -> Path:
    """A journal by hand."""
    head = {"schema": "steno.sync/1", "root": str(root), "options": {"destinations": [destination]}}
    return write(data / "steno" / "sync" / name, "".join(json.dumps(line) + "\n" for line in (head, *lines)))


def test_each_journal_stands_for_itself(project: Path, there: Path, tmp_path: Path) -> None:
    """A destination that nobody knows, a folder with the name of a journal, names that are none: the good one is finished."""
    bad = bad_journal(tmp_path, "aa.journal", "nosuch://x", project, ["+", 0, "a"])
    bad_journal(tmp_path, "bb.journal", f"dir:{there}2", project, ["+", 0, ""], ["+", 0, "../up"], ["+", 0, "/etc/hostname"])
    (tmp_path / "steno" / "sync" / "aaa.journal").mkdir()
    left_over(tmp_path, project, there)
    done = steno(tmp_path, "sync", "--pending", timeout=LONG)
    assert (done.code, tree(there)) == (1, {"a": b"new"})
    assert f"still kept in {bad}" in done.err
    assert done.err.count("steno: ") == 1
    bad.unlink()
    assert steno(tmp_path, "sync", "--pending", timeout=LONG).code == 0


def test_pending_takes_no_other_wishes(tmp_path: Path) -> None:
    """It knows what was asked for; what it would not heed is refused."""
    for words in (("--prefix", "x"), ("--include", "x"), ("--exclude", "x"), ("--delete",), ("--no-ignore",)):
        done: Ended = steno(tmp_path, "sync", "--pending", *words)
        assert (done.code, words[0] in done.err) == (2, True)


def test_a_limit_that_leaves_no_time_at_all(project: Path, there: Path, tmp_path: Path) -> None:
    """Which files are left is not known then, so all are looked at later."""
    for number in range(500):
        write(project / str(number))
    done = steno(tmp_path, "sync", project, f"dir:{there}", "--limit", "0")
    assert (done.code, "steno sync --pending" in done.err) == (1, True)
    assert steno(tmp_path, "sync", "--pending").code == 0
    assert (len(tree(there)), journals(tmp_path), pending(tmp_path / "steno" / "sync")) == (500, [], [])
