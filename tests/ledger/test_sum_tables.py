"""The sums that the database keeps equal those of the tables, whatever statement changes these."""

from contextlib import closing

import pytest
from benchmarks.growth import Rows, insert

from steno.ledger.protocol import Store
from steno.ledger.store import open_ledger
from steno.ledger.sum_tables import ROW_COUNTS, SUM_TABLES, SumTable

TABLES = (*SUM_TABLES, ROW_COUNTS)


def kept(store: Store, table: SumTable) -> set[tuple[object, ...]]:
    """The rows of a table of sums, without those that have become zero."""
    zeros = " AND ".join(f"{name} = 0" for name in table.sums)
    rows = store.query(f"SELECT {table.columns} FROM {table.name} WHERE NOT ({zeros})")
    return {tuple(row) for row in rows}


def added_up(store: Store, table: SumTable) -> set[tuple[object, ...]]:
    """The same, from the table itself."""
    key = ", ".join(value.format("") for value in table.key.values())
    sums = ", ".join(f"sum({value.format('')})" for value in table.sums.values())
    places = ", ".join(str(place) for place in range(1, len(table.key) + 1))
    rows = store.query(f"SELECT {key}, {sums} FROM {table.source} GROUP BY {places}")
    return {(*row[: len(table.key)], *map(int, row[len(table.key) :])) for row in rows}


@pytest.mark.parametrize(
    "statements",
    [
        (),
        ("UPDATE sessions SET agent = 'codex' WHERE agent = 'claude'",),
        (
            "UPDATE runs SET verdict = 'api', cost_nano = NULL WHERE verdict = 'success'",
            "UPDATE spend SET requests = requests + 1, hour = hour + 24",
            "UPDATE tool_use SET calls = calls + 5 WHERE name = 'Bash'",
        ),
        (
            "DELETE FROM sessions WHERE project = '/srv/code/project-7'",
            "DELETE FROM runs WHERE agent = 'gemini'",
            "DELETE FROM spend WHERE agent = 'gemini'",
            "DELETE FROM tool_use WHERE name = 'Edit'",
        ),
    ],
    ids=["inserted", "renamed", "updated", "deleted"],
)
def test_sums_follow_every_change(ledger_url: str, statements: tuple[str, ...]) -> None:
    with closing(open_ledger(ledger_url)) as store:
        for batch in Rows(300).batches():
            with store.transaction():
                for name, rows in batch.items():
                    insert(store, name, rows)
        for sql in statements:
            assert store.execute(sql) > 0
        for table in TABLES:
            assert kept(store, table) == added_up(store, table), table.name
