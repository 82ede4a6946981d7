"""Many worktrees of one repository at the same moment."""

import threading
from pathlib import Path

from steno.errors import StenoError
from steno.runner.prepare import ensure_worktree
from tests.workspace.test_origin import git

THREADS, EACH = 16, 5


def test_worktrees_that_are_created_at_once(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "file").write_text("1")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "first")
    problems: list[str] = []

    def create(number: int) -> None:
        for index in range(EACH):
            try:
                worktree = ensure_worktree(str(repository), f"w{number}-{index}")
                assert Path(worktree.cwd, "file").read_text() == "1"
            except (StenoError, OSError, AssertionError) as error:
                problems.append(str(error))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
