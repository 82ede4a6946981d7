"""Search for words, phrases and patterns in texts and tool output; on both databases."""

from pathlib import Path

import pytest

from steno.errors import StenoError
from steno.ledger.queries import search as asks
from steno.ledger.queries.filters import Filters, TimeRange
from steno.ledger.queries.search import search_tool_output
from steno.ledger.results import SearchHit
from tests.support.ledger_builder import HOUR, PROJECT, Book

NOW = 1_794_746_096_000
TEXTS = [
    ("Please retry the failing test", "prompt"),
    ("The connection was refused, so I could not retry", "answer"),
    ("Connection pool: refused connections are retried", "answer"),
    ('He said "OR" AND NOT nothing; a=>b', "answer"),
    ("naïve café", "answer"),
    ("key sk-Abcd1234Efgh5678Ijkl9012 was used for deploy", "answer"),
]


ALL = Filters()


@pytest.fixture
def said(book: Book) -> Book:
    book.session("s1", first_at=NOW, last_at=NOW)
    book.session("s2", project="/p/x")
    for step, (text, role) in enumerate(TEXTS):
        book.text("s2" if step == 2 else "s1", NOW + step * HOUR, text, role)
    return book


def found(
    book: Book, text: str, regex: bool = False, filters: Filters = ALL, role: str | None = None
) -> list[str]:
    """The beginnings of the texts that are found."""
    hits, total = asks.search_texts(
        book.store, asks.parse_query(text, regex), filters, role, None, None
    )
    assert total == len(hits)
    return [hit.snippet[:10] for hit in hits]


def test_words_must_all_occur_and_the_newest_comes_first(said: Book) -> None:
    assert found(said, "retry") == ["The connec", "Please ret"]
    assert found(said, "refused RETRY") == ["The connec"]
    assert found(said, "connection refused") == ["Connection", "The connec"]
    assert found(said, '"connection was refused"') == ["The connec"]
    assert found(said, "retr") == []
    assert found(said, "nowhere") == []


def test_filters(said: Book) -> None:
    assert found(said, "connection", filters=Filters(projects=("/p/x",))) == ["Connection"]
    assert found(said, "connection", filters=Filters(TimeRange(None, NOW + 2 * HOUR))) == [
        "The connec"
    ]
    assert found(said, "retry", role="prompt") == ["Please ret"]
    hits, total = asks.search_texts(said.store, asks.parse_query("retry"), Filters(), None, 1, None)
    assert (len(hits), total) == (1, 2)


@pytest.mark.parametrize(
    "text",
    [
        'NOT "',
        "a AND",
        "(",
        ")",
        "col:x",
        "*",
        "retry*",
        "^retry",
        '"',
        '""',
        "NEAR(a b)",
        "-retry",
        "or",
        "'; DROP TABLE texts",
        "a OR b",
        "{a b}",
        "+",
        "retry +",
        "\\",
        "%",
        "_",
        "?",
        "%s",
        "\ud83d",
        "x\udcff",
        "😀",
        "word'quote",
        "a:b:c",
        "<->",
        "!x",
        "& |",
    ],
)
def test_nothing_that_is_typed_is_a_syntax_error(said: Book, text: str) -> None:
    try:
        found(said, text)
    except StenoError as problem:
        assert str(problem) == "nothing to search for: expected at least one word"  # noqa: PT017


def test_signs_and_words_that_look_like_operators(said: Book) -> None:
    assert found(said, "=>") == ['He said "O']
    assert found(said, "not nothing or") == ['He said "O']
    assert found(said, "retry => ") == [
        "The connec",
        "Please ret",
    ]  # an index knows nothing of signs


def test_patterns(said: Book) -> None:
    assert found(said, r"retr(y|ied)$", regex=True) == ["Connection", "The connec"]
    assert found(said, r"RETRY", regex=True) == []
    assert found(said, r"(?i)RETRY", regex=True) == ["The connec", "Please ret"]
    for pattern in ("h[e", "(", "*", "(?P<a>x)(?P<a>y)", "a{99999999999}"):
        with pytest.raises(StenoError, match="invalid regular expression"):
            asks.parse_query(pattern, True)


