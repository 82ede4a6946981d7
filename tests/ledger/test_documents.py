"""Transcripts that are one JSON document: found, read again when they change, counted once."""

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno.ledger.discovery import is_transcript
from steno.ledger.importer import build_memory_ledger, import_sources
from steno.ledger.protocol import Store
from steno.ledger.store import open_ledger
from tests.golden import ROOT

CHAT = next((ROOT / "transcripts/gemini-0.27.0/tools").glob("session-*.json"))
REQUESTS = [(2001, 5000, 48), (2004, 5000, 51)]  # input, cache read, output


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store]:
    found = open_ledger(ledger_url)
    yield found
    found.close()


def _requests(store: Store) -> list[tuple[object, ...]]:
    return store.query("SELECT input, cache_read, output FROM requests ORDER BY at, input")


def _copy(folder: Path) -> Path:
    path = folder / ".gemini/tmp/0123abcd/chats" / CHAT.name
    path.parent.mkdir(parents=True)
    shutil.copy(CHAT, path)
    (path.parent.parent / "logs.json").write_text('[\n  {"type": "user", "message": "do"}\n]\n')
    return path


@pytest.mark.parametrize("target", ["file", "folder", "home"])
def test_l3_an_older_chat_is_imported(
    store: Store, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, below a folder, and where Gemini CLI keeps it; with its calls."""
    path = _copy(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GEMINI_CLI_HOME", raising=False)
    paths = {"file": [str(path)], "folder": [str(tmp_path)], "home": None}[target]
    done = import_sources(store, paths)
    assert (done.files, done.requests, done.calls, done.troubles) == (1, 2, 7, [])
    assert _requests(store) == REQUESTS
    assert store.query("SELECT kind FROM sources") == [("transcript",)]
    again = import_sources(store, paths)
    assert (again.files, again.unchanged, again.requests) == (0, 1, 0)


def test_l3_an_older_chat_that_grew_counts_once(store: Store, tmp_path: Path) -> None:
    path = _copy(tmp_path)
    whole = json.loads(path.read_bytes())
    path.write_text(json.dumps({**whole, "messages": whole["messages"][:2]}, indent=2))
    assert import_sources(store, [str(path)]).requests == 1
    path.write_text(json.dumps(whole, indent=2))
    assert import_sources(store, [str(path)]).requests == 1
    assert _requests(store) == REQUESTS


def test_l3_an_archived_chat_and_one_of_which_only_the_usage_is_read(tmp_path: Path) -> None:
    path = tmp_path / "chat.gz"
    path.write_bytes(gzip.compress(CHAT.read_bytes()))
    for source in (path, CHAT):
        store = build_memory_ledger([str(source)], print)
        assert _requests(store) == REQUESTS


def test_l3_a_named_transcript_without_anything_says_so(store: Store, tmp_path: Path) -> None:
    path = tmp_path / CHAT.name
    path.write_text(json.dumps({**json.loads(CHAT.read_bytes()), "messages": []}, indent=2))
    done = import_sources(store, [str(path)])
    problem = "nothing to import: no prompt, request or call of gemini in it"
    assert (done.files, done.troubles) == (0, [f"{path}: {problem}"])
    assert import_sources(store, [str(path)]).troubles == done.troubles


@pytest.mark.parametrize(
    ("agent", "name", "is_one"),
    [
        ("gemini", "session-2026-01-01T00-00-0123abcd.json", True),
        ("gemini", "session-2026-01-01T00-00-0123abcd.jsonl", True),
        ("gemini", "logs.json", False),
        ("codex", "rollout-2025-05-01-0123abcd.json", True),
        ("claude", "sessions-index.json", False),
        ("claude", "session-2026-01-01T00-00-0123abcd.json", False),
    ],
)
def test_l3_names_of_transcripts_in_the_folders_of_agents(
    agent: str, name: str, is_one: bool
) -> None:
    assert is_transcript(agent, name) == is_one
