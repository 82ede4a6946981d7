"""Lists of runs and sessions, id prefixes, notes, comparisons, context; on both databases."""

from typing import Any

import msgspec
import pytest

from steno.errors import StenoError
from steno.ledger.queries import runs, sessions
from steno.ledger.queries.compare import compare
from steno.ledger.queries.context import context_history, initial_overhead
from steno.ledger.queries.filters import Filters, TimeRange, WhereClause
from steno.ledger.queries.runs import load_report
from steno.ledger.results import ComparedFigure, ContextSample, Note
from steno.ledger.totals import UsageTotals
from steno.report import Report
from tests.support.ledger_builder import HOUR, PROJECT, Book

NOW = 1_794_746_096_000


def listed(book: Book, **asked: object) -> list[str]:
    """The ids of the runs that fit."""
    given = {"filters": Filters(), "verdicts": [], "failed": False, "session": None, **asked}
    where = runs.runs_where(**given)  # type: ignore[arg-type]
    assert runs.sum_runs(book.store, where)["runs"] == len(runs.list_runs(book.store, where))
    return [run.id for run in runs.list_runs(book.store, where)]


def test_runs_are_listed_newest_first_and_filtered(book: Book) -> None:
    book.run("aaaa1", started_at=NOW, verdict=None, session="s1")
    book.run("bbbb2", started_at=NOW - HOUR, verdict="max_turns", session="s1", project="/p/x")
    book.run("cccc3", started_at=None, verdict="api")
    book.run("dddd4", started_at=NOW - 2 * HOUR, agent="codex", model="gpt")
    assert listed(book) == ["aaaa1", "bbbb2", "dddd4", "cccc3"]
    assert listed(book, failed=True) == ["bbbb2", "cccc3"]
    assert listed(book, verdicts=["running"]) == ["aaaa1"]
    assert listed(book, verdicts=["running", "success"]) == ["aaaa1", "dddd4"]
    assert listed(book, session="s1") == ["aaaa1", "bbbb2"]
    assert listed(book, filters=Filters(TimeRange(NOW - HOUR, NOW))) == ["bbbb2"]
    assert listed(book, filters=Filters(projects=("/p/x",))) == ["bbbb2"]
    assert listed(book, filters=Filters(agents=("codex",), models=("gpt",))) == ["dddd4"]
    assert [run.id for run in runs.list_runs(book.store, WhereClause(), 2)] == ["aaaa1", "bbbb2"]


def test_those_with_the_most_come_first_and_the_unknown_last(book: Book) -> None:
    """L4, top: on both databases."""
    zero: dict[str, Any] = {"cache_write": 0, "cache_read": 0, "output": 0}
    book.run(
        "a", started_at=NOW, cost_nano=5, duration_ms=1, input=9, context_peak=None, turns=2, **zero
    )
    book.run(
        "b",
        started_at=NOW - HOUR,
        cost_nano=None,
        duration_ms=3,
        input=None,
        context_peak=7,
        turns=None,
    )
    book.run(
        "c",
        started_at=NOW - 2 * HOUR,
        cost_nano=8,
        duration_ms=2,
        input=1,
        context_peak=9,
        turns=1,
        **zero,
    )
    orders = {"cost": "cab", "tokens": "acb", "time": "bca", "context": "cba", "turns": "acb"}
    assert orders.keys() == runs.RUN_RANKINGS.keys()
    for top, order in orders.items():
        assert (
            "".join(run.id for run in runs.list_runs(book.store, WhereClause(), top=top)) == order
        )
    for name, many, span in (("s1", 1, 5), ("s2", 3, 1), ("s3", 0, 9)):
        book.session(name, first_at=NOW - span * HOUR, last_at=NOW, context_peak=span or None)
        for _ in range(many):
            book.request(name, NOW)
    for top, names in {
        "cost": [2, 1, 3],
        "tokens": [2, 1, 3],
        "time": [3, 1, 2],
        "context": [3, 1, 2],
    }.items():
        assert [one.id for one in sessions.list_sessions(book.store, WhereClause(), top=top)] == [
            f"s{number}" for number in names
        ]


def test_what_runs_come_to(book: Book) -> None:
    book.run(
        "a", cost_nano=5, input=1, cache_write=2, cache_read=3, output=4, turns=2, duration_ms=9
    )
    book.run("b", cost_nano=None, input=None)
    assert runs.sum_runs(book.store, WhereClause()) == {
        "runs": 2,
        "failed": 0,
        "tokens": {
            "input": 1,
            "cache_write": 2,
            "cache_read": 3,
            "output": 4,
            "reasoning": 0,
            "total": 10,
        },
        "cost": {"usd": 5e-9, "unpriced_runs": 1},
        "turns": 2,
        "duration_ms": 9,
    }
    assert runs.sum_runs(book.store, WhereClause().add("id = 'b'"))["cost"] == {
        "usd": None,
        "unpriced_runs": 1,
    }