def test_the_index_takes_in_what_is_new(said: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "TEXTS_PER_BATCH", 2)
    steps: list[tuple[int, int]] = []
    asks.search_texts(
        said.store,
        asks.parse_query("retry"),
        Filters(),
        None,
        None,
        lambda done, total: steps.append((done, total)),
    )
    if said.store.kind == "sqlite":
        assert steps == [(2, 6), (4, 6), (6, 6)]
    said.text("s1", NOW - HOUR, "an old retry, told late")
    assert found(said, "retry") == ["The connec", "Please ret", "an old ret"]
    assert found(said, ".", regex=True)[-1] == "an old ret"
    asks.drop_index(said.store)
    asks.drop_index(said.store)
    assert len(found(said, "retry")) == 3


def test_where_no_index_can_be_made_the_texts_are_looked_at(said: Book) -> None:
    """A read-only copy can be searched, also if its index is out of date."""
    said.store.execute(
        "PRAGMA query_only = ON"
        if said.store.kind == "sqlite"
        else "SET default_transaction_read_only = on"
    )
    assert found(said, "connection refused") == ["Connection", "The connec"]
    said.store.execute(
        "PRAGMA query_only = OFF"
        if said.store.kind == "sqlite"
        else "SET default_transaction_read_only = off"
    )
    assert found(said, "connection refused") == ["Connection", "The connec"]
    said.text("s1", NOW + 9 * HOUR, "Refused once more: connection", "answer")
    said.store.execute(
        "PRAGMA query_only = ON"
        if said.store.kind == "sqlite"
        else "SET default_transaction_read_only = on"
    )
    assert found(said, "connection refused") == ["Refused on", "Connection", "The connec"]


def test_a_hit_shows_where_it_is(said: Book) -> None:
    said.text("s1", NOW + 99 * HOUR, "x " * 300 + "the Needle is here" + " y" * 300)
    hits, _ = asks.search_texts(said.store, asks.parse_query("needle"), Filters(), None, None, None)
    assert len(hits[0].snippet) <= asks.MAX_SNIPPET_CHARS + 2
    (begin, end) = hits[0].marks[0]
    assert hits[0].snippet[begin:end] == "Needle"
    assert (hits[0].session, hits[0].project, hits[0].role) == ("s1", PROJECT, "answer")


def test_secrets_are_masked(said: Book) -> None:
    hits, _ = asks.search_texts(said.store, asks.parse_query("deploy"), Filters(), None, None, None)
    assert hits[0].snippet == "key [redacted] was used for deploy"


def test_what_tools_printed_is_found_in_the_files(book: Book, tmp_path: Path) -> None:
    recording = Path(__file__).parents[1] / "recordings/claude/2.1.325/permission_denied"
    book.source(str(recording), kind="recording", run="r1")
    book.source(str(tmp_path / "gone.jsonl"))
    steps: list[tuple[int, int]] = []
    done = search_tool_output(
        book.store,
        asks.parse_query("requested permissions"),
        Filters(),
        lambda one, all_: steps.append((one, all_)),
    )
    assert (done.files_read, done.files_missing) == (1, 1)
    assert [(hit.role, hit.tool, hit.run, hit.source) for hit in done.hits] == [
        ("tool", "Write", "r1", str(recording))
    ]
    assert (
        search_tool_output(
            book.store, asks.parse_query("requested permissions"), Filters(projects=("/other",))
        ).hits
        == []
    )
    assert search_tool_output(book.store, asks.parse_query("no such words"), Filters()).hits == []


def test_a_damaged_source_costs_only_itself(book: Book, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"\x1f\x8b\x08\x00broken")
    book.source(str(broken))
    assert search_tool_output(book.store, asks.parse_query("x"), Filters()).hits == []


def test_a_hit_as_json() -> None:
    row = SearchHit(5, "s", None, "/p", "answer", "a word", [(2, 6)]).as_json(lambda at: f"at {at}")
    assert (row["at"], row["marks"], row["session_id"]) == ("at 5", [(2, 6)], "s")
