"""No place that stores or prints holds a secret; earlier ledgers can be masked (L5)."""

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import steno
from steno.cli import main
from steno.codec.redact import MASK
from steno.codec.token_formats import TOKEN_FORMATS
from steno.ledger.queries.filters import Filters, TimeRange
from steno.ledger.queries.search import parse_query, search_texts
from steno.ledger.results import SearchHit
from steno.ledger.source_reader import ResumeState, encode_resume_state
from steno.ledger.store import Store, open_ledger
from steno.recording.format import BackendInfo, Header, Recorder
from steno.report import RunOrigin
from tests.support.ledger_builder import Book
from tests.support.secrets import (
    JOINED,
    KEY,
    RUN,
    all_secrets,
    import_secrets,
    leaked,
    write_recording,
)

SECRETS = all_secrets()


def contents(store: Store) -> dict[str, str]:
    """Everything that the ledger stores, by table."""
    tables = (
        *("sources", "glances", "sessions", "tasks", "runs", "requests", "calls", "changes"),
        *("denials", "texts", "notes", "spend", "tool_use"),
    )
    found = {table: repr(store.query(f"SELECT * FROM {table}")) for table in tables}
    reports = store.query("SELECT report FROM runs WHERE report IS NOT NULL")
    found["reports"] = "\n".join(zlib.decompress(report).decode() for (report,) in reports)
    return found


def test_l5_every_kind_is_masked_in_every_table(store: Store, tmp_path: Path) -> None:
    """Also in the reports and in the search index."""
    import_secrets(store, tmp_path)
    found = contents(store)
    assert {name: leaked(content) for name, content in found.items() if leaked(content)} == {}
    assert found["texts"].count(MASK) >= 2 * len(TOKEN_FORMATS)
    assert store.query("SELECT count(*) FROM runs WHERE prompt IS NOT NULL") == [(1,)]
    for said, secret in SECRETS:
        assert texts_with(store, secret) == [], said
    assert len(texts_with(store, "redacted")) >= 2


def texts_with(store: Store, words: str) -> list[SearchHit]:
    """What a search with the index finds."""
    hits, _ = search_texts(store, parse_query(words), Filters(TimeRange()), None, None)
    return hits


def test_l5_every_kind_is_masked_in_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists, reports and exports of a ledger."""
    store = open_ledger(str(tmp_path / "ledger.db"))
    import_secrets(store, tmp_path)
    store.close()
    words = ["--ledger", str(tmp_path / "ledger.db")]
    for command in (
        ["search", "redacted", "--json", "--no-import"],
        ["search", "--regex", ".", "--json", "--no-import"],
        ["runs", "--json", "--no-import"],
        ["runs", "--csv", "--no-import"],
        ["sessions", "--csv", "--no-import"],
        ["show", RUN, "--json"],
        ["ledger", "note", RUN, JOINED],
        ["show", RUN],
        ["ledger", "secrets", "--json"],
    ):
        # Exit code 1: the recording itself has some.
        assert main([*command, *words]) == (command[1] == "secrets"), command
        printed = capsys.readouterr()
        assert (command, leaked(printed.out), leaked(printed.err)) == (command, [], [])
        assert MASK in printed.out or command[:2] in (["ledger", "note"], ["ledger", "secrets"])


def test_l5_messages_on_stderr_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    for said, secret in SECRETS:
        assert main(["show", f"{said} and more"]) == 2
        assert secret not in capsys.readouterr().err


def test_l5_the_header_of_a_recording_is_masked(tmp_path: Path) -> None:
    origin = RunOrigin(repository=JOINED, branch=JOINED)
    header = Header(argv=["claude", "-p", JOINED], prompt=JOINED, name=JOINED, origin=origin)
    header.tags = {"note": JOINED}
    header.backend = BackendInfo(kind="openai", url="http://me:s3cr/t@p@host/v1")
    with Recorder(tmp_path / "run.steno", header):
        pass
    line = (tmp_path / "run.steno").read_text().splitlines()[0]
    assert (leaked(line), "s3cr" in line, "t@p" in line) == ([], False, False)
    assert json.loads(line)["backend"]["url"] == f"http://me:{MASK}@host/v1"


@pytest.mark.parametrize(
    "password", ["p4ss/w0rd", "p4ss@w0rd", "p4ss%w0rd", "p4ss?w0rd", "p4/s@w0%d"]
)
def test_l5_the_password_of_a_ledger_is_never_printed(
    password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even where the driver would take a part of it for the host."""
    for url in (
        f"postgresql://me:{password}@127.0.0.1:1/steno",
        f"postgresql://127.0.0.1:1/steno?user=a@b&password={password}",
        f"mysql://me:{password}@127.0.0.1/steno",
    ):
        assert main(["runs", "--ledger", url]) == 2
        printed = capsys.readouterr().err
        assert ("p4" in printed, "w0" in printed, "s@" in printed) == (False, False, False)


# -- steno ledger secrets ------------------------------------------------------------------------


