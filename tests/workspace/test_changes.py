"""Changed files: safe paths, ignore rules, merging of three sources, patches."""

import os
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from steno import event as ev
from steno import events as steno_events
from steno.errors import OutsideFolderError
from steno.recording.format import Header, Record
from steno.workspace import changes, git
from steno.workspace.change_watcher import FileIndex, FileWatcher, ObservedChange
from steno.workspace.changes import Change, ChangeTracker, merge_git_changes
from steno.workspace.ignore_rules import IgnoreRules
from steno.workspace.safe_path import RootFolder, is_safe_name
from tests.support import claude_lines
from tests.support.program import steno

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=timezone.utc)
LONGEST = "n" * 255
NAMES = (
    "plain.txt",
    "two words.txt",
    "ünï-日本.txt",
    "new\nline.txt",
    "tab\there.txt",
    '"quoted".txt',
    "-rf",
    LONGEST,
)


def write(path: Path, text: str = "x") -> Path:
    """A file with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder, next to one whose name starts the same."""
    write(tmp_path / "proj2" / "a.txt")
    write(tmp_path / "proj" / "a.txt", "one\n")
    return tmp_path / "proj"


# -- safe paths ----------------------------------------------------------------------------------


def test_containment_is_by_whole_names(project: Path) -> None:
    """`/proj2` is not inside `/proj`; neither are the folder itself and its parents."""
    root = RootFolder(str(project))
    assert root.relative_name(str(project / "a.txt")) == "a.txt"
    assert root.relative_name("a.txt") == "a.txt"
    outside = (
        f"{project}2/a.txt",
        str(project),
        str(project.parent),
        "/etc/passwd",
        "",
        ".",
        "a\0b",
        "\ud83d",
    )
    assert [root.relative_name(path) for path in outside] == [None] * 8


@pytest.mark.parametrize("name", NAMES)
def test_any_name_that_a_disk_can_have(project: Path, name: str) -> None:
    """Blanks, newlines, quotes, other alphabets, the longest name."""
    write(project / "sub" / name)
    root = RootFolder(str(project))
    assert root.relative_name(str(project / "sub" / name)) == f"sub/{name}"
    os.close(root.open(f"sub/{name}"))


