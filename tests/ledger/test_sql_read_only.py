"""`steno ledger sql` only reads, also for a superuser on PostgreSQL."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steno.errors import LedgerError
from steno.ledger.queries.ledger import run_query
from steno.ledger.queries.sql_check import check_read_only
from steno.ledger.store import Store, open_ledger
from tests import postgres

REFUSED = [
    "COPY runs TO 'FILE'",
    "COPY (SELECT 1) TO PROGRAM 'touch FILE'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_catalog.pg_read_file('/etc/passwd')",
    "SELECT \"pg_read_file\"('/etc/passwd')",
    "SELECT pg_catalog . \"pg_read_file\" ('/etc/passwd')",
    "SELECT /* a /* b */ c */ pg_read_file /* ( */ ('/etc/passwd')",
    "SELECT PG_READ_FILE -- (\n ('/etc/passwd')",
    "SELECT * FROM pg_ls_dir('/')",
    "SELECT * FROM runs, LATERAL pg_read_binary_file('/etc/passwd') AS x",
    "SELECT pg_reload_conf()",
    "SELECT pg_terminate_backend(1)",
    "SELECT pg_sleep(1)",
    "SELECT pg_advisory_lock(1)",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, 'FILE')",
    "SELECT set_config('role', 'steno', false)",
    "SELECT query_to_xml('DELETE FROM runs', true, true, '')",
    "SELECT * FROM dblink('x', 'DELETE FROM runs') AS (values int)",
    "SELECT * FROM runs, dblink('x', 'DELETE FROM runs') AS (a int)",
    "SELECT * FROM ROWS FROM (pg_ls_dir('/')) AS x",
    "SELECT nextval('runs_id_seq')",
    "SELECT E'\\'' || pg_read_file('/etc/passwd') || ''",
    "SELECT U&\"pg\\005fread_file\"('/etc/passwd')",
    "SELECT 1 OPERATOR(public.+) 2",
    "SELECT $a$ $a$ || pg_read_file($b$/etc/passwd$b$)",
    "SELECT rolpassword FROM pg_authid",
    'SELECT * FROM "pg_shadow"',
    "SELECT * INTO mine FROM runs",
    "SELECT id FROM runs FOR UPDATE",
    "WITH gone AS (DELETE FROM runs RETURNING id) SELECT * FROM gone",
    "WITH a AS (SELECT 1) DELETE FROM runs",
    "WITH a AS MATERIALIZED (INSERT INTO runs DEFAULT VALUES RETURNING 1) SELECT 1",
    "EXPLAIN ANALYZE DELETE FROM runs",
    "EXPLAIN (ANALYZE, COSTS off) UPDATE runs SET id = ''",
    "SELECT 1; SELECT 2",
    "SELECT 1 -- ;\n; DROP TABLE runs",
    "SET ROLE steno",
    "RESET ROLE",
    "DO $$ BEGIN END $$",
    "CALL x()",
    "VACUUM",
    "LISTEN x",
    "LOCK TABLE runs",
    "DECLARE c CURSOR FOR SELECT 1",
    "PREPARE p AS SELECT 1",
    "CREATE TABLE mine (x int)",
    "TRUNCATE runs",
    "SELECT 'open",
    "SELECT 1 /* open",
]
ALLOWED = [
    "SELECT 1;",
    "(SELECT 1) UNION (SELECT 2)",
    "VALUES (1, 'a; b -- c')",
    "SELECT count(*) FILTER (WHERE verdict IN ('success')) AS good FROM runs",
    "SELECT verdict, rank() OVER (PARTITION BY verdict ORDER BY id) AS place FROM runs",
    "WITH a (x, y) AS (SELECT 1, 2), b(z) AS NOT MATERIALIZED (SELECT 3) SELECT x, z FROM a, b",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT x FROM n",
    "SELECT to_char(to_timestamp(started_at / 1000.0), 'YYYY-MM') AS month FROM runs",
    "SELECT extract(year FROM now())::int > 2000 AS late, pg_catalog.lower('A') AS low",
    "SELECT * FROM (VALUES (1, 'a')) AS t (x, y) WHERE x = ANY (ARRAY[1, 2])",
    "SELECT coalesce(nullif('', ''), 'x') AS a, cast(1 AS numeric(4, 2)) AS b, $q$it's$q$ AS c",
    'SELECT "id" AS "update" FROM runs r WHERE r.id ~ \'^a\' AND EXISTS (SELECT 1 FROM texts)',
    "EXPLAIN (COSTS off) SELECT * FROM runs",
    "EXPLAIN ANALYZE SELECT * FROM runs",
    "SELECT x.value ->> 'a' AS a FROM json_array_elements('[{\"a\": 1}]') AS x",
    "SELECT relname FROM pg_class WHERE relname = 'runs'",
    "SELECT substring('abc' FROM 2 FOR 1) AS s, trim(both ' ' from ' a ') AS t",
    "SELECT position('a' in 'b') AS p",
    "SELECT date_trunc('day', now()) - interval '1 day' AS yesterday, round(1.25, 1) AS r",
]


@pytest.fixture
def server_ledger(postgres_place: str, request: pytest.FixtureRequest) -> str:
    """A ledger on a real server, as its superuser."""
    url = postgres.fresh(postgres_place, f"sql_{abs(hash(request.node.name))}_{os.getpid()}")
    open_ledger(url).close()
    return url


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_before_the_server_sees_it(sql: str) -> None:
    with pytest.raises(LedgerError, match=r"^sql: "):
        check_read_only(sql)


def test_ordinary_queries_are_answered(server_ledger: str) -> None:
    store = open_ledger(server_ledger, read_only=True)
    for sql in ALLOWED:
        names, _ = run_query(store, sql)
        assert names, sql
    store.close()


def test_refused_on_the_connection(server_ledger: str) -> None:
    """None of them reaches the server: its connection is closed already."""
    store = open_ledger(server_ledger, read_only=True)
    store.close()
    for sql in REFUSED:
        with pytest.raises(LedgerError, match=r"^sql: ") as refusal:
            run_query(store, sql)
        assert "closed" not in str(refusal.value)


def test_the_role_can_only_read(server_ledger: str) -> None:
    """A superuser becomes a reader, for this query only; an ordinary user stays itself."""
    store = open_ledger(server_ledger)
    assert run_query(store, "SELECT current_user AS name") == (["name"], [["pg_read_all_data"]])
    assert store.query("SELECT current_user") == [("steno",)]
    store.execute("CREATE ROLE ada LOGIN")
    try:
        store.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO ada")
        own = open_ledger(server_ledger.replace("steno@", "ada@"), read_only=True)
        assert run_query(own, "SELECT current_user AS name") == (["name"], [["ada"]])
        assert run_query(own, "SELECT count(*) AS n FROM runs") == (["n"], [[0]])
        own.close()
    finally:
        store.execute("DROP OWNED BY ada")
        store.execute("DROP ROLE ada")
        store.close()


def test_tables_in_the_schema_of_the_user_are_found(server_ledger: str) -> None:
    store = open_ledger(server_ledger)
    store.execute("CREATE SCHEMA steno")
    store.execute("CREATE TABLE steno.own (x int)")
    assert run_query(store, "SELECT count(*) AS n FROM own") == (["n"], [[0]])
    store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH DATABASE 'FILE' AS other",
        "VACUUM INTO 'FILE'",
        "SELECT load_extension('x')",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = 1",
        "PRAGMA user_version = 5",
        "SELECT * FROM pragma_user_version(5)",
        "SELECT fts3_tokenizer('x')",
        "SELECT writefile('FILE', 'x')",
        "DETACH DATABASE main",
        "REINDEX",
        "ANALYZE",
        "BEGIN IMMEDIATE",
    ],
)
def test_sqlite_refuses(tmp_path: Path, sql: str) -> None:
    """Also on a connection that may write, such as that of `steno.Ledger`."""
    store = open_ledger(str(tmp_path / "ledger.db"))
    made = tmp_path / "made"
    with pytest.raises(LedgerError, match=r"^sql: "):
        run_query(store, sql.replace("FILE", str(made)))
    assert not made.exists()
    store.close()


ENDLESS = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) AS c FROM n"
)


def test_a_query_has_a_time_limit(store: Store) -> None:
    with pytest.raises(LedgerError, match=r"^sql: timed out after 0.2 s \(--timeout\)$"):
        run_query(store, ENDLESS, seconds=0.2)
    assert run_query(store, "SELECT 1 AS x") == (["x"], [[1]])


def test_a_query_ends_at_an_interrupt(store: Store, ledger_url: str) -> None:
    """Ctrl-C ends the command, and the server's query with it."""
    words = [sys.executable, "-m", "steno", "ledger", "sql", "--ledger", ledger_url, ENDLESS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(1.5)  # an interrupt before the query starts ends the command as well
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"")
    if store.kind == "postgresql":
        sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'WITH RECURSIVE%'"
        assert store.query(f"{sql} AND state = 'active'") == [(0,)]
