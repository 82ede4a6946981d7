"""Local commands in the ledger: found by a search as what they are, and no prompts."""

from pathlib import Path

import pytest

from steno.ledger.importer import import_sources
from steno.ledger.queries import search
from steno.ledger.queries.filters import Filters
from steno.ledger.store import open_ledger
from tests.agents.test_local_commands import command, printed, prompt_command
from tests.support.transcript_writer import Transcript

ANY = Filters()


@pytest.fixture
def transcript() -> Transcript:
    transcript = Transcript("5f0d5d6c-0000-4000-8000-000000000001")
    transcript.prompt(command("clear"))
    transcript.prompt(printed("Cleared all"))
    transcript.prompt(prompt_command("review", "142"))
    transcript.answer("msg_1", text="Nothing to clear up.")
    transcript.prompt("<bash-input>make clear</bash-input>")
    return transcript


def test_they_are_found_as_commands(
    ledger_url: str, transcript: Transcript, tmp_path: Path
) -> None:
    transcript.write(tmp_path)
    store = open_ledger(ledger_url)
    try:
        import_sources(store, [str(tmp_path)])
        query = search.parse_query("clear", regex=True)
        found = {
            role: [hit.snippet for hit in search.search_texts(store, query, ANY, role, None)[0]]
            for role in ("prompt", "answer", "command", None)
        }
        sessions = store.query("SELECT title, prompts FROM sessions")
    finally:
        store.close()
    commands = ["!make clear", "/clear"]
    assert found["prompt"] == []
    assert found["command"] == commands
    assert found[None] == [commands[0], "Nothing to clear up.", commands[1]]
    assert sessions == [("/review 142", 1)]