def test_dots_mean_what_the_disk_says(project: Path, tmp_path: Path) -> None:
    """`..` after a link is relative to the link's target."""
    write(tmp_path / "elsewhere" / "deep" / "x")
    (project / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    root = RootFolder(str(project))
    assert root.relative_name(f"{project}/sub/../a.txt") == "a.txt"
    assert root.relative_name(f"{project}/../proj2/a.txt") is None
    assert root.relative_name(f"{project}/link/../a.txt") is None
    assert root.relative_name(f"{project}/link/x") is None


def test_a_link_that_leads_out_is_not_opened(project: Path, tmp_path: Path) -> None:
    """A link to a file inside is read; one to a file outside, to a folder, or a pipe is not."""
    secret = write(tmp_path / "secret")
    (project / "out").symlink_to(secret)
    (project / "in").symlink_to(project / "a.txt")
    os.mkfifo(project / "pipe")
    root = RootFolder(str(project))
    os.close(root.open("in"))
    for name in ("out", "pipe"):
        with pytest.raises(OutsideFolderError):
            root.open(name)
    with pytest.raises(OSError):  # noqa: PT011  # whichever: it is no file
        root.open("in/nothing")


def test_a_root_that_is_a_link(project: Path, tmp_path: Path) -> None:
    """The agent may name its folder by the link or by its target."""
    (tmp_path / "short").symlink_to(project)
    root = RootFolder(str(tmp_path / "short"))
    assert root.relative_name(f"{tmp_path}/short/a.txt") == "a.txt"
    assert root.relative_name(str(project / "a.txt")) == "a.txt"
    os.close(root.open("a.txt"))


def test_names_that_are_none() -> None:
    """Names from a journal or a server stay below the folder."""
    assert [
        is_safe_name(name) for name in ("a/b", "..", "a/../b", "/a", "a//b", "./a", "a/", "", "a\0")
    ] == [True] + [False] * 8


# -- ignore rules --------------------------------------------------------------------------------


def test_gitignore_at_every_level(project: Path) -> None:
    """The nearest matching file decides; everything in an ignored folder is ignored."""
    (project / ".git").mkdir()
    write(project / ".gitignore", "*.log\nbuild/\n/only-here\n")
    write(project / "sub" / ".gitignore", "!keep.log\n")
    rules = IgnoreRules(str(project))
    names = (
        "a.py",
        "a.log",
        "sub/keep.log",
        "sub/other.log",
        "build/x",
        "build/keep.log",
        "only-here",
        "sub/only-here",
    )
    assert [name for name in names if rules.includes(name)] == [
        "a.py",
        "sub/keep.log",
        "sub/only-here",
    ]
    assert not any(
        rules.includes(name)
        for name in (".git/config", "node_modules/a/b.js", "x/__pycache__/a.pyc", ".venv/a")
    )
    assert [
        name
        for name in ("a.py.tmp.16052.71368cb121a6", "a.tmp.1.py", "a.tmp.12", "b.tmp")
        if rules.includes(name)
    ] == [
        "a.tmp.1.py",
        "a.tmp.12",
        "b.tmp",
    ]  # Claude Code's temporary files
    assert IgnoreRules(str(project), use_gitignore=False).includes("a.log")
    assert not IgnoreRules(str(project), use_gitignore=False).includes("node_modules/a")


def test_rules_of_the_repository_above(project: Path) -> None:
    """Rules at the top apply to a folder below, unless the folder itself is ignored."""
    (project / ".git").mkdir()
    write(project / ".gitignore", "*.tmp\nwork/\n")
    (project / "work").mkdir()
    assert [IgnoreRules(str(project / "src")).includes(name) for name in ("a.tmp", "a.py")] == [
        False,
        True,
    ]
    assert [IgnoreRules(str(project / "work")).includes(name) for name in ("a.tmp", "a.py")] == [
        True,
        True,
    ]


def test_include_and_exclude(project: Path) -> None:
    """Included files only, never excluded ones."""
    rules = IgnoreRules(str(project), ["*.py", "docs/"], ["test_*"])
    assert [rules.includes(name) for name in ("a.py", "docs/a.md", "a.md", "test_a.py")] == [
        True,
        True,
        False,
        False,
    ]


# -- file index and watcher ----------------------------------------------------------------------


def test_the_index_says_what_is_different(project: Path) -> None:
    """Created, modified, deleted; a moved folder; a folder replaced by a file, and back."""
    write(project / "d" / "x")
    index = FileIndex(RootFolder(str(project)), IgnoreRules(str(project)))
    index.scan()
    assert index.names() == ["a.txt", "d/x"]
    write(project / "a.txt", "two\n")
    assert index.check_path(str(project / "a.txt")) == [ObservedChange("a.txt", "modified")]
    (project / "d").rename(project / "e")
    assert index.check_path(str(project / "d")) == [ObservedChange("d/x", "deleted")]
    assert index.check_path(str(project / "e")) == [ObservedChange("e/x", "created")]
    (project / "e" / "x").unlink()
    (project / "e").rmdir()
    write(project / "e")
    assert index.check_path(str(project / "e")) == [
        ObservedChange("e/x", "deleted"),
        ObservedChange("e", "created"),
    ]
    (project / "e").unlink()
    write(project / "e" / "y")
    assert index.check_path(str(project / "e")) == [
        ObservedChange("e", "deleted"),
        ObservedChange("e/y", "created"),
    ]
    assert index.rescan() == []
    (project / "a.txt").unlink()
    write(project / "b.txt")
    assert index.rescan() == [
        ObservedChange("a.txt", "deleted"),
        ObservedChange("b.txt", "created"),
    ]


def test_the_watcher_hears(project: Path) -> None:
    """Files, also in new folders; nothing that is always ignored."""
    heard: list[str] = []
    failed: list[str] = []
    watcher = FileWatcher(str(project), heard.extend, failed.append)
    watcher.start()
    assert watcher.wait_ready(10)
    write(project / "new" / "file.txt")
    write(project / ".git" / "index")
    until = time.monotonic() + 10
    while str(project / "new") not in heard and time.monotonic() < until:
        time.sleep(0.01)
    watcher.stop(5)
    assert failed == []
    assert str(project / "new") in heard
    assert not any(".git" in path for path in heard)


def test_a_folder_that_cannot_be_watched(tmp_path: Path) -> None:
    """It is reported."""
    failed: list[str] = []
    watcher = FileWatcher(str(tmp_path / "nothing"), lambda paths: None, failed.append)
    watcher.start()
    assert watcher.wait_ready(10)
    watcher.stop(5)
    assert failed[0].startswith(
        "file-system watching failed, changes are detected only at the end: "
    )


# -- merging -------------------------------------------------------------------------------------


def told(change: Change) -> tuple[str, str, str, str | None, str | None]:
    """The compared fields of a change."""
    return change.path, change.change, change.source, change.call, change.tool


def test_each_change_names_its_source_and_its_call() -> None:
    """A tool's report replaces what was seen on disk; the rest belongs to the running call."""
    changes = ChangeTracker()
    for event in (
        ev.Started(1, "s", None, NOW, cwd="/p"),
        ev.ToolCall(2, "s", None, NOW, "w", "Write", "file_write"),
    ):
        changes.add(event)
    changes.add_observed("/p/a.py.tmp.1", "created", NOW)
    changes.add_observed("/p/a.py", "created", NOW)
    changes.add_observed("/p/a.py.tmp.1", "deleted", NOW)
    changes.add(ev.ToolResult(3, "s", None, NOW, "w"))
    changes.add(ev.FileChanged(3, "s", None, NOW, "/p/a.py", "created", "w"))
    changes.add_observed(
        "/p/a.py", "modified", NOW + timedelta(milliseconds=40)
    )  # seen on disk late
    later = NOW + timedelta(seconds=5)
    changes.add(ev.ToolCall(4, "s", None, later, "b", "Bash", "shell"))
    changes.add(ev.ToolCall(4, "s", None, later, "r", "Read", "file_read"))
    changes.add_observed("/p/made.txt", "created", later)
    changes.add_observed("/p/a.py", "deleted", later)
    changes.add(ev.ToolResult(5, "s", None, later, "b"))
    changes.add(ev.ToolResult(5, "s", None, later, "r"))
    changes.add_observed("/p/by a person", "modified", later + timedelta(seconds=5))
    assert [told(change) for change in changes.all_changes()] == [
        ("a.py", "created", "tool", "w", "Write"),
        ("made.txt", "created", "filesystem", "b", "Bash"),
        ("a.py", "deleted", "filesystem", "b", "Bash"),
        ("by a person", "modified", "filesystem", None, None),
    ]


def test_failed_and_refused_edits_change_nothing() -> None:
    """Only successful results give changes."""
    changes = ChangeTracker("/p")
    changes.add(ev.ToolCall(1, "s", None, NOW, "e", "Edit", "file_edit"))
    changes.add(ev.ToolResult(2, "s", None, NOW, "e", True))
    assert changes.all_changes() == []


def test_git_adds_unreported_changes() -> None:
    """A rename is one change with the call of its halves; git adds binary and mode."""
    known = [
        Change(path="new.txt", change="created", source="filesystem", call="b", tool="Bash"),
        Change(path="old.txt", change="deleted", source="filesystem", call="b", tool="Bash"),
        Change(path="a.py", change="modified", source="tool", call="e", tool="Edit"),
    ]
    found = [
        Change(
            path="new.txt",
            change="renamed",
            source="git",
            was="old.txt",
            added=0,
            removed=0,
            binary=False,
        ),
        Change(
            path="a.py",
            change="modified",
            source="git",
            added=3,
            removed=1,
            binary=False,
            mode="100644 → 100755",
        ),
        Change(path="x.bin", change="created", source="git", binary=True),
    ]
    merged = merge_git_changes(known, found)
    assert [told(change) for change in merged] == [
        ("new.txt", "renamed", "filesystem", "b", "Bash"),
        ("a.py", "modified", "tool", "e", "Edit"),
        ("x.bin", "created", "git", None, None),
    ]
    assert (merged[1].added, merged[1].removed, merged[1].mode, merged[0].was) == (
        3,
        1,
        "100644 → 100755",
        "old.txt",
    )


# -- git -----------------------------------------------------------------------------------------


def run_git(folder: Path, *words: str, data: bytes | None = None) -> bytes:
    """Run git in a folder of the test."""
    mine = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    names = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *names, *words], cwd=folder, env=mine, check=True, capture_output=True, input=data
    ).stdout


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Each file with its bytes and its mode."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.parts
    ]
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in files
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit, and staged, changed and new files."""
    folder = tmp_path / "repo"
    write(folder / "a.txt", "one\ntwo\n")
    write(folder / "gone.txt", "bye\n")
    write(folder / "old name.txt", "".join(f"line {number}\n" for number in range(40)))
    (folder / "pic.bin").write_bytes(bytes(range(256)))
    write(folder / ".gitignore", "*.log\n")
    run_git(folder, "init", "-q")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", "first")
    write(folder / "staged.txt")
    run_git(folder, "add", "staged.txt")
    write(folder / "a.txt", "one\ntwo, changed by a person\n")
    write(folder / "new before.txt")
    return folder


def work(folder: Path) -> None:
    """Edit, create, delete, rename, make executable, write bytes."""
    write(folder / "a.txt", "one\nby the agent\n")
    write(folder / "made" / 'ünï \n"x".txt', "new")
    (folder / "gone.txt").unlink()
    (folder / "old name.txt").rename(folder / "new name.txt")
    (folder / "pic.bin").write_bytes(bytes(reversed(range(256))))
    (folder / "new before.txt").chmod(0o755)
    write(folder / "noise.log")


def test_a_patch_from_git_undoes_everything(repository: Path) -> None:
    """Binary files, renames, modes; the user's index and branches are unchanged."""
    status, before = run_git(repository, "status", "--porcelain=v2", "-z"), everything(repository)
    first = git.save_snapshot(str(repository), "r1", "before")
    assert run_git(repository, "status", "--porcelain=v2", "-z") == status
    work(repository)
    second = git.save_snapshot(str(repository), "r1", "after")
    assert first is not None
    assert second is not None
    trees = git.load_trees(str(repository), "r1")
    assert trees == git.TreePair(first, second)
    found = {change.path: change for change in git.diff_trees(str(repository), trees)}
    assert {path: (change.change, change.was, change.binary) for path, change in found.items()} == {
        "a.txt": ("modified", None, False),
        "gone.txt": ("deleted", None, False),
        'made/ünï \n"x".txt': ("created", None, False),
        "new before.txt": ("modified", None, False),
        "new name.txt": ("renamed", "old name.txt", False),
        "pic.bin": ("modified", None, True),
    }
    assert found["new before.txt"].mode == "100644 → 100755"
    assert (found["a.txt"].added, found["a.txt"].removed) == (1, 1)
    data = git.diff_patch(str(repository), trees)
    run_git(repository, "apply", "-R", "-", data=data)
    (repository / "noise.log").unlink()
    assert everything(repository) == before


