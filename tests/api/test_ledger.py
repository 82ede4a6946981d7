"""Ledger queries from Python: the answers of the commands, on both databases, and errors."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import steno
from steno.cli.query_options import format_iso
from steno.ledger.queries.filters import TimeZone
from steno.ledger.results import RunSummary
from steno.ledger.store import open_ledger
from tests.cli.test_commands import run
from tests.runner.test_live_control import Place
from tests.support.ledger_builder import Book

RECORDINGS = Path(__file__).parents[1] / "recordings"
RUNS = RECORDINGS / "claude/2.1.325"
SAID = "multi_tool_edit"
UNIX = datetime(1970, 1, 1, tzinfo=timezone.utc)
KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[steno.Ledger]:
    """A ledger with runs and transcripts in it, on each database."""
    with steno.Ledger(ledger_url, timezone="Europe/Berlin") as found:
        done = found.add(RUNS, RECORDINGS / "transcripts")
        assert (done.troubles, done.runs > 20) == ([], True)
        yield found


def answer(url: str, *words: str) -> dict[str, Any]:
    """What the command answers."""
    done = run(*words, "--json", "--no-import", "--ledger", url, "--timezone", "Europe/Berlin")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ms(at: int) -> datetime:
    return UNIX + timedelta(milliseconds=at)


def plain(value: Any) -> Any:
    """A value that the json module of Python can write."""
    return json.loads(json.dumps(value))


in_berlin = partial(format_iso, zone=TimeZone("Europe/Berlin"))


def test_it_answers_what_the_commands_answer(ledger: steno.Ledger, ledger_url: str) -> None:
    scopes: list[tuple[steno.QueryScope, list[str]]] = [
        ({}, []),
        (
            {"since": "2026-01-01", "until": "2026-12-31"},
            ["--since=2026-01-01", "--until=2026-12-31"],
        ),
        ({"agent": "codex"}, ["--agent=codex"]),
        ({"model": "haiku"}, ["--model=haiku"]),
        ({"project": "work"}, ["--project=work"]),
        ({"last": "1h"}, ["--last=1h"]),
    ]
    seen = 0
    for scope, words in scopes:
        runs = [one.as_json(in_berlin) for one in ledger.runs(**scope)]
        assert plain(runs) == answer(ledger_url, "runs", *words)["rows"]
        sessions = [one.as_json(in_berlin) for one in ledger.sessions(**scope)]
        assert plain(sessions) == answer(ledger_url, "sessions", *words)["rows"]
        for by in ("day", "model", "session"):
            usage = ledger.usage(by, **scope)
            told = answer(ledger_url, "usage", by, *words)
            assert plain([line.as_json(by) for line in usage.rows]) == told["rows"]
            assert plain(usage.total.as_json()) == told["total"]
            assert usage.total.usd == told["total"]["cost"]["usd"]
        seen += len(runs) + len(sessions)
    assert seen > 400
    tools = [{"tool": one.name, **one.as_json()} for one in ledger.tools()]
    assert plain(tools) == answer(ledger_url, "usage", "tool")["rows"]
    hits = ledger.search("file", role="answer")
    assert (
        plain([one.as_json(in_berlin) for one in hits])
        == answer(ledger_url, "search", "file", "--role=answer")["rows"]
    )
    assert hits


def test_some_of_the_runs(ledger: steno.Ledger) -> None:
    everything = ledger.runs()
    assert ledger.runs(limit=3) == everything[:3]
    assert ledger.runs(limit=0) == []
    failed = [one for one in everything if one.verdict != "success"]
    assert ledger.runs(failed=True) == failed
    assert ledger.runs(verdict="max_turns") == [
        one for one in everything if one.verdict == "max_turns"
    ]
    assert len(ledger.runs(verdict=("max_turns", "success"))) > len(ledger.runs(verdict="success"))
    dearest = ledger.runs(top="cost", limit=2)
    assert [one.cost.usd for one in dearest] == sorted(
        (one.cost.usd or 0 for one in everything), reverse=True
    )[:2]
    known = next(
        one for one in everything if one.session_id is not None and one.started is not None
    )
    assert known in ledger.runs(session=known.session)
    assert known.started is not None
    assert known in ledger.runs(
        since=known.started, until=known.started + timedelta(milliseconds=1)
    )
    assert (known.run_id, known.started.tzinfo) == (known.id, timezone.utc)
    assert known not in ledger.runs(since=known.started + timedelta(milliseconds=1))
    assert ledger.runs(project="nowhere") == []


def test_times_of_every_kind(ledger: steno.Ledger) -> None:
    one = next(run for run in ledger.runs() if run.started is not None)
    assert one.started is not None
    day = one.started.astimezone(ZoneInfo("Europe/Berlin")).date()
    assert one in ledger.runs(since=day, until=day)
    assert one not in ledger.runs(since=day + timedelta(days=1))
    assert one in ledger.runs(last=timedelta(days=36_500))
    assert one in ledger.runs(last=timedelta(days=36_500), until=day)
    assert ledger.runs(last=timedelta(0)) == []


def test_a_run_that_failed_before_its_session_began_is_found(ledger_url: str) -> None:
    """By its project, its agent and its model, though nothing was spent."""
    book = Book(open_ledger(ledger_url))
    book.run(
        "3f9a21c0aa",
        project="/p/early",
        agent="codex",
        model="gpt-6[1m]",
        verdict="subprocess",
        session="3f9a21c0aa",
    )
    book.store.close()
    with steno.Ledger(ledger_url) as ledger:
        for scope in (
            steno.QueryScope(project="early"),
            steno.QueryScope(agent="codex"),
            steno.QueryScope(model="gpt-6"),
        ):
            (run,) = ledger.runs(failed=True, **scope)
            assert (run.run_id, run.session_id) == ("3f9a21c0aa", None)
            assert ledger.usage(**scope).wasted.runs == 1
        assert ledger.runs(model="gpt-6[1m]") == ledger.runs(model="GPT") == ledger.runs()


def test_no_session_ends_before_it_begins(ledger: steno.Ledger) -> None:
    """Also where only some lines of a recording carry a time."""
    found = ledger.sessions()
    assert [
        one.id
        for one in found
        if one.first_active and one.last_active and one.first_active > one.last_active
    ] == []
    calls = [row["at"] for row in ledger.sql("SELECT at FROM calls ORDER BY at")]
    for begin, end in pairwise(calls[:: len(calls) // 20]):
        inside = sum(begin <= at < end for at in calls)
        since, until = ms(begin), ms(end)
        assert (
            sum(tool.calls for tool in ledger.tools(since=since, until=until)) == inside
            if begin < end
            else True
        )


def test_every_line_by_session_has_its_project(ledger_url: str) -> None:
    book = Book(open_ledger(ledger_url))
    for number in range(900):
        book.session(f"s{number}", project="/p/x", title="t")
        book.request(f"s{number}", 1_731_674_096_000)
    book.store.close()
    with steno.Ledger(ledger_url) as ledger:
        assert {(line.project, line.title) for line in ledger.usage("session").rows} == {
            ("/p/x", "t")
        }
        sessions = ledger.sessions()
        sessions[0].totals.requests += 1000  # a row is its reader's own
        assert ledger.sessions()[1].totals.requests == 1


def test_words_within_names_are_found_on_every_database(ledger_url: str) -> None:
    book = Book(open_ledger(ledger_url))
    book.session("s1")
    text = (
        "fix src/steno/main.py, see https://example.com/docs/retry-limit, mail bob@example.com, "
        "call my_function"
    )
    book.text("s1", 1_731_674_096_000, text, "prompt")
    book.store.close()
    words = (
        "main",
        "main.py",
        "steno",
        "src/steno",
        "example",
        "docs",
        "retry",
        "retry-limit",
        "bob",
        "my_function",
    )
    with steno.Ledger(ledger_url) as ledger:
        assert [word for word in words if not ledger.search(word)] == []
        (hit,) = ledger.search("bob")
        assert (hit.short_session_id, hit.time, hit.as_json()["at"]) == (
            "s1",
            ms(1_731_674_096_000),
            "2024-11-15T12:34:56+00:00",
        )
        assert ledger.search("bo") == ledger.search("src/main") == []


def test_any_thread_may_use_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other:
        ledger = pool.submit(steno.Ledger, tmp_path / "ledger.db").result()
        assert other.submit(ledger.runs).result() == []
        other.submit(ledger.close).result()
        with pytest.raises(steno.LedgerError):
            pool.submit(ledger.sql, "SELECT 1").result()


def test_what_was_opened_is_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a change of folder; also where it has no name."""
    monkeypatch.chdir(tmp_path)
    with steno.Ledger("ledger.db") as ledger, steno.Ledger(":memory:") as fleeting:
        ledger.add(RUNS / SAID)
        (tmp_path / "else").mkdir()
        monkeypatch.chdir(tmp_path / "else")
        assert ledger.sql("SELECT count(*) AS many FROM runs") == [{"many": 1}]
        assert fleeting.sql("SELECT count(*) AS many FROM runs") == [{"many": 0}]


