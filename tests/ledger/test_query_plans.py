"""No query reads a whole table that grows with the number of runs.

Every command that reads the ledger runs with every filter, the statements that it sends are
recorded, and both databases are asked how they would answer them. PostgreSQL is told to avoid
sequential scans and joins of whole tables, which it prefers for a small ledger: what is left has no
index that helps.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.growth import Rows, insert

from steno import cli
from steno.ledger.postgres import PostgresStore
from steno.ledger.protocol import now_ms
from steno.ledger.queries import search
from steno.ledger.queries.filters import TimeZone
from steno.ledger.queries.ledger import PruneSelection
from steno.ledger.sqlite import SQLiteStore
from steno.ledger.store import Store, open_ledger
from steno.web import pages
from steno.web.conversations import ConversationCache
from steno.web.ledger_access import LedgerAccess
from steno.web.run_page import file_values, find_subject, summary_values
from steno.web.url_state import parse_state

RUNS = 1_200
GUARDED = ("runs", "requests", "calls", "texts", "sources", "sessions", "session_spend")
FILTERS = (
    ("--project", "project-7"),
    ("--model", "gpt"),
    ("--agent", "codex"),
    ("--host", "host-2"),
    ("--user", "user-3"),
    ("--repository", "git.example/7"),
    ("--branch", "branch-4"),
    ("--tag", "team=core"),
    ("--last", "7d"),
    ("--since", "2020-01-01T10:30", "--until", "2099-01-01T10:30"),
)
# Partial indexes with few rows, which are read whole: failed runs, runs without usage, with tags.
SMALL_INDEXES = {"runs_failed", "runs_without_usage", "runs_tags"}
# Statements that read all rows, and why they may: a part of the statement, and the reason.
ALLOWED = {
    "coalesce(cost_nano, -1) DESC": "--top ranks all runs; only those of a filter have an index",
    "coalesce(context_peak, -1) DESC": "as above",
    "coalesce(input + cache_write + cache_read + output, -1) DESC": "as above",
    "coalesce(duration_ms, -1) DESC": "as above",
    "coalesce(turns, -1) DESC": "as above",
    "coalesce(last_at - first_at, -1) DESC": "as above, of sessions",
    "FROM spend s LEFT JOIN requests": "usage by host, branch or tag depends on each request's run",
    "instr(t.text, ?) > 0": "a part of a word has no index; the database looks for it itself",
    "strpos(t.text, ?) > 0": "as above",
    "path LIKE ?": "the transcript of a session that no file has by name and content",
    "SELECT path, run FROM sources": "--tools and `ledger secrets` read the files themselves",
    "ORDER BY seq LIMIT 500": "`ledger secrets` reads all rows, 500 at a time",
    "LIMIT 20000) AS newest": "SQLite sorts the 30 rows that it found in the index of the newest",
    "SELECT max(seq) FROM texts": "the last row, which SQLite finds at once",
    "SELECT count(*) FROM": "`ledger secrets` examines every row, and shows how far it is",
}


def commands(ids: Sequence[str], session: str) -> Iterator[tuple[str, ...]]:
    """Every command that reads the ledger, with every filter."""
    groupings = ("day", "week", "month", "project", "model", "agent", "session", "host", "tag")
    lists: list[tuple[str, ...]] = [("runs",), ("sessions",)]
    for top in ("cost", "tokens", "time", "context"):
        lists += [("runs", "--top", top), ("sessions", "--top", top)]
    usages = [("usage", by, "--top", "5") for by in groupings]
    searches = [("search", "parser"), ("search", "needle", "--role", "prompt")]
    for command in (*lists, *usages, *searches):
        yield (*command, "--no-import")
        for name, *values in FILTERS:
            if command[0] != "search" or name != "--model":
                yield (*command, name, *values, "--no-import")
    yield ("usage", "day", "--timezone", "Asia/Kolkata", "--no-import")
    for by in ("tool", "block"):
        yield ("usage", by, "--no-import")
        yield ("usage", by, "--last", "7d", "--project", "project-7", "--no-import")
    yield ("runs", "--failed", "--no-import")
    yield ("runs", "--verdict", "api", "--verdict", "running", "--no-import")
    yield ("runs", "--session", session, "--json", "--no-import")
    yield ("search", "--regex", "needl[e]", "--no-import")
    yield ("runs",)  # with an import
    yield ("usage",)
    yield ("usage", "--textfile", "-", "--no-import")
    yield ("budget",)
    for subject in (ids[0], session):
        yield ("show", subject[:12])
        yield ("diff", subject)
    yield ("compare", *ids)
    yield ("context", session, "--no-import")
    yield ("context", "--no-import")
    yield ("diff", "--list", "--all")
    yield ("doctor",)
    yield ("limits",)
    yield ("top", "--once")
    yield ("usage", "--html", "-", "--last", "7d", "--no-import")
    yield ("export", "--format", "csv", "--last", "7d", "--no-import")
    for rule in ("max_cost=1000", 'forbid_commands=["rm -rf /"]'):
        yield ("check", ids[0], "--rule", rule, "--no-import")
        for selection in (("--last", "5", "--all"), ("--last", "7d", "--all"), *FILTERS[:8]):
            yield ("check", *selection, "--rule", rule, "--no-import")
    yield ("ledger", "note", ids[0], "approved")
    yield ("ledger", "secrets", "--json")
    yield ("ledger", "prune", "--older-than", "30d", "--everything")


def load_pages(url: str, subjects: Sequence[str]) -> None:
    """What `steno serve` asks for its pages, and in the background."""
    access = LedgerAccess(url)
    access.refresh()
    lists = (pages.overview, pages.runs_page, pages.sessions_page, pages.tools_page)
    queries = [[], [("last", "all")], [("last", "all"), ("project", "/srv/code/project-7")]]
    with access.reader() as store:
        for query in queries:
            state = parse_state("/", query, ())
            request = pages.Request(state, TimeZone("UTC"), now_ms(), access.choices)
            for page in lists:
                page(store, request)
        state = parse_state("/search", [("q", "parser"), ("last", "all")], ())
        pages.search_page(store, pages.Request(state, TimeZone("UTC"), now_ms(), access.choices))
        conversations = ConversationCache()
        for id_ in subjects:
            subject = find_subject(store, "runs", id_)
            summary_values(store, subject, conversations)
            file_values(store, subject, conversations)
        pages.compare_page(store, subjects[:2])
    access.close()


def fill(url: str) -> tuple[list[str], str]:
    """A ledger with statistics, as it has after some time; returns two runs and a session."""
    store = open_ledger(url)
    for batch in Rows(RUNS).batches():
        with store.transaction():
            for name, rows in batch.items():
                insert(store, name, rows)
    store.execute("ANALYZE")
    rows_ = store.query("SELECT id, session FROM runs ORDER BY id DESC LIMIT 2")
    store.close()
    return [id_ for id_, _ in rows_], str(rows_[0][1])


class Asked(dict[str, Sequence[Any]]):
    """The statements that ledgers were asked, with the values of the first time."""

    stores: set[Store]

    def close(self) -> None:
        """Close the ledgers, which commands leave to the end of their process."""
        for store in self.stores:
            store.close()
        self.stores.clear()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the ledgers are asked from now on."""
    seen = Asked()
    seen.stores = set()
    for kind in (SQLiteStore, PostgresStore):
        for name in ("query", "stream"):
            ask = getattr(kind, name)

            def record(
                store: Store, sql: str, values: Sequence[Any] = (), *, ask: Any = ask
            ) -> Any:
                seen.stores.add(store)
                if sql.lstrip().startswith(("SELECT", "WITH")):
                    seen.setdefault(sql, values)
                return ask(store, sql, values)

            monkeypatch.setattr(kind, name, record)
    return seen