def test_states_are_kept_until_they_are_let_go(repository: Path) -> None:
    """`git gc` keeps them; they are not among branches and tags."""
    git.save_snapshot(str(repository), "r2", "before")
    work(repository)
    git.save_snapshot(str(repository), "r2", "after")
    run_git(repository, "gc", "-q", "--prune=now")
    trees = git.load_trees(str(repository), "r2")
    assert trees is not None
    assert len(git.diff_trees(str(repository), trees)) == 6
    assert run_git(repository, "branch", "--list").split() == [b"*", b"main"]
    assert git.delete_snapshots(str(repository), {"r2", "unknown"}) == 1
    assert git.load_trees(str(repository), "r2") is None


def test_a_folder_below_the_top(repository: Path) -> None:
    """Paths are relative to the agent's folder."""
    before = git.snapshot(str(repository))
    write(repository / "sub" / "x.txt")
    write(repository / "a.txt", "again")
    after = git.snapshot(str(repository / "sub"))
    assert before is not None
    assert after is not None
    found = git.diff_trees(str(repository / "sub"), git.TreePair(before, after))
    assert [(change.path, change.inside) for change in found] == [
        ("../a.txt", False),
        ("x.txt", True),
    ]


def test_a_git_that_has_called_us_is_not_asked(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables set by a hook of another repository are ignored."""
    made = tmp_path / "other"
    made.mkdir()
    run_git(made, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(made / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(made / ".git" / "index"))
    tree = git.snapshot(str(repository))
    monkeypatch.undo()
    assert tree is not None
    assert b"old name.txt" in run_git(repository, "ls-tree", tree)


def test_without_a_repository(tmp_path: Path) -> None:
    """No snapshot and no error; a repository without a commit has one."""
    assert git.snapshot(str(tmp_path)) is None
    assert git.load_trees(str(tmp_path), "r") is None
    assert git.load_trees(str(tmp_path / "nothing"), "r") is None
    run_git(tmp_path, "init", "-q")
    write(tmp_path / "a")
    assert git.snapshot(str(tmp_path)) is not None


# -- patches from tool results -------------------------------------------------------------------


def raw(value: object) -> msgspec.Raw:
    """A value as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def wrote(call: str, path: str, before: str | None, after: str) -> list[ev.Event]:
    """The events of a Write."""
    outcome = ev.ToolResultDetails(
        type="create" if before is None else "update",
        file_path=path,
        content=raw(after),
        original_file=raw(before),
    )
    return [
        ev.ToolCall(1, "s", None, NOW, call, "Write", "file_write"),
        ev.ToolResult(2, "s", None, NOW, call, False, output=outcome),
        ev.FileChanged(2, "s", None, NOW, path, "created" if before is None else "modified", call),
    ]


def edited(
    call: str, path: str, before: str, old: str, new: str, every: bool = False
) -> list[ev.Event]:
    """The events of an Edit."""
    asked = raw({"file_path": path, "old_string": old, "new_string": new, "replace_all": every})
    return [
        ev.ToolCall(1, "s", None, NOW, call, "Edit", "file_edit", None, asked),
        ev.ToolResult(
            2,
            "s",
            None,
            NOW,
            call,
            False,
            output=ev.ToolResultDetails(file_path=path, original_file=raw(before)),
        ),
        ev.FileChanged(2, "s", None, NOW, path, "modified", call),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_patch_of_reported_changes_undoes_them(tmp_path: Path, name: str, end: str) -> None:
    """Any name; with and without a final newline; tabs, U+2028 and carriage returns."""
    was = f"first\n\tsecond\u2028still\r\nthird{end}"
    now = was.replace("third", "3rd").replace("first", "1st")
    events = [
        *edited("a", f"/p/sub/{name}", was, "third", "3rd"),
        *edited("b", f"/p/sub/{name}", was.replace("third", "3rd"), "first", "1st"),
        *wrote("c", f"/p/{name}", None, f"all new{end}"),
        *wrote("d", "/elsewhere/x", None, "outside"),
    ]
    stories = changes.collect_patch(events, "/p")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / name).write_bytes(now.encode())
    (tmp_path / name).write_bytes(f"all new{end}".encode())
    run_git(tmp_path, "apply", "-R", "--unsafe-paths", "-", data=stories.build_patch())
    assert {path: found for path, (found, _) in everything(tmp_path).items()} == {
        f"sub/{name}": was.encode()
    }
    assert stories.files_without_content() == []


def test_unreported_changes_are_named() -> None:
    """A change without content is not in the patch, but listed."""
    events = [
        *wrote("a", "/p/known", None, "x\n"),
        ev.FileChanged(3, "s", None, NOW, "/p/nb.ipynb", "modified", "z"),
    ]
    stories = changes.collect_patch(events, "/p")
    assert stories.files_without_content() == ["nb.ipynb"]
    assert b"nb.ipynb" not in stories.build_patch()


def test_a_structured_patch_where_the_strings_do_not_fit() -> None:
    """If the old string doesn't match, the patch of the result is applied."""
    asked = raw({"file_path": "/p/a", "old_string": "“one”", "new_string": "two"})
    hunk = {
        "oldStart": 1,
        "oldLines": 2,
        "newStart": 1,
        "newLines": 2,
        "lines": ['-"one"', "+two", " end"],
    }
    outcome = ev.ToolResultDetails(
        file_path="/p/a", original_file=raw('"one"\nend\n'), structured_patch=raw([hunk])
    )
    events = [
        ev.ToolCall(1, "s", None, NOW, "e", "Edit", "file_edit", None, asked),
        ev.ToolResult(2, "s", None, NOW, "e", output=outcome),
        ev.FileChanged(2, "s", None, NOW, "/p/a", "modified", "e"),
    ]
    assert changes.collect_patch(events, "/p").files["a"] == changes.FileVersions(
        '"one"\nend\n', "two\nend\n"
    )


RECORDED = Path(__file__).parents[1] / "recordings"
NOTEBOOKS = [
    *sorted(RECORDED.glob("claude/2.1.*/multi_tool_edit/stdout")),
    *sorted(RECORDED.glob("transcripts/2.1.*/multi_tool_edit/*.jsonl")),
]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(RECORDED).parent))
def test_w2_a_notebook_is_known_from_its_result(path: Path) -> None:
    """NotebookEdit's result has its own spelling; its path differs from the call's."""
    said, told = (
        b'"notebook_path":"/tmp/demo/project/nb.ipynb","cell_id"',
        b'"notebook_path":"elsewhere.ipynb","cell_id"',
    )
    data = path.read_bytes()
    assert data.count(said) == 1
    events = list(steno_events(data.replace(said, told)))
    (notebook,) = [
        event for event in events if isinstance(event, ev.ToolCall) and event.name == "NotebookEdit"
    ]
    (outcome,) = [
        event.output
        for event in events
        if isinstance(event, ev.ToolResult) and event.id == notebook.id
    ]
    assert isinstance(outcome, ev.ToolResultDetails)
    assert (outcome.notebook_path, outcome.edit_mode, outcome.error) == (
        "/tmp/demo/project/nb.ipynb",
        "replace",
        "",
    )
    (changed,) = [
        event for event in events if isinstance(event, ev.FileChanged) and event.call == notebook.id
    ]
    assert (changed.path, changed.change) == ("/tmp/demo/project/nb.ipynb", "modified")
    story = changes.collect_patch(events, "/tmp/demo/project").files["nb.ipynb"]
    assert ("print(1)" in (story.before or ""), "print(2)" in story.after, story.is_known) == (
        True,
        True,
        True,
    )