def test_a_run_whose_steno_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`add` takes it in, as the commands do."""
    with TemporaryDirectory(prefix="steno-") as folder:
        place = Place(Path(folder))
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"):
            monkeypatch.setenv(name, place.environment[name])
        host, run_id = place.begin("work")
        place.doing(run_id, "running")
        host.kill()
        host.communicate()
        with steno.Ledger() as ledger:
            assert [one.state for one in ledger.runs()] == ["running"]
            assert ledger.add().files == 0
            assert [one.state for one in ledger.runs()] == ["running"]
            ledger.import_new()
            assert [(one.run_id, one.verdict) for one in ledger.runs(failed=True)] == [
                (run_id, "no_result")
            ]


def test_an_instant_that_no_calendar_has() -> None:
    """An agent may claim any time; a list is still a list."""
    values: dict[str, Any] = dict.fromkeys(RunSummary.__struct_fields__)
    assert RunSummary(**values | {"started_at": 10**17}).started is None
    assert RunSummary(**values | {"started_at": None}).started is None
    assert RunSummary(**values | {"started_at": 1}).started == datetime(
        1970, 1, 1, 0, 0, 0, 1000, timezone.utc
    )


def test_the_report_of_one(ledger_url: str, tmp_path: Path) -> None:
    copytree(RUNS / SAID, tmp_path / "made" / SAID)
    (transcript,) = (RECORDINGS / "transcripts" / "2.1.325" / "simple_success").rglob("*.jsonl")
    here = tmp_path / "made" / "projects" / transcript.name
    here.parent.mkdir()
    here.write_bytes(transcript.read_bytes())
    with steno.Ledger(ledger_url) as ledger:
        ledger.add(tmp_path / "made")
        (one,) = ledger.runs()
        read = steno.read(tmp_path / "made" / SAID)
        assert ledger.report(one.run_id[:6]).tokens == read.tokens == one.tokens
        assert ledger.report(one.run_id).text == read.text
        session = next(other for other in ledger.sessions() if other.id != one.session)
        assert ledger.report(session.session_id).session_id == session.id
        for path in (tmp_path / "made").rglob("*"):
            if path.is_file():
                path.unlink()
        assert ledger.report(one.run_id).text == read.text  # of a run, the ledger keeps it
        with pytest.raises(
            steno.StenoError,
            match=f"{session.id}: transcript not found, and no run of it in the ledger",
        ):
            ledger.report(session.id)
        assert ledger.report(one.session or "").text == read.text  # of its last run
        with pytest.raises(
            steno.StenoError, match="ffff0000: no run or session with this ID in the ledger"
        ):
            ledger.report("ffff0000")


def test_sql_and_notes(ledger: steno.Ledger) -> None:
    (found,) = ledger.sql("SELECT count(*) AS many, 1 AS many FROM runs")
    assert found == {"many": len(ledger.runs()), "many_2": 1}
    with pytest.raises(
        steno.LedgerError, match="only SELECT, WITH, VALUES and EXPLAIN are allowed"
    ):
        ledger.sql("DELETE FROM runs")
    one = ledger.runs(limit=1)[0]
    ledger.note(one.short_id, f" the key was {KEY} ")
    assert ledger.sql("SELECT run, text FROM notes") == [
        {"run": one.id, "text": "the key was [redacted]"}
    ]
    (note,) = ledger.notes(one.id)
    assert (note.text, note.time is not None) == ("the key was [redacted]", True)
    assert ledger.sql("SELECT id, '50%' AS part FROM runs WHERE id = ?", one.id) == [
        {"id": one.id, "part": "50%"}
    ]
    with pytest.raises(steno.StenoError, match="text: expected text, found none"):
        ledger.note(one.id, " \n")


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (
            lambda ledger: ledger.runs(verdict="sucess"),
            r"verdict 'sucess': expected one of success, .*, running",
        ),
        (
            lambda ledger: ledger.runs(top="fame"),
            "top 'fame': expected one of cost, tokens, time, turns, context",
        ),
        (lambda ledger: ledger.runs(limit=-1), "limit -1: expected 0 or more"),
        (
            lambda ledger: ledger.sessions(top="turns"),
            "top 'turns': expected one of cost, tokens, time, context",
        ),
        (lambda ledger: ledger.usage("hour"), "by 'hour': expected one of day, week"),
        (lambda ledger: ledger.tools(model="opus"), "tool calls are not stored by model"),
        (lambda ledger: ledger.search(""), "text: expected text, found none"),
        (lambda ledger: ledger.search("x", model="opus"), "texts are not stored by model"),
        (lambda ledger: ledger.search("(", regex=True), r"^regex \(: invalid regular expression"),
        (
            lambda ledger: ledger.runs(session="x"),
            "^session x: no session with this ID in the ledger",
        ),
        (lambda ledger: ledger.runs(model=""), "model: expected text, found none"),
        (
            lambda ledger: ledger.runs(since="2026-11-01", last=timedelta(days=1)),
            "last and since exclude each other",
        ),
        (lambda ledger: ledger.runs(limit=10**30), "expected 0 or more"),
        (
            lambda ledger: ledger.report("\udc80abcd"),
            r"id '\\udc80abcd': contains NUL or unpaired surrogates",
        ),
        (lambda ledger: ledger.note("\0", "x"), "contains NUL or unpaired surrogates"),
        (lambda ledger: ledger.add("a\0b"), r"add 'a\\x00b': expected a path"),
        (
            lambda ledger: ledger.search("x", role="tool"),
            "role 'tool': expected one of prompt, answer",
        ),
        (lambda ledger: ledger.runs(last="soon"), "^last soon: expected a number and a unit"),
        (lambda ledger: ledger.runs(since="soon"), "^since soon: expected a date"),
    ],
)
def test_x_what_cannot_be_understood(ask: Any, told: str, tmp_path: Path) -> None:
    with (
        steno.Ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises(steno.StenoError, match=told),
    ):
        ask(ledger)


def test_x_a_word_that_no_question_has(tmp_path: Path) -> None:
    with (
        steno.Ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises(TypeError, match="unknown filter 'folder'; expected one of last, since"),
    ):
        ledger.usage("day", folder="x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda ledger: ledger.runs(model=5), "model: expected text, found int"),
        (lambda ledger: ledger.runs(last=7), "last: expected text, found int"),
        (lambda ledger: ledger.runs(since=1.5), "since: expected text, found float"),
        (lambda ledger: ledger.runs(project=5), "project: expected a path, found int"),
        (lambda ledger: ledger.runs(limit=1.5), "limit: expected a whole number, found float"),
        (lambda ledger: ledger.search(b"x"), "text: expected text, found bytes"),
        (lambda ledger: ledger.note("x", None), "ID|text"),
        (lambda ledger: ledger.add(None), "add: expected a path, found NoneType"),
    ],
)
def test_x_what_is_not_of_the_kind(ask: Any, told: str, tmp_path: Path) -> None:
    with (
        steno.Ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises((TypeError, steno.StenoError), match=told),
    ):
        ask(ledger)


def test_x_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(steno.StenoError, match="Mars/Phobos"):
        steno.Ledger(tmp_path / "ledger.db", timezone="Mars/Phobos")
    assert not (tmp_path / "ledger.db").exists()
    (tmp_path / "file").write_text("this is no database, and long enough to be none")
    with pytest.raises(steno.LedgerError):
        steno.Ledger(tmp_path / "file")
    with (
        steno.Ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises(steno.SourceError, match="nowhere"),
    ):
        ledger.add(tmp_path / "nowhere")
