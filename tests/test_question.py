"""Questions to the ledger from Python: what the commands answer, on both databases, and errors that say what is meant."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import msgspec
import pytest

import steno
from steno.answer.lists import Run
from steno.cli.asked import iso
from steno.ledger.ask.zones import Zone
from tests.test_cli import run

RECORDINGS = Path(__file__).parent / "recordings"
RUNS = RECORDINGS / "claude/2.1.325"
SAID = "multi_tool_edit"
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


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


in_berlin = partial(iso, zone=Zone("Europe/Berlin"))


def test_it_answers_what_the_commands_answer(ledger: steno.Ledger, ledger_url: str) -> None:
    scopes: list[tuple[steno.Scope, list[str]]] = [
        ({}, []),
        ({"since": "2026-01-01", "until": "2026-12-31"}, ["--since=2026-01-01", "--until=2026-12-31"]),
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
            told = answer(ledger_url, "report", by, *words)
            assert plain([line.as_json(by) for line in usage.lines]) == told["rows"]
            assert plain(usage.total.as_json()) == told["total"]
            assert usage.total.usd == told["total"]["cost"]["usd"]
        seen += len(runs) + len(sessions)
    assert seen > 400
    tools = [{"tool": one.name, **one.as_json()} for one in ledger.tools()]
    assert plain(tools) == answer(ledger_url, "report", "tool")["rows"]
    hits = ledger.search("file", role="answer")
    assert plain([one.as_json(in_berlin) for one in hits]) == answer(ledger_url, "search", "file", "--role=answer")["rows"]
    assert hits


def test_some_of_the_runs(ledger: steno.Ledger) -> None:
    everything = ledger.runs()
    assert ledger.runs(limit=3) == everything[:3]
    assert ledger.runs(limit=0) == []
    failed = [one for one in everything if one.verdict != "success"]
    assert ledger.runs(failed=True) == failed
    assert ledger.runs(verdict="max_turns") == [one for one in everything if one.verdict == "max_turns"]
    assert len(ledger.runs(verdict=("max_turns", "success"))) > len(ledger.runs(verdict="success"))
    dearest = ledger.runs(top="cost", limit=2)
    assert [one.cost.usd for one in dearest] == sorted((one.cost.usd or 0 for one in everything), reverse=True)[:2]
    known = next(one for one in everything if one.session_id is not None and one.started is not None)
    assert known in ledger.runs(session=known.session)
    assert known.started is not None
    assert known in ledger.runs(since=known.started, until=known.started + timedelta(milliseconds=1))
    assert (known.run_id, known.started.tzinfo) == (known.id, timezone.utc)
    assert known not in ledger.runs(since=known.started + timedelta(milliseconds=1))
    assert ledger.runs(project="nowhere") == []


def test_an_instant_that_no_calendar_has() -> None:
    """An agent may claim any time; a list is still a list."""
    values: dict[str, Any] = dict.fromkeys(Run.__struct_fields__)
    assert Run(**values | {"started_at": 10**17}).started is None
    assert Run(**values | {"started_at": None}).started is None
    assert Run(**values | {"started_at": 1}).started == datetime(1970, 1, 1, 0, 0, 0, 1000, timezone.utc)


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
        with pytest.raises(steno.StenoError, match=rf"{session.id}: it has no report, and what it was read from .*{here.name}"):
            ledger.report(session.id)
        with pytest.raises(steno.StenoError, match="ffff0000: no run and no session in the ledger begins like this"):
            ledger.report("ffff0000")


def test_sql_and_notes(ledger: steno.Ledger) -> None:
    (found,) = ledger.sql("SELECT count(*) AS many, 1 AS many FROM runs")
    assert found == {"many": len(ledger.runs()), "many_2": 1}
    with pytest.raises(steno.LedgerError, match="only questions are allowed here"):
        ledger.sql("DELETE FROM runs")
    one = ledger.runs(limit=1)[0]
    ledger.note(one.short, f" the key was {KEY} ")
    assert ledger.sql("SELECT run, text FROM notes") == [{"run": one.id, "text": "the key was [redacted]"}]
    with pytest.raises(steno.StenoError, match="an empty note says nothing"):
        ledger.note(one.id, " \n")


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda ledger: ledger.runs(verdict="sucess"), r"verdict 'sucess': expected one of success, .*, running"),
        (lambda ledger: ledger.runs(top="fame"), "top 'fame': expected one of cost, tokens, time, turns, context"),
        (lambda ledger: ledger.runs(limit=-1), "limit -1: expected a number from 0 on"),
        (lambda ledger: ledger.sessions(top="turns"), "top 'turns': expected one of cost, tokens, time, context"),
        (lambda ledger: ledger.usage("hour"), "by 'hour': expected one of day, week"),
        (lambda ledger: ledger.tools(model="opus"), "calls are not counted by model"),
        (lambda ledger: ledger.search(""), "search"),
        (lambda ledger: ledger.search("x", role="tool"), "role 'tool': expected one of prompt, answer"),
        (lambda ledger: ledger.runs(last="soon"), "--last soon: expected a number and a unit"),
        (lambda ledger: ledger.runs(since="soon"), "--since soon: expected a day"),
    ],
)
def test_x_what_cannot_be_understood(ask: Any, told: str, tmp_path: Path) -> None:
    with steno.Ledger(tmp_path / "ledger.db") as ledger, pytest.raises(steno.StenoError, match=told):
        ask(ledger)


def test_x_a_word_that_no_question_has(tmp_path: Path) -> None:
    with steno.Ledger(tmp_path / "ledger.db") as ledger, pytest.raises(TypeError, match="no 'folder'; it may have: last, since"):
        ledger.usage("day", folder="x")  # type: ignore[call-arg]


def test_x_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(steno.StenoError, match="Mars/Phobos"):
        steno.Ledger(tmp_path / "ledger.db", timezone="Mars/Phobos")
    assert not (tmp_path / "ledger.db").exists()
    (tmp_path / "file").write_text("this is no database, and long enough to be none")
    with pytest.raises(steno.LedgerError):
        steno.Ledger(tmp_path / "file")
    with steno.Ledger(tmp_path / "ledger.db") as ledger, pytest.raises(steno.SourceError, match="nowhere"):
        ledger.add(tmp_path / "nowhere")