# -- the command ---------------------------------------------------------------------------------

EDITS = "tests/recordings/claude/2.1.325/multi_tool_edit"


def test_changes_of_a_recording(tmp_path: Path) -> None:
    """The list with its diff, as JSON, as CSV, and the patch in a file."""
    shown = steno(tmp_path, "diff", EDITS)
    assert (shown.code, shown.err) == (0, "")
    assert "modified  src/app.py" in shown.out
    assert "+    return a + b  # sum" in shown.out
    rows = msgspec.json.decode(steno(tmp_path, "diff", EDITS, "--json").out)
    assert [(row["path"], row["change"], row["source"], row["tool"]) for row in rows["rows"]] == [
        ("src/app.py", "modified", "tool", "Edit"),
        ("src/new.py", "created", "tool", "Write"),
        ("nb.ipynb", "modified", "tool", "NotebookEdit"),
    ]
    assert (
        steno(tmp_path, "diff", EDITS, "--csv")
        .out.splitlines()[0]
        .startswith("path,change,was,source,call,tool,at")
    )
    written = steno(tmp_path, "diff", EDITS, "--patch", str(tmp_path / "p"))
    assert (written.code, written.out) == (0, "")
    assert b"+++ b/src/new.py" in (tmp_path / "p").read_bytes()
    assert b'+   "source": "print(2)\\n"' in (tmp_path / "p").read_bytes()
    assert written.err == ""


