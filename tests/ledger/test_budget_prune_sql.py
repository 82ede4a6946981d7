"""Budgets, pruning and one's own SQL; on both databases."""

import pytest

from steno.errors import LedgerError, StenoError
from steno.ledger.queries import budget, ledger
from steno.ledger.queries import search as texts
from steno.ledger.queries.filters import Filters, TimeZone, resolve_projects
from steno.ledger.queries.ledger import run_query
from steno.ledger.queries.usage import group_spend, tool_sums
from steno.ledger.store import Store, open_ledger
from steno.units import DAY_MS
from tests.support.ledger_builder import HOUR, PROJECT, Book

NOW = 1_794_746_096_000  # 2026-11-15T12:34:56Z
NOON = NOW // DAY_MS * DAY_MS + 12 * HOUR
UTC = TimeZone("UTC")
TABLES = (
    "runs",
    "sessions",
    "tasks",
    "requests",
    "calls",
    "changes",
    "denials",
    "texts",
    "notes",
    "spend",
    "tool_use",
    "sources",
)

# -- budgets -------------------------------------------------------------------------------------


def test_budgets_say_what_is_left_and_where_it_leads(book: Book) -> None:
    book.session("s1")
    book.session("s2", project="/p/x")
    book.request("s1", NOON - HOUR, cost_nano=4 * 10**9)
    book.request("s2", NOON - 2 * HOUR, cost_nano=10**9, source="reported")
    book.request("s1", NOON - 2 * HOUR, model="nameless", cost_nano=None, source="unknown")
    book.request("s1", NOON - 30 * HOUR, cost_nano=10**9)
    budget.set_budget(book.store, "day", "", 7 * 10**9, 1)
    budget.set_budget(book.store, "day", "", 8 * 10**9, 2)
    budget.set_budget(book.store, "month", "", 6 * 10**9, 1)
    budget.set_budget(book.store, "week", "/p/x", 10**8, 1)
    found = budget.list_budgets(book.store, UTC, NOON)
    assert [
        (one.period, one.project, one.spent_nano, one.limit_nano, one.unpriced, one.exceeded)
        for one in found
    ] == [
        ("day", None, 5 * 10**9, 8 * 10**9, 1, False),
        ("week", "/p/x", 10**9, 10**8, 0, True),
        ("month", None, 6 * 10**9, 6 * 10**9, 1, False),
    ]
    assert (found[0].elapsed_fraction, found[0].forecast_nano) == (0.5, 10 * 10**9)
    row = found[0].as_json(lambda at: str(at))
    assert (row["spent_usd"], row["left_usd"], row["forecast_usd"], row["limit_usd"]) == (
        5.0,
        3.0,
        10.0,
        8.0,
    )
    assert budget.remove_budget(book.store, "day", "") is True
    assert budget.remove_budget(book.store, "day", "") is False


@pytest.mark.parametrize(
    ("text", "nano"),
    [("20", 20 * 10**9), ("$12.50", 12_500_000_000), ("1,000", 10**12), ("0.000000001", 1)],
)
def test_amounts(text: str, nano: int) -> None:
    assert budget.parse_amount(text) == nano