def aliases(sql: str) -> dict[str, str]:
    """The guarded tables of a statement by the names that it gives them."""
    found = re.findall(rf"\b(?:FROM|JOIN|,)\s+({'|'.join(GUARDED)})\b(?:\s+(?:AS\s+)?(\w+))?", sql)
    words = {"WHERE", "JOIN", "LEFT", "ORDER", "GROUP", "ON", "LIMIT", "UNION", "CROSS", "EXCEPT"}
    return {alias if alias and alias.upper() not in words else name: name for name, alias in found}


def scans_sqlite(store: Store, sql: str, values: Sequence[Any]) -> Iterator[str]:
    tables = aliases(sql)
    lines = [row[3] for row in store.query(f"EXPLAIN QUERY PLAN {sql}", values)]
    is_sorted = any("TEMP B-TREE FOR ORDER BY" in line for line in lines)
    for line in lines:
        # SQLite says SEARCH also of the smallest value of a column, which needs an index too.
        scan = re.match(r"SCAN (\w+)(?:.* INDEX (\w+))?|SEARCH (\w+)$", line)
        if scan is None or (scan[1] or scan[3]) not in tables or scan[2] in SMALL_INDEXES:
            continue
        if scan[2] is None or "LIMIT" not in sql or is_sorted:  # else it stops at the limit
            yield line


