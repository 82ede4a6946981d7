"""Claims on files: one holder, first come, first served; on both databases."""

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from steno.errors import StenoError
from steno.ledger.queries import team as queries
from steno.ledger.store import Store
from steno.team import claims
from steno.team.claims import ClaimedPath, claim, list_states, normalise, release
from steno.team.roster import Member
from tests.support.ledger_builder import Book

ADA, BOB, EVE = (Member(id=f"@{name}") for name in ("ada", "bob", "eve"))
FILE = ClaimedPath("repo", "src/a.py")
PROCESSES = 20
# Claims, waits, holds for a moment, and releases; prints its place in line and both times.
CLAIMANT = """
import sys, time
from steno.ledger.store import open_ledger
from steno.team.claims import ClaimedPath, claim, is_next, release
from steno.team.roster import Member

store = open_ledger(sys.argv[1])
owner = Member(id=f"@process{sys.argv[2]}")
place = ClaimedPath("repo", "src/a.py")
state = claim(store, owner, place, 120)
while state.position:
    time.sleep(0.05)
    if is_next(store, owner, place):
        state = claim(store, owner, place, 120)
began = time.monotonic_ns()
time.sleep(0.02)
ended = time.monotonic_ns()
assert [one.id for one in release(store, owner, [place])] == [state.claim.id]
print(state.claim.id, began, ended)
"""


def positions(store: Store) -> dict[str, int]:
    return {state.claim.owner: state.position for state in list_states(store, "repo")}


def test_the_first_holds_it_and_the_others_wait_in_line(store: Store) -> None:
    assert claim(store, ADA, FILE, 60).position == 0
    assert claim(store, BOB, FILE, 60).position == 1
    state = claim(store, EVE, FILE, 60)
    assert (state.position, state.holder) == (2, "@ada")
    assert claim(store, BOB, FILE, 60).position == 1  # asking again keeps the place
    assert not claims.is_next(store, BOB, FILE)
    assert [one.owner for one in release(store, ADA)] == ["@ada"]
    assert positions(store) == {"@bob": 0, "@eve": 1}
    assert claims.is_next(store, BOB, FILE)
    assert claim(store, ADA, FILE, 60).position == 2
    release(store, BOB, [FILE])
    release(store, BOB, [FILE])  # nothing left
    assert positions(store) == {"@eve": 0, "@ada": 1}


def test_a_folder_covers_its_files(store: Store) -> None:
    folder, root = ClaimedPath("repo", "src"), ClaimedPath("repo", "")
    assert claim(store, ADA, FILE, 60).position == 0
    assert claim(store, ADA, folder, 60).position == 0  # its own is not in the way
    assert claim(store, BOB, ClaimedPath("repo", "src/b.py"), 60).position == 1
    assert claim(store, EVE, ClaimedPath("repo", "src2/b.py"), 60).position == 0
    assert claim(store, EVE, ClaimedPath("other", "src/a.py"), 60).position == 0
    assert claim(store, BOB, root, 60).position == 3
    release(store, ADA, [folder])
    held = {state.claim.path for state in list_states(store, "repo") if not state.position}
    assert held == {"src/a.py", "src/b.py", "src2/b.py"}


def test_a_claim_ends_with_its_time(store: Store) -> None:
    claim(store, ADA, FILE, 0.001)
    time.sleep(0.01)
    claim(store, BOB, FILE, 60)
    assert positions(store) == {"@bob": 0}
    assert claim(store, BOB, FILE, 60).claim.held_since is not None
    assert claim(store, ADA, FILE, 60).position == 1


def test_a_claim_ends_with_the_run(
    book: Book, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On this machine the registry knows which runs are active, on others the ledger."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    gone, far = Member(id="task1", run="run1"), Member(id="task2", run="run2")
    claim(book.store, gone, FILE, 60)
    assert positions(book.store) == {}
    other = ClaimedPath("repo", "b.py")
    claim(book.store, far, other, 60)
    book.store.execute("UPDATE claims SET registry = 'far' WHERE owner = 'task2'")
    book.insert("tasks", id="task2", attempts=1)
    assert positions(book.store) == {"task2": 0}
    book.store.execute("UPDATE tasks SET verdict = 'success' WHERE id = 'task2'")
    assert positions(book.store) == {}
    assert claim(book.store, ADA, other, 60).position == 0
    assert [one.owner for one in queries.list_claims(book.store)] == ["@ada"]


def test_claims_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "MAX_CLAIMS", 2)
    for name in ("a", "b"):
        claim(store, ADA, ClaimedPath("repo", name), 10**9)
    with pytest.raises(StenoError, match="too many claims"):
        claim(store, ADA, ClaimedPath("repo", "c"), 60)
    (first, _) = queries.list_claims(store)
    assert first.ttl_ms == 86_400_000


def test_twenty_processes_hold_it_one_by_one_in_order(store: Store, ledger_url: str) -> None:
    claim(store, ADA, FILE, 120)
    command = [sys.executable, "-c", CLAIMANT, ledger_url]
    processes = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    while len(positions(store)) <= PROCESSES:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.1)
    release(store, ADA)
    held = []
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        held.append(tuple(map(int, out.split())))
    by_time = sorted(held, key=lambda one: one[1])
    assert by_time == sorted(held)  # in the order of their ids
    assert all(one[2] <= next_[1] for one, next_ in pairwise(by_time))
    assert queries.list_claims(store) == []


# -- paths -----------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    for name in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{name}_NAME": "a", f"GIT_{name}_EMAIL": "a@example.org"}
    subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True)


def test_a_path_is_relative_to_the_repository(tmp_path: Path) -> None:
    """The same in a folder below it, through a link, in a worktree, and for a clone's remote."""
    repository = tmp_path / "repository"
    (repository / "src").mkdir(parents=True)
    git(repository, "init", "-q")
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "link").symlink_to(repository)
    place = normalise("src/a.py", str(repository))
    assert place.path == "src/a.py"
    assert place.repository.endswith(f":{repository.resolve()}")
    assert normalise("a.py", str(repository / "src")) == place
    assert normalise("./x/../src/a.py", str(tmp_path / "link")) == place
    assert normalise(str(repository / "src" / "a.py"), str(repository)) == place
    assert normalise("src/a.py", str(tmp_path / "tree")) == place
    assert normalise(".", str(repository)).path == ""
    git(repository, "remote", "add", "origin", "git@example.org:team/app.git")
    assert normalise("src/a.py", str(tmp_path / "tree")).repository == "example.org/team/app"
    for outside in ("../b.py", "/etc/passwd", "src/../../b"):
        with pytest.raises(StenoError, match="outside of"):
            normalise(outside, str(repository))
    for name in ("", "a\x00b"):
        with pytest.raises(StenoError, match="not a file name"):
            normalise(name, str(repository))