@pytest.fixture
def unmasked(book: Book, tmp_path: Path) -> Book:
    """A ledger of an earlier version, which stored one secret in every place."""
    said = f"use {KEY} now"
    book.session("s1", title=said)
    book.insert("tasks", id="t1", agent="claude", prompt=said, attempts=1)
    report = steno.read(b'{"type":"result","result":"done"}\n')
    report.error = said
    tags = json.dumps({"note": said})
    book.run("r1", report, session="s1", prompt=said, error=said, why=said, tags=tags)
    book.store.execute("UPDATE runs SET name = ?", (said,))
    book.call("s1", 1, target=said, error=said, run="r1")
    book.insert(
        "changes",
        id=1,
        session="s1",
        path=f"a/{KEY}",
        inside=1,
        change="created",
        source="git",
        at=1,
    )
    book.insert("denials", id=1, session="s1", reason=said, rule=said, at=1)
    book.text("s1", 1, said)
    book.insert("notes", run="r1", at=1, text=said)
    rows = {"threads": {}, "calls": {}, "cwd": said, "at": 1}
    state = encode_resume_state(ResumeState(b"", msgspec.json.encode(rows)))
    book.source(str(tmp_path / "run.steno"), kind="tape", run="r1", state=state)
    write_recording(tmp_path / "run.steno", said)
    return book


def asked(capsys: pytest.CaptureFixture[str], url: str, *words: str, code: int) -> dict[str, Any]:
    assert main(["ledger", "secrets", "--ledger", url, "--json", *words]) == code
    printed = capsys.readouterr()
    assert (KEY in printed.out, KEY[:8] in printed.out, printed.err) == (False, False, "")
    answer: dict[str, Any] = json.loads(printed.out)
    return answer


def test_secrets_lists_masks_and_says_what_remains(
    unmasked: Book, ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(texts_with(unmasked.store, KEY)) == 1
    listed = asked(capsys, ledger_url, code=1)
    columns = {
        ("sessions", "title"),
        ("tasks", "prompt"),
        *(("runs", name) for name in ("prompt", "error", "why", "name", "tags", "report")),
        *(("calls", name) for name in ("target", "error")),
        ("changes", "path"),
        *(("denials", name) for name in ("reason", "rule")),
        ("texts", "text"),
        ("notes", "text"),
        ("sources", "state"),
    }
    in_ledger = [row for row in listed["rows"] if row["table"] is not None]
    assert {(row["table"], row["column"]) for row in in_ledger} == columns
    assert {(row["kind"], row["start"], row["masked"]) for row in in_ledger} == {
        ("github-token", "ghp_", False)
    }
    in_files = [row for row in listed["rows"] if row["file"] is not None]
    assert {(row["file"], row["run"]) for row in in_files} == {(str(tmp_path / "run.steno"), "r1")}
    assert {row["line"] for row in in_files if row["kind"] == "github-token"} == {1, 2, 3, 4}
    assert any(KEY in content for content in contents(unmasked.store).values())

    masked = asked(capsys, ledger_url, "--mask", code=1)  # the recording remains
    assert masked["total"]["masked"] == masked["total"]["ledger"] == len(in_ledger)
    found = contents(unmasked.store)
    assert [name for name, content in found.items() if KEY in content] == []
    assert found["texts"].count(MASK) == 1
    (tmp_path / "run.steno").unlink()
    assert asked(capsys, ledger_url, code=0)["rows"] == []
    assert texts_with(unmasked.store, KEY) == []
    assert [hit.snippet for hit in texts_with(unmasked.store, "use")] == [f"use {MASK} now"]


def test_nothing_of_a_masked_secret_is_left_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither in free pages, nor in the index, nor in the write-ahead log."""
    url = str(tmp_path / "ledger.db")
    store = open_ledger(url)
    book = Book(store)
    book.session("s1")
    for number in range(1200):  # more than one batch
        book.text("s1", number, f"use {KEY} and {number}")
    store.close()
    main(["search", "use", "--ledger", url, "--no-import"])
    assert main(["ledger", "secrets", "--mask", "--ledger", url]) == 0
    assert "Masked 1,200 secrets in the ledger." in capsys.readouterr().out
    for file in tmp_path.glob("ledger.db*"):
        assert KEY.lower().encode() not in file.read_bytes().lower(), file


def test_secrets_says_where_backups_are(
    unmasked: Book, ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = unmasked.store.backup(7)
    assert main(["ledger", "secrets", "--mask", "--ledger", ledger_url]) == 1
    printed = capsys.readouterr().out
    assert printed.endswith(f"Backups were not examined. Delete old ones:\n  {copy}\n")
    assert f"  rm {tmp_path / 'run.steno'}\n" in printed


def test_a_ledger_without_secrets(ledger_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    open_ledger(ledger_url).close()
    assert main(["ledger", "secrets", "--ledger", ledger_url]) == 0
    assert capsys.readouterr().out == "No secrets found in the ledger and its recordings.\n"
