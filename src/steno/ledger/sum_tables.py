"""Sums that the database keeps itself: of usage by hour, day and session, of runs, tools, sessions.

`spend` has a row per session, model and hour, and `runs` one per run: a report over all of them
would read a million rows. Triggers add every change of these tables to smaller ones, whatever
statement makes it. SQLite has triggers per row, PostgreSQL per statement.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

SPEND_SUMS = (
    *("requests", "input", "cache_write", "cache_read", "output", "reasoning", "cache_write_1h"),
    *("reported_nano", "computed_nano", "saved_nano", "unpriced", "unpriced_tokens"),
)
SPEND_SUMS_WITH_PARTIAL = (*SPEND_SUMS, "partial")
_COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning")
_RUN_FIGURES = (*_COUNTERS, "cost_nano", "turns", "duration_ms")


class SumTable(Struct, frozen=True):
    """A table of sums over another one. Values are SQL, with {0} for the row (`new.`)."""

    name: str
    source: str
    key: dict[str, str]  # column and value
    sums: dict[str, str]
    follows_deletes: bool = False  # a row without any row of the source is deleted
    ignores_updates: bool = False  # for sums that an update can't change, such as a count

    @property
    def columns(self) -> str:
        return ", ".join((*self.key, *self.sums))

    @property
    def on_conflict(self) -> str:
        additions = ", ".join(
            f"{name} = {self.name}.{name} + excluded.{name}" for name in self.sums
        )
        return f"ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {additions}"

    def values(self, row: str, sign: str = "") -> str:
        """The key and the sums of one row of the source."""
        key = (value.format(row) for value in self.key.values())
        return ", ".join((*key, *(f"{sign}{value.format(row)}" for value in self.sums.values())))

    def add_all(self, rows: str, sign: str = "") -> str:
        """The statement that adds all rows of a table like the source."""
        key = (value.format("") for value in self.key.values())
        sums = (f"{sign}coalesce(sum({value.format('')}), 0)" for value in self.sums.values())
        places = ", ".join(str(place) for place in range(1, len(self.key) + 1))
        return (
            f"INSERT INTO {self.name} ({self.columns}) SELECT {', '.join((*key, *sums))} "
            f"FROM {rows} WHERE true GROUP BY {places} {self.on_conflict}"
        )


def _spend_tables(sums: Sequence[str]) -> tuple[SumTable, ...]:
    values = {name: f"{{0}}{name}" for name in sums}
    names = {name: f"{{0}}{name}" for name in ("agent", "project", "model")}
    return (
        SumTable("hourly_spend", "spend", {"hour": "{0}hour", "model": "{0}model"}, values),
        SumTable("daily_spend", "spend", {"day": "{0}hour / 24", **names}, values),
        SumTable(
            "session_spend",
            "spend",
            {"session": "{0}session"},
            {
                **values,
                "cost_nano": "({0}reported_nano + {0}computed_nano)",
                "tokens": "({0}input + {0}cache_write + {0}cache_read + {0}output)",
            },
            follows_deletes=True,
        ),
    )


FIRST_SPEND_TABLES = _spend_tables(SPEND_SUMS)
SPEND_TABLES = _spend_tables(SPEND_SUMS_WITH_PARTIAL)
_OTHER_TABLES = (
    SumTable(
        "daily_runs",
        "runs",
        {
            "day": "coalesce({0}started_at / 86400000, -1)",
            **{
                name: f"coalesce({{0}}{name}, '')"
                for name in ("agent", "project", "model", "verdict")
            },
        },
        {
            "runs": "1",
            "priced": "(CASE WHEN {0}cost_nano IS NULL THEN 0 ELSE 1 END)",
            **{name: f"coalesce({{0}}{name}, 0)" for name in _RUN_FIGURES},
        },
    ),
    SumTable(
        "tool_totals",
        "tool_use",
        {name: f"{{0}}{name}" for name in ("agent", "project", "name")},
        {
            name: f"{{0}}{name}"
            for name in ("calls", "errors", "denied", "open", "timed", "total_ms")
        },
    ),
)
SUM_TABLES = (*SPEND_TABLES, *_OTHER_TABLES)
FIRST_SUM_TABLES = (*FIRST_SPEND_TABLES, *_OTHER_TABLES)
ROW_COUNTS = SumTable(
    "row_counts", "sessions", {"name": "'sessions'"}, {"total": "1"}, ignores_updates=True
)


def migration(tables: Sequence[SumTable]) -> str:
    """The tables with the sums of what is in the ledger, and their triggers.

    All tables of one source are created by the same migration.
    """
    statements = [
        *(
            statement
            for table in tables
            for statement in (_create(table), table.add_all(table.source))
        ),
        *_sqlite_triggers(tables),
        *_postgres_triggers(tables),
    ]
    return "".join(f"{statement};\n" for statement in statements)


def replacement(tables: Sequence[SumTable]) -> str:
    """The same for tables that exist, with other sums."""
    actions = ("insert", "update", "delete")
    statements = [
        *(f"<sqlite> DROP TRIGGER {table.name}_{action}" for table in tables for action in actions),
        *(
            statement
            for source in dict.fromkeys(table.source for table in tables)
            for statement in (
                *(f"<postgresql> DROP TRIGGER {source}_{action} ON {source}" for action in actions),
                f"<postgresql> DROP FUNCTION add_{source}()",
            )
        ),
        *(f"DROP TABLE {table.name}" for table in tables),
    ]
    return "".join(f"{statement};\n" for statement in statements) + migration(tables)


def _create(table: SumTable) -> str:
    texts = {"agent", "project", "model", "verdict", "session", "name"}
    columns = [
        f"{name} {'TEXT' if name in texts else '<int>'} NOT NULL"
        for name in (*table.key, *table.sums)
    ]
    key = ", ".join(table.key)
    return f"CREATE TABLE {table.name} ({', '.join(columns)}, PRIMARY KEY ({key})) <by key>"


def _sqlite_triggers(tables: Sequence[SumTable]) -> Iterator[str]:
    for table in tables:
        insert = f"INSERT INTO {table.name} ({table.columns}) VALUES "
        add = f"{insert}({table.values('new.')}) {table.on_conflict}<;>"
        subtract = f"{insert}({table.values('old.', '-')}) {table.on_conflict}<;>"
        clean = _delete_unused(table, "= old.session") if table.follows_deletes else ""
        for action, body in (
            ("INSERT", add),
            ("UPDATE", subtract + add),
            ("DELETE", subtract + clean),
        ):
            if action == "UPDATE" and table.ignores_updates:
                continue
            name = f"{table.name}_{action.lower()}"
            event = f"AFTER {action} ON {table.source}"
            yield f"<sqlite> CREATE TRIGGER {name} {event} BEGIN {body} END"


def _postgres_triggers(tables: Sequence[SumTable]) -> Iterator[str]:
    for source in dict.fromkeys(table.source for table in tables):
        group = [table for table in tables if table.source == source]
        subtract = "".join(f"{table.add_all('old_rows', '-')}<;> " for table in group)
        add = "".join(f"{table.add_all('new_rows')}<;> " for table in group)
        clean = "".join(
            _delete_unused(table, "IN (SELECT session FROM old_rows)")
            for table in group
            if table.follows_deletes
        )
        clean = f"IF TG_OP = 'DELETE' THEN {clean} END IF<;>" if clean else ""
        yield (
            f"<postgresql> CREATE FUNCTION add_{source}() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN IF TG_OP <> 'INSERT' THEN {subtract} END IF<;> "
            f"IF TG_OP <> 'DELETE' THEN {add} END IF<;> {clean} RETURN NULL<;> END $$"
        )
        for action, rows in (
            ("INSERT", "NEW TABLE AS new_rows"),
            ("UPDATE", "OLD TABLE AS old_rows NEW TABLE AS new_rows"),
            ("DELETE", "OLD TABLE AS old_rows"),
        ):
            if action == "UPDATE" and all(table.ignores_updates for table in group):
                continue
            yield (
                f"<postgresql> CREATE TRIGGER {source}_{action.lower()} AFTER {action} ON {source} "
                f"REFERENCING {rows} FOR EACH STATEMENT EXECUTE FUNCTION add_{source}()"
            )


def _delete_unused(table: SumTable, sessions: str) -> str:
    return (
        f"DELETE FROM {table.name} WHERE session {sessions} AND NOT EXISTS (SELECT 1 "
        f"FROM {table.source} WHERE {table.source}.session = {table.name}.session)<;>"
    )