def test_x_where_a_patch_goes(tmp_path: Path) -> None:
    """Devices are written to, links followed, modes kept, and failures leave nothing behind."""
    kept, link, pipe = tmp_path / "kept", tmp_path / "link", tmp_path / "pipe"
    kept.write_text("old")
    kept.chmod(0o600)
    link.symlink_to(kept)
    assert steno(tmp_path, "diff", EDITS, "--patch", str(link)).code == 0
    assert (
        link.is_symlink(),
        kept.stat().st_mode & 0o777,
        b"+++ b/src/new.py" in kept.read_bytes(),
    ) == (True, 0o600, True)
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    assert steno(tmp_path, "diff", EDITS, "--patch", str(pipe)).code == 0
    assert (reader.communicate(timeout=30)[0], pipe.is_fifo()) == (kept.read_bytes(), True)
    assert steno(tmp_path, "diff", EDITS, "--patch", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    for where in ("", str(tmp_path), str(tmp_path / "none" / "p")):
        refused = steno(tmp_path, "diff", EDITS, "--patch", where)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file() or path.is_fifo()) == [
        "kept",
        "link",
        "pipe",
    ]


def test_changes_of_nothing(tmp_path: Path) -> None:
    """A recording without changes gives no changes and no changes."""
    nothing = "tests/recordings/claude/2.1.325/permission_denied"
    assert steno(tmp_path, "diff", nothing).out == "No changes found.\n"
    refused = steno(tmp_path, "diff", nothing, "--patch", str(tmp_path / "p"))
    assert (refused.code, refused.err) == (2, "steno: no patch: no changes found\n")
    assert not (tmp_path / "p").exists()