def test_the_shortest_beginning_that_names_one(book: Book) -> None:
    for name in ("0123456789", "0123456799", "012345678a", "fedcba9876", "abc"):
        book.run(name, started_at=NOW)
    shorts = {run.id: run.short_id for run in runs.list_runs(book.store, WhereClause())}
    assert shorts == {
        "0123456789": "0123456789",
        "0123456799": "012345679",
        "012345678a": "012345678a",
        "fedcba9876": "fedcba98",
        "abc": "abc",
    }


def test_finding_by_the_beginning(book: Book) -> None:
    book.run("3f9a21c0aa")
    book.run("3f9a21c0bb")
    book.run("77aa")
    book.session("77aabbcc-dd")
    book.session("81d4e0b7-00")
    assert runs.find_by_prefix(book.store, "3f9a21c0a") == ("runs", "3f9a21c0aa")
    assert runs.find_by_prefix(book.store, "77aa") == (
        "runs",
        "77aa",
    )  # a whole id comes before a beginning, a run before a session
    assert runs.find_by_prefix(book.store, "77aab") == ("sessions", "77aabbcc-dd")
    assert runs.find_by_prefix(book.store, "81d4") == ("sessions", "81d4e0b7-00")
    assert runs.find_by_prefix(book.store, "81d") is None
    assert runs.find_by_prefix(book.store, "81d%") is None
    message = r"ambiguous, matches several runs: 3f9a21c0aa, 3f9a21c0bb$"
    with pytest.raises(StenoError, match=message):
        runs.find_by_prefix(book.store, "3f9a")
    with pytest.raises(StenoError, match="no run or session"):
        runs.get_by_prefix(book.store, "ffff")
    with pytest.raises(StenoError, match="use at least 4 characters of the ID"):
        runs.get_by_prefix(book.store, "3f9")
    assert runs.get_session_by_prefix(book.store, "81d4") == "81d4e0b7-00"
    with pytest.raises(StenoError, match="no session with this ID"):
        runs.get_session_by_prefix(book.store, "0000")


def test_the_report_of_a_run_comes_back(book: Book) -> None:
    report = Report(run_id="r1", verdict="api", error="500", text="half")
    book.run("r1", report)
    assert load_report(book.store, "r1") == report
    assert load_report(book.store, "r2") is None


def test_notes(book: Book) -> None:
    book.run("r1")
    runs.add_note(book.store, "runs", "r1", 5, "first")
    runs.add_note(book.store, "sessions", "r1", 6, "of a session of that name")
    runs.add_note(book.store, "runs", "r1", 5, "second")
    assert runs.list_notes(book.store, "runs", "r1") == [Note(5, "first"), Note(5, "second")]


# -- sessions ------------------------------------------------------------------------------------


def test_sessions_are_listed_with_what_they_spent(book: Book) -> None:
    book.session(
        "s1",
        first_at=NOW - 9 * HOUR,
        last_at=NOW,
        context_used=90_000,
        context_limit=200_000,
        context_peak=95_000,
    )
    book.session("s2", first_at=NOW - 99 * HOUR, last_at=NOW - 98 * HOUR, project="/p/x")
    book.session("s3")
    book.request("s1", NOW)
    book.request(
        "s1", NOW - 5 * HOUR, model="other", cost_nano=None, source="unknown", saved_nano=0
    )
    book.request("s2", NOW - 98 * HOUR)
    found = sessions.list_sessions(book.store, WhereClause())
    assert [one.id for one in found] == ["s1", "s2", "s3"]
    assert found[0].totals == UsageTotals(2, 20, 40, 140, 10, 0, 0, 1_000_000, 500_000, 1, 105)
    context = found[0].context
    assert (context.text, context.peak) == ("55% HP [90k/200k] — Healthy", 95_000)
    assert (found[2].totals, found[2].context.text) == (UsageTotals(), "HP unknown")
    recent = sessions.sessions_where(Filters(TimeRange(NOW - HOUR, None)))
    assert [one.id for one in sessions.list_sessions(book.store, recent)] == ["s1"]
    assert sessions.sum_sessions(book.store, recent) == (1, found[0].totals)
    assert sessions.sum_sessions(book.store, WhereClause())[1] == found[0].totals.plus(
        found[1].totals
    )
    assert [
        one.id
        for one in sessions.list_sessions(
            book.store, sessions.sessions_where(Filters(projects=("/p/x",)))
        )
    ] == ["s2"]
    assert sessions.newest_session(book.store) == "s1"


def test_many_sessions_are_asked_for_in_parts(book: Book) -> None:
    with book.store.transaction():
        for number in range(900):
            book.session(f"{number:04}-{number}", last_at=NOW)
            book.request(f"{number:04}-{number}", NOW)
    found = sessions.list_sessions(book.store, WhereClause())
    assert (len(found), {one.totals.requests for one in found}) == (900, {1})


