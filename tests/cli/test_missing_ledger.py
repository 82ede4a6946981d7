"""A reading command creates nothing: neither at a mistyped path nor in a fresh home."""

from pathlib import Path

import pytest

from tests.support.scripted_place import Place

READING = [
    *(["usage"], ["usage", "tool"], ["runs"], ["sessions"], ["search", "word"], ["limits"]),
    *(["context"], ["trend"], ["diff"], ["top", "--once"], ["serve", "--port", "0"]),
    *(["show", "3f9a21c0"], ["export", "3f9a21c0"], ["export", "--last", "3"]),
    *(["compare", "3f9a21c0", "4f9a21c0"], ["check", "3f9a21c0", "--rule", "max_cost=1"]),
    *(["check", "--last", "3", "--rule", "max_cost=1"], ["budget", "list"]),
    *(["ledger", "sql", "SELECT 1"], ["ledger", "secrets"], ["ledger", "prune", "--older-than=1d"]),
    *(["ledger", "note", "3f9a21c0", "text"], ["fleet", "status"], ["fleet", "status", "batch"]),
    *(["fleet", "collect", "batch"], ["fleet", "wait", "batch"]),
    *(["team", "inbox"], ["team", "claims"], ["team", "requests"]),
]
CASES = [
    *((words, "option") for words in READING),
    *((words, way) for words in (["usage"], ["top", "--once"]) for way in ("url", "variable")),
]


# `serve` goes on, and imports what is new; the last two do not need a ledger.
ONCE = [*(words for words in READING if words[0] != "serve"), ["team", "roster"], ["ps"]]


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("missing"))


@pytest.mark.parametrize(("words", "way"), CASES)
def test_a_mistyped_ledger_is_not_created(place: Place, words: list[str], way: str) -> None:
    before = files(place.folder)
    path = place.folder / "no such" / "ledger.db"
    name = f"sqlite:///{path}" if way == "url" else str(path)
    if way == "variable":
        done = place.steno(*words, STENO_LEDGER=name)
    else:
        done = place.steno(*words, "--ledger", name)
    source = "STENO_LEDGER" if way == "variable" else "--ledger"
    hint = f"to create it: steno ledger import --ledger '{name}'"
    message = f"steno: {name}: no such ledger ({source}); {hint}\n"
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (2, "", message)
    assert files(place.folder) == before


@pytest.mark.parametrize(
    "words",
    [*(words for words in READING if words[0] != "serve"), ["team", "roster"], ["ps"]],
    ids=" ".join,
)
def test_a_fresh_home_stays_empty(place: Place, words: list[str]) -> None:
    before = files(place.folder)
    done = place.steno(*words)
    assert b"Traceback" not in done.stderr
    assert done.stdout or done.stderr
    assert files(place.folder) == before