@pytest.fixture
def kept_run(repository: Path, tmp_path: Path) -> Path:
    """A run in the ledger with git snapshots: an Edit, and changes by a command."""
    git.save_snapshot(str(repository), "feedc0de01", "before")
    work(repository)
    git.save_snapshot(str(repository), "feedc0de01", "after")
    path = str(repository / "a.txt")
    was, now = "one\ntwo, changed by a person\n", "one\nby the agent\n"
    told = {
        "filePath": path,
        "oldString": was,
        "newString": now,
        "originalFile": was,
        "structuredPatch": [],
    }
    edit = claude_lines.call("t1", "Edit", file_path=path, old_string=was, new_string=now)
    shell = claude_lines.call("t2", "Bash", command="work")
    lines = [
        (0.1, claude_lines.init(cwd=str(repository))),
        (1.0, claude_lines.assistant(edit)),
        (1.1, claude_lines.answer("t1", tool_use_result=told)),
        (2.0, claude_lines.assistant(shell, message="msg_2")),
        (2.9, claude_lines.answer("t2")),
        (3.0, claude_lines.result()),
    ]
    ticks = [Record(after, "out", claude_lines.stream(line)) for after, line in lines]
    ticks.insert(4, Record(2.5, "file", b"deleted gone.txt"))
    header = Header(agent="claude", run_id="feedc0de01", cwd=str(repository), started_at=1.7e9)
    recorded = claude_lines.tape(
        tmp_path / "run.steno", *ticks, Record(3.1, "exit", number=0), header=header
    )
    assert steno(tmp_path, "ledger", "import", recorded).code == 0
    return repository


