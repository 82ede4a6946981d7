"""Old details out of the ledger. Sums stay unless they are asked for too, and `sources` always: no import brings rows back.

What goes is whole sessions that were last at work before a time, with their runs, requests, calls and texts. Each leaves a
mark in `pruned`, so that neither a copy of its files nor a rebuild brings back what is gone.
"""

from msgspec import Struct

from ..rows import pruned_id
from ..store import Store
from ..totals import TOOL_COUNT_FIELDS
from .filters import WhereClause
from .search import drop_index
from .time_range import HOUR_MS
from .usage import CALL_SUMS_SQL

DETAIL_TABLES = ("runs", "requests", "calls", "changes", "denials", "texts")
ROW_OVERHEAD_BYTES = 200  # bytes that a row takes besides its text, roughly


class PrunedTable(Struct):
    """What goes, or would go, from one table."""

    table: str
    rows: int
    bytes: int


class PruneSelection:
    """The sessions that were last at work before a time, as conditions in SQL."""

    def __init__(self, before: int, projects: tuple[str, ...] | None) -> None:
        self.before = before // HOUR_MS * HOUR_MS  # whole hours: sums are kept by the hour
        self.projects = projects
        own = WhereClause().add("last_at < ?", self.before).add_in("project", projects)
        own.add(
            "NOT EXISTS (SELECT 1 FROM runs WHERE runs.session = sessions.id AND runs.started_at >= ?)",
            self.before,
        )
        self.where_sessions = own
        self.session_ids_sql = (
            f"SELECT id FROM sessions{own.sql}"  # names of our own, here and below
        )

    def where_details(self, table: str) -> WhereClause:
        """The rows of a table that belong to them."""
        if table == "sessions":
            return self.where_sessions
        if table == "runs":  # also those whose session is not known
            lone = WhereClause().add("started_at < ?", self.before).add_in("project", self.projects)
            known = "session NOT IN (SELECT id FROM sessions)"
            sql = f"session IN ({self.session_ids_sql}) OR ({' AND '.join(lone.conditions)} AND (session IS NULL OR {known}))"
            return WhereClause().add(f"({sql})", *self.where_sessions.values, *lone.values)
        if table == "notes":
            runs = self.where_details("runs")
            sql = f"session IN ({self.session_ids_sql}) OR run IN (SELECT id FROM runs{runs.sql})"
            return WhereClause().add(f"({sql})", *self.where_sessions.values, *runs.values)
        return WhereClause().add(
            f"session IN ({self.session_ids_sql})", *self.where_sessions.values
        )

    def where_sums(self, table: str) -> WhereClause:
        """The rows of sums that are older."""
        left = (
            WhereClause().add("hour < ?", self.before // HOUR_MS).add_in("project", self.projects)
        )
        if table == "tool_use":
            return left
        lone = " AND ".join([*left.conditions, "session NOT IN (SELECT id FROM sessions)"])
        sql = f"session IN ({self.session_ids_sql}) OR ({lone})"
        return WhereClause().add(f"({sql})", *self.where_sessions.values, *left.values)


def preview_prune(store: Store, old: PruneSelection, include_sums: bool) -> list[PrunedTable]:
    """What pruning takes away, table by table."""
    sizes = {
        "runs": "coalesce(length(report), 0) + coalesce(length(prompt), 0)",
        "texts": "length(text)",
    }
    found = []
    for table in (
        *DETAIL_TABLES,
        "notes",
        "sessions",
        *(("spend", "tool_use") if include_sums else ()),
    ):
        where = (
            old.where_sums(table) if table in ("spend", "tool_use") else old.where_details(table)
        )
        size = f"coalesce(sum({ROW_OVERHEAD_BYTES} + {sizes.get(table, '0')}), 0)"
        rows, bytes_ = store.query(
            f"SELECT count(*), {size} FROM {table}{where.sql}", where.values
        )[0]
        found.append(PrunedTable(table, int(rows), int(bytes_)))
    return found


def runs_and_folders(store: Store, old: PruneSelection) -> tuple[set[str], list[str]]:
    """The runs that go, and every folder of the ledger: in whose repositories their states may be kept."""
    where = old.where_details("runs")
    runs = {str(row[0]) for row in store.query(f"SELECT id FROM runs{where.sql}", where.values)}
    return runs, [
        row[0] for row in store.query("SELECT DISTINCT project FROM runs WHERE project IS NOT NULL")
    ]


def prune(store: Store, old: PruneSelection, include_sums: bool) -> None:
    """Take it away, all or nothing. The index of texts is made anew by the next search."""
    with store.transaction():
        drop_index(store)
        _mark_pruned(store, old)
        if include_sums:
            _delete_rows(store, "spend", old.where_sums("spend"))
        else:
            _mark_counted_rows(store, old)
        for table in (
            "notes",
            *(name for name in DETAIL_TABLES if name != "runs"),
            "runs",
            "sessions",
        ):
            _delete_rows(store, table, old.where_details(table))
        done = "verdict IS NOT NULL AND ended_at < ? AND id NOT IN (SELECT task FROM runs WHERE task IS NOT NULL)"
        _delete_rows(
            store, "tasks", WhereClause().add(done, old.before).add_in("project", old.projects)
        )
        if include_sums:
            _delete_rows(store, "tool_use", old.where_sums("tool_use"))
            _recount_tool_use(store, old)


def _mark_pruned(store: Store, old: PruneSelection) -> None:
    """Remember which sessions and runs these were; a run that printed nothing has a session without a row.

    A run that goes on is not among them: it will be booked when it ends.
    """
    runs, sessions = (
        old.where_details("runs").add("verdict IS NOT NULL"),
        old.where_details("sessions"),
    )
    gone = store.query(f"SELECT id, session FROM runs{runs.sql}", runs.values)
    names = {
        row[0] for row in store.query(f"SELECT id FROM sessions{sessions.sql}", sessions.values)
    }
    names |= {session for _, session in gone if session is not None}
    marks = [
        *(pruned_id("runs", run) for run, _ in gone),
        *(pruned_id("sessions", name) for name in names),
    ]
    store.upsert("pruned", ("id",), [(id_,) for id_ in marks], "ON CONFLICT DO NOTHING")


def _mark_counted_rows(store: Store, old: PruneSelection) -> None:
    """Remember what was counted: a fork that copies it later must not count it again."""
    for table in ("requests", "calls"):
        where = old.where_details(table)
        store.execute(
            f"INSERT INTO pruned (id) SELECT id FROM {table}{where.sql} ON CONFLICT DO NOTHING",
            where.values,
        )


def _delete_rows(store: Store, table: str, where: WhereClause) -> None:
    store.execute(f"DELETE FROM {table}{where.sql}", where.values)


def _recount_tool_use(store: Store, old: PruneSelection) -> None:
    """Put back what the sums of that time owe to sessions that stay."""
    where = WhereClause().add("c.at < ?", old.before).add_in("s.project", old.projects)
    columns = ", ".join(("hour", "agent", "project", "name", *TOOL_COUNT_FIELDS, "slowest_ms"))
    figures = f"{CALL_SUMS_SQL}, coalesce(max(c.duration_ms), 0)"
    chosen = (
        f"SELECT c.at / {HOUR_MS}, c.agent, coalesce(s.project, ''), c.name, {figures} FROM calls c"
    )
    joined = f"JOIN sessions s ON s.id = c.session{where.sql} GROUP BY 1, 2, 3, 4"
    store.execute(f"INSERT INTO tool_use ({columns}) {chosen} {joined}", where.values)


def reclaim_space(store: Store) -> None:
    """Give the room back to the disk. A PostgreSQL server does so by itself."""
    if store.kind == "sqlite":
        store.execute("VACUUM")
