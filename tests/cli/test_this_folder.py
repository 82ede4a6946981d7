"""`steno diff` and `steno check --last` mean the runs of this folder, unless `--all`."""

from pathlib import Path

import pytest

from tests.support.claude_lines import assistant, call, init, result, stream, text
from tests.support.scripted_place import Place
from tests.workspace.test_changes import run_git


def edits(folder: Path, name: str) -> str:
    lines = stream(
        init(cwd=str(folder)),
        assistant(text("I will."), call("c1", "Write", file_path=f"{folder}/{name}", content="x")),
        result("Done."),
    )
    return lines.decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A repository with a worktree, a folder below it, and another folder; a run in each."""
    place = Place(tmp_path_factory.mktemp("folders"))
    top = place.work / "top"
    worktree = place.work / "top-worktrees" / "one"
    (top / "below").mkdir(parents=True)
    (place.work / "other").mkdir()
    (place.work / "top-second").mkdir()  # its name begins alike
    (place.work / "empty").mkdir()
    run_git(top, "init", "-q")
    run_git(top, "commit", "-q", "--allow-empty", "-m", "first")
    run_git(top, "worktree", "add", "-q", str(worktree))
    for folder in (top, top / "below", worktree, place.work / "other", place.work / "top-second"):
        place.plan({"out": edits(folder, f"{folder.name}.txt")})
        done = place.steno("run", "--quiet", "--name", folder.name, "hello", cwd=folder)
        assert done.returncode == 0, done.stderr
    return place


def shown(place: Place, folder: str, *words: str) -> list[str]:
    done = place.steno(*words, "--no-import", cwd=place.work / folder)
    return [line.split("  ", 1)[-1] for line in done.stdout.decode().splitlines()]


@pytest.mark.parametrize(
    ("folder", "newest", "count"),
    [
        ("top", "one", 3),
        ("top/below", "below", 1),
        ("top-worktrees/one", "one", 1),
        ("other", "other", 1),
        ("top-second", "top-second", 1),
    ],
)
def test_the_runs_of_a_folder(place: Place, folder: str, newest: str, count: int) -> None:
    assert shown(place, folder, "diff", "--list")[0] == f"success  {newest}"
    checked = shown(place, folder, "check", "--last", "9", "--rule", "max_cost=9")
    noun = "run" if count == 1 else "runs"
    assert checked[-1] == f"{count} {noun} checked, 0 failed"


def test_a_folder_without_runs(place: Place) -> None:
    text_ = "No runs in this folder. The latest run of all folders: steno diff --all"
    assert shown(place, "empty", "diff") == [text_]
    assert shown(place, "empty", "diff", "--all")[0] == "success  top-second"
    words = ("check", "--last", "9", "--rule", "max_cost=9")
    refused = place.steno(*words, "--no-import", cwd=place.work / "empty")
    message = "no runs to check in this folder (of all folders: --all); see: steno runs"
    assert (refused.returncode, refused.stderr.decode()) == (2, f"steno: {message}\n")
    assert shown(place, "empty", *words, "--all")[-1] == "5 runs checked, 0 failed"
    assert shown(place, "empty", *words, "--agent", "claude")[-1] == "5 runs checked, 0 failed"