def scans_postgres(store: Any, sql: str, values: Sequence[Any]) -> Iterator[str]:
    cursor = store.connection.execute(
        *store.to_driver_query(f"EXPLAIN (FORMAT JSON) {sql}", values)
    )
    (plans,) = cursor.fetchone()
    yield from _scans_in(plans[0]["Plan"], "", is_limited=False)


def _scans_in(node: dict[str, Any], table: str, is_limited: bool) -> Iterator[str]:
    """`table`: of the node above, which uses the bitmap of this one."""
    kind = node["Node Type"]
    is_limited = (is_limited or kind == "Limit") and kind not in ("Sort", "Aggregate")
    is_limited = is_limited and not kind.startswith("Bitmap")
    table = node.get("Relation Name", table)
    index = node.get("Index Name")
    if table in GUARDED and index not in SMALL_INDEXES:
        is_whole = kind == "Seq Scan" or (index is not None and "Index Cond" not in node)
        if is_whole and not (is_limited and index):
            yield f"{kind} on {table} {index or ''}"
    for part in node.get("Plans", ()):
        yield from _scans_in(part, table, is_limited)


def test_no_query_reads_a_whole_table(
    ledger_url: str,
    statements: Asked,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ids, session = fill(ledger_url)
    monkeypatch.setenv("STENO_LEDGER", ledger_url)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(search, "COMMON_WORD_HITS", 1)
    monkeypatch.chdir(tmp_path)
    statements.clear()
    for command in commands(ids, session):
        code = cli.main([*command])
        statements.close()
        is_finding = code == 1 and command[0] in ("check", "doctor")
        assert code == 0 or is_finding, (command, capsys.readouterr())
    load_pages(ledger_url, [*ids, session])
    statements.close()
    recorded = dict(statements)
    store = open_ledger(ledger_url)
    PruneSelection(0, None).prepare(store)  # a temporary table of `ledger prune`
    if store.kind == "postgresql":
        for setting in ("seqscan", "hashjoin", "mergejoin"):
            store.execute(f"SET enable_{setting} = off")
    scans = scans_sqlite if store.kind == "sqlite" else scans_postgres
    found = {
        sql: [*scans(store, sql, values)]
        for sql, values in recorded.items()
        if aliases(sql) and not any(part in sql for part in ALLOWED)
    }
    store.close()
    assert len(found) > 100
    assert {sql: lines for sql, lines in found.items() if lines} == {}


def test_a_scan_is_found(ledger_url: str) -> None:
    """The check itself: a condition without an index is reported on both databases."""
    store = open_ledger(ledger_url)
    if store.kind == "postgresql":
        store.execute("SET enable_seqscan = off")
    scans = scans_sqlite if store.kind == "sqlite" else scans_postgres
    assert [*scans(store, "SELECT id FROM runs WHERE exit_code = 3", ())]
    assert [*scans(store, "SELECT t.id FROM texts t ORDER BY t.role LIMIT 3", ())]
    assert [*scans(store, "SELECT min(exit_code) FROM runs", ())]
    assert [*scans(store, "SELECT id FROM runs WHERE id = 'a'", ())] == []
    assert json.dumps(aliases("SELECT 1 FROM runs u JOIN calls ON true")) == (
        '{"u": "runs", "calls": "calls"}'
    )
    store.close()