def test_the_files_of_a_session(book: Book) -> None:
    for path in ("/t/abc/subagents/agent-1.jsonl", "/t/abc.jsonl", "/t/abd.jsonl"):
        book.source(path)
    book.source("/t/abc", kind="recording")
    assert sessions.transcript_paths(book.store, "abc") == [
        "/t/abc.jsonl",
        "/t/abc/subagents/agent-1.jsonl",
    ]


def test_the_course_of_a_context(book: Book) -> None:
    book.session("s")
    for step, (used, parent) in enumerate(
        [(100_000, None), (150_000, None), (9_000, "call"), (40_000, None)]
    ):
        book.request(
            "s", NOW + step, input=0, cache_write=1_000, cache_read=used - 1_000, parent=parent
        )
    book.request("s", NOW + 9, kind="rest", input=5_000_000)
    model = "claude-opus-5-5"
    session = sessions.get_session(book.store, "s")
    points = context_history(book.store, session)
    assert points == [
        ContextSample(NOW, model, 100_000, 200_000),
        ContextSample(NOW + 1, model, 150_000, 200_000),
        ContextSample(NOW + 3, model, 40_000, 200_000, True),
    ]
    row = points[1].as_json(lambda at: str(at))
    assert (row["fraction"], row["hp"], row["status"], row["level"]) == (
        0.75,
        25.0,
        "CRITICAL",
        "warn",
    )
    session.context_limit = 500_000
    assert context_history(book.store, session)[0].limit == 500_000


def test_m8_the_overhead_is_the_first_request_less_the_prompt(book: Book) -> None:
    """Later prompts don't count; without a prompt it is unknown; a run's prompt is enough."""
    book.session("s")
    book.request("s", NOW, input=10, cache_write=1_000, cache_read=20_000)
    points = context_history(book.store, sessions.get_session(book.store, "s"))
    assert initial_overhead(book.store, "s", points) is None
    assert initial_overhead(book.store, "s", []) is None
    book.run("r", session="s", prompt="12345")
    assert initial_overhead(book.store, "s", points) == 21_010 - 2
    book.text("s", NOW - 5, "x" * 400, role="prompt")
    book.text("s", NOW + 5, "y" * 4_000, role="prompt")
    book.text("s", NOW - 5, "z" * 4_000)
    assert initial_overhead(book.store, "s", points) == 21_010 - 100


def test_two_side_by_side(book: Book) -> None:
    book.run(
        "run-a",
        verdict="success",
        cost_nano=10**9,
        turns=4,
        input=1,
        cache_write=1,
        cache_read=8,
        output=5,
        duration_ms=1000,
    )
    book.run(
        "run-b",
        verdict="max_turns",
        cost_nano=2 * 10**9,
        turns=None,
        input=2,
        cache_write=2,
        cache_read=6,
        output=9,
    )
    figures, one, two = compare(book.store, "run-a", "run-b")
    found = {figure.name: figure for figure in figures}
    assert (one, two) == ("run-a", "run-b")
    assert found["verdict"] == ComparedFigure("verdict", "text", "success", "max_turns")
    assert (found["cost_usd"].difference, found["cost_usd"].ratio) == (1.0, 2.0)
    assert (found["turns"].difference, found["turns"].ratio) == (None, None)
    assert found["cache_hit_rate"].first == 0.8
    assert found["verdict"].as_json() == {
        "figure": "verdict",
        "a": "success",
        "b": "max_turns",
        "difference": None,
        "ratio": None,
    }


def test_a_run_beside_a_session(book: Book) -> None:
    book.run("run-a")
    book.session("session-b", first_at=NOW, last_at=NOW + 500)
    book.request("session-b", NOW)
    book.call("session-b", NOW, ok=0)
    figures = {
        figure.name: figure.second for figure in compare(book.store, "run-a", "session-b")[0]
    }
    assert {
        name: figures[name]
        for name in ("duration_ms", "requests", "tools", "tool_errors", "tokens_total", "project")
    } == {
        "duration_ms": 500,
        "requests": 1,
        "tools": 1,
        "tool_errors": 1,
        "tokens_total": 105,
        "project": PROJECT,
    }


def test_rows_can_be_written_as_json(book: Book) -> None:
    book.run("r")
    book.session("s")
    rows = [
        runs.get_run(book.store, "r").as_json(str),
        sessions.get_session(book.store, "s").as_json(str),
    ]
    assert [sorted(row)[:3] for row in msgspec.json.decode(msgspec.json.encode(rows))] == [
        ["agent", "agent_version", "attempt"],
        ["agent", "agent_version", "cache_hit_rate"],
    ]
