"""Messages between runs and people; the roster of all machines; on both databases."""

from pathlib import Path

import pytest

from steno.errors import StenoError
from steno.ledger.protocol import now_ms
from steno.ledger.queries import team as queries
from steno.ledger.rebuild import rebuild
from steno.ledger.store import Store
from steno.team import approvals, claims, messages
from steno.team.roster import Member, find_recipient, health, put_presence, roster
from steno.units import DAY_MS
from tests.support.ledger_builder import Book

ADA = Member(id="task-ada", run="run-ada", session="session-ada", name="ada", since=now_ms())
BOB = Member(id="task-bob", run="run-bob", since=now_ms())
PERSON = Member(id="@carol")
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def far_run(book: Book, run: str, **values: object) -> None:
    """An active run on another machine."""
    given = {
        "task": f"task-{run}",
        "agent": "claude",
        "host": "far",
        "started_at": now_ms(),
        "cost_source": "unknown",
        **dict.fromkeys(
            ("ok", "succeeded", "complete", "tools", "tool_errors", "files", "denials", "unknown"),
            0,
        ),
        **values,
    }
    book.insert("runs", id=run, **given)


def texts(found: list[queries.Message]) -> list[str]:
    return [message.text for message in found]


def test_each_reader_reads_a_message_once(store: Store) -> None:
    messages.say(store, ADA, "for all")
    queries.add_message(
        store, sender="@carol", run=None, recipient="ada", at=now_ms(), text="by name"
    )
    queries.add_message(
        store, sender="@carol", run=None, recipient="task-bob", at=now_ms(), text="by task"
    )
    assert texts(messages.inbox(store, BOB, keep_unread=True)) == ["for all", "by task"]
    assert texts(messages.inbox(store, BOB)) == ["for all", "by task"]
    assert messages.inbox(store, BOB) == []
    assert texts(messages.inbox(store, BOB, include_read=True)) == ["for all", "by task"]
    assert texts(messages.inbox(store, ADA)) == ["by name"]  # not its own
    assert texts(messages.inbox(store, PERSON)) == ["for all"]
    late = Member(id="task-late", run="run-late", since=now_ms() + 1000)
    assert messages.inbox(store, late) == []  # said before it began


def test_messages_are_bounded_and_have_no_secrets(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = messages.say(store, ADA, f"the token is {SECRET}")
    assert message.text == "the token is [redacted]"
    with pytest.raises(StenoError, match=r"message too long: 4,001 characters"):
        messages.say(store, ADA, "x" * 4001)
    with pytest.raises(StenoError, match="the message is empty"):
        messages.say(store, ADA, " \n")
    for _ in range(25):
        messages.say(store, ADA, "y" * 1000)
    first = messages.inbox(store, BOB)
    assert 1 < len(first) <= 12  # by size
    rest = [message for _ in range(3) for message in messages.inbox(store, BOB)]
    assert len(first) + len(rest) == 26
    monkeypatch.setattr(queries, "MAX_MESSAGES_PER_HOUR", 27)
    nul = messages.say(store, ADA, "zero\x00byte \udcff")
    assert nul.text.startswith("zero")
    with pytest.raises(StenoError, match="too many messages: 27 within an hour"):
        messages.say(store, ADA, "again")


def test_old_messages_are_deleted(store: Store) -> None:
    queries.add_message(
        store, sender="@carol", run=None, recipient="", at=now_ms() - 8 * DAY_MS, text="old"
    )
    assert texts(messages.inbox(store, Member(id="@dan"))) == ["old"]
    messages.say(store, ADA, "new")
    assert store.query("SELECT text FROM messages") == [("new",)]
    assert store.query("SELECT * FROM message_reads") == []


def test_a_recipient_is_a_name_or_an_id_of_an_active_run(book: Book) -> None:
    far_run(book, "aaaa1111", name="tests", session="feed0000-1111")
    far_run(book, "aaaa2222")
    far_run(book, "bbbb3333", verdict="success", name="done")
    assert find_recipient(book.store, "tests") == "tests"
    assert find_recipient(book.store, "aaaa2") == "task-aaaa2222"
    assert find_recipient(book.store, "feed") == "task-aaaa1111"
    assert find_recipient(book.store, "@carol") == "@carol"
    for wrong, text in (("aaaa", "ambiguous"), ("done", "no active run"), ("", "no active run")):
        with pytest.raises(StenoError, match=text):
            find_recipient(book.store, wrong)


def test_the_roster_of_other_machines(book: Book) -> None:
    """Known from the ledger; with what the run itself stored, also how it is."""
    far_run(book, "aaaa1111", name="tests")
    far_run(book, "bbbb2222")
    far_run(book, "cccc3333", started_at=now_ms() - 30 * DAY_MS)
    context = {"used": 150_000, "limit": 200_000}
    put_presence(
        book.store,
        {"run_id": "bbbb2222", "state": "thinking", "silence_s": 500.0, "context": context},
    )
    entries = {entry.run_id: entry for entry in roster(book.store)}
    assert entries.keys() == {"aaaa1111", "bbbb2222"}
    assert (entries["aaaa1111"].health, entries["aaaa1111"].hp) == ("unknown", None)
    lost = entries["bbbb2222"]
    assert (lost.health, lost.hp, lost.hp_status) == ("stalled", 25.0, "CRITICAL")


@pytest.mark.parametrize(
    ("state", "tool", "silence", "expected"),
    [
        ("thinking", None, 5.0, "active"),
        ("thinking", None, 130.0, "stalled"),
        ("running", "Bash", 130.0, "active"),
        ("running", "Bash", 1000.0, "stalled"),
        ("waiting", None, 1000.0, "idle"),
        ("asking", "Bash", 1000.0, "idle"),
        ("no answer", None, None, "stalled"),
        ("unknown", None, None, "unknown"),
    ],
)
def test_health(state: str, tool: str | None, silence: float | None, expected: str) -> None:
    assert health(state, tool, silence) == expected


def test_a_rebuild_keeps_all_of_it(store: Store, tmp_path: Path) -> None:
    messages.say(store, ADA, "hello")
    messages.inbox(store, BOB)
    claims.claim(store, PERSON, claims.ClaimedPath("repo", "a.py"), 60)
    approvals.ask(store, PERSON, "Bash", {"command": "make"}, 60)
    put_presence(store, {"run_id": "run-ada", "state": "thinking"})
    tables = ("messages", "message_reads", "claims", "permission_requests", "presence")
    before = [store.query(f"SELECT * FROM {table}") for table in tables]
    assert all(before)
    rebuild(store)
    assert [store.query(f"SELECT * FROM {table}") for table in tables] == before