def test_changes_of_a_run_from_the_ledger_and_git(kept_run: Path, tmp_path: Path) -> None:
    """One list of all three sources with their calls; the patch undoes all of it."""
    found = msgspec.json.decode(steno(tmp_path, "diff", "feedc0de", "--json", "--no-import").out)
    assert found["patch"] == "git"
    assert [
        (row["path"], row["change"], row["source"], row["tool"], row["was"])
        for row in found["rows"]
    ] == [
        ("a.txt", "modified", "tool", "Edit", None),
        ("gone.txt", "deleted", "filesystem", "Bash", None),
        ('made/ünï \n"x".txt', "created", "git", "Bash", None),
        ("new before.txt", "modified", "git", "Bash", None),
        ("new name.txt", "renamed", "git", "Bash", "old name.txt"),
        ("pic.bin", "modified", "git", "Bash", None),
    ]
    newest = steno(tmp_path, "diff", "--no-import", "--all")
    assert newest.out.startswith("run feedc0de  ")
    assert "old name.txt → new name.txt" in newest.out
    assert "100644 → 100755" in newest.out
    assert "6 files changed" in newest.out
    written = steno(tmp_path, "diff", "feedc0de", "--no-import", "--patch", tmp_path / "p")
    assert (written.code, written.err) == (0, "")
    run_git(kept_run, "apply", "-R", str(tmp_path / "p"))
    assert (kept_run / "a.txt").read_text() == "one\ntwo, changed by a person\n"
    assert (kept_run / "pic.bin").read_bytes() == bytes(range(256))
    assert sorted(everything(kept_run)) == [
        *(
            ".gitignore",
            "a.txt",
            "gone.txt",
            "new before.txt",
            "noise.log",
            "old name.txt",
            "pic.bin",
            "staged.txt",
        )
    ]


def test_changes_of_a_run_whose_states_are_gone(kept_run: Path, tmp_path: Path) -> None:
    """The list comes from the ledger, the patch from tool results; what it lacks is listed."""
    git.delete_snapshots(str(kept_run), ["feedc0de01"])
    found = msgspec.json.decode(steno(tmp_path, "diff", "feedc0de", "--json", "--no-import").out)
    assert (found["patch"], [row["path"] for row in found["rows"]]) == (
        "tools",
        ["a.txt", "gone.txt"],
    )
    written = steno(tmp_path, "diff", "feedc0de", "--no-import", "--patch", "-")
    assert written.err == "steno: gone.txt: content unknown, not included in the patch\n"
    run_git(kept_run, "apply", "-R", "-", data=written.out.encode())
    assert (kept_run / "a.txt").read_text() == "one\ntwo, changed by a person\n"


def test_changes_without_a_call(tmp_path: Path) -> None:
    """An unknown run is a usage error; an empty ledger gives a hint."""
    unknown = steno(tmp_path, "diff", "feedc0de", "--no-import")
    assert (unknown.code, unknown.out) == (2, "")
    assert "The ledger is empty" in steno(tmp_path, "diff", "--no-import").out