@pytest.mark.parametrize("text", ["0", "-5", "nan", "inf", "twenty", "", "1e99", "5 dollars"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(StenoError, match="expected an amount in dollars"):
        budget.parse_amount(text)


def test_the_project_of_a_budget(book: Book, tmp_path: object) -> None:
    book.session("a", project="/a/app")
    book.session("b", project="/b/app")
    book.session("c", project="/c/lone")
    assert budget.resolve_project(book.store, None) == ""
    assert budget.resolve_project(book.store, "lone") == "/c/lone"
    assert budget.resolve_project(book.store, "/not/yet") == "/not/yet"
    with pytest.raises(StenoError, match="several projects"):
        budget.resolve_project(book.store, "app")
    with pytest.raises(StenoError, match="no such project in the ledger"):
        budget.resolve_project(book.store, "nowhere")


# -- pruning -------------------------------------------------------------------------------------


def counts(store: Store) -> dict[str, int]:
    """How many rows each table has; the empty ones are left out."""
    found = {table: int(store.query(f"SELECT count(*) FROM {table}")[0][0]) for table in TABLES}
    return {table: many for table, many in found.items() if many}


@pytest.fixture
def aged(book: Book) -> Book:
    """An old session, an active one, an old run without session, one of another project."""
    old = NOW - 100 * DAY_MS
    for name, first, last, project in (
        ("old", old, old + HOUR, PROJECT),
        ("live", old, NOW, PROJECT),
        ("other", old, old, "/p/x"),
        ("resumed", old, old, PROJECT),
    ):
        book.session(name, first_at=first, last_at=last, project=project)
        book.request(name, first)
        book.call(name, first, duration_ms=10)
        book.text(name, first, "words")
        book.insert(
            "changes",
            id=first % 997 + len(name),
            session=name,
            path="x",
            inside=1,
            change="created",
            source="tool",
            at=first,
        )
    book.run("r-old", started_at=old, session="old", task="t1")
    book.run("r-lone", started_at=old, session=None)
    book.run("r-new", started_at=NOW, session="resumed")
    book.insert(
        "tasks",
        id="t1",
        started_at=old,
        ended_at=old + 5,
        verdict="success",
        attempts=1,
        project=PROJECT,
    )
    book.insert("notes", run="r-old", at=1, text="a note")
    book.source("/t/old.jsonl")
    texts.search_texts(book.store, texts.parse_query("words"), Filters(), None, None, None)
    return book


def test_pruning_takes_whole_sessions_and_leaves_the_sums(aged: Book) -> None:
    before, days = counts(aged.store), group_spend(aged.store, "day", UTC, Filters())
    old = ledger.PruneSelection(NOW - 90 * DAY_MS, None)
    gone = {one.table: one.rows for one in ledger.preview_prune(aged.store, old, False) if one.rows}
    assert counts(aged.store) == before
    ledger.prune(aged.store, old, False)
    ledger.reclaim_space(aged.store)
    after = counts(aged.store)
    assert {
        table: many - after.get(table, 0)
        for table, many in before.items()
        if many != after.get(table, 0)
    } == {
        **gone,
        "tasks": 1,
    }
    assert gone == {
        "runs": 2,
        "sessions": 2,
        "requests": 2,
        "calls": 2,
        "changes": 2,
        "texts": 2,
        "notes": 1,
    }
    assert group_spend(aged.store, "day", UTC, Filters()) == days
    assert [row[0] for row in aged.store.query("SELECT id FROM sessions ORDER BY id")] == [
        "live",
        "resumed",
    ]
    assert after["sources"] == 1
    hits, total = texts.search_texts(
        aged.store, texts.parse_query("words"), Filters(), None, None, None
    )
    assert (sorted(hit.session for hit in hits), total) == (["live", "resumed"], 2)
    assert [one for one in ledger.preview_prune(aged.store, old, False) if one.rows] == []


def test_pruning_of_one_project(aged: Book) -> None:
    ledger.prune(
        aged.store,
        ledger.PruneSelection(NOW - 90 * DAY_MS, resolve_projects(aged.store, "x")),
        False,
    )
    assert [row[0] for row in aged.store.query("SELECT id FROM sessions ORDER BY id")] == [
        "live",
        "old",
        "resumed",
    ]
    assert len(aged.store.query("SELECT id FROM runs")) == 3
    ledger.prune(aged.store, ledger.PruneSelection(NOW - 90 * DAY_MS, ()), False)
    assert len(aged.store.query("SELECT id FROM sessions")) == 3


def test_pruning_everything_leaves_the_sums_of_what_stays(aged: Book) -> None:
    old = ledger.PruneSelection(NOW - 90 * DAY_MS, None)
    ledger.prune(aged.store, old, False)  # first the details, later the sums as well
    assert {
        one.table: one.rows for one in ledger.preview_prune(aged.store, old, True) if one.rows
    } == {"spend": 2, "tool_use": 2}
    ledger.prune(aged.store, old, True)
    assert sorted(str(line.key) for line in group_spend(aged.store, "session", UTC, Filters())) == [
        "live",
        "resumed",
    ]
    (tool,), _ = tool_sums(aged.store, Filters())
    assert (tool.calls, tool.timed, tool.total_ms, tool.slowest_ms) == (2, 2, 20, 10)


# -- SQL -----------------------------------------------------------------------------------------


def test_sql_answers_with_names(book: Book, ledger_url: str) -> None:
    book.session("s1", project=None)
    reading = open_ledger(ledger_url, read_only=True)
    names, rows = run_query(
        reading,
        "SELECT id, id, project, 1 AS one, 1.5 * 2 AS x, sum(prompts) AS n "
        "FROM sessions GROUP BY id, project",
    )
    assert (names, rows) == (
        ["id", "id_2", "project", "one", "x", "n"],
        [["s1", "s1", None, 1, 3, 1]],
    )
    assert run_query(reading, "SELECT '100%' AS share, '?' AS mark") == (
        ["share", "mark"],
        [["100%", "?"]],
    )
    assert run_query(reading, "WITH a AS (SELECT 1 AS b) SELECT b FROM a WHERE b > 1") == (
        ["b"],
        [],
    )
    reading.close()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM sessions",
        "INSERT INTO budgets VALUES ('day', '', 1, 1)",
        "DROP TABLE sessions",
        "CREATE TABLE mine (x INTEGER)",
        "UPDATE sessions SET title = 'x'",
        "SELECT 1; DELETE FROM sessions",
        "COMMIT; DELETE FROM sessions",
        "SET TRANSACTION READ WRITE",
        "ATTACH DATABASE '/tmp/steno-never-made.db' AS other",
        "VACUUM INTO '/tmp/steno-never-made.db'",
        "PRAGMA journal_mode = DELETE",
        "SELEC 1",
        "SELECT nothing FROM sessions",
        "",
        "WITH gone AS (DELETE FROM sessions RETURNING id) SELECT * FROM gone",
        "COPY sessions TO '/tmp/steno-never-made'",
    ],
)
def test_sql_cannot_change_anything(book: Book, ledger_url: str, sql: str) -> None:
    book.session("s1")
    reading = open_ledger(ledger_url, read_only=True)
    try:
        assert run_query(reading, sql) == (
            [],
            [],
        )  # what is no question and changes nothing answers nothing
    except LedgerError as problem:
        assert str(problem).startswith("sql: ")  # noqa: PT017
        assert "\n" not in str(problem)  # noqa: PT017
    assert run_query(reading, "SELECT title FROM sessions") == (["title"], [[None]])
    assert book.store.query("SELECT count(*) FROM budgets")[0][0] == 0
    reading.close()
